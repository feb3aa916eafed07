"""State vectors: up to which clock somebody has the items of each client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sublet.protocol.ezagent.errors import malformed
from sublet.protocol.ezagent.yjs.reader import Reader
from sublet.protocol.ezagent.yjs.update import MAX_CLOCK
from sublet.protocol.ezagent.yjs.writer import write_number

MAX_VECTOR_BYTES: Final = 1 << 20


def decode_vector(data: bytes) -> dict[int, int]:
    """Return the state vector in ``data``: next clock by client.

    Raises:
        Refused: ``MALFORMED``.
    """
    if len(data) > MAX_VECTOR_BYTES:
        raise malformed("a state vector is too long")
    reader = Reader(data)
    vector: dict[int, int] = {}
    for _ in range(reader.count()):
        client, clock = reader.number(), reader.number()
        if client in vector or clock > MAX_CLOCK:
            raise malformed("a state vector that names a client twice, or a clock beyond 32 bits")
        vector[client] = clock
    if reader.place != len(data):
        raise malformed("bytes after the end of a state vector")
    return vector


def encode_vector(vector: Mapping[int, int]) -> bytes:
    """Return ``vector`` as bytes; clients of the highest ids first, as yrs orders them."""
    out = bytearray()
    write_number(out, len(vector))
    for client in sorted(vector, reverse=True):
        write_number(out, client)
        write_number(out, vector[client])
    return bytes(out)


def closed(fork: int) -> int:
    """Return what stands for a client's clock in a vector of somebody who knows that the client forks.

    Nothing of it is wanted any more. No client ever gets as far as half of all clocks, which tells the two apart.
    """
    return MAX_CLOCK - min(fork, MAX_CLOCK // 2)


def fork_of(clock: int) -> int | None:
    """Return where, by its vector, somebody knows a client to fork; None where they know of no fork."""
    return MAX_CLOCK - clock if clock > MAX_CLOCK // 2 else None
