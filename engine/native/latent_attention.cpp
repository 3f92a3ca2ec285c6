#include "latent_attention.h"

#include <algorithm>

#include "buffer.h"
#include "linear.h"
#include "rope.h"

namespace smoe {
namespace {

// Of the latents' norms: their class does not ask rms_norm_eps.
constexpr float kEpsilon = 1e-6f;

// A head's W_k is made floats once for so many tokens, and so many queries look at a block of positions at once.
constexpr int kTokensAtOnce = 32, kQueriesAtOnce = 128;

struct Shape {
  explicit Shape(const Architecture& a)
      : d_model(a.d_model), heads(a.heads), head_dim(a.head_dim), rope_dim(a.rotary_dim), latent(*a.latent) {}

  int d_model, heads, head_dim, rope_dim;
  LatentAttention latent;

  int key_dim() const { return latent.rank + rope_dim; }  // of what a position keeps
  int plain_dim() const { return head_dim - rope_dim; }   // of a head, what RoPE does not turn
  int expanded_dim() const { return plain_dim() + latent.value_dim; }  // rows of a head's W_k and W_v
  int q_width() const { return heads * head_dim; }
  int seen_width() const { return heads * latent.value_dim; }
};

std::size_t size(int n) { return static_cast<std::size_t>(n); }

// One thread's memory for some tokens' queries of some heads.
struct Scratch {
  std::vector<float> absorbed;  // [tokens][heads][key_dim]: [W_k^T q; q_r]
  std::vector<float> mixed;     // [tokens][heads][rank]: the sum of shares * c
  std::vector<float> rows;      // [plain_dim][rank]: a head's W_k
  std::vector<float> attend;

  void fit(const Shape& shape, int queries) {
    absorbed.resize(size(queries) * size(shape.key_dim()));
    mixed.resize(size(queries) * size(shape.latent.rank));
    rows.resize(size(shape.plain_dim()) * size(shape.latent.rank));
    attend.resize(AttendScratch::size(queries, shape.key_dim(), shape.latent.rank));
  }

  static std::uint64_t bytes(const Shape& shape) {
    const std::size_t queries = size(kQueriesAtOnce) * size(shape.key_dim() + shape.latent.rank);
    return sizeof(float) * (queries + size(shape.plain_dim()) * size(shape.latent.rank) +
                            AttendScratch::size(kQueriesAtOnce, shape.key_dim(), shape.latent.rank));
  }
};

// What the layers share: a layer's values are dead when the next one begins.
struct Workspace {
  Workspace(const Architecture& a, Runtime& r)
      : shape(a), runtime(r), rope(a.rope_theta, a.rotary_dim, a.yarn, a.latent->pairs), input(r) {}

  void fit(int tokens) {
    rope.fit(tokens);
    input.fit(tokens);
    reallocate(q_latent, size(tokens) * size(shape.latent.query_rank));
    reallocate(q, size(tokens) * size(shape.q_width()));
    reallocate(kept, size(tokens) * size(shape.key_dim()));
    reallocate(seen, size(tokens) * size(shape.seen_width()));
    reallocate(out, size(tokens) * size(shape.d_model));
  }

  Shape shape;
  Runtime& runtime;
  Rope rope;
  Input input;
  std::vector<float> q_latent, q, kept, seen, out;  // [tokens][query_rank], [q_width], [key_dim], [seen_width], [d_model]
};

struct LatentWeights {
  Linear q_a, q_b;  // to the queries' latent and from there to q; without one, q_b alone
  Linear kv_a, o;
  Matrix kv_b;      // [heads][W_k of plain_dim rows, W_v of value_dim rows][rank]
  std::vector<float> q_norm, kv_norm;  // [query_rank], [rank]
};

// Some rows of a matrix: whole groups of codes, where it is quantized.
Matrix rows_of(const Matrix& whole, int first, int count) {
  const std::size_t skipped = size(first) * size(whole.cols);
  const auto* const data = static_cast<const unsigned char*>(whole.data);
  if (whole.scales)
    return {whole.storage, count, whole.cols, data + code_bytes(whole.storage, skipped), whole.scales + skipped / 64};
  return {whole.storage, count, whole.cols, data + skipped * (whole.storage == Storage::f32 ? 4 : 2), nullptr};
}

class MultiHeadLatentAttention : public Attention {
 public:
  MultiHeadLatentAttention(Workspace& workspace, LatentWeights weights, int layer)
      : space_(workspace), shape_(workspace.shape), weights_(std::move(weights)), layer_(layer) {}

