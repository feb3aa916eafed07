"""What Zenoh says over a link, read as far as it declares something: its batches, frames and network messages.

A link's bytes go to Zenoh, which keeps whatever a peer declares, in tables whose cost grows with the square of them.
So each batch is read here before its last byte is passed on. This reader takes less than Zenoh does: whatever a daemon
never says is refused (``Odd``), so there is nothing that both take and read differently. It reads no payload.

The forms are those of Zenoh's protocol 9 (``zenoh-codec``), as eclipse-zenoh 1.10 speaks it to a session that has
neither compression nor low latency switched on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

MAX_KEY_BYTES: Final = 1_024
"""Of one key; ours have fewer than 700."""

_INIT, _OPEN, _CLOSE, _KEEP_ALIVE, _FRAME, _FRAGMENT = 1, 2, 3, 4, 5, 6
_INTEREST, _RESPONSE_FINAL, _RESPONSE, _REQUEST, _PUSH, _DECLARE = 0x19, 0x1A, 0x1B, 0x1C, 0x1D, 0x1E
_PUT, _QUERY, _REPLY, _ERROR = 1, 3, 4, 5
_KIND, _FLAG_1, _FLAG_2, _MORE = 0x1F, 0x20, 0x40, 0x80
"""Of a header: what it is the header of, two flags of that, and whether extensions follow."""
_QOS: Final = frozenset({0x21})
"""Extensions of one name: how urgent something is."""
_ASKED: Final = _QOS | {0x34, 0x26}
"""Those of a request: also whom it is for, and for how long."""
_PRIORITY: Final = frozenset({0x31})
"""That of a frame."""
_FIRST, _DROP = 2, 3
"""Those of a fragment that are no numbers: a message begins with it, or ends unsaid."""
_VERSION: Final = 9
_SPOKEN: Final = b"\x81\x27\x01"
"""What both ends of a link have switched on: priorities, and fragments that say where a message begins."""
_LATE: Final = b"Timeout"
"""What Zenoh answers by itself for a daemon that has not answered in time, and nobody else says."""
_RESPONDER, _ATTACHMENT, _QUERY_BODY, _INFO, _NAMED = 0x43, 0x43, 0x43, 0x21, 0x5F


class Odd(Exception):
    """A daemon never says this."""


class Declares(Enum):
    """The kinds of declarations, by their numbers in Zenoh's protocol; that of their end is one more."""

    KEY = 0
    SUBSCRIBER = 2
    QUERYABLE = 4
    TOKEN = 6


@dataclass(frozen=True, slots=True)
class Declaration:
    """Something that a peer declares, or declares no longer.

    Args:
        kind: what it is of.
        number: its number among those of its kind.
        ends: whether it is declared no longer.
        scope: the number of the declared key that its key begins with; 0 for none.
        is_ours: whether that is one of the keys that we have declared.
        suffix: what follows of its key.
    """

    kind: Declares
    number: int
    ends: bool
    scope: int = 0
    is_ours: bool = False
    suffix: bytes = b""


