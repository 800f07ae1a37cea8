// AVX2: vpmaddwd multiplies 16 pairs of int16 into 8 int32, a second instruction adds them.
#if defined(__x86_64__) && defined(__GNUC__)
#pragma GCC target("avx2,fma")
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#define ISA avx2
namespace ISA {

struct Vec {
  using Int = __m256i;
  static constexpr int LANES = 8;
  static constexpr int ROWS = 6;  // 12 accumulators, 2 weights, 1 input, 1 product: all 16 registers

  static float largest(const float* x, int K) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 top = _mm256_setzero_ps(), bad = top;
    int k = 0;
    for (; k + 8 <= K; k += 8) {
      __m256 value = _mm256_loadu_ps(x + k);
      bad = _mm256_or_ps(bad, _mm256_cmp_ps(value, value, _CMP_UNORD_Q));
      top = _mm256_max_ps(top, _mm256_andnot_ps(sign, value));
    }
    if (_mm256_movemask_ps(bad)) return NAN;
    alignas(32) float lanes[8];
    _mm256_store_ps(lanes, top);
    float result = *std::max_element(lanes, lanes + 8);
    for (; k < K; k++) {
      if (std::isnan(x[k])) return NAN;
      result = std::max(result, std::fabs(x[k]));
    }
    return result;
  }

  static void round(const float* x, int16_t* q, float inverse, int K) {
    const __m256 factor = _mm256_set1_ps(inverse);
    int k = 0;
    for (; k + 8 <= K; k += 8) {
      __m256i rounded = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + k), factor));
      __m128i packed = _mm_packs_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(q + k), packed);
    }
    for (; k < K; k++) q[k] = static_cast<int16_t>(std::lrintf(x[k] * inverse));
  }

  static inline Int madd(Int total, Int a, Int b) { return _mm256_add_epi32(total, _mm256_madd_epi16(a, b)); }

  template <int M>
  static void dots(const int8_t* w, const int16_t* q, int ldq, int K, float* sum) {
    Int total[M];
    for (int m = 0; m < M; m++) total[m] = _mm256_setzero_si256();
    int k = 0;
    for (; k + 16 <= K; k += 16) {
      Int weight = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w + k)));
      for (int m = 0; m < M; m++)
        total[m] = madd(total[m], weight, _mm256_loadu_si256(reinterpret_cast<const Int*>(q + (size_t)m * ldq + k)));
    }
    if (k < K) {  // q is padded with zeros, w is not
      alignas(16) int8_t rest[16] = {};
      std::memcpy(rest, w + k, K - k);
      Int weight = _mm256_cvtepi8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(rest)));
      for (int m = 0; m < M; m++)
        total[m] = madd(total[m], weight, _mm256_loadu_si256(reinterpret_cast<const Int*>(q + (size_t)m * ldq + k)));
    }
    for (int m = 0; m < M; m++) {
      __m128i half = _mm_add_epi32(_mm256_castsi256_si128(total[m]), _mm256_extracti128_si256(total[m], 1));
      half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
      half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1));
      sum[m] += static_cast<float>(_mm_cvtsi128_si32(half));
    }
  }

  static void widen(const int8_t* in, int16_t* out) {  // 32 int8 -> 32 int16
    for (int half = 0; half < 2; half++) {
      __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(in + 16 * half));
      _mm256_store_si256(reinterpret_cast<Int*>(out + 16 * half), _mm256_cvtepi8_epi16(bytes));
    }
  }

  static void to_float(Int sums, float* out) { _mm256_storeu_ps(out, _mm256_cvtepi32_ps(sums)); }

  static inline __attribute__((always_inline)) void step(Int& low, Int& high, Int b0, Int b1, const int16_t* x) {
    int32_t pair;
    std::memcpy(&pair, x, sizeof pair);
    Int both = _mm256_set1_epi32(pair);
    low = madd(low, b0, both);
    high = madd(high, b1, both);
  }

  // Named accumulators, because GCC 12 spills an array of them.
  template <int M, class Sink>
  static void tile(const int16_t* packed, const int16_t* q, int ldq, int pairs, Sink sink) {
    Int l0 = _mm256_setzero_si256(), h0 = l0, l1 = l0, h1 = l0, l2 = l0, h2 = l0, l3 = l0, h3 = l0, l4 = l0, h4 = l0,
        l5 = l0, h5 = l0;
    const size_t ld = ldq;
    for (int k = 0; k < pairs; k++, packed += 4 * LANES, q += 2) {
      Int b0 = _mm256_load_si256(reinterpret_cast<const Int*>(packed));
      Int b1 = _mm256_load_si256(reinterpret_cast<const Int*>(packed + 2 * LANES));
      step(l0, h0, b0, b1, q);
      if constexpr (M > 1) step(l1, h1, b0, b1, q + ld);
      if constexpr (M > 2) {
        step(l2, h2, b0, b1, q + 2 * ld);
        step(l3, h3, b0, b1, q + 3 * ld);
        step(l4, h4, b0, b1, q + 4 * ld);
        step(l5, h5, b0, b1, q + 5 * ld);
      }
    }
    sink(0, l0, h0);
    if constexpr (M > 1) sink(1, l1, h1);
    if constexpr (M > 2) sink(2, l2, h2), sink(3, l3, h3), sink(4, l4, h4), sink(5, l5, h5);
  }
};

}  // namespace ISA
#include "int8_rows.h"
#endif
