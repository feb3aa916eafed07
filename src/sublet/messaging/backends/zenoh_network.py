"""The network on Zenoh: a session for each peer whose key its link has proven, and an uplink to a relay as its client.

With a session for each peer whatever comes is known to come from that peer, it is asked alone, and what is published
goes to those it is for. So such a session declares one pattern, and ``local_keys`` finds who takes what comes.
A relay does not join two peers any more, so what crosses it goes through a client session, where each key is declared.
Chunks that begin with ``@`` match no wildcard, so such keys are used exactly there, and escaped with a peer.
Callbacks come from Zenoh's threads: they only enqueue, since a stalled receiver makes every sender to it wait and then
lose what was queued.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import structlog
import zenoh

from sublet.messaging.backends.local_keys import LocalKeys, from_wire, to_wire
from sublet.messaging.backends.tokens import Announced, Following, Tokens
from sublet.messaging.backends.zenoh_link import (
    SHARED,
    UPLINK,
    AskedOfUs,
    Declaration,
    Link,
    Question,
    direct,
    sample_of,
)
from sublet.messaging.links.declared import EVERYTHING
from sublet.messaging.ports.network import ANYBODY, Heard, PeerQuery, Priority, Qos, Sample
from sublet.protocol.ezagent.bundle import MAX_BUNDLE_BYTES

log = structlog.get_logger(__name__)

MAX_REPLIES: Final = 4_096
"""Answers to one question of those who are reached over links that prove nobody."""
MAX_REPLIES_OF_ONE: Final = 64
"""Of them of each who says to be another one."""
MAX_MESSAGE_BYTES: Final = MAX_BUNDLE_BYTES + (1 << 16)
RETRY: Final = {"period_init_ms": 100, "period_max_ms": 1_000, "period_increase_factor": 1.5}
UPLINK_RETRY_SECONDS: Final = 2.0
_PRIORITIES: Final = {
    Priority.REAL_TIME: zenoh.Priority.REAL_TIME,
    Priority.DATA: zenoh.Priority.DATA,
    Priority.DATA_LOW: zenoh.Priority.DATA_LOW,
}


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where to listen and whom to call, as Zenoh writes it: sockets of ``messaging.links``, or ``tcp/`` in tests.

    Whoever is reached over ``listen``, ``connect`` or ``multicast`` is ``ANYBODY``. ``relays`` are reached as a client;
    ``relay_authority`` knows them, or a public one does. ``multicast`` looks for peers on the network, and is off
    unless asked for. With ``one_pattern`` keys are declared to those at ``listen`` and ``connect`` as to a peer.
    """

    listen: tuple[str, ...] = ()
    connect: tuple[str, ...] = ()
    relays: tuple[str, ...] = ()
    multicast: bool = False
    one_pattern: bool = False
    relay_authority: Path | None = None


