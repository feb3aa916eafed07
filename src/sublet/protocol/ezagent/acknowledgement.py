"""What the daemon of a recipient holds durably: clocks of writers by shard, signed by the recipient.

``version u8 · epoch 8 bytes · shards u8 · (name u8+bytes · vector u32+bytes)*`` is the payload of an envelope whose
document is ``ezagent/{room}/delivery``. Since the log of a writer has no gaps, a clock covers everything before it,
however many acknowledgements got lost. The epoch names the process of the recipient's daemon: it is another after every
start.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from sublet.protocol.ezagent.errors import Refused, malformed
from sublet.protocol.ezagent.shards import is_shard
from sublet.protocol.ezagent.yjs.vectors import decode_vector, encode_vector

VERSION: Final = 1
EPOCH_BYTES: Final = 8
MAX_SHARDS: Final = 64
MAX_CLIENTS: Final = 4_096
"""Of one shard."""
_HEAD: Final = struct.Struct(f">B{EPOCH_BYTES}sB")
_NAME: Final = struct.Struct(">B")
_LENGTH: Final = struct.Struct(">I")

Clocks: TypeAlias = Mapping[str, Mapping[int, int]]
"""By shard, the next clock of each client."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """What is held, and by which process.

    Args:
        epoch: ``EPOCH_BYTES`` that are others after every start.
        clocks: by shard, for each client the clock up to which all of it is held.
    """

    epoch: bytes
    clocks: Clocks

    def encode(self) -> bytes:
        """Return it as bytes.

        Raises:
            ValueError: too many shards or clients.
        """
        if len(self.clocks) > MAX_SHARDS or any(len(vector) > MAX_CLIENTS for vector in self.clocks.values()):
            raise ValueError("an acknowledgement of too much")
        pieces = [_HEAD.pack(VERSION, self.epoch, len(self.clocks))]
        for shard in sorted(self.clocks):
            name, vector = shard.encode(), encode_vector(self.clocks[shard])
            pieces += (_NAME.pack(len(name)), name, _LENGTH.pack(len(vector)), vector)
        return b"".join(pieces)


def parse_acknowledgement(data: bytes) -> Acknowledgement:
    """Return the acknowledgement in ``data``, in the one form that ``encode`` gives it.

    Raises:
        Refused: ``MALFORMED``.
    """
    clocks: dict[str, dict[int, int]] = {}
    try:
        version, epoch, count = _HEAD.unpack_from(data)
        place = _HEAD.size
        for _ in range(count):
            (length,) = _NAME.unpack_from(data, place)
            place += _NAME.size
            shard = data[place : place + length].decode("ascii")
            place += length
            (length,) = _LENGTH.unpack_from(data, place)
            place += _LENGTH.size
            clocks[shard] = decode_vector(data[place : place + length])
            place += length
    except (struct.error, UnicodeDecodeError) as error:
        raise malformed("an acknowledgement is cut off") from error
    found = Acknowledgement(epoch, clocks)
    if version != VERSION or not all(map(is_shard, clocks)) or _encoded(found) != data:
        raise malformed("an acknowledgement of another form")
    return found


def _encoded(found: Acknowledgement) -> bytes | None:
    try:
        return found.encode()
    except (Refused, ValueError):
        return None
