"""Verifies the signature of a ref, as a reader does to whom it comes without its envelope."""

from __future__ import annotations

from collections.abc import Mapping

from nacl.signing import VerifyKey

from sublet.protocol.canonical import JsonValue
from sublet.protocol.ezagent.content import ref_bytes, verify_signature
from sublet.protocol.ezagent.errors import malformed


def verify_ref(room_id: str, ref: Mapping[str, JsonValue], keys: tuple[VerifyKey, ...]) -> None:
    """Check a ref's own signature.

    Raises:
        Refused: ``BAD_SIGNATURE``; ``MALFORMED``: it has no canonical form.
    """
    try:
        raw = ref_bytes(room_id, ref)
    except ValueError:
        raise malformed("a ref has no canonical form") from None
    verify_signature(ref.get("signature"), raw, keys)
