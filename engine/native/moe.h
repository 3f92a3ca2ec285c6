// Routed experts, streamed through the ring, and the shared expert that is computed while they are read.
//
// A batch's experts are computed in whatever order they arrive, each for all of its tokens into rows of its own; then
// every token adds its experts' rows in ascending order of their numbers. So no bit depends on timing, on the ring or
// on which tokens share a batch.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "expert_bias.h"
#include "feed_forward.h"
#include "linear.h"
#include "router.h"

namespace smoe {

// An expert that some tokens of the batch go to: rows [begin, end) of the batch's (token, expert) pairs, by expert.
struct ExpertUse {
  int expert, begin, end;
  int tokens() const { return end - begin; }
};

// An expert in memory, and its tokens' activations at both ends.
struct ReadyExpert {
  Matrix gate, up, down;
  ExpertUse use;
  int row;  // of the first token in the gathered buffers
};

// Buffers that all layers use in turn. A pair is a (token, expert) the router chose: at most tokens * top_k.
struct MoeWorkspace {
  MoeWorkspace(const Runtime& runtime, const Architecture& architecture);

  void fit(int tokens);
  static std::uint64_t token_bytes(const Runtime& runtime, const Architecture& architecture);

  const Architecture& architecture;
  int most_rows = 0;                      // of experts computed at once
  Input h, gathered, hidden;              // of the batch; of the experts computed at once, at both ends
  Input expected;                         // of expect()
  std::vector<float> logits;              // [tokens][experts]
  std::vector<float> expected_weights;    // [top_k]
  std::vector<int> surest;                // [top_k], places in them
  std::vector<int> experts;               // [tokens][top_k]
  std::vector<float> weights;             // [tokens][top_k]
  std::vector<int> rows;                  // [tokens][top_k]: a pair's row in `out`
  std::vector<int> tokens;                // [pairs]: a row's token
  std::vector<int> counts;                // [experts + 1]
  std::vector<ExpertUse> uses;
  std::vector<ReadyExpert> ready;
  std::vector<bool> done;                 // by use
  std::vector<float> x, gate, up;             // [most_rows][d_model], [most_rows][ffn] twice
  std::vector<float> out;                      // [pairs][d_model]
};

class Moe : public FeedForward {
 public:
  struct Parts {
    Linear gate;  // the router's
    std::unique_ptr<Router> router;
    std::unique_ptr<FeedForward> shared;  // null: none
    int moe_index;
    ExpertBiases biases;
    std::optional<ClampedSwiglu> swiglu;  // none: SiLU
  };
  Moe(Runtime& runtime, MoeWorkspace& space, const Vault& vault, ExpertRing& ring, Parts parts);
  Error forward(int tokens, const float* h, float* x, FunctionRef<void()> meanwhile) override;
  void expect(const float* h) override;

 private:
  void hint();
  void judge_expectation();
  void route(int tokens, const float* h);
  void group_by_expert(int tokens);
  void request_ahead();
  Error take_ready();
  void release_ready();
  void abandon();
  void gather(const float* h);
  void compute(int tokens);
  void compute_hidden(int tokens, int rows);
  void activate(const float* gate, const float* up, int n, float* out) const;
  int grain(int rows, int cols) const;
  void add_up(int tokens, float* x);
  Activations activations(const ReadyExpert& expert, Storage storage, int tokens) const;

  Runtime& runtime_;
  MoeWorkspace& space_;
  const Vault& vault_;
  ExpertRing& ring_;
  Parts parts_;
  int top_k_, d_model_, ffn_;
  std::vector<int> expected_;  // by the last expect(), until the next forward()
  std::vector<int> hinted_;    // of these, reads that hint() has queued
  float foresight_ = 1;        // share of the expected that were then needed, of the last 32 times or so
  std::size_t requested_ = 0, left_ = 0;  // uses asked for; uses not computed yet
};

}  // namespace smoe
