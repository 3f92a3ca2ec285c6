"""One pass of the native engine over given ids."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
from django.conf import settings

from fleet.vaultfile.writer import scout_path_of


def logits(smoe: Path, ids: list[int], *flags: str) -> np.ndarray:
    """[len(ids), vocab]."""
    out = smoe.with_suffix(".logits")
    command = [settings.SMOE.engine, "--vault", smoe, "--scout", scout_path_of(smoe), "--tokens", "0"]
    command += ["--tokens-in", ",".join(map(str, ids)), "--logits", out, *flags]
    subprocess.run(command, check=True, capture_output=True)
    found = np.fromfile(out, "<f4").reshape(len(ids), -1)
    out.unlink()
    return found
