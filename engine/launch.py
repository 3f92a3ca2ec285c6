"""A vault -> the engine's command line and environment, with the flags that engines of either version know."""

from __future__ import annotations

import os

from fleet.catalog import ModelCard
from smoe_site.options import Options


def environment(options: Options, card: ModelCard) -> dict[str, str]:
    """Where a version-1 vault's architecture stands: no flag, as version-1 engines end at one that they do not know."""
    config = options.checkpoints_dir / card.id / "config.json"
    needed = card.format_version == 1 and os.path.isfile(config)
    return {"SMOE_ENGINE_CONFIG": str(config)} if needed else {}


def command(options: Options, card: ModelCard) -> list[str]:
    arguments = [str(options.engine), "--vault", str(card.vault_path), "--scout", str(card.scout_path), "--serve"]
    flags = {
        "--ring": options.ring,
        "--workers": options.workers,
        "--temperature": options.temperature,
        "--top-p": options.top_p,
        "--top-k": options.top_k,
        "--rep-penalty": options.rep_penalty,
    }
    if card.eos_ids:
        flags["--eos-ids"] = ",".join(map(str, card.eos_ids))
    if options.ctx:  # version-1 engines know neither this flag nor the next two
        flags["--ctx"] = options.ctx
    if options.memory:
        flags["--memory"] = options.memory
    if options.trunk != "auto":
        flags["--trunk"] = options.trunk
    return [*arguments, *(str(word) for pair in flags.items() for word in pair), *options.engine_args]