class ZenohNetwork:
    """See ``ports.network.Network``. Peers come and go by ``join``.

    Args:
        endpoints: where to listen and whom to call, beside the peers.

    Raises:
        OSError: no session can be opened, for example since a port is taken.
    """

    def __init__(self, endpoints: Endpoints) -> None:
        zenoh.init_log_from_env_or("off")
        self._endpoints = endpoints
        self._plain = frozenset({UPLINK} if endpoints.one_pattern else {SHARED, UPLINK})
        """Links on which each key is declared, as it is."""
        self._closing = threading.Event()
        self._changed: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._declared: dict[int, Declaration] = {}
        self._numbers = itertools.count()
        self._links: dict[str, Link] = {}
        """By peer; those that prove none by a name that is no node id."""
        self._joined: dict[str, Endpoints] = {}
        self._hearing = LocalKeys[Callable[[Sample], None]]()
        self._serving = LocalKeys[Callable[[PeerQuery], None]]()
        self._tokens = Tokens()
        self._announced = Announced(lambda key: self._declare(partial(self._token, key)))
        self._declare(self._on_peers(self._declare_everything), self._tokens.gone)
        if endpoints.listen or endpoints.connect or endpoints.multicast:
            self._link(SHARED).opened(_open(_config("peer", endpoints)))
        self._uplink: threading.Thread | None = None
        if endpoints.relays:
            self._uplink = threading.Thread(
                target=self._dial, args=(self._link(UPLINK), endpoints), name="messaging-uplink", daemon=True
            )
            self._uplink.start()

    def publish(self, key: str, payload: bytes, attachment: bytes, qos: Qos, to: Collection[str] | None = None) -> None:
        for link in self._all():
            session = link.session
            if session is None or not (to is None or link.proves_none or link.peer in to):
                continue
            with suppress(zenoh.ZError):  # its session was closed meanwhile, and what is missing is asked for
                session.put(
                    key if link.peer in self._plain else to_wire(key),
                    payload,
                    attachment=attachment or None,
                    priority=_PRIORITIES[qos.priority],
                    congestion_control=zenoh.CongestionControl.DROP if qos.droppable else zenoh.CongestionControl.BLOCK,
                    express=not qos.droppable,
                )

    def subscribe(self, key: str, callback: Callable[[Sample], None]) -> Callable[[], None]:
        def heard(sample: zenoh.Sample) -> None:
            callback(sample_of(str(sample.key_expr), sample))

        return _both(
            self._hearing.add(key, callback),
            self._declare(
                self._on_plain(
                    lambda session: session.declare_subscriber(key, direct(heard), allowed_origin=zenoh.Locality.REMOTE)
                )
            ),
        )

    def serve(self, key: str, callback: Callable[[PeerQuery], None]) -> Callable[[], None]:
        def asked(query: zenoh.Query) -> None:
            callback(AskedOfUs(query, str(query.key_expr)))

        return _both(
            self._serving.add(key, callback),
            self._declare(
                self._on_plain(
                    lambda session: session.declare_queryable(key, direct(asked), allowed_origin=zenoh.Locality.REMOTE)
                )
            ),
        )

    def linked(self) -> Collection[str]:
        """Return the peers to which there is a link, and ``ANYBODY`` where others may be reached."""
        return {ANYBODY if link.proves_none else link.peer for link in self._all() if link.has_neighbour}

    def met(self) -> Mapping[str, int]:
        """Return the peers to which there is a link, each with a number that is another one once it has come again."""
        found: dict[str, int] = {}
        for link in self._all():
            if link.has_neighbour:
                peer = ANYBODY if link.proves_none else link.peer
                found[peer] = max(link.met, found.get(peer, 0))
        return found

    def ask(self, peer: str, key: str, payload: bytes, timeout_seconds: float, heard: Heard) -> Callable[[], None]:
        links = [link for link in self._all() if (link.proves_none if peer == ANYBODY else link.peer == peer)]
        sessions = [(link, session) for link in links if (session := link.session) is not None]
        question = Question(heard, len(sessions), *((MAX_REPLIES, MAX_REPLIES_OF_ONE) if peer == ANYBODY else (1, 1)))
        for link, session in sessions:
            question.put(session, key if link.peer in self._plain else to_wire(key), payload, timeout_seconds)
        return question.end

    def announce(self, key: str) -> Callable[[], None]:
        return self._announced.add(key)

    def follow(self, key: str, callback: Callable[[bool], None]) -> Callable[[], None]:
        """Hear of a token on all links; one that is opened again begins anew, since what ended meanwhile isn't told."""
        following = Following(callback)

        def on_link(link: str) -> Callable[[zenoh.Session], object]:
            def took(sample: zenoh.Sample) -> None:
                following.took(link, key, sample.kind == zenoh.SampleKind.PUT)

            def declare(session: zenoh.Session) -> object:
                following.gone(link)
                return session.liveliness().declare_subscriber(key, direct(took), history=True)

            return declare if link in self._plain else _nothing

        return _both(self._tokens.follow(key, following), self._declare(on_link, following.gone))

    def join(self, peers: Mapping[str, Endpoints]) -> None:
        """Have a session with each of these peers and with no others; blocks while sessions are opened and closed.

        Only a peer that is new, or whose endpoints have changed, gets a new session. Where one can't be opened the
        others are all the same.

        Args:
            peers: by node id, where to listen for that peer alone, and where to call it.

        Raises:
            OSError: a session can't be opened, or some of them.
        """
        failures: list[OSError] = []
        before = dict(self._joined)
        for peer in self._joined.keys() - peers.keys():
            del self._joined[peer]
            with self._lock:
                gone = self._links.pop(peer)
            gone.close()
        for peer, endpoints in peers.items():
            if self._joined.get(peer) == endpoints:
                continue
            try:
                self._link(peer).reopen(partial(_open, _config("peer", endpoints)))
                self._joined[peer] = endpoints
            except OSError as error:
                self._joined[peer] = Endpoints()  # tried again with the next call
                failures.append(error)
        if self._joined != before:
            self.changed()
        if failures:
            raise failures[0]

    def call(self, connect: tuple[str, ...]) -> None:
        """Call these from now on, in place of those before, of whom nobody knows who they are; blocks meanwhile.

        Raises:
            OSError: no session can be opened; there is none then, until the next call.
        """
        self._endpoints = replace(self._endpoints, connect=connect)
        self._link(SHARED).reopen(lambda: _open(_config("peer", self._endpoints)))
        self.changed()

    def on_change(self, callback: Callable[[], None]) -> None:
        self._changed.append(callback)

    def peers(self) -> int:
        """Return to how many others there is a link."""
        sessions = [link.session for link in self._all() if link.session is not None]
        return sum(len(session.info.peers_zid()) + len(session.info.routers_zid()) for session in sessions)

    def close(self) -> None:
        """End all sessions; without this a process that has one does not end."""
        self._closing.set()
        if self._uplink is not None:
            self._uplink.join(UPLINK_RETRY_SECONDS)
        for link in self._all():
            link.close()

    def changed(self) -> None:
        """Tell whoever asked that a link came or went."""
        for callback in self._changed:
            callback()

    def _all(self) -> list[Link]:
        with self._lock:
            return list(self._links.values())

    def _link(self, peer: str) -> Link:
        """Return the link to a peer, made with all that is declared where there is none."""
        with self._lock:
            link = self._links.get(peer)
            if link is None:
                link = self._links[peer] = Link(self.changed, peer, dict(self._declared))
            return link

    def _declare(
        self,
        declare: Callable[[str], Callable[[zenoh.Session], object]],
        gone: Callable[[str], None] = lambda _: None,
    ) -> Callable[[], None]:
        """Declare something on all links, those of later too; the result ends it.

        Args:
            declare: declares it on a session of the link that is named.
            gone: told of a link that is gone for good.
        """
        declaration = Declaration(declare, gone)
        with self._lock:
            number, links = next(self._numbers), list(self._links.values())
            self._declared[number] = declaration
        for link in links:
            link.declare(number, declaration)

        def end() -> None:
            with self._lock:
                self._declared.pop(number, None)
                left = list(self._links.values())
            for link in left:
                link.undeclare(number)

        return end

    def _on_plain(
        self, declare: Callable[[zenoh.Session], object]
    ) -> Callable[[str], Callable[[zenoh.Session], object]]:
        """Declare on links where each key is declared, and nothing on those of peers."""
        return lambda link: declare if link in self._plain else _nothing

    def _on_peers(
        self, declare: Callable[[str, zenoh.Session], object]
    ) -> Callable[[str], Callable[[zenoh.Session], object]]:
        """Declare on the links of peers, and nothing on others."""
        return lambda link: _nothing if link in self._plain else partial(declare, link)

    def _token(self, key: str, link: str) -> Callable[[zenoh.Session], object]:
        wire = key if link in self._plain else to_wire(key)
        return lambda session: session.liveliness().declare_token(wire)

    def _declare_everything(self, link: str, session: zenoh.Session) -> object:
        """Hear and answer whatever a peer says on its link, and follow its tokens."""

        def heard(sample: zenoh.Sample) -> None:
            key = from_wire(str(sample.key_expr))
            takers = self._hearing.of(key)
            if takers:
                taken = sample_of(key, sample)
                for take in takers:
                    take(taken)

        def asked(query: zenoh.Query) -> None:
            key = from_wire(str(query.key_expr))
            takers = self._serving.of(key)
            if not takers:
                query.drop()  # type: ignore[no-untyped-call]
            for take in takers[:1]:
                take(AskedOfUs(query, key))

        def told(sample: zenoh.Sample) -> None:
            self._tokens.took(link, from_wire(str(sample.key_expr)), sample.kind == zenoh.SampleKind.PUT)

        self._tokens.gone(link)
        return (
            session.declare_subscriber(EVERYTHING, direct(heard), allowed_origin=zenoh.Locality.REMOTE),
            session.declare_queryable(EVERYTHING, direct(asked), allowed_origin=zenoh.Locality.REMOTE),
            session.liveliness().declare_subscriber(EVERYTHING, direct(told), history=True),
        )

    def _dial(self, uplink: Link, endpoints: Endpoints) -> None:
        """Open the uplink as soon as a relay answers; from then on Zenoh reconnects by itself."""
        while not self._closing.is_set():
            try:
                session = zenoh.open(_config("client", endpoints))
            except Exception as error:
                # No relay answers yet; or what it answers breaks the library, which is no reason to give up.
                if not isinstance(error, zenoh.ZError):
                    log.exception("the uplink to a relay failed and is tried again")
                self._closing.wait(UPLINK_RETRY_SECONDS)
                continue
            if self._closing.is_set():
                session.close()  # type: ignore[no-untyped-call]
                return
            uplink.opened(session)
            self.changed()
            return


