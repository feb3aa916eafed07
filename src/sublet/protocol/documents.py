"""What events refer to by digest instead of holding it: rule sets, schemas, replies (SuperAgent 12, DESIGN 7)."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from sublet.protocol.canonical import JsonValue

MAX_DOCUMENT_BYTES: Final = 8 * 1024 * 1024
"""Of a document as JSON; a larger one is not kept."""


@dataclass(frozen=True, slots=True)
class Document:
    """A JSON value under the digest of its bytes; ``packed`` are these bytes, compressed."""

    digest: str
    packed: bytes


@dataclass(frozen=True, slots=True)
class Documented:
    """Data of an event, and the documents that it refers to by digest."""

    data: Mapping[str, JsonValue]
    documents: tuple[Document, ...] = ()


def document(value: JsonValue) -> Document | None:
    """Return ``value`` as a document, or None where it is too large to be kept.

    Half a surrogate pair, which JSON can escape and UTF-8 can't hold, stays as it is.
    """
    raw = json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")
    if len(raw) > MAX_DOCUMENT_BYTES:
        return None
    return Document(hashlib.sha256(raw).hexdigest(), zlib.compress(raw, 6))


def unpacked(found: Document) -> JsonValue:
    """Return what the document holds.

    Raises:
        ValueError: it is damaged: these are not the bytes of that digest.
    """
    try:
        inflate = zlib.decompressobj()
        raw = inflate.decompress(found.packed, MAX_DOCUMENT_BYTES + 1)
    except zlib.error:
        raw = b""
    if hashlib.sha256(raw).hexdigest() != found.digest:
        raise ValueError("these are not the bytes of that digest")
    return cast("JsonValue", json.loads(raw))
