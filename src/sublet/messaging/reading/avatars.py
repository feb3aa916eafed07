"""Which picture an entity's profile names (EXT-13): the hash of it, which a peer has written."""

from __future__ import annotations

from sublet.messaging.reading.reading import Reading
from sublet.protocol.ezagent.ids import EntityId, is_content_hash
from sublet.protocol.ezagent.keys import doc_id

AVATAR = "avatar_hash"
_PREFIX = "sha256:"


def avatar_of(reading: Reading, entity: EntityId) -> str | None:
    """Return the SHA-256 of the picture that an entity's profile names, in hexadecimal; None where it names none."""
    frontmatter = reading.map_document(doc_id("profile", entity_id=entity)).get("frontmatter")
    found = frontmatter.get(AVATAR) if isinstance(frontmatter, dict) else None
    return found.removeprefix(_PREFIX) if isinstance(found, str) and is_content_hash(found) else None


def avatar_hash(digest: str) -> str:
    """Return a digest as a profile names it."""
    return f"{_PREFIX}{digest}"