def _nothing(_: zenoh.Session) -> None:
    """Declare nothing."""


def _both(one: Callable[[], None], other: Callable[[], None]) -> Callable[[], None]:
    def end() -> None:
        one()
        other()

    return end


def _open(config: zenoh.Config) -> zenoh.Session:
    try:
        return zenoh.open(config)
    except zenoh.ZError as error:
        raise OSError(str(error)) from None


def _config(mode: str, endpoints: Endpoints) -> zenoh.Config:
    """Return a config that listens and looks only where it is told to; Zenoh's own defaults listen everywhere."""
    config = zenoh.Config()
    peer = mode == "peer"
    values: dict[str, object] = {
        "mode": mode,
        "listen/endpoints": list(endpoints.listen) if peer else [],
        "connect/endpoints": list(endpoints.connect if peer else endpoints.relays),
        "connect/retry": RETRY,
        "connect/exit_on_failure": not peer,
        "scouting/multicast/enabled": peer and endpoints.multicast,
        "scouting/gossip/enabled": False,
        "transport/shared_memory/enabled": False,
        "transport/link/rx/max_message_size": MAX_MESSAGE_BYTES,
    }
    if not peer and endpoints.relay_authority is not None:
        values["transport/link/tls/root_ca_certificate"] = str(endpoints.relay_authority)
    for name, value in values.items():
        config.insert_json5(name, json.dumps(value))
    return config
