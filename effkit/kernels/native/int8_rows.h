// INT8 weights times rows of float activations, written once over a vector type and compiled per instruction set.
//
//   y[m][n] = scale[n] * sum_k x[m][k] * w[n][k]
//
// x is rounded per row to 14-bit integers held in int16 (relative error about 6e-5 of the row's largest value), so
// that products of int8 and int16 can be summed exactly in int32. 127 * 8191 * 2048 < 2^31: the input dimension is
// cut into pieces of DEPTH = 2048 and the pieces are added in float.
//
// Few rows (GEMV) read each weight once, straight from the checkpoint's row-major layout: bounded by bandwidth.
// Many rows (GEMM) first lay TILE output channels side by side, so that each lane of a vector is one channel and no
// sum across lanes is ever needed: bounded by arithmetic.
//
// The including file sets the target instruction set, defines the namespace ISA and the struct Vec, and includes this.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace ISA {

constexpr int LIMIT = 8191;    // 14 bits, symmetric
constexpr int DEPTH = 2048;    // inputs per exact int32 sum
constexpr int ALIGN = 64;      // bytes; rows of q are padded to this many elements with zeros
constexpr int FEW = 8;         // up to so many rows take the GEMV path
constexpr int TILE = 2 * Vec::LANES;  // output channels per GEMM tile

struct Buffer {
  void* data;
  explicit Buffer(size_t bytes) : data(std::aligned_alloc(ALIGN, (bytes + ALIGN - 1) / ALIGN * ALIGN + ALIGN)) {}
  ~Buffer() { std::free(data); }
  Buffer(const Buffer&) = delete;
};

// Round one row; a row that holds NaN or infinity gets the scale NaN, so that its outputs are NaN as in a dense layer.
static float quantize_row(const float* x, int16_t* q, int K, int padded) {
  float largest = Vec::largest(x, K);
  if (!std::isfinite(largest)) {
    std::memset(q, 0, sizeof(int16_t) * padded);
    return NAN;
  }
  float scale = largest / LIMIT;
  if (scale < 1.17549435e-38f) scale = 1.0f;
  Vec::round(x, q, 1.0f / scale, K);
  std::memset(q + K, 0, sizeof(int16_t) * (padded - K));
  return scale;
}

template <int M>
static void few_rows(const int8_t* w, const int16_t* q, int ldq, const float* row_scale, const float* scale, float* y,
                     int N, int K, int begin, int end) {
  for (int n = begin; n < end; n++) {
    float sum[M] = {};
    for (int k = 0; k < K; k += DEPTH)
      Vec::template dots<M>(w + (size_t)n * K + k, q + k, ldq, std::min(DEPTH, K - k), sum);
    for (int m = 0; m < M; m++) y[(size_t)m * N + n] = sum[m] * row_scale[m] * scale[n];
  }
}

// [count][depth] int8 -> [depth / 2][TILE][2] int16; missing channels and a missing last input are zero.
static void pack(const int8_t* w, size_t stride, int count, int depth, int16_t* out) {
  constexpr int BLOCK = 32;  // pairs of inputs
  int pairs = (depth + 1) / 2;
  alignas(ALIGN) uint16_t rows[TILE][BLOCK];
  for (int first = 0; first < pairs; first += BLOCK) {
    int bytes = std::min(2 * BLOCK, depth - 2 * first);
    for (int r = 0; r < TILE; r++) {
      if (bytes < 2 * BLOCK || r >= count) std::memset(rows[r], 0, sizeof rows[r]);
      if (r < count) std::memcpy(rows[r], w + r * stride + 2 * first, bytes);
    }
    for (int j = 0; j < std::min(BLOCK, pairs - first); j++) {
      alignas(ALIGN) uint16_t column[TILE];
      for (int r = 0; r < TILE; r++) column[r] = rows[r][j];
      Vec::widen(reinterpret_cast<int8_t*>(column), out + (size_t)(first + j) * TILE * 2);
    }
  }
}

