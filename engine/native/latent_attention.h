// Multi-head latent attention (DeepSeek-V2, https://arxiv.org/abs/2405.04434, section 2.1).
//
// A position keeps c = norm(W_a h), of which every head's key and value are made, and a key part r that RoPE has turned and
// all heads share. A head's score is q . (W_k c) + q_r . r, its output W_v (sum of shares * c). Here W_k and W_v are
// absorbed into what stands outside the sum over positions, (W_k^T q) . c: no head's keys and values ever exist, and all
// heads look at the same [c; r] and c. So a token's bits do not depend on how many came along with it.
#pragma once

#include "attention.h"

namespace smoe {

std::uint64_t latent_attention_buffer_bytes(const Architecture& architecture, const Runtime& runtime);
std::uint64_t latent_attention_scratch_bytes(const Architecture& architecture, const Runtime& runtime);

std::unique_ptr<AttentionFactory> make_latent_attention_factory(Weights& weights, Runtime& runtime);

}  // namespace smoe
