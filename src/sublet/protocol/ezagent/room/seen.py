"""What a removal has seen: by document and client, up to which clock the removed member's writes were known.

A removed member's write counts only if the removal's vector covers it, so back-dating gains nothing (DESIGN 6.5).
A vector of many pairs is packed: 12 bytes of a hash stand for a document's name, so that one statement covers all that
a member may write into, and the vector takes no more memory than its bytes. Weak: of a member who has written under
more clients than ``MAX_PACKED_BYTES`` hold, the oldest contents are not covered.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from sublet.protocol.ezagent.yjs.update import MAX_CLIENT, MAX_CLOCK, ItemId, Value

CONFIG: Final = "config"
MAX_DOCUMENTS: Final = 4_096
"""Of a vector that is written as a map of documents."""
MAX_PAIRS_BY_NAME: Final = 256
"""Pairs of a document and a client that are written as a map of documents; more are packed."""
PACKED: Final = "packed"
MAX_PACKED_BYTES: Final = 672 << 10
"""Of a packed vector, so that its text and what else a statement says fit into one update."""
NAME_BYTES: Final = 12
_COUNT: Final = struct.Struct(">H")
_CLIENT: Final = struct.Struct(">Q")
_PAIR: Final = struct.Struct(f">{NAME_BYTES}sHI")
MAX_PACKED_CLIENTS: Final = 2**16 - 1
_FIRST: Final = ("config", "index", "ext")
"""Kinds of documents that are covered before all others."""


@dataclass(frozen=True, slots=True)
class PackedSeen:
    """A packed vector: how many clients, these in order, and for each pair the document, the client's place, the clock.

    Pairs stand in order; of one that does not, every replica finds the same pairs, or the same ones not.
    """

    data: bytes

    @property
    def clients(self) -> int:
        """Return how many clients it names."""
        (count,) = _COUNT.unpack_from(self.data)
        return int(count)

    @property
    def pairs(self) -> range:
        """Return where the pairs begin."""
        return range(_COUNT.size + self.clients * _CLIENT.size, len(self.data), _PAIR.size)

    def is_whole(self) -> bool:
        """Tell whether its length is that of whole pairs."""
        if not _COUNT.size <= len(self.data) <= MAX_PACKED_BYTES:
            return False
        left = len(self.data) - _COUNT.size - self.clients * _CLIENT.size
        return left >= 0 and left % _PAIR.size == 0

    def __getitem__(self, doc: str) -> Mapping[int, int]:
        """Return the clocks of a document."""
        return _PackedClocks(self, _named(doc))

    def get(self, doc: str, default: Mapping[int, int]) -> Mapping[int, int]:
        """Return the clocks of a document, which are none where it was not seen."""
        return self[doc] or default

    def client_at(self, place: int) -> int:
        """Return one of its clients."""
        (client,) = _CLIENT.unpack_from(self.data, _COUNT.size + place * _CLIENT.size)
        return int(client)

    def pair_at(self, offset: int) -> tuple[bytes, int, int]:
        """Return the pair at an offset: hash of the document's name, place of the client, clock."""
        name, place, clock = _PAIR.unpack_from(self.data, offset)
        return name, place, clock


class _PackedClocks(Mapping[int, int]):
    """The clocks of one document of a packed vector, looked up as they are asked for."""

    def __init__(self, seen: PackedSeen, name: bytes) -> None:
        self._seen, self._name = seen, name

    def __getitem__(self, client: int) -> int:
        seen, pairs = self._seen, self._seen.pairs
        place = bisect_left(range(seen.clients), client, key=seen.client_at)
        if place == seen.clients or seen.client_at(place) != client:
            raise KeyError(client)
        wanted = self._name, place
        found = bisect_left(pairs, wanted, key=lambda offset: seen.pair_at(offset)[:2])
        if found == len(pairs) or seen.pair_at(pairs[found])[:2] != wanted:
            raise KeyError(client)
        return seen.pair_at(pairs[found])[2]

    def __iter__(self) -> Iterator[int]:
        seen, pairs = self._seen, self._seen.pairs
        first = bisect_left(pairs, self._name, key=lambda offset: seen.pair_at(offset)[0])
        for offset in pairs[first:]:
            name, place, _ = seen.pair_at(offset)
            if name != self._name:
                return
            if place < seen.clients:
                yield seen.client_at(place)

    def __len__(self) -> int:
        return sum(1 for _ in self)


Seen: TypeAlias = "Mapping[str, Mapping[int, int]] | PackedSeen"
"""Next clock by client, by the part of a document's id after the room's: ``config``, ``index/2026-11``."""


def parse_seen(value: Value) -> Seen | None:
    """Return the vector in a written value; None where it is none, which then covers nothing."""
    if not isinstance(value, dict) or len(value) > MAX_DOCUMENTS:
        return None
    if isinstance(packed := value.get(PACKED), str):
        return _unpacked(packed) if len(value) == 1 else None
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


def _unpacked(text: str) -> PackedSeen | None:
    try:
        seen = PackedSeen(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return None
    return seen if seen.is_whole() else None


def seen_value(seen: Mapping[str, Mapping[int, int]]) -> dict[str, Value]:
    """Return the vector as it is written."""
    if sum(map(len, seen.values())) > MAX_PAIRS_BY_NAME:
        return {PACKED: base64.b64encode(_packed(seen)).decode()}
    return {doc: {str(client): clock for client, clock in clocks.items()} for doc, clocks in seen.items() if clocks}


def _packed(seen: Mapping[str, Mapping[int, int]]) -> bytes:
    """Return as many pairs of a vector as fit: the room's own documents first, then contents, the newest first."""
    by_age = sorted(seen, reverse=True)
    by_age.sort(key=lambda doc: doc.partition("/")[0] not in _FIRST)
    places: dict[int, int] = {}
    taken: list[tuple[bytes, int, int]] = []
    size = _COUNT.size
    for name, (client, clock) in ((doc, pair) for doc in by_age for pair in seen[doc].items()):
        more = _PAIR.size + (_CLIENT.size if client not in places else 0)
        if size + more > MAX_PACKED_BYTES or len(places) == MAX_PACKED_CLIENTS:
            break
        size += more
        places[client] = 0
        taken.append((_named(name), client, clock))
    clients = sorted(places)
    places = {client: place for place, client in enumerate(clients)}
    return b"".join(
        (
            _COUNT.pack(len(clients)),
            *map(_CLIENT.pack, clients),
            *(_PAIR.pack(name, places[client], clock) for name, client, clock in sorted(taken)),
        )
    )


def _named(doc: str) -> bytes:
    return hashlib.sha256(doc.encode()).digest()[:NAME_BYTES]


def covers(seen: Seen, doc: str, item: ItemId) -> bool:
    """Tell whether the vector covers an item of a document."""
    return item[1] < seen.get(doc, {}).get(item[0], 0)
