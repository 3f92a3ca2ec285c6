// Products of many tokens on the tiles of AMX; the amx set is the avx512 set with this matmul. Compiled for those
// instructions alone: everything here but amx_matmul has internal linkage (see kernels_avx512.cpp).
//
// A tile product multiplies the codes of up to 16 tokens (signed, one token a row) with a panel's step order of 16 weight
// rows (raw, unsigned), over one plane of a group: what it adds up is the integer that kernels_prepared.h tells of, so
// results have the bits of every other set.
#if defined(SMOE_AMX)
#include <immintrin.h>

#include <initializer_list>

#include "kernels_prepared.h"
#include "kernels_sets.h"

namespace smoe {
namespace {

#include "kernels_avx512_codes.inl"

#include "kernels_avx512_transpose.inl"

#include "kernels_avx512_panel.inl"

constexpr int most_tile_tokens = 16;
constexpr int fewest_tile_tokens = 4;  // of fewer, vectors are as fast

// The operand of LDTILECFG (Intel's manual, volume 1, 18.3).
struct TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  void set(int tile, int row_count, int bytes) {
    rows[tile] = std::uint8_t(row_count);
    row_bytes[tile] = std::uint16_t(bytes);
  }
};

// Tiles: sums of the high and the low halves of activations (8 bits have high alone) with either half of a panel;
// activations; codes of either half of the panel. Macros, for the intrinsics want a number's digits.
#define TILE_HIGH_SUMS_0 0
#define TILE_HIGH_SUMS_1 1
#define TILE_LOW_SUMS_0 2
#define TILE_LOW_SUMS_1 3
#define TILE_HIGH_CODES 4
#define TILE_LOW_CODES 5
#define TILE_ROWS_0 6
#define TILE_ROWS_1 7

// While it lives, this thread's tiles have the shapes for products of `tokens` tokens.
class Tiles {
 public:
  Tiles(Storage storage, int tokens) {
    const int dwords = 16 / planes(storage);  // of a group in one plane
    TileShapes shapes;
    for (const int sums : {TILE_HIGH_SUMS_0, TILE_HIGH_SUMS_1, TILE_LOW_SUMS_0, TILE_LOW_SUMS_1}) shapes.set(sums, tokens, 64);
    for (const int codes : {TILE_HIGH_CODES, TILE_LOW_CODES}) shapes.set(codes, tokens, dwords * 4);
    for (const int rows : {TILE_ROWS_0, TILE_ROWS_1}) shapes.set(rows, dwords, 64);
    _tile_loadconfig(&shapes);
  }
  ~Tiles() { _tile_release(); }  // so that a context switch need not save them
};

// Some tokens' sums over one group, for both halves of a panel.
struct GroupSums {
  alignas(64) std::int32_t high[2][most_tile_tokens][16];
  alignas(64) std::int32_t low[2][most_tile_tokens][16];
};

// Begins the products of a panel's group with the tokens' codes from `codes` on.
template <Storage S, Numerics N>
void multiply_group(const std::uint8_t (*steps)[2][64], const char* codes, std::size_t stride) {
  constexpr int dwords = 16 / planes(S);
  _tile_zero(TILE_HIGH_SUMS_0);
  _tile_zero(TILE_HIGH_SUMS_1);
  if constexpr (N == Numerics::i16) {
    _tile_zero(TILE_LOW_SUMS_0);
    _tile_zero(TILE_LOW_SUMS_1);
  }
  for (int p = 0; p < planes(S); p++) {
    _tile_loadd(TILE_ROWS_0, steps[p * dwords][0], sizeof *steps);
    _tile_loadd(TILE_HIGH_CODES, codes + p * unit_bytes, stride);
    _tile_dpbsud(TILE_HIGH_SUMS_0, TILE_HIGH_CODES, TILE_ROWS_0);
    _tile_loadd(TILE_ROWS_1, steps[p * dwords][1], sizeof *steps);
    _tile_dpbsud(TILE_HIGH_SUMS_1, TILE_HIGH_CODES, TILE_ROWS_1);
    if constexpr (N == Numerics::i16) {
      _tile_loadd(TILE_LOW_CODES, codes + (planes(S) + p) * unit_bytes, stride);
      _tile_dpbsud(TILE_LOW_SUMS_0, TILE_LOW_CODES, TILE_ROWS_0);
      _tile_dpbsud(TILE_LOW_SUMS_1, TILE_LOW_CODES, TILE_ROWS_1);
    }
  }
}

template <Numerics N>
void store_sums(GroupSums& sums) {
  _tile_stored(TILE_HIGH_SUMS_0, sums.high[0], 64);
  _tile_stored(TILE_HIGH_SUMS_1, sums.high[1], 64);
  if constexpr (N == Numerics::i16) {
    _tile_stored(TILE_LOW_SUMS_0, sums.low[0], 64);
    _tile_stored(TILE_LOW_SUMS_1, sums.low[1], 64);
  }
}

using Totals = float[most_tile_tokens][2][16];

// totals += float(D) * (a / d) * s. scales and offsets: the first token's of this group.
template <Numerics N>
void add_scaled_sums(const GroupSums& sums, int tokens, const float (*row_scales)[16], const char* scales,
                     const char* offsets, std::size_t stride, Totals totals) {
  const __m512 low_rows = _mm512_load_ps(row_scales[0]), high_rows = _mm512_load_ps(row_scales[1]);
  for (int t = 0; t < tokens; t++, scales += stride, offsets += stride) {
    const __m512 step = _mm512_set1_ps(*reinterpret_cast<const float*>(scales));
    const __m512i offset = _mm512_set1_epi32(*reinterpret_cast<const std::int32_t*>(offsets));
    for (int half = 0; half < 2; half++) {
      __m512i sum = _mm512_load_si512(sums.high[half][t]);
      if constexpr (N == Numerics::i16)
        sum = _mm512_add_epi32(_mm512_slli_epi32(sum, 8), _mm512_load_si512(sums.low[half][t]));
      const __m512 product = _mm512_cvtepi32_ps(_mm512_add_epi32(sum, offset));
      float* const total = totals[t][half];
      _mm512_store_ps(total, _mm512_fmadd_ps(_mm512_mul_ps(product, step), half ? high_rows : low_rows, _mm512_load_ps(total)));
    }
  }
}

// Adds a panel's products to totals. A group's tile products run while the sums of the one before are scaled.
template <Storage S, Numerics N>
void panel_tile(const Panel& panel, int groups, int tokens, const PanelActivations& x, Totals totals) {
  GroupSums sums[2];
  const auto begin = [&](int g) { multiply_group<S, N>(panel.codes[g], x.codes + group_at<S, N>(g), x.stride); };
  begin(0);
  store_sums<N>(sums[0]);
  for (int g = 0; g < groups; g++) {
    if (g + 1 < groups) begin(g + 1);
    add_scaled_sums<N>(sums[g % 2], tokens, panel.scales[g], x.scales + g * sizeof(float),
                       x.offsets + g * sizeof(std::int32_t), x.stride, totals);
    if (g + 1 < groups) store_sums<N>(sums[(g + 1) % 2]);
  }
}

// The sums that were stored so far, or zeros.
void load_totals(const float* y, std::size_t ldy, int tokens, bool add, const __mmask16* rows, Totals totals) {
  for (int t = 0; t < tokens; t++)
    for (int half = 0; half < 2; half++)
      _mm512_store_ps(totals[t][half],
                      add ? _mm512_maskz_loadu_ps(rows[half], y + t * ldy + half * 16) : _mm512_setzero_ps());
}

void store_totals(const Totals totals, int first, int tokens, const __mmask16* rows, float* y, std::size_t ldy) {
  for (int t = first; t < tokens; t++)
    for (int half = 0; half < 2; half++)
      _mm512_mask_storeu_ps(y + t * ldy + half * 16, rows[half], _mm512_load_ps(totals[t][half]));
}

template <Storage S, Numerics N>
void tile_rows(const Matrix& w, int row0, int row1, const Activations& x, float* y, std::size_t ldy) {
  const PreparedLayout layout = prepared_layout(S, N, w.cols);
  const int tiles = (x.tokens + most_tile_tokens - 1) / most_tile_tokens;
  const int tokens = (x.tokens + tiles - 1) / tiles;  // of a tile
  const Tiles shaped(S, tokens);
  alignas(64) Totals totals;
  for_panels<S>(w, row0, row1, [&](const Panel& panel, int r, int g, int groups, const __mmask16* rows) {
    __asm__ volatile("" ::: "memory");  // GCC 12 does not know that tile loads read memory
    for (int done = 0; done < x.tokens; done += tokens) {
      // The last tile reaches back over tokens that are done already: every tile then has one shape.
      const int begin = done + tokens <= x.tokens ? done : x.tokens - tokens;
      float* const out = y + begin * ldy + r;
      load_totals(out, ldy, tokens, g > 0, rows, totals);
      panel_tile<S, N>(panel, groups, tokens, panel_activations<S, N>(x, layout, begin, g), totals);
      store_totals(totals, done - begin, tokens, rows, out, ldy);
    }
  });
}

}  // namespace

void amx_matmul(const Matrix& w, int row0, int row1, const Activations& x, float* y, std::size_t ldy) {
  if (!x.prepared || x.tokens < fewest_tile_tokens || !has_integer_product(w.storage, x.numerics, w.cols))
    return avx512_kernels.matmul(w, row0, row1, x, y, ldy);
  with_forms(w.storage, x.numerics, [&]<Storage S, Numerics N>() { tile_rows<S, N>(w, row0, row1, x, y, ldy); });
}

}  // namespace smoe
#endif
