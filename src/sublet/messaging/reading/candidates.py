"""Writes of one key, of which one is shown: which there are, and their order; which of them count is not told here."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TypeAlias

from sublet.messaging.documents.sequence import Node, in_order
from sublet.messaging.ports.rows import WriteRow
from sublet.protocol.ezagent.ids import EntityId
from sublet.protocol.ezagent.yjs.reader import Reader
from sublet.protocol.ezagent.yjs.update import ANY, BINARY, TYPE, Item, ItemId, Update

Path: TypeAlias = tuple[str, ...]


@dataclass(slots=True)
class Candidate:
    """One write of one key, and what it wrote."""

    id: ItemId
    origin: ItemId | None
    right: ItemId | None
    signer: EntityId
    key: str
    container: ItemId | None
    value: object
    nested: bool
    first: bool


def first_fields(node: Node, update: Update) -> list[Candidate]:
    """Return the fields that an element was added with, as candidates."""
    found: list[Candidate] = []
    inner: set[ItemId] = set()
    first, end = node.id[1] + 1, node.id[1] + node.length
    items = update.items  # of a burst, of which those of one element are looked at
    for at in range(bisect_left(items, first, key=_clock), len(items)):
        item = items[at]
        if item.clock >= end:
            break
        if item.key is None:
            continue
        parent = item.parent if isinstance(item.parent, tuple) else None
        container = parent if parent in inner else None
        id = (update.client, item.clock)
        if item.kind == TYPE:
            inner.add(id)
        value = item.value[-1] if item.kind == ANY and isinstance(item.value, list) else item.value
        plain = value if item.kind in (ANY, BINARY) else None
        found.append(Candidate(id, None, None, node.signer, item.key, container, plain, item.kind == TYPE, first=True))
    return found


def candidate_of(row: WriteRow) -> Candidate:
    """Return a later write of a key as a candidate."""
    value = None if row.value is None else Reader(row.value).value()
    id = (row.client, row.clock)
    return Candidate(
        id, row.origin, row.right, row.signer, row.key, row.container, value, row.value is None, first=False
    )


def live(candidates: list[Candidate], maps: list[ItemId], key: str) -> list[ItemId]:
    """Return those of some maps in which a key has a value last."""
    found: list[ItemId] = []
    for map_id in maps:
        chain = ordered([item for item in candidates if item.container == map_id and item.key == key])
        if chain and (chain[-1].nested or chain[-1].value is not None):
            found.append(map_id)
    return found


def ordered(chain: list[Candidate]) -> list[Candidate]:
    """Return the writes of one key in the order of the CRDT."""
    if len(chain) == 1:
        return chain
    return in_order([(item.id, item.origin, item.right, item) for item in chain]) if chain else []


def _clock(item: Item) -> int:
    return item.clock
