"""What a message names that goes with it: contents, documents of what it says, and files. Nothing is read here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sublet.messaging.ports.purge_store import Kind
from sublet.messaging.reading.candidates import Candidate
from sublet.protocol.ezagent.ids import EntityId, RoomId, is_content_hash, is_own_content_id
from sublet.protocol.ezagent.keys import doc_id

CONTENT_ID: Final = "content_id"
MEDIA: Final = "ext.media"
_BLOB_HASH: Final = "blob_hash"
_PREFIX: Final = "sha256:"


@dataclass(frozen=True, slots=True)
class Named:
    """One thing that a message names, and whose the message is."""

    kind: Kind
    name: str
    author: EntityId


def named_by(room_id: RoomId, author: EntityId, writes: Iterable[Candidate]) -> list[Named]:
    """Return what a message has ever named, all versions of it, whichever of them counts now.

    Args:
        room_id: the room.
        author: who wrote the message; nobody else writes its core fields.
        writes: every write of the message's fields, its first ones among them.
    """
    found: dict[Named, None] = {}
    for write in writes:
        if write.container is not None or write.signer != author:
            continue
        if write.key == CONTENT_ID and isinstance(write.value, str):
            if is_content_hash(write.value):
                found[Named(Kind.CONTENT, write.value, author)] = None
            elif is_own_content_id(write.value, room_id, author):
                name = doc_id("content", room_id=room_id, content_id=write.value)
                found[Named(Kind.DOCUMENT, name, author)] = None
        elif write.key == MEDIA and (digest := file_of(write.value)) is not None:
            found[Named(Kind.FILE, digest, author)] = None
    return list(found)


def file_of(value: object) -> str | None:
    """Return the hash of the file that a message says it comes with, without its prefix; None where it names none."""
    given = value.get(_BLOB_HASH) if isinstance(value, dict) else None
    return given.removeprefix(_PREFIX) if isinstance(given, str) and is_content_hash(given) else None