@dataclass(slots=True, eq=False)
class BatchReader:
    """Reads what comes over one link.

    Args:
        declared: told of each declaration, in order.
    """

    declared: Callable[[Declaration], None]
    messages: int = 0
    """Messages that were read: network messages, and what costs as much to read though it holds none."""
    _held: bytearray = field(default_factory=bytearray)
    """The batch that has begun, with its length."""
    _batches: int = 0

    def feed(self, piece: bytes | memoryview) -> None:
        """Read some more.

        Raises:
            Odd: something of it is nothing that a daemon says.
        """
        self._held += piece
        at, held = 0, self._held
        while len(held) - at >= 2:
            end = at + 2 + int.from_bytes(held[at : at + 2], "little")
            if end > len(held):
                break
            batch = bytes(held[at + 2 : end])
            at = end
            try:
                self._batch(batch)
            except IndexError:
                raise Odd("a batch that ends too early") from None
        if at:
            del held[:at]

    def _batch(self, batch: bytes) -> None:
        self._batches += 1
        if self._batches <= 2 and batch[0] & _KIND != _CLOSE:
            (_init if self._batches == 1 else _open)(batch)
            return
        at, before, said = 0, self.messages, 0
        while at < len(batch):
            said += 1
            header = batch[at]
            kind = header & _KIND
            if kind == _FRAME:
                at = self._frame(batch, at)
            elif kind == _FRAGMENT:
                _fragment(batch, at)
                at = len(batch)
            elif header == _KEEP_ALIVE:
                at += 1
            elif kind == _CLOSE and not header & _MORE:
                at += 2
            else:
                raise Odd("a transport message of another kind")
        if at > len(batch):
            raise Odd("a batch that ends too early")
        self.messages = max(self.messages, before + max(said, 1))

    def _frame(self, batch: bytes, at: int) -> int:
        header = batch[at]
        _, at = _number(batch, at + 1)
        at = _extensions(batch, at, bool(header & _MORE), _PRIORITY)
        while at < len(batch) and batch[at] & _KIND >= _INTEREST:
            at = self._message(batch, at)
        return at

    def _message(self, batch: bytes, at: int) -> int:
        """Read a network message; return where it ends."""
        self.messages += 1
        kind = batch[at] & _KIND
        if kind == _PUSH:
            return _put(batch, _extensions(batch, *_named(batch, at), _QOS))
        if kind == _REQUEST:
            return _query(batch, _extensions(batch, *_named(batch, at), _ASKED))
        if kind == _RESPONSE:
            return _reply(batch, _responder(batch, *_named(batch, at)))
        if kind == _RESPONSE_FINAL:
            _, rest = _number(batch, at + 1)
            return _extensions(batch, rest, bool(batch[at] & _MORE), _QOS)
        if kind == _DECLARE:
            return self._declaration(batch, at)
        raise Odd("a network message of another kind")

    def _declaration(self, batch: bytes, at: int) -> int:
        header, at = batch[at], at + 1
        if header & _FLAG_1:
            _, at = _number(batch, at)
        at = _extensions(batch, at, bool(header & _MORE), _QOS)
        header, at = batch[at], at + 1
        kind = header & _KIND
        if header == 0x1A:  # the last of those that stood when the link began
            return at
        if kind > 7:
            raise Odd("a declaration of another kind")
        declares, ends = Declares(kind & ~1), bool(kind & 1)
        number, at = _number(batch, at)
        if number >> (16 if declares is Declares.KEY else 32):
            raise Odd("a number that is too large")
        if ends:
            at = _skip_name(batch, at) if header & _MORE else at
            self.declared(Declaration(declares, number, ends=True))
            return at
        scope, suffix, at = _key(batch, at, bool(header & _FLAG_1))
        is_ours = bool(scope) and not header & _FLAG_2
        if declares is Declares.QUERYABLE:
            at = _extensions(batch, at, bool(header & _MORE), frozenset({_INFO}))
        elif header & _MORE:
            raise Odd("an extension of a declaration")
        self.declared(Declaration(declares, number, ends=False, scope=scope, is_ours=is_ours, suffix=suffix))
        return at


