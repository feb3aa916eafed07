"""What members say to each other to find out what differs between their copies of a room, and to fetch it.

A *root* is what a member signs that it has of a room. A question for *nodes* names prefixes with what the asker has
below them, and the answer tells what is different below each: of which digits, or at which places. A question for
*logs* names places with the heads that the asker has there, and the answer is a bundle with what it lacks.

Rules: every list has a bound that both sides share, and nothing is read beyond it. Weak: who answers may leave out what
it has; its signed root then never becomes that of whoever asks.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sublet.protocol.ezagent.digest_tree import (
    DIGEST_BYTES,
    FAN_OUT,
    FINGERPRINT_BYTES,
    MAX_DEPTH,
    PLACE_BYTES,
    SALT_BYTES,
    Node,
    Prefix,
)
from sublet.protocol.ezagent.errors import malformed
from sublet.protocol.ezagent.yjs.update import MAX_CLIENT, MAX_CLOCK

VERSION: Final = 1
MAX_PREFIXES: Final = 32
"""In one question."""
MAX_LISTED: Final = 32
"""Leaves below a prefix that are told one by one, and beyond which it is divided."""
MAX_LOGS: Final = 128
"""Places in one question for logs."""
MAX_HEADS: Final = 4_096
"""In one question for logs; a document of more clients is asked for in parts."""
MAX_FORKS: Final = 4_096
"""In one question for logs; what is beyond is shown once more."""
MAX_LOGS_BYTES: Final = 256 << 10
_ROOT: Final = struct.Struct(f">BQQ{DIGEST_BYTES}s")
_KIND: Final = struct.Struct(">BB")
_RANGE: Final = struct.Struct(f">{PLACE_BYTES}sQQHH")
_HEAD: Final = struct.Struct(f">QI{FINGERPRINT_BYTES}s")
_FORK: Final = struct.Struct(">QI")
_NODES, _LOGS = 1, 2
_BELOW: Final = 255
"""In place of the number of leaves: children follow."""
UNKNOWN_HEAD: Final = bytes(FINGERPRINT_BYTES)
"""Of a client of whom what comes before the clock is not wanted, and is not here either."""
ALL_CLIENTS: Final = (0, MAX_CLIENT + 1)


def encode_root(node: Node) -> bytes:
    """Return the payload of a signed root."""
    return _ROOT.pack(VERSION, node.count, node.clocks, node.raw)


def decode_root(data: bytes) -> Node:
    """Return what a member says that it has of a room.

    Raises:
        Refused: ``MALFORMED``.
    """
    if len(data) != _ROOT.size:
        raise malformed("a root of another size")
    version, count, clocks, digest = _ROOT.unpack(data)
    if version != VERSION:
        raise malformed(f"a root of version {version}")
    return Node(count, clocks, int.from_bytes(digest, "big"))


@dataclass(frozen=True, slots=True)
class Below:
    """What somebody has below a prefix: fingerprints of all children, or of at most ``MAX_LISTED`` leaves."""

    prefix: Prefix
    fingerprints: tuple[bytes, ...]
    is_leaves: bool


@dataclass(frozen=True, slots=True)
class NodesAsked:
    """A question: what is different below these prefixes?"""

    salt: bytes
    below: tuple[Below, ...]


@dataclass(frozen=True, slots=True)
class HeadAsked:
    """Up to which clock the asker has what a client wrote, and what it is; ``UNKNOWN_HEAD`` where it does not say."""

    client: int
    clock: int
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class LogAsked:
    """What the asker has at a place of clients from ``clients[0]`` on and below ``clients[1]``."""

    place: bytes
    heads: tuple[HeadAsked, ...] = ()
    forks: tuple[tuple[int, int], ...] = ()
    """Clients that it knows to fork, and where."""
    clients: tuple[int, int] = ALL_CLIENTS


@dataclass(frozen=True, slots=True)
class LogsAsked:
    """A question for what is at some places and the asker lacks."""

    salt: bytes
    logs: tuple[LogAsked, ...]


@dataclass(frozen=True, slots=True)
class Differing:
    """What is different below one prefix: digits of children, or places of leaves."""

    digits: tuple[int, ...] = ()
    places: tuple[bytes, ...] = ()


def encode_nodes(asked: NodesAsked) -> bytes:
    """Return a question for nodes as it travels."""
    pieces = [_KIND.pack(VERSION, _NODES), asked.salt]
    for below in asked.below:
        count = len(below.fingerprints) if below.is_leaves else _BELOW
        pieces += (_packed(below.prefix), bytes([count]), *below.fingerprints)
    return b"".join(pieces)


def encode_logs(asked: LogsAsked) -> bytes:
    """Return a question for logs as it travels."""
    pieces = [_KIND.pack(VERSION, _LOGS), asked.salt]
    for log in asked.logs:
        pieces.append(_RANGE.pack(log.place, *log.clients, len(log.heads), len(log.forks)))
        pieces += (_HEAD.pack(head.client, head.clock, head.fingerprint) for head in log.heads)
        pieces += (_FORK.pack(client, clock) for client, clock in log.forks)
    return b"".join(pieces)


def decode_asked(data: bytes) -> NodesAsked | LogsAsked:
    """Return a question.

    Raises:
        Refused: ``MALFORMED``.
    """
    if len(data) > MAX_LOGS_BYTES:
        raise malformed("a question that is too long")
    reader = _Reader(data)
    version, kind = reader.unpack(_KIND)
    if version != VERSION or kind not in (_NODES, _LOGS):
        raise malformed("a question of another form")
    salt = reader.take(SALT_BYTES)
    if kind == _NODES:
        below: list[Below] = []
        while not reader.is_done:
            if len(below) == MAX_PREFIXES:
                raise malformed("a question for too many prefixes")
            below.append(_below(reader))
        return NodesAsked(salt, tuple(below))
    logs: list[LogAsked] = []
    while not reader.is_done:
        if len(logs) == MAX_LOGS:
            raise malformed("a question for too many logs")
        logs.append(_log(reader))
    if sum(len(log.heads) for log in logs) > MAX_HEADS or sum(len(log.forks) for log in logs) > MAX_FORKS:
        raise malformed("a question with too many heads")
    return LogsAsked(salt, tuple(logs))


def encode_differing(found: Sequence[Differing]) -> bytes:
    """Return the answer to a question for nodes, with something for each of its prefixes."""
    pieces = [bytes([VERSION])]
    for one in found:
        mask = sum(1 << digit for digit in one.digits)
        pieces += (struct.pack(">HB", mask, len(one.places)), *one.places)
    return b"".join(pieces)


def decode_differing(data: bytes, asked: int) -> list[Differing]:
    """Return what an answer to a question for nodes says.

    Args:
        data: the answer.
        asked: how many prefixes were asked for.

    Raises:
        Refused: ``MALFORMED``.
    """
    reader = _Reader(data)
    if reader.take(1) != bytes([VERSION]):
        raise malformed("an answer of another version")
    found: list[Differing] = []
    for _ in range(asked):
        mask = int.from_bytes(reader.take(2), "big")
        count = reader.take(1)[0]
        if count > MAX_LISTED:
            raise malformed("an answer that lists too much")
        places = tuple(reader.take(PLACE_BYTES) for _ in range(count))
        found.append(Differing(tuple(digit for digit in range(FAN_OUT) if mask >> digit & 1), places))
    if not reader.is_done:
        raise malformed("an answer with bytes at its end")
    return found


class _Reader:
    """Reads bytes from the front."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_done(self) -> bool:
        return self._at == len(self._data)

    def take(self, count: int) -> bytes:
        if self._at + count > len(self._data):
            raise malformed("cut off")
        self._at += count
        return self._data[self._at - count : self._at]

    def unpack(self, form: struct.Struct) -> tuple[int, ...]:
        return form.unpack(self.take(form.size))


