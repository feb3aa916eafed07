"""The chain: each entry is one line of canonical JSON that holds the hash of the line before it (DESIGN 7).

Rules: nothing here reads or writes a file. Numbers go up by one. A line is at most ``MAX_LINE_BYTES`` long. A
checkpoint is signed by the daemon's key over the head before it.

Weak: who has the daemon's key can write another chain. What was cut off at the end is seen only by comparing with what
the store remembers (``verify``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from sublet.protocol.canonical import JsonValue, canonical_json
from sublet.protocol.encoding import b64, unb64
from sublet.protocol.signing import SIGNATURE_BYTES

AUDIT_DOMAIN: Final = b"sublet/audit/1"
MAX_LINE_BYTES: Final = 64 * 1024
NOTHING: Final = "0" * 64
"""What the first entry has for the hash of the one before it."""


@dataclass(frozen=True, slots=True)
class Head:
    """The end of a chain: number and hash of its last entry."""

    seq: int = 0
    hash: str = NOTHING


EMPTY: Final = Head()
"""The head of a chain that has no entry yet."""


class BrokenChain(Exception):
    """An entry does not fit the one before it, or is none."""


def entry_line(head: Head, kind: str, at: str, fields: Mapping[str, JsonValue]) -> tuple[bytes, Head]:
    """Return the line of a new entry after ``head``, with its newline, and the head with it.

    Args:
        head: number and hash of the last entry.
        kind: what is told of.
        at: when that was (RFC 3339).
        fields: what else there is to say; left out, with their hash in their place, where the line would be longer than
            ``MAX_LINE_BYTES``.
    """
    body: dict[str, JsonValue] = {**fields, "at": at, "kind": kind, "prev": head.hash, "seq": head.seq + 1}
    line = canonical_json(body)
    if len(line) >= MAX_LINE_BYTES:
        kept: dict[str, JsonValue] = {k: v for k, v in body.items() if k in ("at", "kind", "prev", "seq", "decision")}
        line = canonical_json({**kept, "left_out": "the entry was too large", "sha256": _hash(line)})
    return line + b"\n", Head(head.seq + 1, _hash(line))


def checkpoint(head: Head, key: SigningKey) -> dict[str, JsonValue]:
    """Return the fields of an entry with which the daemon's key signs the chain up to ``head``.

    Args:
        head: number and hash of the entry before.
        key: the daemon's own, which peers have pinned.
    """
    return {"signature": b64(key.sign(_signed(head)).signature)}


def read_entry(line: bytes, head: Head, key: bytes | None) -> tuple[dict[str, JsonValue], Head]:
    """Return the entry in ``line`` (without newline) and the head with it.

    Args:
        line: what was read.
        head: the head before it.
        key: the daemon's raw public key, which checkpoints have to be signed with; None leaves that unchecked.

    Raises:
        BrokenChain: naming what is wrong.
    """
    entry = parse_entry(line)
    seq, prev = entry.get("seq"), entry.get("prev")
    if seq != head.seq + 1:
        raise BrokenChain(f"entry {head.seq + 1} is expected here, and this is {seq}: one is missing, or out of order")
    if prev != head.hash:
        raise BrokenChain(f"entry {seq} does not follow entry {head.seq} as it stands here: one of them was changed")
    if entry.get("kind") == "checkpoint" and key is not None:
        signature = unb64(str(entry.get("signature")), SIGNATURE_BYTES)
        try:
            VerifyKey(key).verify(_signed(head), signature or b"")
        except (BadSignatureError, ValueError):
            raise BrokenChain(f"the signature in entry {seq} is not this daemon's for what stands before it") from None
    return entry, Head(head.seq + 1, _hash(line))


def parse_entry(line: bytes) -> dict[str, JsonValue]:
    """Return the entry in ``line``, wherever it belongs.

    Raises:
        BrokenChain: it is no line that this log writes.
    """
    try:
        entry = json.loads(line)
        if isinstance(entry, dict) and canonical_json(entry) == line:
            return cast("dict[str, JsonValue]", entry)
    except (ValueError, RecursionError):
        pass
    raise BrokenChain("this is not a line as the log writes them: it was changed")


def line_hash(line: bytes) -> str:
    """Return the hash of a line without its newline, as the next entry holds it."""
    return _hash(line)


def _signed(head: Head) -> bytes:
    return AUDIT_DOMAIN + b"\n" + canonical_json({"hash": head.hash, "seq": head.seq})


def _hash(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()
