"""Base64 as keys and signatures travel: one text per byte string, so that two texts never stand for one key."""

from __future__ import annotations

import base64
import binascii


def b64(raw: bytes) -> str:
    """Return ``raw`` in base64 (RFC 4648 section 4), padded."""
    return base64.b64encode(raw).decode()


def unb64(text: str, size: int) -> bytes | None:
    """Return the bytes that ``text`` stands for if it is canonical base64 of ``size`` bytes, else None."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if len(raw) == size and b64(raw) == text else None
