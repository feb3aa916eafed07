"""What a peer may declare to Zenoh over its links: one place where it hears, one where it answers, and its tokens.

Zenoh keeps what is declared until the link ends, and compares each key with all others. A daemon hears and answers
everything under one pattern, whatever its rooms are, so more of these are never needed. Tokens say who is there in
which room; as many as a daemon announces are taken, and as many changes as its rooms can have a reason for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sublet.messaging.links.batches import MAX_KEY_BYTES, Declaration, Declares, Odd
from sublet.messaging.links.pace import Pace

EVERYTHING: Final = "ezagent/**"
"""The pattern under which a daemon hears, and that under which it answers."""
MAX_ANNOUNCED: Final = 1_024
"""Tokens that a daemon has on a link. More of its entities and rooms are not announced."""
MAX_DECLARED: Final = 4 * MAX_ANNOUNCED
"""Of a peer, on all its links together. Each token takes two: its key, and itself. A link that is new may stand beside
the one that it replaces."""
MAX_CHANGES: Final = 2 * MAX_DECLARED
"""Of what a peer declares, in one go."""
CHANGES_A_SECOND: Final = 16.0
"""That it may make from then on."""
_EVERYTHING: Final = EVERYTHING.encode()
_BEGINNING: Final = _EVERYTHING.removesuffix(b"/**")
"""Declared by Zenoh itself, for patterns."""
_OF_OURS: Final = b"\0"
"""Stands for a key that we have declared: the one pattern, its beginning, or a token of ours."""
MAX_PATTERNS: Final = 4
"""Of each kind, on one link: one that a daemon needs, and what is declared anew before the other ends."""


@dataclass(slots=True, eq=False)
class DeclaredByPeer:
    """What a peer has declared on all its links, and how much of what it says there is taken.

    Args:
        clock: seconds that never go back.
        pace: counts all that comes from it.
    """

    clock: Callable[[], float] = time.monotonic
    pace: Pace = field(default_factory=Pace)
    count: int = 0
    _left: float = math.inf
    _looked: float = 0.0

    def changed(self) -> None:
        """Count a change.

        Raises:
            Odd: that is one too many.
        """
        now = self.clock()
        self._left = min(MAX_CHANGES, self._left + (now - self._looked) * CHANGES_A_SECOND)
        self._looked = now
        if self._left < 1:
            raise Odd(f"more than {MAX_CHANGES:,} changes of what it declares")
        self._left -= 1
        if self.count > MAX_DECLARED:
            raise Odd(f"more than {MAX_DECLARED:,} declarations")


@dataclass(slots=True, eq=False)
class DeclaredOnLink:
    """What a peer has declared on one link.

    Args:
        of_peer: all that it has declared.
    """

    of_peer: DeclaredByPeer
    _keys: dict[int, bytes] = field(default_factory=dict)
    _live: set[tuple[Declares, int]] = field(default_factory=set)

    def take(self, one: Declaration) -> None:
        """Count a declaration, or its end.

        Raises:
            Odd: no daemon declares this, or so much.
        """
        name = one.kind, one.number
        if one.ends:
            if name in self._live:
                self._live.discard(name)
                self.of_peer.count -= 1
                if one.kind is Declares.KEY:
                    del self._keys[one.number]
        elif name in self._live:
            raise Odd("something that is declared twice")
        else:
            key = self._key_of(one)
            if one.kind in (Declares.SUBSCRIBER, Declares.QUERYABLE) and self._count(one.kind) >= MAX_PATTERNS:
                raise Odd("more patterns than any daemon has")
            if one.kind is Declares.KEY:
                self._keys[one.number] = key
            self._live.add(name)
            self.of_peer.count += 1
        self.of_peer.changed()

    def ended(self) -> None:
        """Forget what was declared on the link, as Zenoh does."""
        self.of_peer.count -= len(self._live)
        self._live.clear()
        self._keys.clear()

    def _count(self, kind: Declares) -> int:
        return sum(declared is kind for declared, _ in self._live)

    def _key_of(self, one: Declaration) -> bytes:
        """Return the key of a declaration, if it is one that daemons have."""
        before = _OF_OURS if one.is_ours else self._keys.get(one.scope) if one.scope else b""
        if before is None:
            raise Odd("a key that nobody has declared")
        key = before + one.suffix
        if len(key) > MAX_KEY_BYTES:
            raise Odd("a key that is too long")
        is_plain = b"*" not in key and b"$" not in key and key.startswith((b"ezagent/", _OF_OURS))
        is_everything = key in (_EVERYTHING, _OF_OURS, _OF_OURS + b"/**")
        fits = {
            Declares.KEY: not one.scope and (is_plain or key in (_EVERYTHING, _BEGINNING)),
            Declares.SUBSCRIBER: is_everything,
            Declares.QUERYABLE: is_everything,
            Declares.TOKEN: is_plain,
        }[one.kind]
        if not fits:
            raise Odd("a key that no daemon declares")
        return key