  void forward(const Batch& batch, const float* h, float* x) override {
    Runtime& runtime = space_.runtime;
    const Timed timed(&runtime.times.attention);
    project(batch, h);
    runtime.pool.for_range(batch.tokens, worthwhile(size(shape_.q_width())), [&](int begin, int end) {
      for (int token = begin; token < end; ++token) place(batch, token);
    });
    look(batch);
    space_.input.set(space_.seen.data(), size(shape_.seen_width()), batch.tokens, shape_.seen_width());
    multiply(runtime, space_.input, {{&weights_.o, space_.out.data(), size(shape_.d_model)}});
    runtime.kernels.add_scaled(space_.out.data(), 1.0f, batch.tokens * shape_.d_model, x);
  }

 private:
  // Some consecutive tokens of a batch, some consecutive heads.
  struct Part {
    int token, tokens, head, heads;
  };

  void project(const Batch& batch, const float* h) {
    const Product kept{&weights_.kv_a, space_.kept.data(), size(shape_.key_dim())};
    const Product queries{&weights_.q_b, space_.q.data(), size(shape_.q_width())};
    space_.input.set(h, size(shape_.d_model), batch.tokens, shape_.d_model);
    const int rank = shape_.latent.query_rank;
    if (rank == 0) return multiply(space_.runtime, space_.input, {queries, kept});
    multiply(space_.runtime, space_.input, {{&weights_.q_a, space_.q_latent.data(), size(rank)}, kept});
    for (int token = 0; token < batch.tokens; ++token) norm(weights_.q_norm, &space_.q_latent[size(token) * size(rank)]);
    space_.input.set(space_.q_latent.data(), size(rank), batch.tokens, rank);
    multiply(space_.runtime, space_.input, {queries});
  }

  void norm(const std::vector<float>& weight, float* row) {
    space_.runtime.kernels.rms_norm(row, weight.data(), kEpsilon, static_cast<int>(weight.size()), row);
  }

  // Turns a token's queries, and stores what its position keeps.
  void place(const Batch& batch, int token) {
    float* const q = &space_.q[size(token) * size(shape_.q_width())];
    float* const kept = &space_.kept[size(token) * size(shape_.key_dim())];
    for (int head = 0; head < shape_.heads; ++head)
      space_.rope.rotate(token, q + head * shape_.head_dim + shape_.plain_dim());
    norm(weights_.kv_norm, kept);
    space_.rope.rotate(token, kept + shape_.latent.rank);
    batch.conversation->store(space_.runtime.kernels, layer_, batch.first + token, kept, nullptr);
  }

  // Threads share out parts: so many heads each that every thread has some, and no more than kQueriesAtOnce queries.
  void look(const Batch& batch) {
    const int threads = space_.runtime.pool.size();
    const int tokens = std::min(batch.tokens, kTokensAtOnce), stretches = (batch.tokens + tokens - 1) / tokens;
    const int heads = std::min(std::max(1, kQueriesAtOnce / tokens), (shape_.heads + threads - 1) / threads);
    const int per_stretch = (shape_.heads + heads - 1) / heads;
    const auto seen = size(std::min(batch.first + batch.tokens, batch.conversation->shape().window) + shape_.expanded_dim());
    const std::size_t work = seen * size(tokens * heads) * size(shape_.key_dim());
    space_.runtime.pool.for_range(stretches * per_stretch, worthwhile(work), [&](int begin, int end) {
      thread_local Scratch scratch;
      scratch.fit(shape_, tokens * heads);
      for (int i = begin; i < end; ++i) {
        const int token = i / per_stretch * tokens, head = i % per_stretch * heads;
        look(batch, {token, std::min(tokens, batch.tokens - token), head, std::min(heads, shape_.heads - head)}, scratch);
      }
    });
  }

  void look(const Batch& batch, const Part& part, Scratch& scratch) {
    const int key_dim = shape_.key_dim(), rank = shape_.latent.rank;
    for (int i = 0; i < part.heads; ++i) absorb(part, i, scratch);
    const Queries queries{scratch.absorbed.data(), scratch.mixed.data(), size(part.heads * key_dim),
                          size(part.heads * rank), part.tokens, part.heads};
    const KeyValues kv = visible(*batch.conversation, batch.first + part.token, part.tokens);
    space_.runtime.kernels.attend(queries, kv, shape_.latent.scale, scratch.attend.data());
    for (int i = 0; i < part.heads; ++i) expand(part, i, scratch);
  }

  // A head's queries as they meet what positions keep.
  void absorb(const Part& part, int i, Scratch& scratch) {
    const Kernels& kernels = space_.runtime.kernels;
    const int plain = shape_.plain_dim(), rank = shape_.latent.rank, head = part.head + i;
    const std::size_t width = size(shape_.q_width()), stride = size(part.heads * shape_.key_dim());
    const float* const q = &space_.q[size(part.token) * width + size(head * shape_.head_dim)];
    float* const absorbed = &scratch.absorbed[size(i * shape_.key_dim())];
    float* const rows = scratch.rows.data();
    for (int row = 0; row < plain; ++row)
      kernels.dequantize_row(weights_.kv_b, head * shape_.expanded_dim() + row, rows + row * rank);
    kernels.float_product(part.tokens, rank, plain, q, width, rows, size(rank), absorbed, stride);
    for (int token = 0; token < part.tokens; ++token)
      std::copy_n(q + size(token) * width + plain, shape_.rope_dim, absorbed + size(token) * stride + rank);
  }

