"""A float32 forward pass in numpy for any vault that can be written: what the engine is compared with.

Written for plainness, from the definition of the model and the format; shares nothing with the native engine.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fleet.vaultfile import config as model_config
from fleet.vaultfile import families, layout, quantize, reader, scout, structure, trunk


class ReferenceModel:
    """Weights are dequantized as they are needed; the trunk is held as float32.

    trunk_bits: its matrices are rounded to so many bits first, as the engine's --trunk does.
    """

    def __init__(
        self, smoe: Path, scout_path: Path, config_path: Path | None = None, trunk_bits: int | None = None
    ) -> None:
        self.identity = reader.identify(smoe, scout_path, config_path)
        self.a = self.identity.architecture
        self._config = self.identity.metadata.get("config", {})
        self._family = families.of(self.a.model_type) or families.Family(qk_norm=self.a.qk_norm)
        self._structure = structure.read_structure(smoe)
        self._entries = {(int(e["layer"]), int(e["expert"])): e for e in self._structure.table}
        self._smoe = smoe
        header = scout.read_header(scout_path)
        with open(scout_path, "rb") as file:
            self._trunk = {name: header.read(file, name) for name in header.tensors}
        if trunk_bits:
            self._trunk |= {name: rounded(self._trunk[name], trunk_bits) for name in trunk.matrices(header)}

    def logits(self, ids: list[int], window: int | None = None) -> np.ndarray:
        """[len(ids), vocab]. `window`: each position sees itself and the window - 1 before it."""
        x = self._trunk["model.embed_tokens.weight"][ids]
        for layer in range(self.a.layers):
            x = x + self._attention(layer, self._norm(layer, "input_layernorm", x), window)
            x = x + self._feed_forward(layer, self._norm(layer, "post_attention_layernorm", x))
        x = rms_norm(x, self._trunk["model.norm.weight"], self.a.rms_epsilon)
        return x @ self._trunk.get("lm_head.weight", self._trunk["model.embed_tokens.weight"]).T

    def greedy(self, prompt: list[int], count: int, window: int | None = None) -> list[int]:
        """Whole passes: for tiny models."""
        ids = list(prompt)
        for _ in range(count):
            ids.append(int(self.logits(ids, window)[-1].argmax()))
        return ids[len(prompt) :]

    def _w(self, layer: int, name: str) -> np.ndarray | None:
        return self._trunk.get(f"model.layers.{layer}.{name}.weight")

    def _linear(self, layer: int, name: str, x: np.ndarray) -> np.ndarray:
        bias = self._trunk.get(f"model.layers.{layer}.{name}.bias")
        product = x @ self._w(layer, name).T
        return product if bias is None else product + bias

    def _norm(self, layer: int, name: str, x: np.ndarray) -> np.ndarray:
        return rms_norm(x, self._w(layer, name), self.a.rms_epsilon)

    def _attention(self, layer: int, x: np.ndarray, window: int | None) -> np.ndarray:
        mixed = (self._latent_attention if self.a.latent else self._grouped_attention)(layer, x, window)
        return self._linear(layer, "self_attn.o_proj", mixed)

    def _latent_attention(self, layer: int, x: np.ndarray, window: int | None) -> np.ndarray:
        """With every head's own keys and values."""
        a, n, latent = self.a, len(x), self.a.latent
        q = x
        if latent.query_rank is not None:
            q = rms_norm(self._linear(layer, "self_attn.q_a_proj", x), self._w(layer, "self_attn.q_a_layernorm"), 1e-6)
        q = self._linear(layer, "self_attn.q_b_proj" if latent.query_rank else "self_attn.q_proj", q)
        q = q.reshape(n, a.heads, a.head_dim)
        c, shared = np.split(self._linear(layer, "self_attn.kv_a_proj_with_mqa", x), [latent.rank], axis=1)
        c = rms_norm(c, self._w(layer, "self_attn.kv_a_layernorm"), 1e-6)
        plain = a.head_dim - latent.rope_dim
        own, v = np.split(self._linear(layer, "self_attn.kv_b_proj", c).reshape(n, a.heads, -1), [plain], axis=2)
        turned = [self._turn(part) for part in (q[..., plain:], shared[:, None])]
        q = np.concatenate([q[..., :plain], turned[0]], axis=2)
        k = np.concatenate([own, np.broadcast_to(turned[1], (n, a.heads, latent.rope_dim))], axis=2)
        q = q * np.float32(model_config.score_scale(self._config, self._family))
        return self._mix(layer, q, k, v, window)

    def _turn(self, x: np.ndarray) -> np.ndarray:
        """RoPE over all of [n, heads, d]: neighbours turn together, or halves."""
        if self._config.get("rope_interleave", True):
            x = np.concatenate([x[..., ::2], x[..., 1::2]], axis=-1)
        yarn = model_config.yarn(self._config, self._family)
        angles = np.arange(len(x))[:, None] * frequencies(self.a.rope_theta, x.shape[-1], yarn)
        return rotate(x, angles, yarn.attention_factor if yarn else 1.0)

    def _grouped_attention(self, layer: int, x: np.ndarray, window: int | None) -> np.ndarray:
        a, n = self.a, len(x)
        q, k, v = (self._linear(layer, f"self_attn.{name}_proj", x) for name in "qkv")
        if self._family.whole_qk_norm:
            q, k = self._norm(layer, "self_attn.q_norm", q), self._norm(layer, "self_attn.k_norm", k)
        q, k, v = (t.reshape(n, -1, a.head_dim) for t in (q, k, v))
        if a.qk_norm:
            q, k = self._norm(layer, "self_attn.q_norm", q), self._norm(layer, "self_attn.k_norm", k)
        turned = a.head_dim
        if self._family.needs_config:
            turned = model_config.rotary_dim(self._config, self._family, a.head_dim)
        yarn = model_config.yarn(self._config, self._family) if self._family.yarn else None
        angles = np.arange(n)[:, None] * frequencies(a.rope_theta, turned, yarn)
        stretch = yarn.attention_factor if yarn else 1.0
        q, k = rotate(q, angles, stretch), rotate(k, angles, stretch)
        k, v = (np.repeat(t, a.heads // a.kv_heads, axis=1) for t in (k, v))
        return self._mix(layer, q, k, v, window)

    def _mix(self, layer: int, q: np.ndarray, k: np.ndarray, v: np.ndarray, window: int | None) -> np.ndarray:
        """[n, heads * values], of queries, keys and values [n, heads, ...]."""
        n = len(q)
        scores = np.einsum("qhd,khd->hqk", q, k) / np.float32(np.sqrt(self.a.head_dim))
        distance = np.arange(n)[:, None] - np.arange(n)
        seen = min(window or n, self._layer_window(layer) or n)
        scores[:, (distance < 0) | (distance >= seen)] = -np.inf
        return np.einsum("hqk,khd->qhd", self._shares(layer, scores), v).reshape(n, -1)

    def _layer_window(self, layer: int) -> int | None:
        if self._family.sliding_window is None:
            return None
        return model_config.layer_windows(self._config, self._family)[layer]

    def _shares(self, layer: int, scores: np.ndarray) -> np.ndarray:
        """[heads, queries, keys]: a softmax, in which a sink takes part that has no value."""
        if not self._family.sinks:
            return softmax(scores)
        sinks = self._trunk[f"model.layers.{layer}.self_attn.sinks"]
        column = np.broadcast_to(sinks[:, None, None], (*scores.shape[:2], 1))
        return softmax(np.concatenate([scores, column], axis=-1))[..., :-1]

    def _feed_forward(self, layer: int, x: np.ndarray) -> np.ndarray:
        router = next((r for r in trunk.ROUTERS if f"model.layers.{layer}.{r}" in self._trunk), None)
        if router is None:
            return swiglu(x, *(self._w(layer, f"mlp.{name}_proj") for name in ("gate", "up", "down")))
        out = self._shared(layer, x)
        chosen, picked = self._route(layer, self._linear(layer, router.removesuffix(".weight"), x))
        for expert in np.unique(chosen):
            tokens, places = np.nonzero(chosen == expert)
            out[tokens] += self._run_expert(layer, int(expert), x[tokens]) * picked[tokens, places, None]
        return out

    def _run_expert(self, layer: int, expert: int, x: np.ndarray) -> np.ndarray:
        gate, up, down = self.expert(layer, expert)
        if not self._family.biased_experts:
            return swiglu(x, gate, up, down)
        prefix = f"model.layers.{layer}.mlp.experts"
        inner, outer = (self._trunk[f"{prefix}.{name}_proj_bias"][expert] for name in ("gate_up", "down"))
        limit = np.float32(self._config.get("swiglu_limit", 7.0))
        alpha = np.float32(self._config.get("swiglu_alpha", 1.702))
        g = np.minimum(x @ gate.T + inner[::2], limit)
        u = np.clip(x @ up.T + inner[1::2], -limit, limit)
        return (g / (1 + np.exp(-alpha * g)) * (u + 1)) @ down.T + outer

    def _route(self, layer: int, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The chosen experts of each token and their weights."""
        scores = 1 / (1 + np.exp(-logits)) if self._family.sigmoid_router else softmax(logits)
        allowed = self._of_best_groups(scores + self._correction(layer))
        chosen = np.argsort(-allowed, axis=1, kind="stable")[:, : self.a.top_k]
        picked = np.take_along_axis(scores, chosen, axis=1)
        if self.a.renormalize_top_k:
            picked = picked / picked.sum(axis=1, keepdims=True)
        return chosen, picked * np.float32(model_config.routed_scale(self._config, self._family))

    def _of_best_groups(self, scores: np.ndarray) -> np.ndarray:
        """Others cannot be chosen. A group is as good as its two best experts together; of a softmax, as its best."""
        count, kept = model_config.expert_groups(self._config, self._family)
        groups = scores.reshape(len(scores), count, -1)
        quality = np.sort(groups, axis=2)[..., -2 if self._family.sigmoid_router else -1 :].sum(axis=2)
        worse = np.argsort(-quality, axis=1, kind="stable")[:, kept:]
        groups = groups.copy()
        np.put_along_axis(groups, worse[..., None], -np.inf, axis=1)
        return groups.reshape(scores.shape)

    def _correction(self, layer: int) -> np.ndarray:
        names = (f"model.layers.{layer}.{name}" for name in trunk.CORRECTIONS.values())
        return next((self._trunk[name] for name in names if name in self._trunk), np.zeros(1, np.float32))

    def _shared(self, layer: int, x: np.ndarray) -> np.ndarray:
        if not self.a.shared_ffn:
            return np.zeros_like(x)
        prefix = next(p for p in trunk.SHARED if self._w(layer, f"{p}.gate_proj") is not None)
        out = swiglu(x, *(self._w(layer, f"{prefix}.{name}_proj") for name in ("gate", "up", "down")))
        gate = self._w(layer, "mlp.shared_expert_gate")
        return out if gate is None else out / (1 + np.exp(-(x @ gate.T)))

    def expert(self, layer: int, expert: int) -> list[np.ndarray]:
        """Gate, up and down as the record holds them, read by the format's definition."""
        entry, bits = self._entries[layer, expert], self.identity.bits
        with open(self._smoe, "rb") as file:
            file.seek(int(entry["offset"]))
            record = np.frombuffer(file.read(int(entry["raw_size"])), np.uint8)
        matrices, at = [], 0
        for rows, cols in layout.expert_shapes(self.identity.d_model, self.a.moe_ffn):
            packed, scales = layout.packed_bytes(rows * cols, bits), 2 * layout.group_count(rows * cols)
            codes, f16 = record[at : at + packed], record[at + packed : at + packed + scales].view("<f2")
            matrices.append(quantize.dequantize(codes, f16, (rows, cols), bits))
            at += packed + scales
        return matrices


def rounded(weights: np.ndarray, bits: int) -> np.ndarray:
    """To codes of the largest magnitude of 64 weights, in float32 as the engine rounds."""
    centre, span = np.float32(quantize.CENTRE[bits]), np.float32(quantize.SPAN[bits])
    groups = weights.reshape(-1, 64)
    scales = np.abs(groups).max(axis=1, keepdims=True).astype(np.float16).astype(np.float32)
    codes = np.rint(groups * (span / scales) + centre).clip(centre - span, centre + span)
    return ((codes - centre) / span * scales).reshape(weights.shape)


def rms_norm(x: np.ndarray, weight: np.ndarray, epsilon: float) -> np.ndarray:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(epsilon)) * weight


def frequencies(theta: float, turned: int, yarn: model_config.Yarn | None) -> np.ndarray:
    """[turned / 2]. Of YaRN: those of few turns over the first training's positions are divided by the factor."""
    plain = theta ** (-np.arange(0, turned, 2) / turned)
    if yarn is None:
        return plain
    turns = np.array([yarn.beta_fast, yarn.beta_slow])
    low, high = turned * np.log(yarn.original / (turns * 2 * np.pi)) / (2 * np.log(theta))
    if yarn.truncate:
        low, high = np.floor(low), np.ceil(high)
    low, high = max(low, 0), min(high, turned - 1)
    ramp = ((np.arange(turned // 2) - low) / (high - low if high != low else 0.001)).clip(0, 1)
    return plain / yarn.factor * ramp + plain * (1 - ramp)


def rotate(x: np.ndarray, angles: np.ndarray, stretch: float) -> np.ndarray:
    """RoPE over halves of the first elements: x [n, heads, d], angles [n, up to d / 2]."""
    cos, sin = ((stretch * f(angles)).astype(np.float32)[:, None] for f in (np.cos, np.sin))
    half = angles.shape[1]
    left, right, rest = np.split(x, [half, 2 * half], axis=-1)
    return np.concatenate([left * cos - right * sin, right * cos + left * sin, rest], axis=-1)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def swiglu(x: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray) -> np.ndarray:
    g = x @ gate.T
    return (g / (1 + np.exp(-g)) * (x @ up.T)) @ down.T
