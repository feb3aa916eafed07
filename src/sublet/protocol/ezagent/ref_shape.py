"""The shape of a message's ref: which fields it may have, and what each may hold.

One schema for both ends: the intake refuses a ref that does not fit it, and readers rely on it. A ref that an earlier
version has let into a store is read as ``mended`` returns it, the same on every replica. Weak: what an extension keeps
under ``ext.`` is JSON and no more than that; the extension looks at it itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from sublet.protocol.ezagent.ids import EntityId, RefId, is_content_id, is_ref_id, ref_ms
from sublet.protocol.patterns import Pattern
from sublet.protocol.times import rfc3339_of_ms, unix_ms

EXTENSION: Final = "ext."
MAX_STATUS_CHARS: Final = 64
MAX_SIGNATURE_CHARS: Final = 128
MAX_NAME_CHARS: Final = 128
NO_CONTENT: Final = "sha256:" + "0" * 64
"""Stands for a content id that is none: nobody has such content."""
UNTOLD: Final = "unknown"
"""Stands for a status or a content type that is no word."""
CHANGEABLE: Final = frozenset({"status", "content_type", "content_id", "signature"})
"""Core fields that a ref's author may change later."""
FIXED: Final = frozenset({"ref_id", "author", "created_at"})
CORE: Final = CHANGEABLE | FIXED
LAST_MS: Final = 32_503_679_999_999
"""The end of the year 2999: the last time that the protocol names."""
_TIME_CHARS: Final = len("2999-12-31T23:59:59.999Z")
# The same few words and names stand in nearly all refs, and are looked at once; none that is too long is kept.
_TIME = Pattern(r"[12]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3})?Z\Z")
_WORD = Pattern(rf"[\x21-\x7e]{{1,{MAX_STATUS_CHARS}}}\Z")
_SIGNATURE = Pattern(rf"[\x21-\x7e]{{0,{MAX_SIGNATURE_CHARS}}}\Z")
_EXTENSION = Pattern(rf"ext\.[\x21-\x7e]{{1,{MAX_NAME_CHARS}}}\Z")


@lru_cache(maxsize=1_024)
def _is_time(text: str) -> bool:
    return _TIME.match(text) is not None


@lru_cache(maxsize=1_024)
def _is_word(text: str) -> bool:
    return _WORD.match(text) is not None


@lru_cache(maxsize=1_024)
def _is_extension(name: str) -> bool:
    return _EXTENSION.match(name) is not None


def moment_ms(value: object) -> int | None:
    """Return the Unix milliseconds that a time of the protocol names, such as ``2026-11-29T10:00:00.000Z``.

    Args:
        value: what stands there.

    Returns:
        None where it is no such time, or one before 1970 or after 2999.
    """
    if not isinstance(value, str) or len(value) > _TIME_CHARS or not _is_time(value):
        return None
    found = unix_ms(value)
    return found if found is not None and found >= 0 else None


def fits(name: str, value: object) -> bool:
    """Tell whether a field of a ref may hold a value; no field of another name may stand there."""
    if name in ("content_type", "status"):
        return isinstance(value, str) and len(value) <= MAX_STATUS_CHARS and _is_word(value)
    if name == "content_id":
        return isinstance(value, str) and is_content_id(value)
    if name == "signature":
        return isinstance(value, str) and _SIGNATURE.match(value) is not None
    if name == "created_at":
        return moment_ms(value) is not None
    if name == "ref_id":
        return isinstance(value, str) and is_ref_id(value) and ref_ms(value) <= LAST_MS
    if name == "author":
        return isinstance(value, str)
    return len(name) <= len(EXTENSION) + MAX_NAME_CHARS and _is_extension(name) and is_json(value)


def misfit(fields: Mapping[str, object]) -> str | None:
    """Return the name of a field that keeps a new ref from being one; None where it is one."""
    missing = next((name for name in sorted(CORE - {"signature"}) if name not in fields), None)
    return missing or next((name for name, value in fields.items() if not fits(name, value)), None)


def mended(fields: Mapping[str, Any], ref_id: RefId, author: EntityId) -> dict[str, Any]:
    """Return a ref as it can be read, whatever an earlier version has let in: each field that fits, and defaults.

    Args:
        fields: as they count.
        ref_id: its id, as it was added.
        author: who has signed it.
    """
    kept = {name: value for name, value in fields.items() if name not in FIXED and fits(name, value)}
    created = fields.get("created_at")
    core = {
        "ref_id": ref_id,
        "author": author,
        "created_at": created if fits("created_at", created) else rfc3339_of_ms(told_ms(ref_id)),
    }
    defaults = {"content_type": UNTOLD, "content_id": NO_CONTENT, "status": UNTOLD}
    return core | defaults | kept


def is_json(value: object) -> bool:
    """Tell whether a decoded value can be told as JSON: bytes can't."""
    if isinstance(value, dict):
        return all(map(is_json, value.values()))
    if isinstance(value, list):
        return all(map(is_json, value))
    return not isinstance(value, bytes)


def told_ms(ref_id: RefId) -> int:
    """Return the time in a ref's id, Unix milliseconds; that of 1970 where it is beyond what can be told."""
    told = ref_ms(ref_id) if is_ref_id(ref_id) else 0
    return told if told <= LAST_MS else 0
