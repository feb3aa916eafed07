"""The paired daemons and their pinned keys, in the store and in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import anyio
import structlog

from sublet.daemon.api.peers import AgentView, PeerView
from sublet.daemon.net.base_url import check_url
from sublet.daemon.peering.peer_names import GivenName, Spoken, give_name, name_notes, why_not_renamed
from sublet.daemon.ports.given_to_a2a import KnownPeer
from sublet.daemon.ports.peer_link import PeerAddress
from sublet.daemon.storage.event_log import Recorder
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.torn_rows import RowsOf
from sublet.daemon.times import rfc3339
from sublet.protocol import ids
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import EventKind
from sublet.protocol.near import did_you_mean
from sublet.protocol.signing import KEY_BYTES
from sublet.protocol.text import clean_line
from sublet.protocol.times import unix_seconds

MAX_PEERS = 1_000
MAX_NAMED = 10
"""Peers that the error about an unknown one names."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Peer:
    """A paired daemon; ``a2a_url`` is None where it can't be called from here."""

    name: str
    public_key: bytes
    a2a_url: str | None
    tls_certificate: str | None
    paired_at: str = ""
    note: str = ""
    """Why it is not called what it calls itself; empty where it is, or where a person chose the name."""

    @property
    def node_id(self) -> str:
        """Node id, which follows from the key."""
        return ids.node_id(self.public_key)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the key."""
        return ids.fingerprint(self.public_key)

    def known(self) -> KnownPeer:
        """Return the peer as the A2A face authenticates it."""
        return KnownPeer(self.name, self.public_key, self.fingerprint)

    def address(self) -> PeerAddress:
        """Return how to call the peer.

        Raises:
            SubletError: ``PEER_UNREACHABLE`` where it can't be called from here.
        """
        if self.a2a_url is None:
            raise SubletError(
                LocalCode.PEER_UNREACHABLE,
                f"{self.name} told no address at which it can be called",
                "Run `sublet pair` there and `sublet peers add` here, or let it delegate to this side.",
            )
        return PeerAddress(self.name, self.a2a_url, self.public_key, self.tls_certificate)

    def view(
        self,
        agents: Sequence[AgentView] = (),
        *,
        usable: bool = True,
        why_not: str = "",
        rooms: str = "",
        clock: str = "",
    ) -> PeerView:
        """Return the peer as faces show it."""
        return PeerView(
            name=self.name,
            node_id=self.node_id,
            fingerprint=self.fingerprint,
            a2a_url=self.a2a_url,
            paired_at=self.paired_at,
            agents=list(agents),
            usable=usable,
            why_not=why_not,
            note=self.note,
            rooms=rooms,
            clock=clock,
        )


class PeerStore:
    """All paired daemons. Lookups are answered from memory, changes are on the disk before they count."""

    def __init__(self, journal: Journal, peers: Sequence[Peer]) -> None:
        self._journal = journal
        self._by_name: dict[str, Peer] = {}
        self._by_node: dict[str, Peer] = {}
        for peer in peers:
            self._put(peer)
        self.listeners: list[Callable[[], None]] = []
        """Called after every change of who is paired."""

    @classmethod
    async def load(cls, journal: Journal) -> PeerStore:
        """Return the peers that the store knows."""
        found = await journal.rows.sound(RowsOf("peers", "name"), _peer)
        notes = await journal.events.read(name_notes)
        return cls(journal, [replace(peer, note=notes.get((peer.name, peer.fingerprint), "")) for peer in found])

    def get(self, name: str) -> Peer | None:
        """Return the peer of that name, or None."""
        return self._by_name.get(name)

    def find_address(self, name: str) -> PeerAddress | None:
        """Return how to call the peer of that name; None where it is not paired, or can't be called."""
        peer = self._by_name.get(name)
        return peer.address() if peer is not None and peer.a2a_url is not None else None

    def address_of(self, name: str, fingerprint: str | None, since: str) -> PeerAddress | None:
        """Return how to call the peer that had ``name`` at ``since`` (RFC 3339).

        The key tells, whatever it is called now. Where no key was kept, whoever has that name now must have been paired
        before, since it may be another's.
        """
        if fingerprint is None:
            peer = self._by_name.get(name)
            if peer is not None and unix_seconds(peer.paired_at) > unix_seconds(since):
                return None
        else:
            peer = next((one for one in self._by_name.values() if one.fingerprint == fingerprint), None)
        return peer.address() if peer is not None and peer.a2a_url is not None else None

    def node_of(self, name: str) -> str | None:
        """Return the node id of the peer of that name, or None."""
        peer = self._by_name.get(name)
        return peer.node_id if peer is not None else None

    def require(self, name: str) -> Peer:
        """Return the peer of that name.

        Raises:
            SubletError: ``PEER_UNKNOWN``.
        """
        peer = self._by_name.get(name)
        if peer is None:
            raise self.unknown(name)
        return peer

    def unknown(self, name: str, hidden: Callable[[str], bool] = lambda _: False) -> SubletError:
        """Return the error for a ``name`` that is no peer's; those that are ``hidden`` from the caller stay unnamed."""
        return unknown_peer(name, [known for known in self._by_name if not hidden(known)])

    def by_node_id(self, node_id: str) -> Peer | None:
        """Return the peer with that node id, or None."""
        return self._by_node.get(node_id)

    def find_known(self, node_id: str) -> KnownPeer | None:
        """Return the peer with that node id as the A2A face wants it (``A2AContext.find_peer``)."""
        peer = self.by_node_id(node_id)
        return peer.known() if peer else None

    def list(self) -> list[Peer]:
        """Return all peers by name."""
        return [self._by_name[name] for name in sorted(self._by_name)]

    async def add(self, peer: Peer) -> Peer:
        """Pin the key of a peer under a name that the person chose.

        The same key again updates name and address.

        Raises:
            SubletError: ``KEY_CHANGED`` where the name, or the node id, is pinned to another key; ``UNAVAILABLE``
                where there are ``MAX_PEERS``.
        """
        try:
            # Shielded, so that store and memory never part ways.
            with anyio.CancelScope(shield=True):
                pinned = await self._journal.events.transact(lambda connection, events: pin(connection, events, peer))
                self.remember(pinned)
        except SubletError as error:
            if error.code is LocalCode.KEY_CHANGED:
                await self.report_changed_key(peer.name, peer.fingerprint)
            raise
        return pinned

    def remember(self, pinned: Peer) -> None:
        """Take note of a peer that ``pin`` has pinned in a transaction that is through."""
        before = self.by_node_id(pinned.node_id)
        if before is not None:
            self._drop(before)
        self._put(pinned)
        self._tell()

    async def move(self, peer: Peer, *, told: int | None = 1) -> None:
        """Keep where a peer that is there is called from now on.

        Args:
            peer: with its new address.
            told: how many moves the one event speaks of; None for no event.
        """

        def work(connection: sqlite3.Connection, events: Recorder) -> None:
            connection.execute(
                "UPDATE peers SET a2a_url = ?, tls_certificate = ? WHERE node_id = ?",
                (peer.a2a_url, peer.tls_certificate, peer.node_id),
            )
            if told is not None:
                events.add(EventKind.PEER_MOVED, None, {**_facts(peer), **({"moves": told} if told > 1 else {})})

        with anyio.CancelScope(shield=True):
            await self._journal.events.transact(work)
            if (now := self.by_node_id(peer.node_id)) is not None:  # it may have been removed or renamed meanwhile
                self.remember(replace(now, a2a_url=peer.a2a_url, tls_certificate=peer.tls_certificate))

    async def rename(self, name: str, new_name: str, spoken: Spoken) -> Peer:
        """Call a peer something else here; its key, and what is under way with it, stay.

        Args:
            name: its name.
            new_name: the name that it is to have.
            spoken: what of the configuration names a peer.

        Raises:
            SubletError: ``PEER_UNKNOWN``, or ``CONFLICT`` where something knows the peer by its name, or another by the
                new one: ``why_not_renamed``.
        """
        peer = self.require(name)
        renamed = replace(peer, name=new_name, note="")
        if new_name == name:
            return peer

        def work(connection: sqlite3.Connection, events: Recorder) -> None:
            why = why_not_renamed(connection, name, new_name, peer.fingerprint, spoken)
            if why is not None:
                raise SubletError(
                    LocalCode.CONFLICT,
                    f"{name} keeps its name: {why}",
                    "Change what names it first, see `sublet policy show` and `sublet grants list`, or choose another "
                    "name.",
                )
            where = (new_name, peer.node_id, name)
            if not connection.execute("UPDATE peers SET name = ? WHERE node_id = ? AND name = ?", where).rowcount:
                raise self.unknown(name)  # it was removed or renamed while this waited
            events.add(EventKind.PEER_RENAMED, None, _facts(renamed) | {"was": name})

        with anyio.CancelScope(shield=True):
            await self._journal.events.transact(work)
            if (now := self.by_node_id(peer.node_id)) is not None:  # it may have been removed or have moved meanwhile
                self.remember(replace(now, name=new_name, note=""))
        return renamed

    async def remove(self, name: str) -> Peer:
        """Forget a peer, its key and with it all its access.

        Raises:
            SubletError: ``PEER_UNKNOWN``.
        """
        peer = self.require(name)

        def work(connection: sqlite3.Connection, events: Recorder) -> None:
            connection.execute("DELETE FROM peers WHERE node_id = ?", (peer.node_id,))  # whatever it is called by now
            events.add(EventKind.PEER_REMOVED, None, _facts(peer))

        # Out of memory first: while the disk is being written, the peer has no access any more.
        self._drop(peer)
        with anyio.CancelScope(shield=True):
            try:
                await self._journal.events.transact(work)
            except BaseException:
                self._put(peer)
                raise
        self._tell()
        return peer

    def _put(self, peer: Peer) -> None:
        self._by_name[peer.name] = self._by_node[peer.node_id] = peer

    def _drop(self, peer: Peer) -> None:
        del self._by_name[peer.name], self._by_node[peer.node_id]

    def _tell(self) -> None:
        for listener in self.listeners:
            listener()

    async def report_changed_key(self, name: str, fingerprint: str) -> None:
        """Journal that somebody showed another key than the pinned one for ``name``."""
        pinned = self._by_name.get(name)
        await self._journal.events.append_event(
            EventKind.PEER_KEY_CHANGED,
            None,
            {"name": name, "pinned": pinned.fingerprint if pinned else None, "shown": fingerprint},
        )


