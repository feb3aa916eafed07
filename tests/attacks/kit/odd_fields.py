"""What a hostile member writes into the fields of documents: values of every shape, under every name."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from sublet.messaging.accepting.arrival import Arrival
from sublet.protocol.ezagent.envelope import seal
from sublet.protocol.ezagent.ids import own_ref_id
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.yjs.encode import Nested, Transaction
from sublet.protocol.ezagent.yjs.update import Deletion, ItemId
from support.rooms import NOW_MS, Peer

NO_CONTENT: Final = "sha256:" + "0" * 64
GOOD_TIME: Final = "2026-11-29T10:00:00.000Z"
ODD: Final[tuple[Any, ...]] = (
    "soon",
    "",
    "9999-12-31T23:59:59-23:59",
    "0001-01-01T00:00:00.000Z",
    "2026-13-41T99:99:99.000Z",
    "٢٠٢٦-11-29T10:00:00.000Z",
    "\x1b[2J\x00\u202e",
    "x" * 300,
    b"bytes",
    [b"inner"],
    {"ref_id": b"x", "room_id": [], "root": {}},
    {"ref_id": "01" + "Z" * 24, "room_id": 7},
    {"level": "high", "seen": {"a": -1}},
    {"role": ["owner"], "seen": None, "banned": 3, "reason": {}},
    [[], {}, None, 1.5, "a"],
    [1, 2],
    2**62,
    -1,
    1e308,
    True,
    None,
    "[31m",
    {"": {"": {"": []}}},
    {"id": 1, "name": b"x"},
    "@nobody:nowhere",
    "deleted_by_author",
    "mutable",
    "uuid:" + "0" * 36,
    "7" + "Z" * 25,
)
"""Values that no honest writer gives to any field."""


class OddMember:
    """Writes of a member, signed as they have to be, whose fields are whatever a test says.

    Args:
        peer: the member.
        room: a room that it is in.
    """

    def __init__(self, peer: Peer, room: str) -> None:
        self.peer, self.room = peer, room
        self._clocks: dict[str, int] = {}
        self._before: dict[str, int] = {}
        self._count = 0

    def ref(
        self,
        changed: Mapping[str, Any] = MappingProxyType({}),
        shard: str = "2026-11",
        at_ms: int = NOW_MS,
        last: ItemId | None = None,
    ) -> Arrival:
        """Return a ref; a value of ``...`` leaves a field out."""
        self._count += 1
        fields: dict[str, Any] = {
            "ref_id": own_ref_id(at_ms, self.room, self.peer.id, self._count),
            "author": self.peer.id,
            "content_type": "immutable",
            "content_id": NO_CONTENT,
            "created_at": GOOD_TIME,
            "status": "active",
            "signature": "",
        }
        fields = {name: value for name, value in {**fields, **changed}.items() if value is not ...}
        name = doc_id("index", room_id=self.room, shard_id=shard)
        return self.update(name, lambda transaction: transaction.append_maps("timeline", last, [fields]))

    def keys(self, name: str, root: str, values: Mapping[tuple[str, ...], Any], above: ItemId | None = None) -> Arrival:
        """Return writes of keys of a map document, or of what is in an item of it."""

        def write(transaction: Transaction) -> None:
            made: dict[tuple[str, ...], ItemId] = {}
            for path, value in values.items():
                for depth in range(1, len(path)):
                    if path[:depth] not in made:
                        parent = made.get(path[: depth - 1], above or root)
                        made[path[:depth]] = transaction.set_key(parent, path[depth - 1], None, Nested())
                transaction.set_key(made.get(path[:-1], above or root), path[-1], None, value)

        return self.update(name, write)

    def overwrites(self, name: str, item: ItemId, value: Any) -> Arrival:
        """Return a write over what an item wrote."""
        return self.update(name, lambda transaction: transaction.set_key("", "", item, value))

    def deletes(self, name: str, cut: Deletion) -> Arrival:
        """Return an update that deletes items."""
        return self.update(name, lambda transaction: transaction.delete(cut))

    def update(self, name: str, write: Callable[[Transaction], object]) -> Arrival:
        """Return whatever is written into a transaction, as it arrives."""
        transaction = Transaction(self.peer.client, self._clocks.get(name, 0))
        write(transaction)
        payload = transaction.encode()
        self._before[name], self._clocks[name] = transaction.start, transaction.clock
        if transaction.clock == transaction.start:
            payload = b"\x00" + payload[2 + len(_varint(self.peer.client)) + len(_varint(transaction.start)) :]
        return Arrival(seal(self.peer.entity.key, self.peer.id, name, NOW_MS, payload).raw)

    def fork(self, name: str) -> None:
        """Sign something else for the clocks of what was written last to a document."""
        self._clocks[name] = self._before.get(name, 0)

    def taken(self, name: str, peer: Peer) -> None:
        """Go on behind what a peer has taken of a document, so that nothing that it refused is missed."""
        self._clocks[name] = peer.engine.documents.open(name).next_clock(self.peer.client)


def odd(choice: random.Random) -> Any:
    """Return one of the odd values, or one inside another."""
    value = choice.choice(ODD)
    return choice.choice(
        [value, value, [value], {"x": value}, Nested(x=value) if not isinstance(value, dict) else value]
    )


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)
