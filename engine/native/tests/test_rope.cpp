// Frequencies of RoPE and YaRN, against what transformers' functions give, and the turns that follow from them.
#include <cmath>
#include <vector>

#include "check.h"
#include "rope.h"

using namespace smoe;

namespace {

// transformers computes them in float32.
void check_frequencies(const std::vector<double>& got, const std::vector<double>& want, std::size_t step) {
  for (std::size_t i = 0; i < want.size(); ++i) CHECK_NEAR(got[i * step], want[i], 4e-6 * want[i]);
}

constexpr Yarn kGptOss = {.factor = 32, .beta_fast = 32, .beta_slow = 1, .original = 4096, .truncate = false,
                          .attention_factor = 1.3465735902799727};

}  // namespace

TEST(plain_frequencies) {
  const std::vector<double> got = rope_frequencies(1e4, 8, {});
  CHECK_EQ(got.size(), std::size_t{4});
  CHECK_EQ(got[0], 1.0);
  CHECK_NEAR(got[1], 0.1, 1e-12);
  CHECK_NEAR(got[3], 0.001, 1e-12);
}

TEST(yarn_of_gpt_oss) {
  const std::vector<double> got = rope_frequencies(1.5e5, 64, kGptOss);
  CHECK_EQ(got.size(), std::size_t{32});
  check_frequencies(got, {1.0, 0.4747820496559143, 0.22541800141334534, 0.1070244237780571, 0.05081327259540558,
                          0.019334999844431877, 0.006794959306716919, 0.002093792660161853, 0.0004564839182421565,
                          3.830881178146228e-05, 1.818833698052913e-05, 8.635495760245249e-06, 4.099978468730114e-06,
                          1.9465962850517826e-06, 9.242089618055616e-07, 4.38797854940276e-07}, 2);
}

TEST(yarn_between_whole_elements) {
  const Yarn yarn = {.factor = 8, .beta_fast = 32, .beta_slow = 1, .original = 512, .truncate = true, .attention_factor = 1};
  check_frequencies(rope_frequencies(1e4, 32, yarn),
                    {1.0, 0.5623413324356079, 0.2766992747783661, 0.13337095081806183, 0.0624999962747097,
                     0.028117062523961067, 0.011858541518449783, 0.004445698577910662, 0.0012499999720603228}, 1);
}

TEST(yarn_with_both_ends_of_its_ramp_at_one_place) {
  const Yarn yarn = {.factor = 4, .beta_fast = 1, .beta_slow = 1, .original = 700, .truncate = false, .attention_factor = 1};
  const std::vector<double> got = rope_frequencies(1e4, 8, yarn);  // element 2.05 turns once
  CHECK_NEAR(got[1], 0.1, 1e-12);
  CHECK_NEAR(got[2], 0.01, 1e-12);
  CHECK_NEAR(got[3], 0.001 / 4, 1e-12);
}

TEST(turns_are_stretched) {
  Rope rope(1.5e5, 4, kGptOss);
  rope.fit(2);
  rope.set_positions(3, 2);
  float head[] = {1, 0, 0, 0};
  rope.rotate(1, head);
  CHECK_NEAR(head[0], kGptOss.attention_factor * std::cos(4.0), 1e-6);
  CHECK_NEAR(head[2], kGptOss.attention_factor * std::sin(4.0), 1e-6);
  CHECK_EQ(head[1], 0.0f);
}

TEST(neighbours_turn_as_halves_do) {
  Rope halves(1e4, 6, {}), neighbours(1e4, 6, {}, RopePairs::neighbours);
  for (Rope* const rope : {&halves, &neighbours}) {
    rope->fit(1);
    rope->set_positions(7, 1);
  }
  const float x[] = {0.5f, -1, 2, 3, 0.25f, -4};
  float apart[6], beside[6];
  for (int i = 0; i < 3; ++i) {
    apart[i] = beside[2 * i] = x[2 * i];
    apart[3 + i] = beside[2 * i + 1] = x[2 * i + 1];
  }
  halves.rotate(0, apart);
  neighbours.rotate(0, beside);
  for (int i = 0; i < 3; ++i) {
    CHECK_EQ(beside[2 * i], apart[i]);
    CHECK_EQ(beside[2 * i + 1], apart[3 + i]);
  }
  CHECK_NEAR(beside[0], 0.5 * std::cos(7.0) + std::sin(7.0), 1e-6);
  CHECK_NEAR(beside[1], -std::cos(7.0) + 0.5 * std::sin(7.0), 1e-6);
}
