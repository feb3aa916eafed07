"""The keys under which one node asks another over a relay, which forwards by them; both are named by node id."""

from __future__ import annotations

from typing import Final

from sublet.protocol.patterns import Pattern

KEY_PREFIX: Final = "ezagent/federation"
ASKED: Final = ("event", "server")
MAX_KEY: Final = 128
_NODE = Pattern(r"node-[a-z2-7]{16}\Z")


def relayed_key(what: str, recipient: str, sender: str) -> str:
    """Return the key under which a node is asked over a relay; both are named by node id."""
    return f"{KEY_PREFIX}/{what}/{recipient}/{sender}"


def relayed_between(key: str) -> tuple[str, str] | None:
    """Return recipient and sender of what is asked under a key; None for any other key."""
    parts = key.split("/") if len(key) <= MAX_KEY else []
    if len(parts) != 5 or "/".join(parts[:2]) != KEY_PREFIX or parts[2] not in ASKED:
        return None
    recipient, sender = parts[3:]
    return (recipient, sender) if _NODE.match(recipient) and _NODE.match(sender) else None
