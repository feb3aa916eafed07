"""Who here hears, or answers, under which key: found here, so that Zenoh is told of one pattern alone.

Zenoh compares a key that is declared with all others, on both sides of a link, and tells each peer of the keys of all
rooms. On a link that has proven a peer nothing is won by that, since it is known for whom each thing is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from sublet.protocol.relay.slot_keys import Way, plain_key

TakerT = TypeVar("TakerT")
_ANY: Final = "*"
_REST: Final = "**"
_VERBATIM: Final = "/@"
_ESCAPED: Final = "/+@"


def to_wire(key: str) -> str:
    """Return a key as it is said over a link, where ``**`` has to match chunks that begin with ``@``."""
    return key.replace(_VERBATIM, _ESCAPED)


def from_wire(key: str) -> str:
    """Return the key of what came over a link."""
    return key.replace(_ESCAPED, _VERBATIM)


def from_relay(key: str) -> str:
    """Return the key of what came from a relay; one of another form than it should have is nobody's."""
    found = plain_key(Way.DOWN, key)
    return found[1] if found is not None else ""


@dataclass(slots=True, eq=False)
class _Node(Generic[TakerT]):
    below: dict[str, _Node[TakerT]] = field(default_factory=dict)
    takers: dict[int, TakerT] = field(default_factory=dict)


class LocalKeys(Generic[TakerT]):
    """Takers by key; any thread may call.

    A key that is added may have ``*`` for any chunk, and ``**`` at its end for all that follow. Finding takes as many
    steps as the key has chunks, however many were added.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._root = _Node[TakerT]()
        self._numbers = 0

    def add(self, key: str, taker: TakerT) -> Callable[[], None]:
        """Add a taker; the result takes it away."""
        chunks = key.split("/")
        with self._lock:
            node = self._root
            for chunk in chunks:
                node = node.below.setdefault(chunk, _Node())
            self._numbers += 1
            number = self._numbers
            node.takers[number] = taker

        def end() -> None:
            with self._lock:
                self._remove(chunks, number)

        return end

    def of(self, key: str) -> list[TakerT]:
        """Return whoever takes what comes under a key."""
        found: list[TakerT] = []
        with self._lock:
            nodes = [self._root]
            for chunk in key.split("/"):
                for node in nodes:
                    if (rest := node.below.get(_REST)) is not None:
                        found += rest.takers.values()
                names = (chunk, _ANY) if chunk not in (_ANY, _REST) else (chunk,)
                nodes = [below for node in nodes for name in names if (below := node.below.get(name)) is not None]
            for node in nodes:
                found += node.takers.values()
        return found

    def _remove(self, chunks: list[str], number: int) -> None:
        path = [self._root]
        for chunk in chunks:
            below = path[-1].below.get(chunk)
            if below is None:
                return
            path.append(below)
        path[-1].takers.pop(number, None)
        for chunk, node, above in zip(reversed(chunks), reversed(path), reversed(path[:-1]), strict=False):
            if not node.takers and not node.below:
                del above.below[chunk]
