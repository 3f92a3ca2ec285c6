#include "moe.h"

#include <algorithm>
#include <numeric>
#include <thread>

#include "buffer.h"

namespace smoe {
namespace {

// Wrong guesses cost reads: a guess that is right less often than this does more harm than good.
constexpr float kWorthwhileForesight = 0.6f;

std::size_t area(int rows, int cols) { return static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols); }

// Blocks [begin, end) of several matrices of `rows` rows, `blocks` blocks each, as rows of one matrix at a time.
template <class Work>
void for_each_piece(int begin, int end, int blocks, int rows, const Work& work) {
  while (begin < end) {
    const int matrix = begin / blocks, first = begin % blocks;
    const int count = std::min(blocks - first, end - begin);
    work(static_cast<std::size_t>(matrix), first * kRowBlock, std::min(rows, (first + count) * kRowBlock));
    begin += count;
  }
}

}  // namespace

MoeWorkspace::MoeWorkspace(const Runtime& runtime, const Architecture& a)
    : architecture(a),
      h(runtime),
      gathered(runtime),
      hidden(runtime),
      expected(runtime),
      expected_weights(static_cast<std::size_t>(a.top_k)),
      surest(expected_weights.size()),
      counts(static_cast<std::size_t>(a.experts) + 1) {}

// `h` meets quantized weights with a single token only: several are gathered first.
void MoeWorkspace::fit(int most_tokens) {
  const Architecture& a = architecture;
  most_rows = std::max(most_tokens, a.top_k);
  for (Input* const input : {&gathered, &hidden}) input->fit(most_rows);
  reallocate(logits, area(most_tokens, a.experts));
  for (std::vector<int>* const pairs : {&experts, &rows, &tokens}) reallocate(*pairs, area(most_tokens, a.top_k));
  reallocate(weights, area(most_tokens, a.top_k));
  reallocate(x, area(most_rows, a.d_model));
  for (std::vector<float>* const inner : {&gate, &up}) reallocate(*inner, area(most_rows, a.moe_ffn));
  reallocate(out, area(most_tokens, a.top_k) * static_cast<std::size_t>(a.d_model));
}

std::uint64_t MoeWorkspace::token_bytes(const Runtime& runtime, const Architecture& a) {
  const auto d = static_cast<std::uint64_t>(a.d_model), ffn = static_cast<std::uint64_t>(a.moe_ffn);
  const auto experts = static_cast<std::uint64_t>(a.experts), k = static_cast<std::uint64_t>(a.top_k);
  const std::uint64_t pairs = k * (3 * sizeof(int) + sizeof(float) + d * sizeof(float));
  return pairs + (experts + d + 2 * ffn) * sizeof(float) + Input::most_bytes(runtime, a.d_model) +
         Input::most_bytes(runtime, a.moe_ffn);
}

Moe::Moe(Runtime& runtime, MoeWorkspace& space, const Vault& vault, ExpertRing& ring, Parts parts)
    : runtime_(runtime),
      space_(space),
      vault_(vault),
      ring_(ring),
      parts_(std::move(parts)),
      top_k_(vault.architecture().top_k),
      d_model_(vault.architecture().d_model),
      ffn_(vault.architecture().moe_ffn) {}

Error Moe::forward(int tokens, const float* h, float* x, FunctionRef<void()> meanwhile) {
  route(tokens, h);
  judge_expectation();
  group_by_expert(tokens);
  request_ahead();
  for (const int expert : hinted_) ring_.forget(parts_.moe_index, expert);  // what is wrong in the guess and not yet read
  hinted_.clear();
  expected_.clear();
  meanwhile();
  Error error = parts_.shared ? parts_.shared->forward(tokens, h, x, [] {}) : Error{};
  while (!error && left_ > 0) {
    if ((error = take_ready())) break;
    if (tokens > 1) gather(h);
    compute(tokens);
    release_ready();
    request_ahead();
  }
  if (error) abandon();
  else add_up(tokens, x);
  return error;
}

// The router's own buffers are free: this batch's experts are grouped already.
void Moe::expect(const float* h) {
  const Timed timed(&runtime_.times.router);
  space_.expected.set(h, static_cast<std::size_t>(d_model_), 1, d_model_);
  multiply(runtime_, space_.expected, {{&parts_.gate, space_.logits.data(), space_.logits.size()}});
  expected_.resize(static_cast<std::size_t>(top_k_));
  parts_.router->choose(space_.logits.data(), expected_.data(), space_.expected_weights.data());
  if (foresight_ < kWorthwhileForesight) return;
  hint();
}

