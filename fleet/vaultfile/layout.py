"""The bytes of a `.smoe` file: header, expert table, tensor descriptors, arch block. Little-endian, packed.

Offsets count from the start of the file, those of a tensor descriptor from the start of its expert's record.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

MAGIC = b"SMOE\xde\xea\x00\x01"
ARCH_MAGIC = b"SARC"
PAGE = 16_384  # records and the data area start on multiples of this
GROUP = 64  # consecutive weights that share one float16 scale
BITS = (2, 4, 8)  # 8 is this project's own extension
VERSIONS = (1, 2)
TENSORS = ("gate", "up", "down")

HEADER = struct.Struct("<8s4I2Q6I")
ARCH = struct.Struct("<4s3If9If24s44x")
ENTRY = np.dtype(
    [
        ("layer", "<u4"),
        ("expert", "<u4"),
        ("offset", "<u8"),
        ("raw_size", "<u8"),
        ("padded_size", "<u8"),
        ("group_size", "<u4"),
        ("groups", "<u8"),
        ("reserved", "V4"),
    ]
)
DESCRIPTOR = np.dtype(
    [
        ("tensor", "u1"),
        ("ndim", "u1"),
        ("reserved", "V2"),
        ("rows", "<u4"),
        ("cols", "<u4"),
        ("packed_offset", "<u8"),
        ("packed_size", "<u8"),
        ("scales_offset", "<u8"),
        ("scales_size", "<u8"),
    ]
)
TABLE_BYTES_PER_EXPERT = ENTRY.itemsize + len(TENSORS) * DESCRIPTOR.itemsize

FLAG_RENORMALIZE = 1
FLAG_QK_NORM = 2
FLAG_FIRST_DENSE = 4
KNOWN_FLAGS = FLAG_RENORMALIZE | FLAG_QK_NORM | FLAG_FIRST_DENSE
ACTIVATION_SILU = 0


@dataclass(frozen=True, slots=True)
class Header:
    """The first 64 bytes, in the file's order after the magic."""

    version: int
    moe_layers: int
    experts_per_layer: int
    total_experts: int
    table_offset: int
    data_offset: int
    group_size: int
    bits: int
    d_model: int
    vocab_size: int
    ffn_dim: int  # not to be relied on: files in the wild hold other widths than their experts'
    arch_offset: int  # 0 in version 1

    @property
    def table_end(self) -> int:
        """Where the descriptors, which follow the table, end."""
        return self.table_offset + self.total_experts * TABLE_BYTES_PER_EXPERT

    def pack(self) -> bytes:
        return HEADER.pack(MAGIC, *(getattr(self, name) for name in self.__slots__))

    @classmethod
    def unpack(cls, data: bytes) -> Header:
        return cls(*HEADER.unpack(data)[1:])


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Keys and values of all heads from one vector a position (DeepSeek-V2, https://arxiv.org/abs/2405.04434)."""

    query_rank: int | None  # of the latent that queries come from; None: they come from the hidden state
    rank: int  # of the latent that keys and values come from
    rope_dim: int  # of each query, and of the part of keys that all heads share: the last elements of head_dim
    value_dim: int  # of a head


@dataclass(frozen=True, slots=True)
class Architecture:
    """What the 128 bytes of the arch block say. A width of 0 means that there is no such part."""

    renormalize_top_k: bool
    qk_norm: bool  # RMS norm of each head's queries and keys, before RoPE
    first_layer_dense: bool
    rope_theta: float
    heads: int
    kv_heads: int
    head_dim: int
    top_k: int
    moe_ffn: int
    dense_ffn: int
    shared_ffn: int
    layers: int
    rms_epsilon: float
    model_type: str
    activation: int = ACTIVATION_SILU
    latent: LatentAttention | None = None  # as the checkpoint's config says: the block cannot

    @property
    def kept_width(self) -> int:
        """How many elements a layer keeps of a position: its keys and values, or what both are made of."""
        if self.latent:
            return self.latent.rank + self.latent.rope_dim
        return 2 * self.kv_heads * self.head_dim

    @property
    def flags(self) -> int:
        return (
            FLAG_RENORMALIZE * self.renormalize_top_k
            | FLAG_QK_NORM * self.qk_norm
            | FLAG_FIRST_DENSE * self.first_layer_dense
        )

    def pack(self) -> bytes:
        return ARCH.pack(
            ARCH_MAGIC,
            1,
            ARCH.size,
            self.flags,
            self.rope_theta,
            self.heads,
            self.kv_heads,
            self.head_dim,
            self.top_k,
            self.moe_ffn,
            self.dense_ffn,
            self.shared_ffn,
            self.activation,
            self.layers,
            self.rms_epsilon,
            self.model_type.encode("ascii"),
        )

    @classmethod
    def unpack(cls, data: bytes) -> Architecture:
        """Raises ValueError that names the field when the block is of an unknown form."""
        magic, version, size, flags, theta, *numbers, activation, layers, epsilon, name = ARCH.unpack(data)
        if (magic, version, size) != (ARCH_MAGIC, 1, ARCH.size):
            raise ValueError(f"magic {magic!r}, version {version}, size {size}: not an arch block that is known")
        if flags & ~KNOWN_FLAGS:
            raise ValueError(f"flags {flags:#x} hold bits that this version does not know")
        heads, kv_heads, head_dim, top_k, moe_ffn, dense_ffn, shared_ffn = numbers
        return cls(
            renormalize_top_k=bool(flags & FLAG_RENORMALIZE),
            qk_norm=bool(flags & FLAG_QK_NORM),
            first_layer_dense=bool(flags & FLAG_FIRST_DENSE),
            rope_theta=theta,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            top_k=top_k,
            moe_ffn=moe_ffn,
            dense_ffn=dense_ffn,
            shared_ffn=shared_ffn,
            layers=layers,
            rms_epsilon=epsilon,
            model_type=name.rstrip(b"\0").decode("ascii", "replace"),
            activation=activation,
        )


def align(offset: int, to: int) -> int:
    return -(-offset // to) * to


def packed_bytes(weights: int, bits: int) -> int:
    return -(-weights * bits // 8)


def group_count(weights: int) -> int:
    return -(-weights // GROUP)


def expert_shapes(d_model: int, ffn: int) -> tuple[tuple[int, int], ...]:
    """[rows, cols] of gate, up and down."""
    return (ffn, d_model), (ffn, d_model), (d_model, ffn)
