"""The hub of a relay: takes what clients send below ``up/``, and forwards it below ``down/`` by membership.

Callbacks of Zenoh only enqueue, within bounds for each slot; one thread forwards. What a receiver does not take in time
is dropped, as the next difference brings it: so nobody who reads slowly holds up anybody else. A question ends when the
last of those who were asked has answered, or is gone.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
import zenoh

from sublet.messaging.backends.zenoh_link import direct
from sublet.messaging.relay.control import Control
from sublet.messaging.relay.forwarder import Forwarder, Work
from sublet.messaging.relay.membership import Routes, Sent, may_announce
from sublet.messaging.relay.registry import Registry
from sublet.messaging.relay.router import kick
from sublet.messaging.relay.senders import Senders
from sublet.messaging.relay.tokens import ForwardedTokens
from sublet.protocol.relay.attendance import Attendance
from sublet.protocol.relay.slot_keys import CONTROL, Way, plain_key, wire_key

log = structlog.get_logger(__name__)

MAX_QUESTIONS: Final = 4_096
"""That wait for answers."""
MAX_QUESTIONS_OF_SLOT: Final = 256
MAX_ANSWERS: Final = 64
"""To one question, of each who was asked."""
QUESTION_SECONDS: Final = 5.0
KICK_AGAIN_SECONDS: Final = 10.0
"""Who is cut at once dials again at once; who is merely not served waits, and costs nothing."""


@dataclass(slots=True)
class Counts:
    """What the hub has done, for the operator."""

    forwarded: int = 0
    delivered: int = 0
    asked: int = 0
    refused: int = 0
    """Sent under a slot that is nobody's, or by who may not send as much."""
    kicked: int = 0


@dataclass(slots=True, eq=False)
class _Asked:
    """A question on its way; any thread may call."""

    query: zenoh.Query
    left: int
    ended: Callable[[], None]
    lock: threading.Lock = field(default_factory=threading.Lock)

    def over(self) -> None:
        """Note that one of those who were asked is done; the last one ends the question."""
        with self.lock:
            self.left -= 1
            is_over = self.left == 0
        if is_over:
            self.query.drop()  # type: ignore[no-untyped-call]
            self.ended()


