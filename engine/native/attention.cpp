// Grouped-query attention with optional RMS norm of queries and keys before RoPE, per head (Qwen3, GLM) or over the whole
// projection (MiniMax, OLMoE), RoPE over all of a head or its first part, optional biases, a window of the layer's own and
// sinks (gpt-oss).
#include "attention.h"

#include <algorithm>
#include <cmath>

#include "buffer.h"
#include "latent_attention.h"
#include "linear.h"
#include "rope.h"

namespace smoe {
namespace {

struct Shape {
  int d_model, heads, kv_heads, head_dim;
  float epsilon;

  std::size_t q_width() const { return static_cast<std::size_t>(heads) * static_cast<std::size_t>(head_dim); }
  std::size_t kv_width() const { return static_cast<std::size_t>(kv_heads) * static_cast<std::size_t>(head_dim); }
  int group() const { return heads / kv_heads; }  // query heads that share a key/value head
};

// A block's keys and values are loaded once for so many queries: enough that this costs little beside the products.
constexpr int kQueriesAtOnce = 128;

// What the layers share: a layer's values are dead when the next one begins.
struct Workspace {
  Workspace(const Architecture& a, Runtime& r)
      : shape{a.d_model, a.heads, a.kv_heads, a.head_dim, a.rms_epsilon},
        runtime(r),
        rope(a.rope_theta, a.rotary_dim, a.yarn),
        input(r) {}

  void fit(int tokens) {
    const auto count = static_cast<std::size_t>(tokens);
    rope.fit(tokens);
    input.fit(tokens);
    for (std::vector<float>* const wide : {&q, &seen}) reallocate(*wide, count * shape.q_width());
    for (std::vector<float>* const narrow : {&k, &v}) reallocate(*narrow, count * shape.kv_width());
    reallocate(out, count * static_cast<std::size_t>(shape.d_model));
  }

  Shape shape;
  Runtime& runtime;
  Rope rope;
  Input input;
  std::vector<float> q, k, v, seen, out;  // [tokens][heads * head_dim], ... , [tokens][d_model]
};

struct GqaWeights {
  Linear q, k, v, o;
  std::vector<float> q_norm, k_norm;  // [head_dim]: of each head; [heads * head_dim]: of all together; empty: none
  std::vector<float> sinks;           // [heads]; empty: none
  int window = 0;                     // positions that the layer's queries see; 0: all that the conversation's window holds
};

class GqaAttention : public Attention {
 public:
  GqaAttention(Workspace& workspace, GqaWeights weights, int layer)
      : space_(workspace), shape_(workspace.shape), weights_(std::move(weights)), layer_(layer) {}

  void forward(const Batch& batch, const float* h, float* x) override {
    Runtime& runtime = space_.runtime;
    const Timed timed(&runtime.times.attention);
    space_.input.set(h, static_cast<std::size_t>(shape_.d_model), batch.tokens, shape_.d_model);
    multiply(runtime, space_.input,
             {{&weights_.q, space_.q.data(), shape_.q_width()},
              {&weights_.k, space_.k.data(), shape_.kv_width()},
              {&weights_.v, space_.v.data(), shape_.kv_width()}});
    runtime.pool.for_range(batch.tokens, worthwhile(shape_.q_width()), [&](int begin, int end) {
      for (int token = begin; token < end; ++token) place(batch, token);
    });
    look(batch);
    space_.input.set(space_.seen.data(), shape_.q_width(), batch.tokens, static_cast<int>(shape_.q_width()));
    multiply(runtime, space_.input, {{&weights_.o, space_.out.data(), static_cast<std::size_t>(shape_.d_model)}});
    runtime.kernels.add_scaled(space_.out.data(), 1.0f, batch.tokens * shape_.d_model, x);
  }

