// The C interface of the library and the choice of instruction set at run time.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
namespace avx2 {
int int8_rows(const float*, const int8_t*, const float*, float*, int, int, int, int);
}
namespace avx512vnni {
int int8_rows(const float*, const int8_t*, const float*, float*, int, int, int, int);
}

static bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
static bool has_avx512vnni() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
}
#else
static bool has_avx2() { return false; }
static bool has_avx512vnni() { return false; }
#endif

#define EXPORT __attribute__((visibility("default")))

extern "C" {

// 0 none, 1 AVX2, 2 AVX-512 VNNI: the best that this processor has.
EXPORT int effkit_instruction_set() { return has_avx512vnni() ? 2 : has_avx2() ? 1 : 0; }

// y[M][N] = x[M][K] (w[N][K] * scale[N])^T with the given instruction set, which must be one the processor has.
// Returns 0, or 1 when memory for the rounded rows could not be had, or 2 for an unknown instruction set.
EXPORT int effkit_int8_rows(int instruction_set, const float* x, const int8_t* w, const float* scale, float* y, int M, int N,
                     int K, int threads) {
#if defined(__x86_64__) && defined(__GNUC__)
  if (instruction_set == 2 && has_avx512vnni()) return avx512vnni::int8_rows(x, w, scale, y, M, N, K, threads);
  if (instruction_set == 1 && has_avx2()) return avx2::int8_rows(x, w, scale, y, M, N, K, threads);
#endif
  return 2;
}
}
