"""Mutations of byte strings, by a seed: the same seed makes the same inputs anywhere."""

from __future__ import annotations

from random import Random

MAX_INPUT_BYTES = 1 << 16
_INTERESTING = (
    b"\0", b"\xff", b"\n", b"\r\n", b"\x1b[2J", b"-o", b"..", b"/", b"%2e%2e", b"{", b"}", b"[", b"]", b'"', b"\\u0000",
    b"\\ud800", b"null", b"NaN", b"1e999", b"-1", b"9" * 25, b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0",
    b"\0\0\0\0\0\0\0\1", b"[" * 60, b"\xe2\x80\xae", b"\xed\xa0\x80", b"a" * 300,
)  # fmt: skip


def mutated(seed: bytes, random: Random, others: list[bytes]) -> bytes:
    """Return ``seed`` after a few random changes, some of which take pieces of ``others``."""
    data = bytearray(seed)
    for _ in range(1 + random.randrange(4)):
        place = random.randrange(len(data) + 1)
        end = min(len(data), place + 1 + random.randrange(16))
        match random.randrange(8):
            case 0 if data and place < len(data):
                data[place] ^= 1 << random.randrange(8)
            case 1:
                data[place:place] = random.choice(_INTERESTING)
            case 2:
                del data[place:end]
            case 3:
                data[place:end] = random.randbytes(end - place)
            case 4:
                data[place:place] = data[place:end] * (1 + random.randrange(20))
            case 5 if others:
                other = random.choice(others)
                start = random.randrange(len(other) + 1)
                data[place:] = other[start:]
            case 6:
                del data[place:]
            case _:
                data[place:end] = random.choice(_INTERESTING)
    return bytes(data[:MAX_INPUT_BYTES])
