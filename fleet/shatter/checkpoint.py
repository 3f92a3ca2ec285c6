"""A Hugging Face checkpoint directory: config.json and one or many safetensors shards, read a tensor at a time.

Matrices of 8-bit floats are given as the weights that they stand for, without their scales.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fleet.vaultfile import config as model_config
from fleet.vaultfile.errors import VaultError
from fleet.vaultfile.scout import ScoutHeader, TensorInfo, TensorSpec, read_header, to_bfloat16, to_float32

from . import ShatterError, float8, quantization
from .scales import Scales

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
CACHED = re.compile(r"models--.+?--(.+)")


class Checkpoint:
    """Raises ShatterError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not folder.is_dir():
            raise ShatterError(f"{folder} is not a directory: name the one that holds config.json")
        try:
            self.config: dict[str, Any] = model_config.load(folder / "config.json")
        except model_config.ConfigError as error:
            raise ShatterError(str(error)) from None

    @property
    def name(self) -> str:
        """The directory's; of a snapshot in the model hub's cache, whose directory is a hash, the model's."""
        folder = self.folder.resolve()
        if folder.parent.name == "snapshots" and (cached := CACHED.fullmatch(folder.parent.parent.name)):
            return cached[1]
        return folder.name

    @cached_property
    def _shards(self) -> dict[str, ScoutHeader]:
        """Read when first asked for: a model that cannot be converted is told so whatever its files are."""
        try:
            return {name: read_header(self.folder / name, "download it again") for name in self._shard_names()}
        except VaultError as error:
            raise ShatterError(str(error)) from None

    @cached_property
    def _places(self) -> dict[str, ScoutHeader]:
        return {tensor: shard for shard in self._shards.values() for tensor in shard.tensors}

    @cached_property
    def _scales(self) -> Scales:
        try:
            block = quantization.block(self.config)
        except ShatterError as error:
            raise ShatterError(f"{self.folder / 'config.json'}: {error}") from None
        return Scales({name: self._stored(name) for name in self._places}, block)

    def _stored(self, name: str) -> TensorInfo:
        return self._places[name].tensors[name]

    @property
    def names(self) -> list[str]:
        return sorted(name for name in self._places if name not in self._scales)

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def info(self, name: str) -> TensorSpec:
        """What read_raw() gives."""
        scales = self._scales  # before any file: a form that cannot be read is told so whatever its files are
        if name not in self._places:
            raise ShatterError(f"{self.folder}: tensor {name} is missing; download the checkpoint again")
        shape = self._stored(name).shape
        if scales.has(name):
            scales.of(name)
            return TensorSpec(name, "BF16", shape)
        return TensorSpec(name, self._stored(name).dtype, shape)

    def read(self, name: str) -> np.ndarray:
        """As float32."""
        if self._scales.has(name):
            return self._dequantized(name)
        shard = self._places[name]
        with open(shard.path, "rb") as file:
            return shard.read(file, name)

    def read_raw(self, name: str) -> np.ndarray:
        """As stored; 8-bit floats as BF16, BF16 as uint16."""
        if self._scales.has(name):
            return to_bfloat16(self._dequantized(name))
        shard = self._places[name]
        with open(shard.path, "rb") as file:
            return shard.read_raw(file, name)

    def read_item(self, name: str, index: int) -> np.ndarray:
        """One item along the first axis: floats as float32, U8 as it is."""
        shard = self._places[name]
        with open(shard.path, "rb") as file:
            item = shard.read_item(file, name, index)
        dtype = shard.tensors[name].dtype
        return item if dtype == "U8" else to_float32(item, dtype)

    def fingerprint(self) -> str:
        """SHA-256 over config.json and each shard's name, length and header: cheap, and another for other weights'
        places; the weights themselves are not read.
        """
        digest = hashlib.sha256((self.folder / "config.json").read_bytes())
        for name in sorted(self._shards):
            path = self.folder / name
            with open(path, "rb") as file:
                header = file.read(8 + int.from_bytes(file.read(8), "little"))
            digest.update(f"{name} {path.stat().st_size}\n".encode() + header)
        return digest.hexdigest()

    def _shard_names(self) -> list[str]:
        if (self.folder / INDEX).is_file():
            return self._indexed()
        if (self.folder / SINGLE).is_file():
            return [SINGLE]
        raise ShatterError(f"{self.folder}: neither {SINGLE} nor {INDEX} is there; other forms cannot be read")

    def _indexed(self) -> list[str]:
        try:
            names = set(json.loads((self.folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values())
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            raise ShatterError(f"{self.folder / INDEX}: no weight_map can be read; download it again") from None
        for name in names:
            if not isinstance(name, str) or Path(name).name != name:
                raise ShatterError(f"{self.folder / INDEX}: {name!r} is no file name in this directory")
        return sorted(names)

    def _dequantized(self, name: str) -> np.ndarray:
        scale, shape, block = self._scales.of(name)
        shard = self._places[name]
        with open(shard.path, "rb") as file:
            codes = shard.read_bytes(file, name).reshape(self._stored(name).shape)
        weights = float8.dequantize(codes, self.read(scale).reshape(shape), block)
        if not np.isfinite(weights).all():
            raise ShatterError(f"tensor {name}: it or its scale holds values that are not finite")
        return weights
