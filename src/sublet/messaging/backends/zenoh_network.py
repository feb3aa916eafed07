"""The network on Zenoh: a session of peers on the machine or the LAN, and an uplink to a relay as its client.

A relay does not join two peers any more, so what crosses it goes through a client session of its own. Chunks that
begin with ``@`` match no wildcard, so such keys are used exactly. Callbacks come from Zenoh's threads: they only
enqueue, since a stalled receiver makes every sender to it wait for seconds and then lose what was queued.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import structlog
import zenoh

from sublet.messaging.ports.network import PeerQuery, Priority, Qos, Sample
from sublet.protocol.ezagent.bundle import MAX_BUNDLE_BYTES

log = structlog.get_logger(__name__)

MAX_REPLIES: Final = 256
MAX_REPLIES_BYTES: Final = 16 << 20
"""Answers to one question that are kept."""
MAX_REPLIES_BYTES_OF_PEER: Final = MAX_BUNDLE_BYTES + (1 << 16)
"""One answer of the largest size, so that no peer's answers leave no room for those of others."""
MAX_REPLIES_READ: Final = 1_024
"""Answers to one question that are looked at."""
"""Of all answers to one question."""
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

    ``relays`` are reached as a client; ``relay_authority`` knows them, or a public one does. ``multicast`` looks for
    peers on the network, and is off unless asked for.
    """

    listen: tuple[str, ...] = ()
    connect: tuple[str, ...] = ()
    relays: tuple[str, ...] = ()
    multicast: bool = False
    relay_authority: Path | None = None


class ZenohNetwork:
    """See ``engine.network.Network``.

    Args:
        endpoints: where to listen and whom to call.

    Raises:
        OSError: no session can be opened, for example since a port is taken.
    """

    def __init__(self, endpoints: Endpoints) -> None:
        zenoh.init_log_from_env_or("off")
        self._endpoints = endpoints
        self._closing = threading.Event()
        self._changed: list[Callable[[], None]] = []
        self._links: list[_Link] = [_Link(self, _open(_config("peer", endpoints)))]
        self._uplink: threading.Thread | None = None
        if endpoints.relays:
            uplink = _Link(self, None)
            self._links.append(uplink)
            self._uplink = threading.Thread(
                target=self._dial, args=(uplink, endpoints), name="messaging-uplink", daemon=True
            )
            self._uplink.start()

    def publish(self, key: str, payload: bytes, attachment: bytes, qos: Qos) -> None:
        for link in self._links:
            session = link.session
            if session is not None:
                session.put(
                    key,
                    payload,
                    attachment=attachment or None,
                    priority=_PRIORITIES[qos.priority],
                    congestion_control=zenoh.CongestionControl.DROP if qos.droppable else zenoh.CongestionControl.BLOCK,
                    express=not qos.droppable,
                )

    def subscribe(self, key: str, callback: Callable[[Sample], None]) -> Callable[[], None]:
        def heard(sample: zenoh.Sample) -> None:
            attachment = sample.attachment.to_bytes() if sample.attachment is not None else b""
            callback(Sample(str(sample.key_expr), sample.payload.to_bytes(), attachment))

        return self._declare(
            lambda session: session.declare_subscriber(key, _direct(heard), allowed_origin=zenoh.Locality.REMOTE)
        )

    def serve(self, key: str, callback: Callable[[PeerQuery], None]) -> Callable[[], None]:
        def asked(query: zenoh.Query) -> None:
            callback(_Answer(query))

        return self._declare(
            lambda session: session.declare_queryable(key, _direct(asked), allowed_origin=zenoh.Locality.REMOTE)
        )

    def query(self, key: str, payload: bytes, timeout_seconds: float) -> list[bytes]:
        """Ask on every link; all answers are returned, since one peer may know what another does not.

        Of more than ``MAX_REPLIES`` the rest is left: whoever answers one question so often means no good.
        """
        waiting: list[Any] = []
        for link in self._links:
            session = link.session
            if session is not None:
                with suppress(zenoh.ZError):  # it was closed meanwhile, and what is missing is asked for again
                    waiting.append(
                        session.get(
                            key,
                            payload=payload,
                            target=zenoh.QueryTarget.ALL,
                            consolidation=zenoh.ConsolidationMode.NONE,
                            timeout=timeout_seconds,
                            allowed_destination=zenoh.Locality.REMOTE,
                        )
                    )
        found: list[bytes] = []
        left, taken = MAX_REPLIES_BYTES, Counter[str]()
        for reply in islice(chain.from_iterable(waiting), MAX_REPLIES_READ):
            if reply.ok is None:
                continue
            size, peer = len(reply.ok.payload), str(reply.replier_id)
            if taken[peer] + size > MAX_REPLIES_BYTES_OF_PEER:
                continue  # its own loss; others are heard all the same
            if size > left or len(found) >= MAX_REPLIES:
                break
            taken[peer] += size
            left -= size
            found.append(reply.ok.payload.to_bytes())
        return found

    def announce(self, key: str) -> Callable[[], None]:
        return self._declare(lambda session: session.liveliness().declare_token(key))

    def follow(self, key: str, callback: Callable[[bool], None]) -> Callable[[], None]:
        """Hear of a token on all links; one that is opened again begins anew, since what ended meanwhile isn't told."""
        there: dict[object, set[str]] = {}
        lock = threading.Lock()

        def took(number: object, sample: zenoh.Sample | None) -> None:
            with lock:
                before = any(there.values())
                seen = there.setdefault(number, set())
                if sample is None:
                    seen.clear()
                elif sample.kind == zenoh.SampleKind.PUT:
                    seen.add(str(sample.key_expr))
                else:
                    seen.discard(str(sample.key_expr))
                after = any(there.values())
            if before != after:
                callback(after)

        def on_link(number: int) -> Callable[[zenoh.Session], object]:
            def declare(session: zenoh.Session) -> object:
                took(number, None)
                return session.liveliness().declare_subscriber(key, _direct(partial(took, number)), history=True)

            return declare

        undo = [link.declare(on_link(number)) for number, link in enumerate(self._links)]
        return partial(_all_of, undo)

    def call(self, connect: tuple[str, ...]) -> None:
        """Call these from now on, in place of those before; blocks while the session is opened again.

        A session can't be told later whom to call. What is missed meanwhile is asked for as after every change.

        Raises:
            OSError: no session can be opened; there is none then, until the next call.
        """
        self._endpoints = replace(self._endpoints, connect=connect)
        self._links[0].reopen(lambda: _open(_config("peer", self._endpoints)))
        self.changed()

    def on_change(self, callback: Callable[[], None]) -> None:
        self._changed.append(callback)

    def peers(self) -> int:
        """Return to how many others there is a link."""
        sessions = [link.session for link in self._links if link.session is not None]
        return sum(len(session.info.peers_zid()) + len(session.info.routers_zid()) for session in sessions)

    def close(self) -> None:
        """End all sessions; without this a process that has one does not end."""
        self._closing.set()
        if self._uplink is not None:
            self._uplink.join(UPLINK_RETRY_SECONDS)
        for link in self._links:
            link.close()

    def changed(self) -> None:
        """Tell whoever asked that a link came or went."""
        for callback in self._changed:
            callback()

    def _declare(self, declare: Callable[[zenoh.Session], object]) -> Callable[[], None]:
        undo = [link.declare(declare) for link in self._links]

        return partial(_all_of, undo)

    def _dial(self, uplink: _Link, endpoints: Endpoints) -> None:
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