 private:
  // Norms and turns a token's queries and keys, and stores its keys and values.
  void place(const Batch& batch, int token) {
    float* const q = &space_.q[static_cast<std::size_t>(token) * shape_.q_width()];
    float* const k = &space_.k[static_cast<std::size_t>(token) * shape_.kv_width()];
    const float* const v = &space_.v[static_cast<std::size_t>(token) * shape_.kv_width()];
    norm(weights_.q_norm, shape_.q_width(), q);
    norm(weights_.k_norm, shape_.kv_width(), k);
    for (int i = 0; i < shape_.heads; ++i) space_.rope.rotate(token, q + i * shape_.head_dim);
    for (int i = 0; i < shape_.kv_heads; ++i) space_.rope.rotate(token, k + i * shape_.head_dim);
    batch.conversation->store(space_.runtime.kernels, layer_, batch.first + token, k, v);
  }

  // As many elements at once as there are weights.
  void norm(const std::vector<float>& weight, std::size_t width, float* row) {
    for (std::size_t at = 0; at < width && !weight.empty(); at += weight.size())
      space_.runtime.kernels.rms_norm(row + at, weight.data(), shape_.epsilon, static_cast<int>(weight.size()), row + at);
  }

  // Threads share out pairs of some tokens and a key/value head; with fewer pairs than threads, single query heads.
  void look(const Batch& batch) {
    const int tokens = std::min(batch.tokens, std::max(1, kQueriesAtOnce / shape_.group()));
    const int stretches = (batch.tokens + tokens - 1) / tokens;
    const int heads = stretches * shape_.kv_heads < space_.runtime.pool.size() ? 1 : shape_.group();
    const int per_stretch = shape_.heads / heads;
    const auto seen = static_cast<std::size_t>(std::min(batch.first + batch.tokens, window(*batch.conversation)));
    const std::size_t work = 2 * seen * static_cast<std::size_t>(tokens * heads * shape_.head_dim);
    space_.runtime.pool.for_range(stretches * per_stretch, worthwhile(work), [&](int begin, int end) {
      thread_local std::vector<float> scratch;
      scratch.resize(AttendScratch::size(tokens * heads, shape_.head_dim, shape_.head_dim));
      for (int i = begin; i < end; ++i) {
        const int first = i / per_stretch * tokens;
        attend(batch, first, std::min(tokens, batch.tokens - first), i % per_stretch * heads, heads, scratch.data());
      }
    });
  }

  void attend(const Batch& batch, int token, int tokens, int head, int heads, float* scratch) {
    const auto start = static_cast<std::size_t>(token) * shape_.q_width() + static_cast<std::size_t>(head * shape_.head_dim);
    const float* const sinks = weights_.sinks.empty() ? nullptr : &weights_.sinks[static_cast<std::size_t>(head)];
    const Queries queries{&space_.q[start], &space_.seen[start], shape_.q_width(), shape_.q_width(), tokens, heads, sinks};
    const KeyValues kv = visible(*batch.conversation, batch.first + token, tokens, head / shape_.group());
    space_.runtime.kernels.attend(queries, kv, 1.0f / std::sqrt(static_cast<float>(shape_.head_dim)), scratch);
  }

  int window(const Conversation& conversation) const {
    const int whole = conversation.shape().window;
    return weights_.window > 0 ? std::min(weights_.window, whole) : whole;
  }

  // What queries at `tokens` positions from `position` on see together.
  KeyValues visible(const Conversation& conversation, int position, int tokens, int kv_head) const {
    const KvShape& ring = conversation.shape();
    const int oldest = std::max(0, position - window(conversation) + 1);
    const std::size_t at = static_cast<std::size_t>(kv_head * shape_.head_dim) * ring.element_bytes();
    return {.keys = static_cast<const unsigned char*>(conversation.keys(layer_)) + at,
            .values = static_cast<const unsigned char*>(conversation.values(layer_)) + at,
            .half = ring.half,
            .key_stride = shape_.kv_width(),
            .value_stride = shape_.kv_width(),
            .key_dim = shape_.head_dim,
            .value_dim = shape_.head_dim,
            .first = oldest % ring.capacity(),
            .count = position + tokens - oldest,
            .capacity = ring.capacity(),
            .first_position = oldest,
            .window = window(conversation)};
  }