def _packed(prefix: Prefix) -> bytes:
    even = (*prefix, 0) if len(prefix) % 2 else prefix
    return bytes([len(prefix), *(even[at] << 4 | even[at + 1] for at in range(0, len(even), 2))])


def _below(reader: _Reader) -> Below:
    depth = reader.take(1)[0]
    if depth > MAX_DEPTH:
        raise malformed("a prefix that is longer than a place")
    digits = [digit for byte in reader.take((depth + 1) // 2) for digit in (byte >> 4, byte & 15)]
    if any(digits[depth:]):
        raise malformed("a prefix with a digit too many")
    count = reader.take(1)[0]
    is_leaves = count != _BELOW
    if is_leaves and count > MAX_LISTED:
        raise malformed("a question that lists too much")
    fingerprints = tuple(reader.take(FINGERPRINT_BYTES) for _ in range(count if is_leaves else FAN_OUT))
    return Below(tuple(digits[:depth]), fingerprints, is_leaves)


def _log(reader: _Reader) -> LogAsked:
    place, first, beyond, heads, forks = _RANGE.unpack(reader.take(_RANGE.size))
    if heads > MAX_HEADS or forks > MAX_FORKS or not 0 <= first < beyond <= MAX_CLIENT + 1:
        raise malformed("a question with too many heads, or for no client")
    return LogAsked(
        place,
        tuple(_head(reader) for _ in range(heads)),
        tuple(_checked(*reader.unpack(_FORK)) for _ in range(forks)),
        (first, beyond),
    )


def _head(reader: _Reader) -> HeadAsked:
    client, clock, fingerprint = _HEAD.unpack(reader.take(_HEAD.size))
    return HeadAsked(*_checked(client, clock), fingerprint)


def _checked(client: int, clock: int) -> tuple[int, int]:
    if client > MAX_CLIENT or clock > MAX_CLOCK:
        raise malformed("a client or a clock that is too large")
    return client, clock