  // A head's output from the mixed latents.
  void expand(const Part& part, int i, const Scratch& scratch) {
    const int rank = shape_.latent.rank, dim = shape_.latent.value_dim, head = part.head + i;
    const std::size_t width = size(shape_.seen_width());
    const Matrix values = rows_of(weights_.kv_b, head * shape_.expanded_dim() + shape_.plain_dim(), dim);
    const Activations mixed{part.tokens, rank, &scratch.mixed[size(i * rank)], size(part.heads * rank), nullptr};
    space_.runtime.kernels.matmul(values, 0, dim, mixed, &space_.seen[size(part.token) * width + size(head * dim)], width);
  }

  // What queries at `tokens` positions from `position` on see together.
  KeyValues visible(const Conversation& conversation, int position, int tokens) const {
    const KvShape& ring = conversation.shape();
    const int oldest = std::max(0, position - ring.window + 1);
    return {.keys = conversation.keys(layer_),
            .values = conversation.values(layer_),
            .half = ring.half,
            .key_stride = size(shape_.key_dim()),
            .value_stride = size(shape_.key_dim()),
            .key_dim = shape_.key_dim(),
            .value_dim = shape_.latent.rank,
            .first = oldest % ring.capacity(),
            .count = position + tokens - oldest,
            .capacity = ring.capacity(),
            .first_position = oldest,
            .window = ring.window};
  }

  Workspace& space_;
  const Shape& shape_;
  LatentWeights weights_;
  int layer_;
};

class Factory : public AttentionFactory {
 public:
  Factory(Weights& weights, Runtime& runtime) : weights_(weights), space_(weights.architecture(), runtime) {}

  Error make(int layer, std::unique_ptr<Attention>* out) override {
    const std::string name = "model.layers." + std::to_string(layer) + ".self_attn.";
    LatentWeights found;
    if (Error error = load_queries(name, &found)) return error;
    if (Error error = load_rest(name, &found)) return error;
    *out = std::make_unique<MultiHeadLatentAttention>(space_, std::move(found), layer);
    return {};
  }

  void fit(int tokens) override { space_.fit(tokens); }
  void begin(const Batch& batch) override { space_.rope.set_positions(batch.first, batch.tokens); }

 private:
  Error load_queries(const std::string& name, LatentWeights* out) {
    const Shape& shape = space_.shape;
    const int rank = shape.latent.query_rank;
    if (rank == 0) return weights_.linear(name + "q_proj", shape.q_width(), shape.d_model, &out->q_b);
    if (Error error = weights_.linear(name + "q_a_proj", rank, shape.d_model, &out->q_a)) return error;
    if (Error error = weights_.vector(name + "q_a_layernorm.weight", rank, &out->q_norm)) return error;
    return weights_.linear(name + "q_b_proj", shape.q_width(), rank, &out->q_b);
  }

  Error load_rest(const std::string& name, LatentWeights* out) {
    const Shape& shape = space_.shape;
    const int rank = shape.latent.rank, expanded = shape.heads * shape.expanded_dim();
    if (Error error = weights_.linear(name + "kv_a_proj_with_mqa", shape.key_dim(), shape.d_model, &out->kv_a)) return error;
    if (Error error = weights_.vector(name + "kv_a_layernorm.weight", rank, &out->kv_norm)) return error;
    if (Error error = weights_.matrix(name + "kv_b_proj.weight", expanded, rank, &out->kv_b)) return error;
    return weights_.linear(name + "o_proj", shape.d_model, shape.seen_width(), &out->o);
  }

  Weights& weights_;
  Workspace space_;
};

}  // namespace

std::uint64_t latent_attention_buffer_bytes(const Architecture& a, const Runtime& runtime) {
  const Shape shape(a);
  const int widest = std::max({shape.d_model, shape.latent.query_rank, shape.seen_width()});
  const int floats = shape.latent.query_rank + shape.q_width() + shape.key_dim() + shape.seen_width() + shape.d_model +
                     shape.rope_dim;  // of the turns
  return size(floats) * sizeof(float) + Input::most_bytes(runtime, widest);
}

std::uint64_t latent_attention_scratch_bytes(const Architecture& a, const Runtime& runtime) {
  return size(runtime.pool.size()) * Scratch::bytes(Shape(a));
}

std::unique_ptr<AttentionFactory> make_latent_attention_factory(Weights& weights, Runtime& runtime) {
  return std::make_unique<Factory>(weights, runtime);
}

}  // namespace smoe
