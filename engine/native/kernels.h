// The arithmetic: one table of function pointers, filled for the machine by dispatch.cpp.
//
// Bit-identity rule: a result element depends only on its weight row and its activation row. How many rows or tokens
// are given in one call, and which thread computes them, must not change a bit of it: that is what keeps greedy
// output independent of batching and caching. Different kernel sets (scalar, avx2, ...) may differ in rounding.
#pragma once

#include <cstddef>
#include <cstdint>

namespace smoe {

// How a weight matrix's rows are stored. qN: codes in groups of 64 consecutive weights of the row-major flattened
// matrix, one f16 scale a group (docs of the vault format): q4 (c - 7.5) / 7.5 * s, two codes a byte, low nibble
// first; q2 (c - 1.5) / 1.5 * s, four codes a byte, lowest bits first; q8 (c - 128) / 127 * s, one byte.
enum class Storage : std::uint8_t { f32, f16, bf16, q8, q4, q2 };

struct Matrix {
  Storage storage;
  int rows, cols;               // y[rows] = W[rows][cols] x[cols]
  const void* data;             // codes or elements, row-major
  const std::uint16_t* scales;  // f16, (rows * cols + 63) / 64 of them; null unless storage is qN
};

// How activations enter a product.
//   f32     : as they are, accumulated in float32.
//   i16, i8 : quantized once a row to integers of so many bits per group of 64 (in the order that a weight storage
//             wants), integer dots. They meet quantized weights only: products with plain elements are f32's.
enum class Numerics : std::uint8_t { f32, i16, i8 };

// Activations prepared for a product with matrices of one storage: float rows, and for i16 and i8 their codes.
// The buffers belong to the caller, aligned to 4 bytes (64 is best); Kernels::prepared_bytes tells how much a row needs.
struct Activations {
  int tokens, cols;
  const float* x;        // [tokens][stride]
  std::size_t stride;    // floats from one token to the next
  const void* prepared;  // from Kernels::prepare of the same kernel set; null: f32
  Numerics numerics = Numerics::f32;  // of what was prepared
};

// The keys and values that one key/value head holds for `count` consecutive positions, in a ring of `capacity` slots.
struct KeyValues {
  const void* keys;                       // [capacity][key_stride], f32 or f16 by `half`
  const void* values;                     // [capacity][value_stride]
  bool half;
  std::size_t key_stride, value_stride;   // elements from one slot to the next
  int key_dim, value_dim;
  int first, count, capacity;             // position i of 0..count is in slot (first + i) % capacity
  std::int64_t first_position;            // the absolute position in slot `first`
  int window;                             // positions that a query sees, up to its own
};

// The query heads that share one key/value head (grouped-query attention), of the newest `tokens` positions.
struct Queries {
  const float* q;  // [tokens][q_stride], of which [heads][key_dim]
  float* out;      // [tokens][out_stride], of which [heads][value_dim]
  std::size_t q_stride, out_stride;
  int tokens, heads;
  const float* sinks = nullptr;  // [heads]: a score of each head's that takes part in the softmax and has no value
};

// (up + 1) * gate * sigmoid(alpha * gate), gate up to the limit and up within it on both sides (gpt-oss).
struct ClampedSwiglu {
  float alpha, limit;
};

constexpr int attend_block = 64;  // positions at a time
constexpr std::size_t attend_padded(int dim) { return (std::size_t(dim) + 15) / 16 * 16; }

// The parts of Kernels::attend's scratch memory for so many queries (tokens * heads); the first four begin at a
// cache line.
struct AttendScratch {
  float *keys, *values, *scores, *out, *q, *running, *decay;

  AttendScratch(float* memory, int queries, int key_dim, int value_dim)
      : keys(memory + (64 - reinterpret_cast<std::uintptr_t>(memory) % 64) % 64 / sizeof(float)),
        values(keys + std::size_t(attend_block) * std::size_t(key_dim)),
        scores(values + attend_block * attend_padded(value_dim)),
        out(scores + std::size_t(queries) * attend_block),
        q(out + std::size_t(queries) * attend_padded(value_dim)),
        running(q + std::size_t(queries) * std::size_t(key_dim)),
        decay(running + 2 * std::size_t(queries)) {}

  // In floats.
  static constexpr std::size_t size(int queries, int key_dim, int value_dim) {
    return 16 + attend_block * (std::size_t(key_dim) + attend_padded(value_dim)) +
           std::size_t(queries) * (std::size_t(key_dim) + attend_block + attend_padded(value_dim) + 3);
  }
};

struct Kernels {
  const char* name;  // scalar, avx2, avx512, amx, neon

  // Bytes that prepare() writes a token for a matrix of this storage and width; 0 where these numerics have no use for
  // it (matmul is f32's then, whether or not something was prepared).
  std::size_t (*prepared_bytes)(Storage weights, Numerics numerics, int cols);
  void (*prepare)(Storage weights, Numerics numerics, const float* x, std::size_t stride, int tokens, int cols,
                  void* out);

  // y[t * ldy + r] = W[r] . x[t] for rows [row0, row1) and all tokens of x. Integer dots where x.prepared is given.
  void (*matmul)(const Matrix& w, int row0, int row1, const Activations& x, float* y, std::size_t ldy);

  void (*rms_norm)(const float* x, const float* weight, float epsilon, int n, float* y);
  void (*silu_multiply)(const float* gate, const float* up, int n, float* y);  // y = silu(gate) * up
  void (*clamped_swiglu)(const float* gate, const float* up, ClampedSwiglu kind, int n, float* y);
  void (*add_scaled)(const float* x, float scale, int n, float* y);            // y += scale * x
  float (*dot)(const float* a, const float* b, int n);
  // c[m] = sum over k of a[m][k] * b[k], added up in the order of k: [rows][ldc], [rows][lda], [depth][ldb].
  // columns: of b and c, a multiple of 16.
  void (*float_product)(int rows, int columns, int depth, const float* a, std::size_t lda, const float* b, std::size_t ldb,
                        float* c, std::size_t ldc);
  void (*softmax)(float* x, int n);  // in place

  // One row of any storage as float32.
  void (*dequantize_row)(const Matrix& w, int row, float* out);

  // Quantizes n values (groups of 64 from the first; the last may be short) to q8, q4 or q2 codes by each group's
  // largest magnitude, with the same bits in every set. codes: the storage's bytes for n weights; scales: (n + 63) / 64 f16.
  void (*quantize_row)(Storage storage, const float* x, int n, std::uint8_t* codes, std::uint16_t* scales);

  void (*to_half)(const float* x, int n, std::uint16_t* out);

  // Scores q.k * scale, softmax, weighted sum of values. scratch: AttendScratch::size floats. A query's bits are those of
  // a call for it alone, wherever the ring happens to start.
  void (*attend)(const Queries& queries, const KeyValues& kv, float scale, float* scratch);
};

// The best set that this machine runs, or the named one (for tests and --kernels); null if it cannot run here.
const Kernels* select_kernels(const char* name = nullptr);

// The names of the sets that this machine can run, worst first ("scalar", ...). Ends with a null.
const char* const* available_kernels();

float half_to_float(std::uint16_t h);
std::uint16_t float_to_half(float f);
float bfloat_to_float(std::uint16_t b);

}  // namespace smoe
