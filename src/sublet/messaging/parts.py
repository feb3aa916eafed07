"""Bundles of peers in parts, so that the engine's thread does other things between two of them."""

from __future__ import annotations

from typing import Final

from sublet.protocol.ezagent.bundle import Bundle, RecordKind

PART_RECORDS: Final = 128
PART_BYTES: Final = 256 << 10
"""Of one part; one update with its contents always fits."""
MAX_STRAY_RECORDS: Final = 16
"""Identity records in an answer beyond one for each update: each costs signatures to prove."""


def parts_of(bundle: Bundle) -> list[Bundle]:
    """Return a bundle's records in parts, in order. What stands behind an update, such as its contents, stays with it.

    Identity records beyond one for each update are left out.
    """
    identities = MAX_STRAY_RECORDS + sum(kind is RecordKind.ENVELOPE for kind, _ in bundle.records)
    parts: list[list[tuple[RecordKind, bytes]]] = [[]]
    size = 0
    for kind, raw in bundle.records:
        if kind is RecordKind.IDENTITY:
            identities -= 1
            if identities < 0:
                continue
        is_full = len(parts[-1]) >= PART_RECORDS or size + len(raw) > PART_BYTES
        if is_full and parts[-1] and kind is not RecordKind.CONTENT:
            parts.append([])
            size = 0
        parts[-1].append((kind, raw))
        size += len(raw)
    return [Bundle(tuple(part)) for part in parts]