def _number(batch: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length, and where it ends."""
    value = shift = 0
    while (byte := batch[at]) & 0x80 and shift != 56:
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
    return value | byte << shift, at + 1


def _bytes(batch: bytes, at: int) -> tuple[bytes, int]:
    size, at = _number(batch, at)
    if at + size > len(batch):
        raise Odd("a text that ends too late")
    return batch[at : at + size], at + size


def _init(batch: bytes) -> None:
    """Check the first message, which settles how the rest is read."""
    if batch[0] not in (_INIT | _MORE, _INIT | _MORE | _FLAG_1) or batch[1] != _VERSION:
        raise Odd("another handshake than Zenoh's")
    at = 4 + (batch[2] >> 4)
    if batch[0] & _FLAG_1:
        _, at = _bytes(batch, at)
    if batch[at:] != _SPOKEN:
        raise Odd("a link of another kind")


def _open(batch: bytes) -> None:
    if batch[0] & _KIND != _OPEN:
        raise Odd("another handshake than Zenoh's")


def _fragment(batch: bytes, at: int) -> None:
    """Check the fragment with which a message begins; what follows it begins none."""
    more, is_first = bool(batch[at] & _MORE), False
    _, at = _number(batch, at + 1)
    while more:
        extension = batch[at]
        more = bool(extension & _MORE)
        if extension & 0x7F in (_FIRST, _DROP):
            is_first = is_first or extension & 0x7F == _FIRST
            at += 1
        elif extension & 0x7F in _PRIORITY:
            _, at = _number(batch, at + 1)
        else:
            raise Odd("an extension of a fragment")
    if is_first:
        if batch[at] & _KIND not in (_PUSH, _REQUEST, _RESPONSE):
            raise Odd("a declaration in pieces")
        _named(batch, at)


def _key(batch: bytes, at: int, is_named: bool) -> tuple[int, bytes, int]:
    scope, at = _number(batch, at)
    if not is_named:
        return scope, b"", at
    suffix, at = _bytes(batch, at)
    if len(suffix) > MAX_KEY_BYTES:
        raise Odd("a key that is too long")
    return scope, suffix, at


def _named(batch: bytes, at: int) -> tuple[int, bool]:
    """Read the beginning of a message with a key; return where it ends, and whether extensions follow."""
    header, at = batch[at], at + 1
    if header & _KIND != _PUSH:
        _, at = _number(batch, at)
    _, suffix, at = _key(batch, at, bool(header & _FLAG_1))
    if b"*" in suffix:
        raise Odd("a pattern in the place of a key")
    return at, bool(header & _MORE)


def _extensions(batch: bytes, at: int, more: bool, allowed: frozenset[int]) -> int:
    """Pass over extensions that are numbers."""
    while more:
        header = batch[at]
        more = bool(header & _MORE)
        if header & 0x7F not in allowed:
            raise Odd("an extension of a message")
        _, at = _number(batch, at + 1)
    return at


def _responder(batch: bytes, at: int, more: bool) -> int:
    """Pass over the extensions of an answer, of which one says who has answered."""
    while more:
        header = batch[at]
        more = bool(header & _MORE)
        if header & 0x7F == _RESPONDER:
            size, begins = _number(batch, at + 1)
            _, at = _number(batch, begins + 2 + (batch[begins] >> 4))
            if at != begins + size:
                raise Odd("a name of another length")
        elif header & 0x7F in _QOS:
            _, at = _number(batch, at + 1)
        else:
            raise Odd("an extension of an answer")
    return at


def _skip_name(batch: bytes, at: int) -> int:
    """Pass over the key of what is declared no longer."""
    if batch[at] != _NAMED:
        raise Odd("an extension of what ends")
    name, at = _bytes(batch, at + 1)
    if len(name) > MAX_KEY_BYTES:
        raise Odd("a key that is too long")
    return at


def _put(batch: bytes, at: int) -> int:
    header, at = batch[at], at + 1
    if header & _KIND != _PUT or header & (_FLAG_1 | _FLAG_2):
        raise Odd("another sample than ours")
    if header & _MORE:
        if batch[at] != _ATTACHMENT:
            raise Odd("an extension of a sample")
        at = _bytes(batch, at + 1)[1]
    return _bytes(batch, at)[1]


def _query(batch: bytes, at: int) -> int:
    header, at = batch[at], at + 1
    if header & _KIND != _QUERY or header & _FLAG_2:
        raise Odd("another question than ours")
    if header & _FLAG_1:
        _, at = _number(batch, at)
    if header & _MORE:
        if batch[at] != _QUERY_BODY:
            raise Odd("an extension of a question")
        at = _bytes(batch, at + 1)[1]
    return at


def _reply(batch: bytes, at: int) -> int:
    header, at = batch[at], at + 1
    if header == _ERROR:
        said, at = _bytes(batch, at)
        if said != _LATE:
            raise Odd("another error than ours")
        return at
    if header & _KIND != _REPLY or header & _MORE:
        raise Odd("another answer than ours")
    if header & _FLAG_1:
        _, at = _number(batch, at)
    return _put(batch, at)
