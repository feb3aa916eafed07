"""Key patterns of documents and what a document's id is (ezagent 2.1; DESIGN 6.3: the id has no ``/updates``).

Chunks that begin with ``@`` are verbatim in Zenoh: no wildcard matches them, so each of those keys is used exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from sublet.protocol.ezagent.errors import malformed
from sublet.protocol.ezagent.ids import is_content_id, is_entity_id, is_ref_id, is_room_id
from sublet.protocol.ezagent.shards import is_shard
from sublet.protocol.patterns import Match, Pattern

ROOT: Final = "ezagent"
MAX_KEY_CHARS: Final = 640
_PLACES_KEPT: Final = 1_024
"""Ids of documents of which it is remembered what they say."""
_EXT = Pattern(r"[a-z][a-z0-9-]{0,31}\Z")
_HASH = Pattern(r"[0-9a-f]{64}\Z")
_PLACE = Pattern(r"\{([a-z_]+(?:\|[a-z_]+)*)\}")


class Channel(StrEnum):
    """The two keys of a CRDT document: its state for a first sync, and its updates as they happen."""

    STATE = "state"
    UPDATES = "updates"


@dataclass(frozen=True, slots=True)
class DocumentPlace:
    """What a document's id says: its pattern's name and the values in it."""

    kind: str
    room_id: str | None = None
    shard_id: str | None = None
    content_id: str | None = None
    ext_id: str | None = None
    entity_id: str | None = None
    hash: str | None = None
    ref_id: str | None = None


_CHECKS: Final[Mapping[str, Callable[[str], bool]]] = {
    "room_id": is_room_id,
    "shard_id": is_shard,
    "content_id": is_content_id,
    "ext_id": lambda text: bool(_EXT.match(text)),
    "entity_id": is_entity_id,
    "hash": lambda text: bool(_HASH.match(text)),
    "ref_id": is_ref_id,
}

PATTERNS: Final[Mapping[str, str]] = {
    "config": "ezagent/{room_id}/config",
    "index": "ezagent/{room_id}/index/{shard_id}",
    "content": "ezagent/{room_id}/content/{content_id}",
    "acl": "ezagent/{room_id}/content/{content_id}/acl",
    "draft": "ezagent/{room_id}/ext/draft/{entity_id}",
    "blob_ref": "ezagent/{room_id}/ext/media/blob-ref/{hash}",
    "purge": "ezagent/{room_id}/ext/purge/{ref_id}",
    "ext": "ezagent/{room_id}/ext/{ext_id}",
    "ephemeral": "ezagent/{room_id}/ephemeral/{ext_id}/{entity_id}",
    "delivery": "ezagent/{room_id}/delivery",
    "blob": "ezagent/blob/{hash}",
    "pubkey": "ezagent/{entity_id}/identity/pubkey",
    "challenge": "ezagent/{entity_id}/identity/challenge",
    "root": "ezagent/{room_id}/root",
    "tree": "ezagent/{room_id}/tree/{entity_id}",
    "inbox": "ezagent/{entity_id}/inbox",
    "profile": "ezagent/{entity_id}/ext/profile",
}
"""Every kind of document, without the channel. Ours are ``inbox``, where an invited entity learns of its rooms,
``challenge``, where it shows that it is there, ``delivery``, where recipients acknowledge what they hold, and
``root``, where members state what they have of a room, ``tree``, where one of them tells what differs from it, and
``purge``, which says of one message that it is gone for good."""


def instantiate(pattern: str, **values: str) -> str:
    """Return the key of ``pattern`` with its places filled in; each value is checked for its shape.

    ``@{entity_id}`` of the specification is written ``{entity_id}`` here too, since the id begins with ``@``.

    Raises:
        Refused: a value is missing, or it has another shape than its place asks for.
    """

    def fill(match: Match[str]) -> str:
        name = match[1]
        value = values.get(name)
        if value is None or not _fits(name, value):
            raise malformed(f"no {name} for a key")
        return value

    return _PLACE.sub(fill, pattern.replace("@{entity_id}", "{entity_id}"))


def doc_id(kind: str, **values: str) -> str:
    """Return the id of a document of one of ``PATTERNS``.

    Raises:
        Refused: as for ``instantiate``.
    """
    return _doc_id(kind, tuple(values.items()))


@lru_cache(maxsize=1_024)
def _doc_id(kind: str, values: tuple[tuple[str, str], ...]) -> str:
    return instantiate(PATTERNS[kind], **dict(values))


def parse_doc_id(text: str) -> DocumentPlace:
    """Return what a document's id says.

    Raises:
        Refused: it is the id of no document that exists here.
    """
    if len(text) > MAX_KEY_CHARS:
        raise malformed("a document's id is too long")
    return _parsed(text)


@lru_cache(maxsize=_PLACES_KEPT)
def _parsed(text: str) -> DocumentPlace:
    chunks = text.split("/")
    for kind, words, names in _SPLIT.get(len(chunks), ()):
        # Words first: they tell kinds apart at less cost than what their names may be.
        if all(chunks[at] == word for at, word in words) and all(_fits(name, chunks[at]) for at, name in names):
            return DocumentPlace(kind, **{name: chunks[at] for at, name in names})
    raise malformed("the id of no document")


def channel_key(doc: str, channel: Channel) -> str:
    """Return the key of one channel of a document."""
    return f"{doc}/{channel}"


def _fits(name: str, value: str) -> bool:
    check = _CHECKS.get(name)
    return check is not None and len(value) <= MAX_KEY_CHARS and check(value)


_Parts = list[tuple[int, str]]


def _split() -> dict[int, list[tuple[str, _Parts, _Parts]]]:
    """Return by how many parts a pattern has its kind, its words and its names, with where each stands."""
    found: dict[int, list[tuple[str, _Parts, _Parts]]] = {}
    for kind, pattern in PATTERNS.items():
        parts = list(enumerate(pattern.split("/")))
        words = [(at, part) for at, part in parts if not part.startswith("{")]
        names = [(at, part[1:-1]) for at, part in parts if part.startswith("{")]
        found.setdefault(len(parts), []).append((kind, words, names))
    return found


_SPLIT: Final = _split()
