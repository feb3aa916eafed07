"""Identifiers and the only shapes they may have, so that none of them can ever be a path or an option."""

from __future__ import annotations

import base64
import hashlib
import secrets

from sublet.protocol.patterns import Pattern

DELEGATION_ID = Pattern(r"dlg_[0-9a-f]{32}\Z")
PANEL_PREFIX = "pnl_"
PANEL_ID = Pattern(rf"{PANEL_PREFIX}[0-9a-f]{{32}}\Z")
WIRE_DELEGATION_ID = Pattern(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")
"""A delegation id as any peer may choose it; ours are stricter."""
PEER_NAME = Pattern(r"[a-z0-9][a-z0-9._-]{0,62}\Z")
AGENT_ID = PEER_NAME
SESSION_ID = Pattern(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")
"""A ``fingerSessionId``, also one that another program has chosen."""
PROVIDER_SESSION_ID = Pattern(r"[\x21-\x7e]{1,256}\Z")
"""What a provider may call a session: opaque here, never a path."""
FINGERPRINT = Pattern(r"SHA256:[A-Za-z0-9+/]{43}\Z")


def new_delegation_id() -> str:
    """Return a fresh delegation id: ``dlg_`` and 32 hex digits, 128 random bits."""
    return f"dlg_{secrets.token_hex(16)}"


def new_panel_id() -> str:
    """Return a fresh id of a panel: ``pnl_`` and 32 hex digits."""
    return f"{PANEL_PREFIX}{secrets.token_hex(16)}"


def is_panel(handle: str) -> bool:
    """Tell whether a handle, or the beginning of one, is a panel's, where that of a delegation may stand as well."""
    return handle.startswith(PANEL_PREFIX)


def first_member_id(panel_id: str) -> str:
    """Return the id of a panel's first delegation, whose record tells of all: it has the same digits."""
    return f"dlg_{panel_id.removeprefix(PANEL_PREFIX)}"


def new_follow_up_id() -> str:
    """Return a fresh id of a follow-up: ``fup_`` and 32 hex digits."""
    return f"fup_{secrets.token_hex(16)}"


def new_session_id() -> str:
    """Return a fresh ``fingerSessionId``: ``ses_`` and 32 hex digits."""
    return f"ses_{secrets.token_hex(16)}"


def context_session_id(owner: str, context_id: str) -> str:
    """Return the one ``fingerSessionId`` of a client's conversation: derived, so that no client reaches another's."""
    return f"ses_{hashlib.sha256(f'{len(owner)}:{owner}{context_id}'.encode()).hexdigest()[:32]}"


def new_request_id() -> str:
    """Return a fresh id of a request to the supervisor: ``req_`` and 32 hex digits."""
    return f"req_{secrets.token_hex(16)}"


def new_lease_id() -> str:
    """Return a fresh id of the lease of one call: ``lse_`` and 32 hex digits."""
    return f"lse_{secrets.token_hex(16)}"


def fingerprint(encoded: bytes) -> str:
    """Return the SHA-256 of a raw Ed25519 public key or of a certificate in DER form, in OpenSSH's notation."""
    digest = hashlib.sha256(encoded).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def node_id(public_key: bytes) -> str:
    """Return the node id of a raw 32-byte Ed25519 public key: ``node-`` and 80 bits of its hash in base32."""
    digest = hashlib.sha256(public_key).digest()
    return "node-" + base64.b32encode(digest[:10]).decode().lower()