// The surest first: the disk may not get to the rest, where most that is wrong is, before the layer is routed.
void Moe::hint() {
  std::vector<int>& order = space_.surest;
  std::iota(order.begin(), order.end(), 0);
  const auto weight = [&](int i) {
    const float w = space_.expected_weights[static_cast<std::size_t>(i)];
    return w == w ? w : 0.0f;  // NaN has no place in an order
  };
  std::sort(order.begin(), order.end(), [&](int a, int b) { return weight(a) > weight(b); });
  for (const int i : order) {
    const int expert = expected_[static_cast<std::size_t>(i)];
    if (ring_.prefetch(parts_.moe_index, expert)) hinted_.push_back(expert);
  }
}

void Moe::judge_expectation() {
  if (expected_.empty()) return;
  const auto routed = space_.experts.begin();
  const auto right = std::count_if(expected_.begin(), expected_.end(),
                                   [&](int expert) { return std::binary_search(routed, routed + top_k_, expert); });
  foresight_ += (static_cast<float>(right) / static_cast<float>(top_k_) - foresight_) / 32;
}

// The router's weights are floats, so that it sees float32 activations in every numerics: it chooses by small differences.
void Moe::route(int tokens, const float* h) {
  const Timed timed(&runtime_.times.router);
  const int experts = parts_.gate.weight.rows;
  space_.h.set(h, static_cast<std::size_t>(d_model_), tokens, d_model_);
  multiply(runtime_, space_.h, {{&parts_.gate, space_.logits.data(), static_cast<std::size_t>(experts)}});
  runtime_.pool.for_range(tokens, worthwhile(area(experts, top_k_)), [&](int begin, int end) {
    for (int token = begin; token < end; ++token)
      parts_.router->choose(&space_.logits[area(token, experts)], &space_.experts[area(token, top_k_)],
                            &space_.weights[area(token, top_k_)]);
  });
  if (runtime_.routing) runtime_.routing->note(parts_.moe_index, tokens, space_.experts.data());
}

// A counting sort of the pairs; an expert's tokens stay in order.
void Moe::group_by_expert(int tokens) {
  const std::size_t pairs = area(tokens, top_k_);
  std::fill(space_.counts.begin(), space_.counts.end(), 0);
  for (std::size_t pair = 0; pair < pairs; ++pair) ++space_.counts[static_cast<std::size_t>(space_.experts[pair])];
  space_.uses.clear();
  int row = 0;
  for (std::size_t expert = 0; expert < space_.counts.size(); ++expert) {
    const int begin = row;
    row += space_.counts[expert];
    space_.counts[expert] = begin;
    if (row > begin) space_.uses.push_back({static_cast<int>(expert), begin, row});
  }
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    space_.rows[pair] = space_.counts[static_cast<std::size_t>(space_.experts[pair])]++;
    space_.tokens[static_cast<std::size_t>(space_.rows[pair])] = static_cast<int>(pair) / top_k_;
  }
  space_.done.assign(space_.uses.size(), false);
  requested_ = 0;
  left_ = space_.uses.size();
}

// As many as the ring has slots for, so that reading goes on while we compute.
void Moe::request_ahead() {
  while (requested_ < space_.uses.size()) {
    const std::size_t held = requested_ - (space_.uses.size() - left_);
    if (ring_.request(parts_.moe_index, space_.uses[requested_].expert)) ++requested_;
    else if (held > 0) return;
    else std::this_thread::yield();  // the only slot is being read for a prefetch
  }
}

// All experts that are whole in memory now, as far as the buffers hold their tokens; else waits for the first.
Error Moe::take_ready() {
  space_.ready.clear();
  int rows = 0;
  for (const bool wait : {false, true}) {
    for (std::size_t i = 0; i < requested_ && !(wait && rows > 0); ++i) {
      const ExpertUse& use = space_.uses[i];
      if (space_.done[i] || rows + use.tokens() > space_.most_rows) continue;
      if (!wait && !ring_.ready(parts_.moe_index, use.expert)) continue;
      const void* const bytes = ring_.wait(parts_.moe_index, use.expert);
      if (bytes == nullptr) return ring_.error();
      ReadyExpert expert{.gate = {}, .up = {}, .down = {}, .use = use, .row = rows};
      vault_.matrices(vault_.expert(parts_.moe_index, use.expert), bytes, &expert.gate, &expert.up, &expert.down);
      space_.ready.push_back(expert);
      rows += use.tokens();
    }
  }
  return {};
}

void Moe::release_ready() {
  for (const ReadyExpert& expert : space_.ready) {
    ring_.release(parts_.moe_index, expert.use.expert);
    const auto found = std::find_if(space_.uses.begin(), space_.uses.end(),
                                    [&](const ExpertUse& use) { return use.expert == expert.use.expert; });
    space_.done[static_cast<std::size_t>(found - space_.uses.begin())] = true;
    --left_;
  }
}

