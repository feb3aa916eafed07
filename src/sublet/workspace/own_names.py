"""Names that rules would hide, but that a lease made itself where nothing was: its own, until it ends.

What counts is the very file that was made and not its name: whoever puts another in its place has put something of the
delegator's there, which is hidden like all else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from sublet.workspace.birth import Identity

MAX_OWN_BYTES: Final = 1 << 20
"""What the names of one directory of a lease may take; nothing more is made then."""
MAX_BORN_BYTES: Final = 2 << 20
"""What is remembered of the files that a lease has made, in one directory; all others count as the delegator's."""
_ENTRY_BYTES: Final = 250
_BORN_BYTES: Final = 100
"""Bytes that a remembered file takes besides its identity, about."""
_BETWEEN: Final = b"//"
"""Between two paths, neither of which holds an empty name."""

Step = Literal["made", "moved", "gone", "born", "dead"]
Tell = Callable[[Step, bytes], object]


@dataclass(slots=True)
class _Node:
    identity: Identity | None = None
    below: dict[bytes, _Node] = field(default_factory=dict)


class OwnNames:
    """The names of one directory. A tree, so that moving a directory costs the same whatever lies in it.

    Args:
        tell: is told each step, for the next process; ``replay`` takes it back.
    """

    def __init__(self, tell: Tell = lambda *_: None) -> None:
        self.tell = tell
        self._top = _Node()
        self._bytes = 0
        self._born: set[bytes] = set()
        self._born_bytes = 0

    def born(self, identity: Identity) -> None:
        """Note that the lease made this, whatever it is called, where it may remove nothing but that."""
        text = identity.text()
        weight = len(text) + _BORN_BYTES
        if text not in self._born and self._born_bytes + weight <= MAX_BORN_BYTES:
            self._born.add(text)
            self._born_bytes += weight
            self.tell("born", text)

    def dead(self, identity: Identity | None) -> None:
        """Note that this was removed: what has its inode later is another one. None is nothing."""
        if identity is not None and (text := identity.text()) in self._born:
            self._born.remove(text)
            self._born_bytes -= len(text) + _BORN_BYTES
            self.tell("dead", text)

    def bore(self, identity: Identity) -> bool:
        """Tell whether the lease made this, as far as that is remembered."""
        return identity.text() in self._born

    def __bool__(self) -> bool:
        """Tell whether there are any."""
        return bool(self._top.below)

    def at(self, parts: Sequence[bytes]) -> Identity | None:
        """Return what was made under this name, or None."""
        node = self._find(parts)
        return node.identity if node is not None else None

    def has_room(self, parts: Sequence[bytes]) -> bool:
        """Tell whether one more name may be made."""
        return self._bytes + sum(map(_weight, parts)) <= MAX_OWN_BYTES

    def made(self, parts: Sequence[bytes], identity: Identity) -> None:
        """Note that the lease made this where nothing was."""
        self._grown(parts).identity = identity
        self.tell("made", b"%s %s" % (identity.text(), b"/".join(parts)))

    def moved(self, old: Sequence[bytes], new: Sequence[bytes]) -> None:
        """Note that a name, with all below it, has become another; what was known of that one is forgotten."""
        self._forget(new)
        if (node := self._cut(old)) is None:
            return
        self._grown(new[:-1]).below[new[-1]] = node
        self._bytes += _weight(new[-1])
        self.tell("moved", b"/".join(old) + _BETWEEN + b"/".join(new))

    def gone(self, parts: Sequence[bytes]) -> None:
        """Note that a name was removed."""
        if self._forget(parts):
            self.tell("gone", b"/".join(parts))

    def replay(self, step: Step, text: bytes) -> None:
        """Do what an earlier process was told; what can't be read is left out."""
        if step == "made":
            told, _, path = text.partition(b" ")
            if (identity := Identity.read(told)) is not None and path:
                self.made(path.split(b"/"), identity)
        elif step == "moved":
            old, _, new = text.partition(_BETWEEN)
            if old and new:
                self.moved(old.split(b"/"), new.split(b"/"))
        elif step in ("born", "dead"):
            if (identity := Identity.read(text)) is not None:
                (self.born if step == "born" else self.dead)(identity)
        else:
            self.gone(text.split(b"/"))

    def paths(self) -> Iterator[bytes]:
        """Yield every name that was made and is neither moved nor gone."""
        pending: list[tuple[bytes, _Node]] = [(b"", self._top)]
        while pending:
            path, node = pending.pop()
            if node.identity is not None:
                yield path
            pending.extend((path + b"/" + part if path else part, below) for part, below in node.below.items())

    def _find(self, parts: Sequence[bytes]) -> _Node | None:
        node: _Node | None = self._top
        for part in parts:
            if node is None:
                return None
            node = node.below.get(part)
        return node

    def _grown(self, parts: Sequence[bytes]) -> _Node:
        node = self._top
        for part in parts:
            below = node.below.get(part)
            if below is None:
                below = node.below[part] = _Node()
                self._bytes += _weight(part)
            node = below
        return node

    def _cut(self, parts: Sequence[bytes]) -> _Node | None:
        """Cut off what is known of a name and of all below it, and directories that then lead to nothing."""
        chain = [self._top]
        for part in parts:
            below = chain[-1].below.get(part)
            if below is None:
                return None
            chain.append(below)
        cut = chain.pop()
        for above, part in zip(reversed(chain), reversed(parts), strict=True):
            del above.below[part]
            self._bytes -= _weight(part)
            if above.below or above.identity is not None:
                break
        return cut

    def _forget(self, parts: Sequence[bytes]) -> bool:
        cut = self._cut(parts)
        pending = [cut] if cut is not None else []
        while pending:
            node = pending.pop()
            self._bytes -= sum(map(_weight, node.below))
            pending.extend(node.below.values())
        return cut is not None


def _weight(part: bytes) -> int:
    return len(part) + _ENTRY_BYTES