  Workspace& space_;
  const Shape& shape_;
  GqaWeights weights_;
  int layer_;
};

class GqaFactory : public AttentionFactory {
 public:
  GqaFactory(Weights& weights, Runtime& runtime) : weights_(weights), space_(weights.architecture(), runtime) {}

  Error make(int layer, std::unique_ptr<Attention>* out) override {
    GqaWeights found;
    if (Error error = load(layer, &found)) return error;
    *out = std::make_unique<GqaAttention>(space_, std::move(found), layer);
    return {};
  }

  void fit(int tokens) override { space_.fit(tokens); }
  void begin(const Batch& batch) override { space_.rope.set_positions(batch.first, batch.tokens); }

 private:
  Error load(int layer, GqaWeights* out) {
    const std::string name = "model.layers." + std::to_string(layer) + ".self_attn.";
    const Shape& shape = space_.shape;
    const int q_width = static_cast<int>(shape.q_width()), kv_width = static_cast<int>(shape.kv_width());
    if (Error error = weights_.linear(name + "q_proj", q_width, shape.d_model, &out->q)) return error;
    if (Error error = weights_.linear(name + "k_proj", kv_width, shape.d_model, &out->k)) return error;
    if (Error error = weights_.linear(name + "v_proj", kv_width, shape.d_model, &out->v)) return error;
    if (Error error = weights_.linear(name + "o_proj", shape.d_model, q_width, &out->o)) return error;
    const std::vector<int>& windows = weights_.architecture().layer_windows;
    if (!windows.empty()) out->window = windows[static_cast<std::size_t>(layer)];
    if (weights_.architecture().attention_sinks)
      if (Error error = weights_.vector(name + "sinks", shape.heads, &out->sinks)) return error;
    if (!weights_.architecture().qk_norm) return {};
    const bool whole = weights_.architecture().qk_norm_whole;
    if (Error error = weights_.vector(name + "q_norm.weight", whole ? q_width : shape.head_dim, &out->q_norm)) return error;
    return weights_.vector(name + "k_norm.weight", whole ? kv_width : shape.head_dim, &out->k_norm);
  }

  Weights& weights_;
  Workspace space_;
};

}  // namespace

std::uint64_t attention_buffer_bytes(const Architecture& a, const Runtime& runtime) {
  if (a.latent) return latent_attention_buffer_bytes(a, runtime);
  const auto d = static_cast<std::uint64_t>(a.d_model), dim = static_cast<std::uint64_t>(a.head_dim);
  const std::uint64_t q = static_cast<std::uint64_t>(a.heads) * dim, kv = static_cast<std::uint64_t>(a.kv_heads) * dim;
  const int widest = static_cast<int>(std::max(d, q));
  return (2 * q + 2 * kv + d + dim) * sizeof(float) + Input::most_bytes(runtime, widest);  // dim: of the turns (rope)
}

std::uint64_t attention_scratch_bytes(const Architecture& a, const Runtime& runtime) {
  return a.latent ? latent_attention_scratch_bytes(a, runtime) : 0;
}

KvShape kv_shape(const Architecture& a, bool half) {
  const int width = a.latent ? a.latent->rank + a.rotary_dim : a.kv_heads * a.head_dim;
  return {a.layers, width, a.latent ? 0 : width, 1, 0, half};
}

std::unique_ptr<AttentionFactory> make_attention_factory(Weights& weights, Runtime& runtime) {
  if (weights.architecture().latent) return make_latent_attention_factory(weights, runtime);
  return std::make_unique<GqaFactory>(weights, runtime);
}

}  // namespace smoe
