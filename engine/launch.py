"""A vault -> the engine's command line, with the flags that every engine of either version knows."""

from __future__ import annotations

from fleet.catalog import ModelCard
from smoe_site.options import Options


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
