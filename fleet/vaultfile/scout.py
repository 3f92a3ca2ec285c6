"""Safetensors files: 8 bytes of header length, a JSON header, then the tensors' bytes.

Read without trust: every offset is checked against the file. Written one tensor at a time.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from .errors import VaultError
from .files import open_regular, read_exactly

LARGEST_HEADER = 32 << 20  # a checkpoint of 45,000 tensors in one file needs 7 MB
ITEM_BYTES = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
}
ITEM_BYTES |= {"U64": 8, "U32": 4, "U16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1}
FLOAT_DTYPES = ("F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies; offset from the start of the file."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class ScoutHeader:
    path: Path
    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, str] = field(default_factory=dict)

    def read(self, file: BinaryIO, name: str) -> np.ndarray:
        """A tensor as float32, of a file opened from `path`. Raises VaultError."""
        return to_float32(self.read_raw(file, name), self.tensors[name].dtype)

    def read_raw(self, file: BinaryIO, name: str) -> np.ndarray:
        """A tensor's elements as stored: BF16 as uint16."""
        info = self.tensors[name]
        if info.dtype not in FLOAT_DTYPES:
            raise VaultError("invalid", f"{self.path}: {name} is {info.dtype}; supported are {', '.join(FLOAT_DTYPES)}")
        return self.read_bytes(file, name).view(storage_dtype(info.dtype)).reshape(info.shape)

    def read_bytes(self, file: BinaryIO, name: str) -> np.ndarray:
        """A tensor's bytes (uint8, flat), whatever its dtype is."""
        info = self.tensors[name]
        return np.frombuffer(read_exactly(file, info.offset, info.size, self.path), np.uint8)

    def read_item(self, file: BinaryIO, name: str, index: int) -> np.ndarray:
        """`tensor[index]` as stored, and nothing else of the tensor; U8 too."""
        info = self.tensors[name]
        size = info.size // info.shape[0]
        data = np.frombuffer(read_exactly(file, info.offset + index * size, size, self.path), np.uint8)
        return data.view(storage_dtype(info.dtype)).reshape(info.shape[1:])


def storage_dtype(dtype: str) -> np.dtype:
    return np.dtype({"F32": "<f4", "F16": "<f2", "BF16": "<u2", "U8": "u1"}[dtype])


def to_float32(values: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "BF16":
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values.astype(np.float32, copy=False)


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """float32 -> bfloat16 bits (uint16), rounded half to even. NaN stays NaN."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint32(0x7FC0), rounded).astype(np.uint16)


def _tensor(name: str, value: Any, data_start: int, path: Path) -> TensorInfo:
    def invalid(what: str) -> VaultError:
        return VaultError("invalid", f"{path}: tensor {name[:100]!r}: {what}; the file is damaged, replace it")

    if not isinstance(value, dict):
        raise invalid("its description is not an object")
    dtype, shape, offsets = value.get("dtype"), value.get("shape"), value.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise invalid(f"dtype {str(dtype)[:40]!r} is unknown")
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        raise invalid("shape or data_offsets is not a list of sizes")
    begin, end = offsets
    if end - begin != math.prod(shape) * ITEM_BYTES[dtype]:
        raise invalid(f"{end - begin} bytes do not hold shape {shape}")
    return TensorInfo(dtype, tuple(shape), data_start + begin, end - begin)


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(v) is int and 0 <= v < 1 << 48 for v in values) and len(values) < 9


def _parse(raw: bytes, path: Path) -> dict[str, Any]:
    try:
        header = json.loads(raw)
    except (ValueError, RecursionError):
        raise VaultError("invalid", f"{path}: its header is not JSON; replace the file") from None
    if not isinstance(header, dict):
        raise VaultError("invalid", f"{path}: its header is not a JSON object; replace the file")
    return header


def _read_header_bytes(path: Path, missing: str) -> tuple[bytes, int]:
    """The JSON header's bytes and the file's length."""
    with open_regular(path, missing) as file:
        length = os.fstat(file.fileno()).st_size
        prefix = file.read(8)
        size = int.from_bytes(prefix, "little")
        if len(prefix) == 8 and not 2 <= size <= LARGEST_HEADER:
            raise VaultError("invalid", f"{path}: not a safetensors file (header of {size} bytes); replace it")
        if len(prefix) < 8 or size > length - 8:
            raise VaultError("incomplete", f"{path}: ends inside its header; wait or copy it again")
        return read_exactly(file, 8, size, path), length


def read_header(path: Path, missing: str = "put the scout beside its vault") -> ScoutHeader:
    """Names, places and metadata; reads no tensor. `missing`: what to do where it is. Raises VaultError."""
    raw, length = _read_header_bytes(path, missing)
    header = _parse(raw, path)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise VaultError("invalid", f"{path}: __metadata__ is not a map of strings; replace the file")
    data_start = 8 + len(raw)
    tensors = {name: _tensor(name, value, data_start, path) for name, value in header.items()}
    end = max((info.offset + info.size for info in tensors.values()), default=data_start)
    if end > length:
        missing = f"{length:,} of {end:,} bytes are there"
        raise VaultError("incomplete", f"{path}: {missing}; wait or copy it again")
    return ScoutHeader(path, tensors, metadata)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    name: str
    dtype: str  # F32, F16, BF16 or U8
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


def header_bytes(specs: Sequence[TensorSpec], metadata: Mapping[str, str]) -> bytes:
    """The file's beginning, padded with spaces so that the tensors start on a multiple of 8."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for spec in specs:
        header[spec.name] = {
            "dtype": spec.dtype,
            "shape": list(spec.shape),
            "data_offsets": [offset, offset + spec.size],
        }
        offset += spec.size
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def write(
    file: BinaryIO, specs: Sequence[TensorSpec], arrays: Iterable[np.ndarray], metadata: Mapping[str, str]
) -> None:
    """Writes `arrays`, in the order of `specs` and with their storage (BF16 as uint16). Raises ValueError."""
    file.write(header_bytes(specs, metadata))
    for spec, array in zip(specs, arrays, strict=True):
        if array.shape != spec.shape or array.dtype != storage_dtype(spec.dtype):
            raise ValueError(f"{spec.name}: {array.dtype}{array.shape} given, {spec.dtype}{spec.shape} declared")
        file.write(np.ascontiguousarray(array).data)
