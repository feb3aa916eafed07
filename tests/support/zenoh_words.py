"""What Zenoh says over a link, byte by byte: messages as a daemon says them, and others that none does."""

from __future__ import annotations

from typing import Final

ZID: Final = bytes(range(16))
INIT: Final = b"\x81\x09\xf1" + ZID + b"\x81\x27\x01"
INIT_ANSWER: Final = b"\xa1\x09\xf1" + ZID + b"\x30" + bytes(48) + b"\x81\x27\x01"
OPEN: Final = b"\x42\x0a\x83\xd7\xda\x6f\x30" + bytes(48)
KEEP_ALIVE: Final = b"\x04"
CLOSE: Final = b"\x03\x00"
QOS: Final = b"\x21\x08"


def batch(*parts: bytes) -> bytes:
    """Return a batch with its length before it."""
    body = b"".join(parts)
    return len(body).to_bytes(2, "little") + body


def handshake() -> bytes:
    """Return how a link begins."""
    return batch(INIT) + batch(OPEN)


def varint(number: int) -> bytes:
    """Return a number of variable length."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def text(value: bytes) -> bytes:
    """Return bytes with their length before them."""
    return varint(len(value)) + value


def frame(*messages: bytes, number: int = 1) -> bytes:
    """Return a frame for declarations."""
    return b"\xa5" + varint(number) + b"\x31\x00" + b"".join(messages)


def declare(kind: int, number: int, key: bytes = b"", scope: int = 0, *, sender: bool = True) -> bytes:
    """Return a declaration: 0 of a key, 2 of a subscriber, 4 of a queryable, 6 of a token."""
    named = b"" if not key else text(key)
    header = kind | (0x20 if key else 0) | (0x40 if scope and sender else 0)
    return b"\x9e" + QOS + bytes([header]) + varint(number) + varint(scope) + named


def undeclare(kind: int, number: int) -> bytes:
    """Return the end of a declaration."""
    if kind == 0:
        return b"\x9e" + QOS + b"\x01" + varint(number)
    return b"\x9e" + QOS + bytes([kind | 0x81]) + varint(number) + b"\x5f\x02\x00\x00"


def push(key: bytes, payload: bytes, attachment: bytes = b"") -> bytes:
    """Return a sample."""
    body = b"\x81\x43" + text(attachment) if attachment else b"\x01"
    return b"\x3d\x00" + text(key) + body + text(payload)


def request(key: bytes, question: bytes, number: int = 7) -> bytes:
    """Return a question."""
    head = b"\xbc" + varint(number) + b"\x00" + text(key) + b"\xb4\x01\x26\xd0\x0f"
    return head + b"\xa3\x01\x43" + text(b"\x00" + question)


def response(key: bytes, answer: bytes, number: int = 7) -> bytes:
    """Return an answer, and the end of all answers."""
    who = b"\xf0" + ZID + b"\x04"
    head = b"\xbb" + varint(number) + b"\x00" + text(key) + b"\xa1\x0d\x43" + text(who)
    return head + b"\x04\x01" + text(answer) + b"\x9a" + varint(number) + b"\x21\x0d"


def error(said: bytes = b"Timeout", number: int = 7) -> bytes:
    """Return what Zenoh says by itself where a daemon has not answered in time, and the end of all answers."""
    who = b"\xf0" + ZID + b"\x00"
    head = b"\xdb" + varint(number) + b"\x00\xa1\x0d\x43" + text(who)
    return head + b"\x05" + text(said) + b"\x9a" + varint(number) + b"\x21\x0d"


def fragments(message: bytes, size: int) -> list[bytes]:
    """Return a message in pieces, each of them a batch's content."""
    pieces = [message[at : at + size] for at in range(0, len(message), size)]
    last = len(pieces) - 1
    heads = [
        bytes([0x26 | (0x40 if n < last else 0) | (0x80 if n == 0 else 0)])
        + varint(n + 1)
        + (b"\x02" if n == 0 else b"")
        for n in range(len(pieces))
    ]
    return [head + piece for head, piece in zip(heads, pieces, strict=True)]