def unknown_peer(name: str, known: Iterable[str]) -> SubletError:
    """Return the error for a ``name`` that is none of the ``known`` peers."""
    known = sorted(known)
    paired = ", ".join(known[:MAX_NAMED]) or "none yet"
    return SubletError(
        LocalCode.PEER_UNKNOWN,
        f"no peer named {clean_line(name, 80)!r} is paired{did_you_mean(name, known)} (paired: {paired})",
        "Pair with `sublet pair` on its machine and `sublet peers add LINK --name NAME` here.",
    )


def pin(
    connection: sqlite3.Connection, events: Recorder, peer: Peer, *, spoken: Spoken | None = None, link: str = ""
) -> Peer:
    """Add or update a peer inside a transaction and return it as stored.

    Args:
        connection: of the transaction.
        events: of the transaction.
        peer: name, key and address; its key is proven.
        spoken: what of the configuration names a peer, where the name is only the peer's own hint; None where the
            person chose it.
        link: which of our links it has used, as lists call it; empty where we have used one of its own.

    Raises:
        SubletError: as ``PeerStore.add``.
    """
    same_node = connection.execute("SELECT * FROM peers WHERE node_id = ?", (peer.node_id,)).fetchone()
    if same_node is not None and same_node["public_key"] != peer.public_key:
        raise key_changed(same_node["name"], ids.fingerprint(same_node["public_key"]), peer.fingerprint)
    if spoken is not None:
        known = None if same_node is None else GivenName(same_node["name"])
        given = known or give_name(connection, peer.name, peer.fingerprint, spoken)
        peer = replace(peer, name=given.name, note=given.why)
    same_name = connection.execute("SELECT * FROM peers WHERE name = ?", (peer.name,)).fetchone()
    if same_name is not None and same_name["public_key"] != peer.public_key:
        raise key_changed(peer.name, ids.fingerprint(same_name["public_key"]), peer.fingerprint)
    if same_node is None and connection.execute("SELECT count(*) FROM peers").fetchone()[0] >= MAX_PEERS:
        raise SubletError(LocalCode.UNAVAILABLE, f"{MAX_PEERS} peers are paired already", "Remove some of them.")
    peer = replace(peer, paired_at=rfc3339())
    connection.execute("DELETE FROM peers WHERE node_id = ?", (peer.node_id,))
    connection.execute(
        "INSERT INTO peers (name, node_id, public_key, a2a_url, tls_certificate, paired_at) VALUES (?, ?, ?, ?, ?, ?)",
        (peer.name, peer.node_id, peer.public_key, peer.a2a_url, peer.tls_certificate, peer.paired_at),
    )
    more = {"note": peer.note, "link": link}
    events.add(EventKind.PEER_PAIRED, None, _facts(peer) | {name: text for name, text in more.items() if text})
    return peer


