"""The pairing links that were made here, and who used each, as the events tell it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from sublet.daemon.api.peers import PairLinkView
from sublet.daemon.peering.pair_proof import id_hash
from sublet.daemon.peering.peers import Peer
from sublet.protocol.events import EventKind
from sublet.protocol.times import unix_seconds

MAX_TOLD: Final = 100
"""Links that are told of."""
_NAME_CHARS: Final = 12


def link_name(token_id: str) -> str:
    """Return what lists and events call a link: the beginning of what the database knows its token by."""
    return id_hash(token_id).hex()[:_NAME_CHARS]


@dataclass(frozen=True, slots=True)
class MadeLink:
    """One link as the events tell of it; ``used_at`` and ``key`` are None where nobody has used it."""

    name: str
    made_at: str
    made_by: str
    expires_at: str
    used_at: str | None = None
    key: str | None = None


def made_links(connection: sqlite3.Connection) -> tuple[list[MadeLink], frozenset[str]]:
    """Return the links that were made last, the newest first, and the names of those that are not used up."""
    query = "SELECT kind, at, data FROM events WHERE delegation_id IS NULL AND kind IN (?, ?) ORDER BY seq DESC"
    made: list[dict[str, str]] = []
    used: dict[str, tuple[str, str]] = {}
    for row in connection.execute(query, (EventKind.PAIR_LINK_MADE, EventKind.PEER_PAIRED)):
        with suppress(ValueError, KeyError, TypeError):
            data = json.loads(row["data"])
            if row["kind"] == EventKind.PEER_PAIRED:
                used[str(data["link"])] = row["at"], str(data["fingerprint"])
            else:
                made.append({"at": row["at"], **{name: str(data[name]) for name in ("link", "by", "expires_at")}})
    left = frozenset(
        row["id_hash"].hex()[:_NAME_CHARS] for row in connection.execute("SELECT id_hash FROM pair_tokens")
    )
    return [
        MadeLink(one["link"], one["at"], one["by"], one["expires_at"], *used.get(one["link"], (None, None)))
        for one in made[:MAX_TOLD]
    ], left


def view_of(link: MadeLink, left: Collection[str], peers: Sequence[Peer], now: float) -> PairLinkView:
    """Return a link as faces show it.

    Args:
        link: as the events tell of it.
        left: names of the links that are not used up.
        peers: who is paired.
        now: Unix seconds.
    """
    is_open = link.name in left and unix_seconds(link.expires_at) > now
    return PairLinkView(
        id=link.name,
        state="used" if link.key is not None else "open" if is_open else "over",
        made_at=link.made_at,
        made_by=link.made_by,
        expires_at=link.expires_at,
        used_at=link.used_at,
        peer=next((peer.name for peer in peers if peer.fingerprint == link.key), None),
        fingerprint=link.key,
    )