class Hub:
    """See the module. ``close`` ends it; the session stays the caller's.

    Args:
        session: the router's.
        registry: knows whose a slot is.
        senders: knows how much each slot may send.
        clock: seconds that never go back.
    """

    def __init__(
        self, session: zenoh.Session, registry: Registry, senders: Senders, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.counts = Counts()
        self.forwarder = Forwarder()
        self.attending: dict[str, Attendance] = {}
        """What each daemon that is linked wants to hear, by node id."""
        self.tokens = ForwardedTokens(self._declare)
        self._session = session
        self._registry = registry
        self._senders = senders
        self._clock = clock
        self._routes = Routes(registry.rooms, self.attending)
        self._control = Control(registry, self.attending, self._changed)
        self._lock = threading.Lock()
        self._linked: Counter[str] = Counter()
        self._questions: Counter[str] = Counter()
        self._kicks: dict[str, float] = {}
        """When slots are cut that are linked and nobody's."""
        registry.cut.append(self.cut)
        remote, everything = zenoh.Locality.REMOTE, f"{Way.UP}/**"
        self._kept: list[Any] = [
            session.info.declare_link_events_listener(direct(self._link), history=True),
            session.declare_subscriber(everything, direct(self._heard), allowed_origin=remote),
            session.declare_queryable(everything, direct(self._asked), allowed_origin=remote),
            session.liveliness().declare_subscriber(everything, direct(self._token), history=True),
        ]

    def linked(self) -> int:
        """Return how many clients are linked."""
        with self._lock:
            return len(self._linked)

    def cut(self, slot: str) -> None:
        """End the links of a slot at once, and forget what it wants to hear; any thread may call."""
        self.counts.kicked += kick(self._session, slot)
        self.forwarder.soon(self._forget_absent)

    def tick(self) -> None:
        """Cut those that are linked and are nobody's; called now and then."""
        now = self._clock()
        for slot, at in list(self._kicks.items()):
            if at <= now:
                self._kicks.pop(slot, None)
                if self._registry.account_of(slot) is None:
                    self.counts.kicked += kick(self._session, slot)

    def close(self) -> None:
        """Forward no more."""
        self.forwarder.close()

    # Called by Zenoh's threads.

    def _link(self, event: zenoh.LinkEvent) -> None:
        slot = event.link.auth_identifier or ""
        came = event.kind == zenoh.SampleKind.PUT
        with self._lock:
            self._linked[slot] += 1 if came else -1
            gone = self._linked[slot] <= 0
            if gone:
                del self._linked[slot]
        if came and self._registry.account_of(slot) is None:
            self._kicks[slot] = self._clock() + KICK_AGAIN_SECONDS
        if gone:
            self.forwarder.soon(self._forget_absent)

    def _heard(self, sample: zenoh.Sample) -> None:
        attached = len(sample.attachment) if sample.attachment is not None else 0
        size = len(sample.payload) + attached
        if (found := self._admitted(str(sample.key_expr), size)) is not None:
            slot, key = found
            self.forwarder.add(slot, size, Work(lambda: self._forward(slot, key, sample)))

    def _asked(self, query: zenoh.Query) -> None:
        size = len(query.payload) if query.payload is not None else 0
        found = self._admitted(str(query.key_expr), size)
        if found is None:
            query.drop()  # type: ignore[no-untyped-call]
            return
        slot, key = found
        self.forwarder.add(slot, size, Work(lambda: self._ask(slot, key, query), lambda: _drop(query)))

    def _token(self, sample: zenoh.Sample) -> None:
        found = plain_key(Way.UP, str(sample.key_expr))
        if found is None:
            return
        slot, key = found
        if sample.kind == zenoh.SampleKind.PUT:
            changed = self._admitted(str(sample.key_expr), 0) is not None and self.tokens.came(slot, key)
        else:
            changed = self.tokens.went(slot, key)
        if changed:
            self.forwarder.soon(lambda: self._show(slot, key))

    def _admitted(self, wire: str, size: int) -> tuple[str, str] | None:
        """Return slot and key of what was sent, if the slot is somebody's that may send as much now."""
        found = plain_key(Way.UP, wire)
        if found is not None and self._registry.account_of(found[0]) is not None:
            slot, key = found
            if self._senders.may_send(slot, size, is_control=key.startswith(f"{CONTROL}/")):
                return slot, key
            if self._senders.floods(slot):
                log.warning("a client goes on sending too much and is cut", slot=slot)
                self.counts.kicked += kick(self._session, slot)
        self.counts.refused += 1
        return None

    # Called by the forwarder.

    def _forward(self, slot: str, key: str, sample: zenoh.Sample) -> None:
        self.counts.forwarded += 1
        for other in self._others(slot, key, Sent.PUBLISHED):
            self._session.put(
                wire_key(Way.DOWN, other, key),
                sample.payload,
                attachment=sample.attachment,
                priority=sample.priority,
                express=sample.express,
                congestion_control=zenoh.CongestionControl.DROP,
            )
            self.counts.delivered += 1

    def _ask(self, slot: str, key: str, query: zenoh.Query) -> None:
        account = self._registry.account_of(slot)
        payload = query.payload.to_bytes() if query.payload is not None else b""
        if account is None:
            _drop(query)
            return
        if key.startswith(f"{CONTROL}/"):
            _reply(query, self._control.answer(account.node_id, key, payload))
            _drop(query)
            return
        others = self._others(slot, key, Sent.ASKED)
        with self._lock:
            full = self._questions[slot] >= MAX_QUESTIONS_OF_SLOT or self._questions.total() >= MAX_QUESTIONS
            if others and not full:
                self._questions[slot] += 1
        if not others or full:
            _drop(query)
            return
        self.counts.asked += 1
        asked = _Asked(query, len(others), lambda: self._answered(slot))
        for other in others:
            self._put(asked, other, key, payload)

    def _put(self, asked: _Asked, other: str, key: str, payload: bytes) -> None:
        left = [MAX_ANSWERS]

        def took(reply: zenoh.Reply) -> None:
            if reply.ok is None or left[0] <= 0 or not self._senders.may_send(other, len(reply.ok.payload)):
                return
            left[0] -= 1
            _reply(asked.query, reply.ok.payload)

        try:
            self._session.get(
                wire_key(Way.DOWN, other, key),
                zenoh.handlers.Callback(took, asked.over, indirect=False),
                payload=payload,
                target=zenoh.QueryTarget.ALL,
                consolidation=zenoh.ConsolidationMode.NONE,
                timeout=QUESTION_SECONDS,
                allowed_destination=zenoh.Locality.REMOTE,
            )
        except zenoh.ZError:
            asked.over()

    def _answered(self, slot: str) -> None:
        with self._lock:
            self._questions[slot] -= 1
            if self._questions[slot] <= 0:
                del self._questions[slot]

    def _others(self, slot: str, key: str, how: Sent) -> list[str]:
        """Return the slots that get what one sends under a key."""
        account = self._registry.account_of(slot)
        if account is None:
            return []
        found = (self._registry.slot_of(node) for node in self._routes.of(account.node_id, key, how))
        return [other for other in found if other is not None and other in self._linked]

    def _show(self, slot: str, key: str) -> None:
        account = self._registry.account_of(slot)
        may = account is not None and may_announce(account.node_id, key)
        self.tokens.show(slot, key, frozenset(self._others(slot, key, Sent.ANNOUNCED)) if may else frozenset())

    def _declare(self, other: str, key: str) -> Callable[[], None]:
        token = self._session.liveliness().declare_token(wire_key(Way.DOWN, other, key))

        def end() -> None:
            token.undeclare()  # type: ignore[no-untyped-call]

        return end

    def _changed(self, rooms: Iterable[str]) -> None:
        """Note that others get what is sent in these rooms."""
        self._routes.changed()
        changed = frozenset(rooms)
        for slot in self.tokens.announcing():
            for key in self.tokens.of(slot):
                if key.split("/", 2)[1] in changed:
                    self._show(slot, key)

    def _forget_absent(self) -> None:
        """Forget what those want to hear who are linked no more, or are nobody any more."""
        gone = [
            node
            for node in self.attending
            if (slot := self._registry.slot_of(node)) is None or slot not in self._linked
        ]
        rooms = frozenset[str]().union(*(self.attending.pop(node).rooms for node in gone))
        if gone:
            self._changed(rooms)


def _reply(query: zenoh.Query, payload: bytes | zenoh.ZBytes) -> None:
    try:
        query.reply(query.key_expr, payload)
    except zenoh.ZError:
        log.info("an answer could not be passed on")


def _drop(query: zenoh.Query) -> None:
    query.drop()  # type: ignore[no-untyped-call]