def key_changed(name: str, pinned: str, shown: str) -> SubletError:
    """Return the error for a peer that shows another key than the pinned one."""
    return SubletError(
        LocalCode.KEY_CHANGED,
        f"the key of {name} is {shown}, but {pinned} is pinned: somebody may be posing as {name}",
        f"If its key was changed on purpose, run `sublet peers remove {name}` and pair again.",
    )


def _facts(peer: Peer) -> dict[str, str | None]:
    return {"name": peer.name, "node_id": peer.node_id, "fingerprint": peer.fingerprint, "a2a_url": peer.a2a_url}


def _peer(row: sqlite3.Row) -> Peer:
    """Return the peer of a row.

    Raises:
        ValueError: it is none: such a key would be trusted as nobody has paired with it.
    """
    if not ids.PEER_NAME.match(row["name"]) or len(row["public_key"]) != KEY_BYTES:
        raise ValueError("its name or its key is none")
    if row["node_id"] != ids.node_id(row["public_key"]):
        raise ValueError("the node is not that of the key")
    unix_seconds(row["paired_at"])
    url = row["a2a_url"]
    try:
        if url is not None:
            check_url(url)
    except SubletError as error:
        # An older version took what a peer told of itself; it can pair again.
        log.error("the address of a peer is none, and is set aside", peer=row["name"], reason=error.message)
        url = None
    return Peer(row["name"], row["public_key"], url, row["tls_certificate"], row["paired_at"])


def name_remark(peer: Peer) -> str:
    """Return what ``status`` says of a peer that is not called what it calls itself."""
    return (
        f"a peer is called {peer.name} here: {peer.note} (another name: `sublet pair` there, "
        "`sublet peers add LINK --name NAME` here)"
    )