// After an error: gives back every slot that is still ours.
void Moe::abandon() {
  for (std::size_t i = 0; i < requested_; ++i)
    if (!space_.done[i]) ring_.release(parts_.moe_index, space_.uses[i].expert);
}

void Moe::gather(const float* h) {
  const auto stride = static_cast<std::size_t>(d_model_);
  for (const ReadyExpert& expert : space_.ready)
    for (int i = 0; i < expert.use.tokens(); ++i)
      std::copy_n(h + area(space_.tokens[static_cast<std::size_t>(expert.use.begin + i)], d_model_), stride,
                  &space_.x[area(expert.row + i, d_model_)]);
}

Activations Moe::activations(const ReadyExpert& expert, Storage storage, int tokens) const {
  if (tokens == 1) return space_.h.rows(storage);
  return space_.gathered.rows(storage, expert.row, expert.use.tokens());
}

void Moe::compute(int tokens) {
  const Timed timed(&runtime_.times.experts);
  const ReadyExpert& last = space_.ready.back();
  const int rows = last.row + last.use.tokens();
  space_.gathered.set(space_.x.data(), static_cast<std::size_t>(d_model_), rows, d_model_);
  space_.hidden.set(space_.gate.data(), static_cast<std::size_t>(ffn_), rows, ffn_);
  Input& input = tokens == 1 ? space_.h : space_.gathered;
  for (const ReadyExpert& expert : space_.ready)
    for (const Matrix* matrix : {&expert.gate, &expert.up}) input.prepare(matrix->storage);
  compute_hidden(tokens, rows);
  for (const ReadyExpert& expert : space_.ready) space_.hidden.prepare(expert.down.storage);
  const int blocks = row_blocks(d_model_);
  runtime_.pool.for_range(blocks * static_cast<int>(space_.ready.size()), grain(rows, ffn_), [&](int begin, int end) {
    for_each_piece(begin, end, blocks, d_model_, [&](std::size_t i, int row0, int row1) {
      const ReadyExpert& expert = space_.ready[i];
      const TokenRows out{&space_.out[area(expert.use.begin, d_model_)], static_cast<std::size_t>(d_model_), expert.use.tokens()};
      runtime_.kernels.matmul(expert.down, row0, row1, space_.hidden.rows(expert.down.storage, expert.row, out.tokens),
                              out.first, out.stride);
      parts_.biases.add_outer(expert.use.expert, row0, row1, out);
    });
  });
}

// Blocks of rows that are worth a thread: an expert has rows / ready tokens on average.
int Moe::grain(int rows, int cols) const {
  return worthwhile(std::max<std::size_t>(1, area(rows * kRowBlock, cols) / space_.ready.size()));
}

void Moe::compute_hidden(int tokens, int rows) {
  const int blocks = row_blocks(ffn_);
  const auto stride = static_cast<std::size_t>(ffn_);
  runtime_.pool.for_range(blocks * static_cast<int>(space_.ready.size()), grain(rows, 2 * d_model_), [&](int begin, int end) {
    for_each_piece(begin, end, blocks, ffn_, [&](std::size_t i, int row0, int row1) {
      const ReadyExpert& expert = space_.ready[i];
      float* const gate = &space_.gate[area(expert.row, ffn_)];
      float* const up = &space_.up[area(expert.row, ffn_)];
      runtime_.kernels.matmul(expert.gate, row0, row1, activations(expert, expert.gate.storage, tokens), gate, stride);
      runtime_.kernels.matmul(expert.up, row0, row1, activations(expert, expert.up.storage, tokens), up, stride);
      const int count = expert.use.tokens();
      parts_.biases.add_inner(expert.use.expert, row0, row1, {gate, stride, count}, {up, stride, count});
      for (int token = 0; token < count; ++token) {
        const std::size_t at = area(token, ffn_) + static_cast<std::size_t>(row0);
        activate(gate + at, up + at, row1 - row0, gate + at);
      }
    });
  });
}

void Moe::activate(const float* gate, const float* up, int n, float* out) const {
  if (parts_.swiglu) runtime_.kernels.clamped_swiglu(gate, up, *parts_.swiglu, n, out);
  else runtime_.kernels.silu_multiply(gate, up, n, out);
}

void Moe::add_up(int tokens, float* x) {
  const Timed timed(&runtime_.times.experts);
  runtime_.pool.for_range(tokens, worthwhile(area(top_k_, d_model_)), [&](int begin, int end) {
    for (std::size_t pair = area(begin, top_k_); pair < area(end, top_k_); ++pair)
      runtime_.kernels.add_scaled(&space_.out[area(space_.rows[pair], d_model_)], space_.weights[pair], d_model_,
                                  x + area(static_cast<int>(pair) / top_k_, d_model_));
  });
}

}  // namespace smoe
