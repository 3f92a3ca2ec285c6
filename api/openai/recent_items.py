"""What replies to Responses requests were made of, for clients that send an item's id in its place.

`store`, true by default, lets them: the AI SDK does so with every text from a conversation's second turn on. In memory
only; the oldest go first.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from ..sse import dumps

MOST_BYTES = 16 << 20


class RecentItems:
    """Each client sees its own."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._items: OrderedDict[tuple[str, str], bytes] = OrderedDict()

    def keep(self, client: str, items: Iterable[dict[str, Any]]) -> None:
        for item in items:
            encoded = dumps(item).encode()
            self._items[client, item["id"]] = encoded
            self._bytes += len(encoded)
        while self._bytes > self._most_bytes:
            _, oldest = self._items.popitem(last=False)
            self._bytes -= len(oldest)

    def find(self, client: str, identity: str) -> dict[str, Any] | None:
        encoded = self._items.get((client, identity))
        return None if encoded is None else json.loads(encoded)


recent_items = RecentItems()
