#include "model.h"

#include "buffer.h"

namespace smoe {

Model::Model(const Vault& vault, const Trunk& trunk, ExpertRing& ring, Runtime& runtime)
    : runtime_(runtime),
      layer_count_(vault.architecture().layers),
      d_model_(vault.architecture().d_model),
      vocab_(vault.architecture().vocab),
      epsilon_(vault.architecture().rms_epsilon),
      weights_(vault.architecture(), trunk),
      attention_(make_attention_factory(weights_, runtime)),
      feed_forward_(make_feed_forward_factory(weights_, runtime, vault, ring)),
      head_input_(runtime),
      ahead_(static_cast<std::size_t>(d_model_)),
      logits_(static_cast<std::size_t>(vocab_)) {}

std::uint64_t Model::buffer_bytes_token(const Architecture& a, const Runtime& runtime) {
  return 2 * static_cast<std::uint64_t>(a.d_model) * sizeof(float) + attention_buffer_bytes(a, runtime) +
         feed_forward_buffer_bytes(a, runtime);
}

std::uint64_t Model::buffer_bytes(const Architecture& a, const Runtime& runtime) {
  return static_cast<std::uint64_t>(a.vocab) * sizeof(float) + attention_scratch_bytes(a, runtime);
}

void Model::fit(int tokens) {
  attention_->fit(tokens);
  feed_forward_->fit(tokens);
  for (std::vector<float>* const rows : {&x_, &h_}) reallocate(*rows, static_cast<std::size_t>(tokens) * static_cast<std::size_t>(d_model_));
  fitted_ = tokens;
}

Error Model::load() {
  if (Error error = load_head()) return error;
  layers_.resize(static_cast<std::size_t>(layer_count_));
  for (int i = 0; i < layer_count_; ++i)
    if (Error error = load_layer(i, &layers_[static_cast<std::size_t>(i)])) return error;
  return weights_.refuse_unused();
}

// Without a head of its own the model is tied: the embedding serves as one.
Error Model::load_head() {
  const std::string embedding = "model.embed_tokens";
  if (Error error = weights_.embedding(embedding, vocab_, d_model_, &embedding_)) return error;
  if (Error error = weights_.linear(weights_.has("lm_head.weight") ? "lm_head" : embedding, vocab_, d_model_, &head_))
    return error;
  return weights_.vector("model.norm.weight", d_model_, &norm_);
}

Error Model::load_layer(int index, Layer* out) {
  const std::string name = "model.layers." + std::to_string(index) + ".";
  if (Error error = weights_.vector(name + "input_layernorm.weight", d_model_, &out->attention_norm)) return error;
  if (Error error = weights_.vector(name + "post_attention_layernorm.weight", d_model_, &out->feed_forward_norm))
    return error;
  if (Error error = attention_->make(index, &out->attention)) return error;
  return feed_forward_->make(index, &out->feed_forward);
}

Error Model::forward(Conversation& conversation, std::span<const int> ids, FunctionRef<bool(int layer)> go_on, bool* interrupted) {
  const Batch batch{static_cast<int>(ids.size()), conversation.length(), &conversation};
  *interrupted = false;
  conversation.begin(batch.tokens);
  attention_->begin(batch);
  if (Error error = embed(ids)) return error;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if ((*interrupted = !go_on(static_cast<int>(i)))) return {};
    if (Error error = run_layer(i, batch)) return error;
  }
  conversation.commit(ids);
  return runtime_.routing ? runtime_.routing->write(batch.tokens) : Error{};
}

Error Model::run_layer(std::size_t index, const Batch& batch) {
  Layer& layer = layers_[index];
  layer.attention->forward(batch, normed(layer.attention_norm, batch.tokens), x_.data());
  const auto meanwhile = [&] {
    if (batch.tokens == 1 && index + 1 < layers_.size()) expect(index + 1);
  };
  return layer.feed_forward->forward(batch.tokens, normed(layer.feed_forward_norm, batch.tokens), x_.data(), meanwhile);
}

// From one layer to the next x changes little: so may the router's choice.
void Model::expect(std::size_t index) {
  Layer& layer = layers_[index];
  runtime_.kernels.rms_norm(x_.data(), layer.feed_forward_norm.data(), epsilon_, d_model_, ahead_.data());
  layer.feed_forward->expect(ahead_.data());
}

Error Model::embed(std::span<const int> ids) {
  float* out = x_.data();
  for (const int id : ids) {
    if (Error error = embedding_.row(runtime_.kernels, id, out)) return error;
    out += d_model_;
  }
  return {};
}

const float* Model::normed(const std::vector<float>& weight, int tokens) {
  runtime_.pool.for_range(tokens, worthwhile(static_cast<std::size_t>(d_model_)), [&](int begin, int end) {
    for (int token = begin; token < end; ++token) {
      const std::size_t at = static_cast<std::size_t>(token) * static_cast<std::size_t>(d_model_);
      runtime_.kernels.rms_norm(&x_[at], weight.data(), epsilon_, d_model_, &h_[at]);
    }
  });
  return h_.data();
}

const float* Model::logits(int first, int count) {
  const Timed timed(&runtime_.times.head);
  const auto stride = static_cast<std::size_t>(d_model_), vocabulary = static_cast<std::size_t>(vocab_);
  if (logits_.size() < static_cast<std::size_t>(count) * vocabulary) reallocate(logits_, static_cast<std::size_t>(count) * vocabulary);
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
    runtime_.kernels.rms_norm(&x_[(static_cast<std::size_t>(first) + i) * stride], norm_.data(), epsilon_, d_model_, &h_[i * stride]);
  head_input_.set(h_.data(), stride, count, d_model_);
  multiply(runtime_, head_input_, {{&head_, logits_.data(), vocabulary}});
  return logits_.data();
}

}  // namespace smoe
