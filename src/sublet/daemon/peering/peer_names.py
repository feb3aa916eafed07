"""Chooses a name for a peer that calls itself something: never one with which rights of somebody else come.

Whoever uses a pairing link says what it is called. Rules, grants, sessions and agents know peers by name, so a peer
gets what it asks for only where that name was never another key's and nothing here speaks of it. A person may give any
name with ``sublet peers add LINK --name NAME``.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from sublet.policy.globs import matcher
from sublet.policy.names import skeleton
from sublet.protocol import ids
from sublet.protocol.events import EventKind
from sublet.protocol.patterns import Pattern
from sublet.protocol.text import clean_line

MAX_TRIED: Final = 1_100
"""Numbered names that are tried; there are at most 1,000 peers."""
MAX_TOLD_CHARS: Final = 80
_MAX_HINT: Final = 48
_UNSAFE: Final = Pattern(r"[^a-z0-9._-]+")

Spoken = Callable[[str], str | None]
"""Tells what of the configuration names a peer, such as ``the rule team`` or ``the agent far``; None for nothing."""


@dataclass(frozen=True, slots=True)
class GivenName:
    """The name that a peer got from its hint; ``why`` tells why it is another one, and is empty where it is not."""

    name: str
    why: str = ""


@dataclass(slots=True)
class _Remembered:
    """What the store remembers of names: which keys had each, and what else speaks of it."""

    keys: dict[str, set[str]] = field(default_factory=dict)
    owners: set[str] = field(default_factory=set)
    """Names of which sessions, grants, questions or old delegations are, whoever had them."""
    conditions: list[Callable[[str], bool]] = field(default_factory=list)

    def had(self, name: object, fingerprint: object) -> None:
        if not isinstance(name, str):
            return
        if isinstance(fingerprint, str):
            self.keys.setdefault(name, set()).add(fingerprint)
        else:
            self.owners.add(name)

    def why_not(self, name: str, fingerprint: str) -> str | None:
        keys = self.keys.get(name, set())
        if keys - {fingerprint}:
            return "it was another key's"
        if not keys and name in self.owners:
            return "something that is kept here is of a peer with that name"
        return self.why_bound(name)

    def why_bound(self, name: str) -> str | None:
        """Return what holds for whoever has this name now; None for nothing."""
        if any(matches(skeleton(name)) for matches in self.conditions):
            return "a grant names it"
        return None


def name_from_hint(hint: str) -> str:
    """Return a peer name made from what a peer calls itself."""
    name = _UNSAFE.sub("-", hint.lower())[:_MAX_HINT].strip("._-")
    return name if ids.PEER_NAME.match(name) else "peer"


def give_name(connection: sqlite3.Connection, hint: str, fingerprint: str, spoken: Spoken) -> GivenName:
    """Return a free name like ``hint`` for the peer with that key, inside a transaction.

    Args:
        connection: of the transaction.
        hint: what the peer calls itself.
        fingerprint: of its proven key.
        spoken: what of the configuration names a peer.
    """
    base = name_from_hint(hint)
    remembered = _remembered(connection)
    why = ""
    numbered = (base if number == 1 else f"{base}-{number}" for number in range(1, MAX_TRIED))
    for name in numbered:
        refused = _why_not(connection, name, fingerprint, remembered, spoken)
        if refused is None:
            return GivenName(name, why)
        why = why or f"it calls itself {clean_line(hint, MAX_TOLD_CHARS)!r}, but {refused}"
    # A pattern such as `build*` names all of them; nobody can have been meant by a digest of this key.
    return GivenName(f"peer-{hashlib.sha256(fingerprint.encode()).hexdigest()[:16]}", why)


def why_not_renamed(connection: sqlite3.Connection, old: str, new: str, fingerprint: str, spoken: Spoken) -> str | None:
    """Return why the peer ``old`` can't be called ``new`` from now on, inside a transaction; None where it can.

    Rules and grants know a peer by its name. So none of them may name the peer as it is called, since a deny would hold
    for it no longer, and nothing may be bound to the new name, since that would be its own from then on.

    Args:
        connection: of the transaction.
        old: its name.
        new: the name that it is to have.
        fingerprint: of its key.
        spoken: what of the configuration names a peer.
    """
    remembered = _remembered(connection)
    live = "SELECT 1 FROM grants WHERE agent = ?1 AND revoked_at IS NULL AND remaining > 0"
    waits = "SELECT 1 FROM approvals WHERE agent = ?1 AND state = 'pending'"
    if (named := spoken(old)) is not None:
        return f"{named} names it as {old}, and would no longer hold for it"
    if (bound := remembered.why_bound(old)) is not None:
        return f"{bound} as {old}, and would no longer hold for it"
    if connection.execute(f"{live} UNION {waits}", (f"peer:{old}",)).fetchone() is not None:
        return f"a grant, or a question to you, is of {old}"
    refused = _why_not(connection, new, fingerprint, remembered, spoken)
    return f"it can't be called {new}: {refused}" if refused is not None else None


def name_notes(connection: sqlite3.Connection) -> dict[tuple[str, str], str]:
    """Return, by name and fingerprint, why a peer is not called what it calls itself, as was said when it paired."""
    notes: dict[tuple[str, str], str] = {}
    events = "SELECT data FROM events WHERE delegation_id IS NULL AND kind = ? ORDER BY seq"
    for row in connection.execute(events, (EventKind.PEER_PAIRED,)):
        with suppress(ValueError, AttributeError):
            data = json.loads(row["data"])
            notes[str(data.get("name")), str(data.get("fingerprint"))] = clean_line(str(data.get("note") or ""), 400)
    return notes


def _why_not(
    connection: sqlite3.Connection, name: str, fingerprint: str, remembered: _Remembered, spoken: Spoken
) -> str | None:
    if connection.execute("SELECT 1 FROM peers WHERE name = ?", (name,)).fetchone() is not None:
        return "another peer has that name"
    named = spoken(name)
    return f"{named} names a peer so" if named is not None else remembered.why_not(name, fingerprint)


def _remembered(connection: sqlite3.Connection) -> _Remembered:
    found = _Remembered()
    # The index over delegations finds these few among all.
    kinds = (
        EventKind.PEER_PAIRED,
        EventKind.PEER_MOVED,
        EventKind.PEER_RENAMED,
        EventKind.PEER_REMOVED,
        EventKind.SESSION_CREATED,
    )
    events = "SELECT kind, data FROM events WHERE delegation_id IS NULL AND kind IN (?, ?, ?, ?, ?)"
    for row in connection.execute(events, kinds):
        with suppress(ValueError, AttributeError):
            data = json.loads(row["data"])
            if row["kind"] != EventKind.SESSION_CREATED:
                found.had(data.get("name"), data.get("fingerprint"))
            elif str(data.get("owner")).startswith("peer:"):
                found.owners.add(data["owner"].removeprefix("peer:"))
    for table in ("delegations", "assignments"):
        of = "json_extract(record, '$.peer') AS name, json_extract(record, '$.peer_fingerprint') AS key"
        peers = f"SELECT DISTINCT {of} FROM {table} WHERE json_valid(record)"  # noqa: S608 - constants
        for row in connection.execute(peers):
            found.had(row["name"], row["key"])
    for table in ("grants", "approvals"):
        agents = f"SELECT DISTINCT agent FROM {table} WHERE agent LIKE 'peer:%'"  # noqa: S608 - constants
        found.owners.update(row["agent"].removeprefix("peer:") for row in connection.execute(agents))
    for row in connection.execute("SELECT conditions FROM grants WHERE revoked_at IS NULL AND conditions != '{}'"):
        with suppress(ValueError, AttributeError):
            wanted = json.loads(row["conditions"]).get("peer")
            if isinstance(wanted, str) and wanted.strip("*"):
                found.conditions.append(matcher(skeleton(wanted)))
    return found