// Where one tile's sums go: y += sums * row scale * channel scale, or y = ... for the first piece of the inputs.
struct Output {
  float* y;
  int stride;
  const float* row_scale;
  const float* scale;
  int count;
  bool first;
};

static void store(const Output& out, int m, typename Vec::Int low, typename Vec::Int high) {
  float values[TILE];
  Vec::to_float(low, values);
  Vec::to_float(high, values + Vec::LANES);
  float* y = out.y + (size_t)m * out.stride;
  for (int n = 0; n < out.count; n++) {
    float value = values[n] * out.row_scale[m] * out.scale[n];
    y[n] = out.first ? value : y[n] + value;
  }
}

template <int M>
static void tile_rows(const int16_t* packed, const int16_t* q, int ldq, int pairs, const Output& out, int m0) {
  Vec::template tile<M>(packed, q + (size_t)m0 * ldq, ldq, pairs,
                        [&](int m, typename Vec::Int low, typename Vec::Int high) { store(out, m0 + m, low, high); });
}

static void tile_column(const int8_t* w, const float* scale, const int16_t* q, int ldq, const float* row_scale,
                        float* y, int M, int N, int K, int n0, int16_t* packed) {
  int count = std::min(TILE, N - n0);
  for (int k = 0; k < K; k += DEPTH) {
    int depth = std::min(DEPTH, K - k), pairs = (depth + 1) / 2, m = 0;
    pack(w + (size_t)n0 * K + k, K, count, depth, packed);
    Output out{y + n0, N, row_scale, scale + n0, count, k == 0};
    for (; m + Vec::ROWS <= M; m += Vec::ROWS) tile_rows<Vec::ROWS>(packed, q + k, ldq, pairs, out, m);
    for (; m + 2 <= M; m += 2) tile_rows<2>(packed, q + k, ldq, pairs, out, m);
    for (; m < M; m++) tile_rows<1>(packed, q + k, ldq, pairs, out, m);
  }
}

using FewRows = void (*)(const int8_t*, const int16_t*, int, const float*, const float*, float*, int, int, int, int);
static const FewRows FEW_ROWS[FEW + 1] = {nullptr,     few_rows<1>, few_rows<2>, few_rows<3>, few_rows<4>,
                                          few_rows<5>, few_rows<6>, few_rows<7>, few_rows<8>};

int int8_rows(const float* x, const int8_t* w, const float* scale, float* y, int M, int N, int K, int threads) {
  int ldq = (K + ALIGN - 1) / ALIGN * ALIGN;
  Buffer quantized(sizeof(int16_t) * (size_t)M * ldq), scales(sizeof(float) * (size_t)M);
  auto* q = static_cast<int16_t*>(quantized.data);
  auto* row_scale = static_cast<float*>(scales.data);
  if (!q || !row_scale) return 1;
  if (M <= FEW) {
    for (int m = 0; m < M; m++) row_scale[m] = quantize_row(x + (size_t)m * K, q + (size_t)m * ldq, K, ldq);
    int chunk = (N + threads - 1) / threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++)
      FEW_ROWS[M](w, q, ldq, row_scale, scale, y, N, K, std::min(N, t * chunk), std::min(N, (t + 1) * chunk));
    return 0;
  }
  int failed = 0;
#pragma omp parallel num_threads(threads)
  {
#pragma omp for schedule(static)
    for (int m = 0; m < M; m++) row_scale[m] = quantize_row(x + (size_t)m * K, q + (size_t)m * ldq, K, ldq);
    Buffer packed(sizeof(int16_t) * (size_t)DEPTH * TILE);
    if (!packed.data) {
#pragma omp atomic write
      failed = 1;
    }
#pragma omp for schedule(dynamic, 1)
    for (int n0 = 0; n0 < N; n0 += TILE)
      if (packed.data)
        tile_column(w, scale, q, ldq, row_scale, y, M, N, K, n0, static_cast<int16_t*>(packed.data));
  }
  return failed;
}

}  // namespace ISA
