"""The network on Zenoh: a session for each peer whose key its link has proven, and an uplink to a relay as its client.

With a session for each peer whatever comes is known to come from that peer, it is asked alone, and what is published
goes to those it is for. So such a session declares one pattern, and ``local_keys`` finds who takes what comes.
A relay forwards what is sent below our slot there to those that its members' statements name; which of them has sent
what comes is for its signature to say, since a relay proves none.
Chunks that begin with ``@`` match no wildcard, so such keys are used exactly there, and escaped with a peer.
Callbacks come from Zenoh's threads and only enqueue: a stalled receiver makes senders wait and then lose what waits.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

import structlog
import zenoh

from sublet.messaging.backends.local_keys import LocalKeys, from_relay, to_wire
from sublet.messaging.backends.local_keys import from_wire as of_peer
from sublet.messaging.backends.tokens import Announced, Following, Tokens
from sublet.messaging.backends.zenoh_config import Endpoints as Endpoints
from sublet.messaging.backends.zenoh_config import Uplink, open_session, peer_config, uplink_config
from sublet.messaging.backends.zenoh_link import (
    PRIORITIES,
    SHARED,
    UPLINK,
    AskedOfUs,
    Declaration,
    Link,
    Question,
    another_coming,
    both,
    direct,
    nothing,
    proven,
    sample_of,
)
from sublet.messaging.links.declared import EVERYTHING
from sublet.messaging.ports.network import ANYBODY, Heard, PeerQuery, Qos, Sample
from sublet.protocol.relay.slot_keys import Way, everything, wire_key

log = structlog.get_logger(__name__)

MAX_REPLIES: Final = 4_096
"""Answers to one question of those who are reached over links that prove nobody."""
MAX_REPLIES_OF_ONE: Final = 64
"""Of them of each who says to be another one."""
UPLINK_RETRY_SECONDS: Final = 2.0
Declares = Callable[[zenoh.Session], object]


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
        self._plain = frozenset[str]() if endpoints.one_pattern else frozenset({SHARED})
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
            self._link(SHARED).opened(open_session(peer_config(endpoints)))
        self._uplink: Uplink | None = None
        self._behind_relay = 0
        """Another number whenever others can be asked over the relay."""
        self._dialling: threading.Thread | None = None

    def publish(self, key: str, payload: bytes, attachment: bytes, qos: Qos, to: Collection[str] | None = None) -> None:
        links = self._all()
        for link in links:
            session = link.session
            if session is None or not self._hears(link, to, links):
                continue
            with suppress(zenoh.ZError):  # its session was closed meanwhile, and what is missing is asked for
                session.put(
                    self._to_wire(link.peer, key),
                    payload,
                    attachment=attachment or None,
                    priority=PRIORITIES[qos.priority],
                    congestion_control=zenoh.CongestionControl.DROP if qos.droppable else zenoh.CongestionControl.BLOCK,
                    express=not qos.droppable,
                )

    def _hears(self, link: Link, to: Collection[str] | None, links: Collection[Link]) -> bool:
        """Tell whether what is for these daemons goes over a link; to a relay, if some of them have no link of ours."""
        if to is None or link.peer == SHARED:
            return True
        if link.peer != UPLINK or (uplink := self._uplink) is None:
            return link.peer in to
        return not {*to} <= {uplink.node, *(one.peer for one in links if one.has_neighbour)}

    def subscribe(self, key: str, callback: Callable[[Sample], None]) -> Callable[[], None]:
        def heard(sample: zenoh.Sample) -> None:
            callback(sample_of(str(sample.key_expr), sample))

        return both(
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

        return both(
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
                found[peer] = max(link.came, found.get(peer, 0), self._behind_relay * (link.peer == UPLINK))
        return found

    def ask(self, peer: str, key: str, payload: bytes, timeout_seconds: float, heard: Heard) -> Callable[[], None]:
        links = [link for link in self._all() if (link.proves_none if peer == ANYBODY else link.peer == peer)]
        sessions = [(link, session) for link in links if (session := link.session) is not None]
        question = Question(heard, len(sessions), *((MAX_REPLIES, MAX_REPLIES_OF_ONE) if peer == ANYBODY else (1, 1)))
        for link, session in sessions:
            question.put(session, self._to_wire(link.peer, key), payload, timeout_seconds)
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

            return declare if link in self._plain else nothing

        return both(self._tokens.follow(key, following), self._declare(on_link, following.gone))

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
                self._link(peer).reopen(partial(open_session, peer_config(endpoints)))
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
        self._link(SHARED).reopen(lambda: open_session(peer_config(self._endpoints)))
        self.changed()

    def use_relay(self, uplink: Uplink | None) -> None:
        """Call this relay from now on, in place of the one before; blocks until that one's session has ended.

        Whether it answers is told by ``on_change``.
        """
        with self._lock:
            before, self._uplink = self._links.pop(UPLINK, None), uplink
        if before is not None:
            before.close()
        if uplink is not None:
            self._dialling = threading.Thread(
                target=self._dial, args=(self._link(UPLINK), uplink), name="messaging-uplink", daemon=True
            )
            self._dialling.start()
        self.changed()

    def relay_epoch(self) -> int:
        """Return a number of the link to the relay, another one after each break; 0 where there is none."""
        link = self._links.get(UPLINK)
        return link.came if link is not None and link.has_neighbour else 0

    def known_at_relay(self) -> None:
        """Note that the relay knows us, or more of our rooms, only now; what was asked over it had no answers."""
        self._behind_relay = another_coming()
        self.changed()

    def is_known_at_relay(self) -> bool:
        """Tell whether others may be asked over the relay now: it knows us by the link that there is."""
        return 0 < self.relay_epoch() < self._behind_relay

    def ask_relay(self, key: str, payload: bytes, timeout_seconds: float) -> bytes | None:
        """Ask the relay itself, and return its answer; None where it gives none. Blocks."""
        link, uplink = self._links.get(UPLINK), self._uplink
        if link is None or uplink is None or (session := link.session) is None:
            return None
        try:
            replies = session.get(
                wire_key(Way.UP, uplink.slot, key),
                payload=payload,
                timeout=timeout_seconds,
                allowed_destination=zenoh.Locality.REMOTE,
            )
            return next((one.ok.payload.to_bytes() for one in replies if one.ok is not None), None)
        except zenoh.ZError:  # it was closed meanwhile
            return None

    def on_change(self, callback: Callable[[], None]) -> None:
        self._changed.append(callback)

    def peers(self) -> int:
        """Return to how many others there is a link."""
        found = [link.session.info for link in self._all() if link.session is not None]
        return sum(len(one.peers_zid()) + len(one.routers_zid()) for one in found)

    def close(self) -> None:
        """End all sessions; without this a process that has one does not end."""
        self._closing.set()
        if self._dialling is not None:
            self._dialling.join(UPLINK_RETRY_SECONDS)
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

    def _on_plain(self, declare: Declares) -> Callable[[str], Declares]:
        """Declare on links where each key is declared, and nothing on those of peers."""
        return lambda link: declare if link in self._plain else nothing

    def _on_peers(self, declare: Callable[[str, zenoh.Session], object]) -> Callable[[str], Declares]:
        """Declare on the links of peers, and nothing on others."""
        return lambda link: nothing if link in self._plain else partial(declare, link)

    def _token(self, key: str, link: str) -> Callable[[zenoh.Session], object]:
        return lambda session: session.liveliness().declare_token(self._to_wire(link, key))

    def _to_wire(self, link: str, key: str) -> str:
        """Return a key as it is said over a link."""
        if link in self._plain:
            return key
        if link != UPLINK:
            return to_wire(key)
        assert self._uplink is not None, "it has a session, so it was set"
        return wire_key(Way.UP, self._uplink.slot, key)

    def _declare_everything(self, link: str, session: zenoh.Session) -> object:
        """Hear and answer whatever a peer says on its link, and follow its tokens."""
        pattern, from_wire, peer = EVERYTHING, of_peer, proven(link)
        if link == UPLINK:
            assert self._uplink is not None, "it has a session, so it was set"
            pattern, from_wire = everything(Way.DOWN, self._uplink.slot), from_relay

        def heard(sample: zenoh.Sample) -> None:
            key = from_wire(str(sample.key_expr))
            takers = self._hearing.of(key)
            if takers:
                taken = sample_of(key, sample, peer)
                for take in takers:
                    take(taken)

        def asked(query: zenoh.Query) -> None:
            key = from_wire(str(query.key_expr))
            takers = self._serving.of(key)
            if not takers:
                query.drop()  # type: ignore[no-untyped-call]
            for take in takers[:1]:
                take(AskedOfUs(query, key, peer))

        def told(sample: zenoh.Sample) -> None:
            self._tokens.took(link, from_wire(str(sample.key_expr)), sample.kind == zenoh.SampleKind.PUT)

        self._tokens.gone(link)
        return (
            session.declare_subscriber(pattern, direct(heard), allowed_origin=zenoh.Locality.REMOTE),
            session.declare_queryable(pattern, direct(asked), allowed_origin=zenoh.Locality.REMOTE),
            session.liveliness().declare_subscriber(pattern, direct(told), history=True),
        )

    def _dial(self, link: Link, uplink: Uplink) -> None:
        """Open the uplink as soon as the relay answers; from then on Zenoh reconnects by itself."""
        while not self._closing.is_set() and self._uplink is uplink:
            try:
                session = zenoh.open(uplink_config(uplink))
            except Exception as error:
                # No relay answers yet; or what it answers breaks the library, which is no reason to give up.
                if not isinstance(error, zenoh.ZError):
                    log.exception("the uplink to a relay failed and is tried again")
                self._closing.wait(UPLINK_RETRY_SECONDS)
                continue
            link.opened(session)
            if self._closing.is_set() or self._uplink is not uplink:  # the end, or another one was chosen meanwhile
                link.close()
            self.changed()
            return
