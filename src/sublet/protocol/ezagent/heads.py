"""What a member says, and signs, that it has of a room: for every client its next clock and a hash of all before.

Two members whose hashes of one client differ at one clock hold two histories of it; one whose clocks go back has lost,
or withholds, what it had. The statement travels as the payload of an envelope under the room's ``heads``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from sublet.protocol.bounded_json import parse_json
from sublet.protocol.ezagent.errors import malformed
from sublet.protocol.ezagent.yjs.model import MAX_CLIENT, MAX_CLOCK
from sublet.protocol.patterns import Pattern

MAX_HEADS_BYTES: Final = 512 << 10
MAX_HEAD_DOCUMENTS: Final = 256
MAX_HEAD_CLIENTS: Final = 4_096
"""In one statement, of all documents; what is beyond is left out."""
_HASH = Pattern(r"[0-9a-f]{32}\Z")


class Head(NamedTuple):
    """The next clock of a client in a document, and the hash of all that it wrote before."""

    clock: int
    hash: bytes


Heads: TypeAlias = "dict[str, dict[int, Head]]"
"""By the part of the document's id after the room's, and by client."""


def encode_heads(heads: Mapping[str, Mapping[int, Head]]) -> bytes:
    """Return a statement's payload."""
    told = {
        part: [[client, head.clock, head.hash.hex()] for client, head in sorted(clients.items())]
        for part, clients in heads.items()
    }
    return json.dumps(told, sort_keys=True, separators=(",", ":")).encode()


def decode_heads(data: bytes) -> Heads:
    """Return what a statement says.

    Raises:
        Refused: ``MALFORMED``.
    """
    if len(data) > MAX_HEADS_BYTES:
        raise malformed("heads that are too long")
    try:
        told: Any = parse_json(data)
    except (ValueError, RecursionError):
        raise malformed("heads that are no JSON") from None
    if not isinstance(told, dict) or len(told) > MAX_HEAD_DOCUMENTS:
        raise malformed("heads of another form, or of too many documents")
    return {part: _clients(rows) for part, rows in told.items()}


def _clients(rows: object) -> dict[int, Head]:
    if not isinstance(rows, list) or len(rows) > MAX_HEAD_CLIENTS:
        raise malformed("heads of another form, or of too many clients")
    found: dict[int, Head] = {}
    for row in rows:
        client, head = _head(row)
        if client in found:
            raise malformed("heads that name a client twice")
        found[client] = head
    return found


def _head(row: object) -> tuple[int, Head]:
    match row:
        case [int(client), int(clock), str(digest)] if (
            not isinstance(client, bool)
            and not isinstance(clock, bool)
            and 0 <= client <= MAX_CLIENT
            and 0 < clock <= MAX_CLOCK
            and _HASH.match(digest)
        ):
            return client, Head(clock, bytes.fromhex(digest))
    raise malformed("a head of another form")
