"""One session of Zenoh, with what is declared on it, and the questions that are put to those at its other end."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import structlog
import zenoh

from sublet.messaging.ports.network import ANYBODY, Heard, Priority, Sample

log = structlog.get_logger(__name__)
_comings: Final = itertools.count(1)

SHARED: Final = "shared"
"""The link over plain endpoints."""
UPLINK: Final = "uplink"
"""The link to relays."""
PRIORITIES: Final = {
    Priority.REAL_TIME: zenoh.Priority.REAL_TIME,
    Priority.DATA: zenoh.Priority.DATA,
    Priority.DATA_LOW: zenoh.Priority.DATA_LOW,
}


def another_coming() -> int:
    """Return a number that is larger than all before; from any thread."""
    return next(_comings)


@dataclass(frozen=True, slots=True)
class Declaration:
    """What is declared on every link.

    Args:
        declare: returns what declares it on a session of the link that is named.
        gone: told of a link that is gone for good.
    """

    declare: Callable[[str], Callable[[zenoh.Session], object]]
    gone: Callable[[str], None]


class Question:
    """A question on some sessions; any thread may end it.

    Args:
        heard: takes the answers, and the end once all sessions are done.
        sessions: how many.
        most: answers that are handed on.
        most_of_one: of them of each who says to be another one.
    """

    def __init__(self, heard: Heard, sessions: int, most: int, most_of_one: int) -> None:
        self._heard = heard
        self._lock = threading.Lock()
        self._running = sessions
        self._left = most
        self._most_of_one = most_of_one
        self._taken = Counter[str]()
        self._token = zenoh.CancellationToken()
        if not sessions:
            heard(None)

    def put(self, session: zenoh.Session, key: str, payload: bytes, timeout_seconds: float) -> None:
        """Put it on a session."""
        try:
            session.get(
                key,
                zenoh.handlers.Callback(self._took, self._done, indirect=False),
                payload=payload,
                target=zenoh.QueryTarget.ALL,
                consolidation=zenoh.ConsolidationMode.NONE,
                timeout=timeout_seconds,
                allowed_destination=zenoh.Locality.REMOTE,
                cancellation_token=self._token,
            )
        except zenoh.ZError:  # it was closed meanwhile, and what is missing is asked for again
            self._done()

    def end(self) -> None:
        """Hear no more answers."""
        with self._lock:
            self._left = 0
        self._token.cancel()  # type: ignore[no-untyped-call]

    def _took(self, reply: zenoh.Reply) -> None:
        if reply.ok is None:
            return
        replier = str(reply.replier_id)
        with self._lock:
            if self._left <= 0 or self._taken[replier] >= self._most_of_one:
                return
            self._left -= 1
            self._taken[replier] += 1
        self._heard(reply.ok.payload.to_bytes(), replier)

    def _done(self) -> None:
        with self._lock:
            self._running -= 1
            is_over = self._running == 0
        if is_over:
            self._heard(None)


class Link:
    """A session with one peer, with what is declared on it; one that opens later then declares everything.

    Args:
        changed: told whenever somebody comes to its other end, or goes.
        peer: its node id, or the name of a link that proves nobody.
        declared: by number.
    """

    def __init__(self, changed: Callable[[], None], peer: str, declared: dict[int, Declaration]) -> None:
        self.peer = peer
        self.session: zenoh.Session | None = None
        self._changed = changed
        self._lock = threading.Lock()
        self._declared = declared
        self._live: dict[int, Any] = {}
        self._events: Any = None
        self._neighbours: set[str] = set()
        self.came = another_coming()
        """Another number whenever somebody comes to its other end."""

    @property
    def proves_none(self) -> bool:
        """Whether nobody knows whose it is."""
        return self.peer in (SHARED, UPLINK)

    @property
    def has_neighbour(self) -> bool:
        """Whether somebody is at the other end."""
        return self.session is not None and bool(self._neighbours)

    def opened(self, session: zenoh.Session) -> None:
        """Use a session from now on."""
        with self._lock:
            self._neighbours = neighbours = set[str]()

            def changed(event: zenoh.TransportEvent) -> None:
                name = str(event.transport.zid)
                if event.kind == zenoh.SampleKind.PUT:
                    self.came = another_coming()
                    neighbours.add(name)
                else:
                    neighbours.discard(name)
                self._changed()

            self._events = session.info.declare_transport_events_listener(direct(changed), history=True)
            for number, one in self._declared.items():
                self._live[number] = one.declare(self.peer)(session)
            self.session = session

    def reopen(self, make: Callable[[], zenoh.Session]) -> None:
        """Close the session and open another, with all that was declared."""
        with self._lock:
            before, self.session = self.session, None
            self._live.clear()
        if before is not None:
            before.close()  # type: ignore[no-untyped-call]
        self.opened(make())

    def declare(self, number: int, declaration: Declaration) -> None:
        """Declare something more."""
        with self._lock:
            self._declared[number] = declaration
            if self.session is not None:
                self._live[number] = declaration.declare(self.peer)(self.session)

    def undeclare(self, number: int) -> None:
        """Declare something no longer."""
        with self._lock:
            self._declared.pop(number, None)
            live = self._live.pop(number, None)
        if live is not None and self.session is not None and not self.session.is_closed():
            live.undeclare()

    def close(self) -> None:
        """End the session for good; what is being declared is first, and what comes later finds none."""
        with self._lock:
            session, self.session = self.session, None
            self._live.clear()
            declared = list(self._declared.values())
            self._declared.clear()
        if session is not None:
            session.close()  # type: ignore[no-untyped-call]
        for one in declared:
            one.gone(self.peer)


def direct(callback: Callable[[Any], None]) -> zenoh.handlers.Callback[Any]:
    """Let Zenoh's own thread call, where it would start another thread for each declaration, to hand over to it."""
    return zenoh.handlers.Callback(callback, indirect=False)


def proven(link: str) -> str:
    """Return the node id of the daemon whose key a link has proven; ``ANYBODY`` where it proves none."""
    return ANYBODY if link in (SHARED, UPLINK) else link


def sample_of(key: str, sample: zenoh.Sample, peer: str = ANYBODY) -> Sample:
    """Return what was published under a key, by whoever is proven to be at the other end."""
    attachment = sample.attachment.to_bytes() if sample.attachment is not None else b""
    return Sample(key, sample.payload.to_bytes(), attachment, peer)


class AskedOfUs:
    """A query of a peer.

    Args:
        query: as Zenoh has it.
        key: for what, which is escaped in the query of a peer.
        peer: who is proven to be at the other end.
    """

    def __init__(self, query: zenoh.Query, key: str, peer: str = ANYBODY) -> None:
        self._query = query
        self.peer = peer
        self.key = key
        self.peer = peer
        self.payload = query.payload.to_bytes() if query.payload is not None else b""

    def reply(self, payload: bytes) -> None:
        """``PeerQuery.reply``."""
        try:
            self._query.reply(self._query.key_expr, payload)
        except zenoh.ZError:
            log.info("an answer could not be sent", key=self.key)
        finally:
            self._query.drop()  # type: ignore[no-untyped-call]

    def drop(self) -> None:
        """``PeerQuery.drop``."""
        self._query.drop()  # type: ignore[no-untyped-call]


def nothing(_: zenoh.Session) -> None:
    """Declare nothing."""


def both(one: Callable[[], None], other: Callable[[], None]) -> Callable[[], None]:
    """Return what ends one thing and then the other."""

    def end() -> None:
        one()
        other()

    return end
