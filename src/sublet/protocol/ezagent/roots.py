"""The names of the root types of all documents. With another name, a reader sees an empty document (DESIGN 6.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class StorageType(StrEnum):
    """How a datatype is kept (ezagent 2.1)."""

    CRDT_MAP = "crdt_map"
    CRDT_ARRAY = "crdt_array"
    CRDT_TEXT = "crdt_text"
    BLOB = "blob"
    EPHEMERAL = "ephemeral"


@dataclass(frozen=True, slots=True)
class Root:
    """A root type: its name and what it is."""

    name: str
    storage: StorageType


ROOTS: Final[Mapping[str, tuple[Root, ...]]] = {
    "config": (Root("config", StorageType.CRDT_MAP),),
    "index": (Root("timeline", StorageType.CRDT_ARRAY),),
    "content": (Root("content", StorageType.CRDT_MAP), Root("body", StorageType.CRDT_TEXT)),
    "acl": (Root("acl", StorageType.CRDT_MAP),),
    "draft": (Root("draft", StorageType.CRDT_MAP),),
    "blob_ref": (Root("blob_ref", StorageType.CRDT_MAP),),
    "purge": (Root("purge", StorageType.CRDT_MAP),),
    "profile": (Root("profile", StorageType.CRDT_MAP), Root("body", StorageType.CRDT_TEXT)),
}
"""By kind of document (``keys.PATTERNS``). A document of an extension is ``ext``: see ``ext_root``."""


def ext_root(ext_id: str, storage: StorageType) -> Root:
    """Return the root of an extension's own document in a room: it bears the extension's name."""
    return Root(ext_id, storage)
