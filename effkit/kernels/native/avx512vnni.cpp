// AVX-512 with VNNI: vpdpwssd multiplies 32 pairs of int16 and adds them to 16 int32 sums in one instruction.
#if defined(__x86_64__) && defined(__GNUC__)
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")
#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#define ISA avx512vnni
namespace ISA {

struct Vec {
  using Int = __m512i;
  static constexpr int LANES = 16;
  static constexpr int ROWS = 12;  // 24 accumulators, 2 weights, 1 input: 27 of 32 registers

  static float largest(const float* x, int K) {
    __m512 top = _mm512_setzero_ps();
    __mmask16 bad = 0;
    for (int k = 0; k < K; k += 16) {
      __mmask16 mask = K - k >= 16 ? 0xffff : (1u << (K - k)) - 1;
      __m512 value = _mm512_maskz_loadu_ps(mask, x + k);
      bad |= _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
      top = _mm512_max_ps(top, _mm512_abs_ps(value));
    }
    return bad ? NAN : _mm512_reduce_max_ps(top);
  }

  static void round(const float* x, int16_t* q, float inverse, int K) {
    __m512 factor = _mm512_set1_ps(inverse);
    for (int k = 0; k < K; k += 16) {
      __mmask16 mask = K - k >= 16 ? 0xffff : (1u << (K - k)) - 1;
      __m512i rounded = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + k), factor));
      _mm256_mask_storeu_epi16(q + k, mask, _mm512_cvtsepi32_epi16(rounded));
    }
  }

  template <int M>
  static void dots(const int8_t* w, const int16_t* q, int ldq, int K, float* sum) {
    __m512i total[M];
    for (int m = 0; m < M; m++) total[m] = _mm512_setzero_si512();
    int k = 0;
    for (; k + 32 <= K; k += 32) {
      __m512i weight = _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + k)));
      for (int m = 0; m < M; m++)
        total[m] = _mm512_dpwssd_epi32(total[m], weight, _mm512_loadu_si512(q + (size_t)m * ldq + k));
    }
    if (k < K) {  // q is padded with zeros, w is not
      __m512i weight = _mm512_cvtepi8_epi16(_mm256_maskz_loadu_epi8((1u << (K - k)) - 1, w + k));
      for (int m = 0; m < M; m++)
        total[m] = _mm512_dpwssd_epi32(total[m], weight, _mm512_loadu_si512(q + (size_t)m * ldq + k));
    }
    for (int m = 0; m < M; m++) sum[m] += static_cast<float>(_mm512_reduce_add_epi32(total[m]));
  }

  static void widen(const int8_t* in, int16_t* out) {  // 64 int8 -> 64 int16
    for (int half = 0; half < 2; half++)
      _mm512_store_si512(out + 32 * half, _mm512_cvtepi8_epi16(_mm256_load_si256(
                                              reinterpret_cast<const __m256i*>(in + 32 * half))));
  }

  static void to_float(Int sums, float* out) { _mm512_storeu_ps(out, _mm512_cvtepi32_ps(sums)); }

  // Inline assembly, because GCC 12 copies and spills the accumulators of the intrinsic.
  static inline __attribute__((always_inline)) void step(Int& low, Int& high, Int b0, Int b1, const int16_t* x) {
    int32_t pair;
    std::memcpy(&pair, x, sizeof pair);
    Int both = _mm512_set1_epi32(pair);
    asm("vpdpwssd %2, %1, %0" : "+v"(low) : "v"(b0), "v"(both));
    asm("vpdpwssd %2, %1, %0" : "+v"(high) : "v"(b1), "v"(both));
  }

  template <int M, class Sink>
  static void tile(const int16_t* packed, const int16_t* q, int ldq, int pairs, Sink sink) {
    Int l0 = _mm512_setzero_si512(), h0 = l0, l1 = l0, h1 = l0, l2 = l0, h2 = l0, l3 = l0, h3 = l0, l4 = l0, h4 = l0,
        l5 = l0, h5 = l0, l6 = l0, h6 = l0, l7 = l0, h7 = l0, l8 = l0, h8 = l0, l9 = l0, h9 = l0, l10 = l0, h10 = l0,
        l11 = l0, h11 = l0;
    const size_t ld = ldq;
    for (int k = 0; k < pairs; k++, packed += 4 * LANES, q += 2) {
      Int b0 = _mm512_load_si512(packed), b1 = _mm512_load_si512(packed + 2 * LANES);
      step(l0, h0, b0, b1, q);
      if constexpr (M > 1) step(l1, h1, b0, b1, q + ld);
      if constexpr (M > 2) {
        step(l2, h2, b0, b1, q + 2 * ld);
        step(l3, h3, b0, b1, q + 3 * ld);
        step(l4, h4, b0, b1, q + 4 * ld);
        step(l5, h5, b0, b1, q + 5 * ld);
        step(l6, h6, b0, b1, q + 6 * ld);
        step(l7, h7, b0, b1, q + 7 * ld);
        step(l8, h8, b0, b1, q + 8 * ld);
        step(l9, h9, b0, b1, q + 9 * ld);
        step(l10, h10, b0, b1, q + 10 * ld);
        step(l11, h11, b0, b1, q + 11 * ld);
      }
    }
    sink(0, l0, h0);
    if constexpr (M > 1) sink(1, l1, h1);
    if constexpr (M > 2) {
      sink(2, l2, h2), sink(3, l3, h3), sink(4, l4, h4), sink(5, l5, h5), sink(6, l6, h6), sink(7, l7, h7);
      sink(8, l8, h8), sink(9, l9, h9), sink(10, l10, h10), sink(11, l11, h11);
    }
  }
};

}  // namespace ISA
#include "int8_rows.h"
#endif
