"""A worker that notes what it was asked, in place of the one that owns a process."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.errors import GenerationError
from engine.protocol import Heat
from engine.worker import EngineSnapshot
from fleet.catalog import ModelCard


@dataclass
class WorkerDouble:
    model: str | None = None
    asked: list[str] = field(default_factory=list)
    error: GenerationError | None = None
    figures: dict[str, int | str] = field(default_factory=dict)
    hot: Heat | None = None

    async def switch(self, card: ModelCard) -> None:
        self.asked.append(f"switch {card.id}")
        if self.error:
            raise self.error
        self.model = card.id

    async def unload(self) -> None:
        self.asked.append("unload")
        self.model = None

    async def status(self) -> dict[str, int | str]:
        return self.figures

    async def heat(self) -> Heat | None:
        return self.hot

    def snapshot(self) -> EngineSnapshot:
        state = "up" if self.model else "down"
        return EngineSnapshot(state, self.model, 4711, 0.0, "", 2, bool(self.model), 4096, 2, 1)
