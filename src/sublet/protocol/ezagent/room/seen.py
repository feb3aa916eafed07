"""What a removal has seen: by document and client, up to which clock the removed member's writes were known.

A removed member's write counts only if the removal's vector covers it, so back-dating gains nothing (DESIGN 6.5).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from sublet.protocol.ezagent.yjs.update import MAX_CLIENT, MAX_CLOCK, ItemId, Value

Seen: TypeAlias = "Mapping[str, Mapping[int, int]]"
"""Next clock by client, by the part of a document's id after the room's: ``config``, ``index/2026-11``."""

CONFIG: Final = "config"
MAX_DOCUMENTS: Final = 4_096


def parse_seen(value: Value) -> Seen | None:
    """Return the vector in a written value; None where it is none, which then covers nothing."""
    if not isinstance(value, dict) or len(value) > MAX_DOCUMENTS:
        return None
    seen: dict[str, dict[int, int]] = {}
    for doc, clocks in value.items():
        if not isinstance(clocks, dict):
            return None
        parsed: dict[int, int] = {}
        for client, clock in clocks.items():
            if not (client.isascii() and client.isdigit() and len(client) <= 16):
                return None
            if not isinstance(clock, int) or isinstance(clock, bool) or not 0 <= clock <= MAX_CLOCK:
                return None
            if int(client) > MAX_CLIENT:
                return None
            parsed[int(client)] = clock
        seen[doc] = parsed
    return seen


def seen_value(seen: Seen) -> dict[str, Value]:
    """Return the vector as it is written."""
    return {doc: {str(client): clock for client, clock in clocks.items()} for doc, clocks in seen.items() if clocks}


def covers(seen: Seen, doc: str, item: ItemId) -> bool:
    """Tell whether the vector covers an item of a document."""
    return item[1] < seen.get(doc, {}).get(item[0], 0)