class _Answer:
    """A query of a peer."""

    def __init__(self, query: zenoh.Query) -> None:
        self._query = query
        self.key = str(query.key_expr)
        self.payload = query.payload.to_bytes() if query.payload is not None else b""

    def reply(self, payload: bytes) -> None:
        try:
            self._query.reply(self.key, payload)
        except zenoh.ZError:
            log.info("an answer could not be sent", key=self.key)
        finally:
            self._query.drop()  # type: ignore[no-untyped-call]

    def drop(self) -> None:
        self._query.drop()  # type: ignore[no-untyped-call]


class _Link:
    """A session with what is declared on it; an uplink's opens later, and then declares everything."""

    def __init__(self, network: ZenohNetwork, session: zenoh.Session | None) -> None:
        self._network = network
        self._lock = threading.Lock()
        self._declared: dict[int, Callable[[zenoh.Session], object]] = {}
        self._live: dict[int, Any] = {}
        self._next = 0
        self.session: zenoh.Session | None = None
        self._events: Any = None
        if session is not None:
            self.opened(session)

    def opened(self, session: zenoh.Session) -> None:
        with self._lock:
            changed = _direct(lambda event: self._network.changed())
            self._events = session.info.declare_transport_events_listener(changed)
            for number, declare in self._declared.items():
                self._live[number] = declare(session)
            self.session = session

    def reopen(self, make: Callable[[], zenoh.Session]) -> None:
        """Close the session and open another, with all that was declared."""
        with self._lock:
            before, self.session = self.session, None
            self._live.clear()
        if before is not None:
            before.close()  # type: ignore[no-untyped-call]
        self.opened(make())

    def declare(self, declare: Callable[[zenoh.Session], object]) -> Callable[[], None]:
        with self._lock:
            number, self._next = self._next, self._next + 1
            self._declared[number] = declare
            if self.session is not None:
                self._live[number] = declare(self.session)

        def end() -> None:
            with self._lock:
                self._declared.pop(number, None)
                live = self._live.pop(number, None)
            if live is not None and self.session is not None and not self.session.is_closed():
                live.undeclare()

        return end

    def close(self) -> None:
        """End the session; what is being declared is first, and what comes later finds none."""
        with self._lock:
            session, self.session = self.session, None
            self._live.clear()
        if session is not None:
            session.close()  # type: ignore[no-untyped-call]


def _all_of(undo: list[Callable[[], None]]) -> None:
    for one in undo:
        one()


def _direct(callback: Callable[[Any], None]) -> zenoh.handlers.Callback[Any]:
    """Let Zenoh's own thread call, where it would start another thread for each declaration, to hand over to it."""
    return zenoh.handlers.Callback(callback, indirect=False)


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
