"""Carries what federation says to paired daemons over the bus of rooms, on whose links each key is proven.

Where there is no link to a node, it is asked over the relay, if there is one: sealed, since a relay proves no key.
What comes is answered by tasks of this service. A peer that asks faster than it is answered is answered less; so is
whoever a relay says to be one, whose share is another one than that of the peer's own link.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, cast

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectSendStream

from sublet.federation.ports import KnownNode, What
from sublet.messaging.ports.network import ANYBODY
from sublet.protocol.federation.envelope import MAX_ENVELOPE_BYTES
from sublet.protocol.federation.errors import TaskRefused
from sublet.protocol.federation.relayed import MAX_QUESTION_BYTES
from sublet.protocol.federation.relayed_keys import KEY_PREFIX, relayed_between
from sublet.tasks import start_alone

if TYPE_CHECKING:
    from sublet.daemon.rooms.relayed_nodes import RelayedNodes
    from sublet.messaging.backends.zenoh_link import AskedOfUs
    from sublet.messaging.backends.zenoh_network import ZenohNetwork
    from sublet.messaging.ports.network import PeerQuery

KEYS: Final[dict[What, str]] = {"event": f"{KEY_PREFIX}/event", "server": f"{KEY_PREFIX}/server"}
"""Below the one pattern that a daemon declares on the link of a peer."""
ASK_SECONDS: Final = 5.0
MAX_PENDING_OF_PEER: Final = 32
"""Of what a peer has asked and was not answered yet; a further question is dropped."""
MAX_PENDING: Final = 1_024
"""Of what all of them have asked."""
MAX_RELAYED: Final = 128
"""Of them over the relay, which names who asks as it likes."""
MAX_ANSWERS: Final = 4
"""To one question of ours, that are looked at: a relay may give others than the right one."""
RELAY: Final = "relay"
"""Whose share of the threads it is that waits for the link of the relay."""
MAX_BLOCKED: Final = 16
"""Questions and answers that wait for congested links at one time."""
MAX_BLOCKED_OF_PEER: Final = 2
"""Of them of one peer, so that one that reads nothing leaves room for the others."""

T = TypeVar("T")
Answer = Callable[[What, bytes, str], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class _Come:
    """A question that came.

    Args:
        what: is asked.
        query: carries the answer.
        share: whose it is.
        relayed: whether it is sealed, and came over a relay.
    """

    what: What
    query: AskedOfUs
    share: str
    relayed: bool = False


@dataclass(slots=True)
class _Share:
    """What of the threads one peer may have, and how many wait for it or are in it."""

    room: anyio.Semaphore
    users: int = 0


class NodeCarrier:
    """Implements ``Carrier`` while rooms run; nobody is reached else."""

    def __init__(self) -> None:
        self._network: ZenohNetwork | None = None
        self._linked: frozenset[str] | None = None
        """Who is linked, as it was when something last changed; None until somebody asks."""
        self._answer: Answer | None = None
        self._changed: Callable[[], None] = lambda: None
        self._relayed: RelayedNodes | None = None
        self._come: MemoryObjectSendStream[_Come] | None = None
        self._blocked = anyio.CapacityLimiter(MAX_BLOCKED)
        self._shares: dict[str, _Share] = {}
        """By peer, of those for whose links something waits."""
        self._lock = threading.Lock()
        self._pending = Counter[str]()
        self._ends: list[Callable[[], None]] = []

    def begin(self, answer: Answer, changed: Callable[[], None], relayed: RelayedNodes | None = None) -> None:
        """Say who answers, and who is told that a peer may be reached now or no more.

        Args:
            answer: returns the answer to a question, of the node whose key was proven.
            changed: is told.
            relayed: seals for those that a relay alone joins; None where they are not reached.
        """
        self._answer, self._changed, self._relayed = answer, changed, relayed

    async def serve(self) -> None:
        """Answer what comes, until cancelled."""
        send, come = anyio.create_memory_object_stream[_Come](MAX_PENDING)
        self._come = send
        async with anyio.create_task_group() as group:
            with come:
                try:
                    async for one in come:
                        start_alone(group, "an answer to a node", self._give, one)
                finally:
                    self._come = None
                    send.close()
                    for _ in range(come.statistics().current_buffer_used):
                        left = come.receive_nowait()  # nobody answers it any more
                        self._over(left)
                        left.query.drop()

    @contextmanager
    def attached(self, network: ZenohNetwork) -> Iterator[None]:
        """Use the network of rooms while the context is open."""
        loop = asyncio.get_running_loop()
        self._network = network
        network.on_change(lambda: _soon(loop, self._tell_changed))
        for what, key in KEYS.items():
            # Each query of Zenoh's network says whose link it came on.
            came = cast("Callable[[PeerQuery], None]", partial(self._came, loop, what))
            self._ends.append(network.serve(key, came))
            if self._relayed is not None:
                came = cast("Callable[[PeerQuery], None]", partial(self._came_relayed, loop, what))
                self._ends.append(network.serve(self._relayed.served(what), came))
        self._tell_changed()
        try:
            yield
        finally:
            self._network = None
            for end in self._ends:
                end()
            self._ends.clear()
            self._tell_changed()

    def reaches(self, node: KnownNode) -> bool:
        """``Carrier.reaches``. Over a relay a node may be asked for; whether it is there tells its answer alone."""
        network = self._network
        if network is None:
            return False
        if self._linked is None:
            self._linked = frozenset(network.linked())
        return node.id in self._linked or self._relay_for(node, network) is not None

    async def ask(self, node: KnownNode, what: What, payload: bytes) -> bytes | None:
        """``Carrier.ask``."""
        network = self._network
        if network is None:
            return None
        if node.id in network.linked():
            return await self._asked(network, node.id, KEYS[what], payload, lambda answer: answer)
        relayed = self._relay_for(node, network)
        if relayed is None:
            return None
        try:
            key, raw, one = relayed.question(node, what, payload)
        except TaskRefused:
            return None
        return await self._asked(network, ANYBODY, key, raw, lambda raw: relayed.answered(node, what, one, raw))

    def _relay_for(self, node: KnownNode, network: ZenohNetwork) -> RelayedNodes | None:
        """Return what seals for a node that the relay may join; one that is not paired is behind none of ours."""
        there = self._relayed is not None and node.paired and network.is_known_at_relay()
        return self._relayed if there else None

    async def _asked(
        self, network: ZenohNetwork, peer: str, key: str, payload: bytes, opened: Callable[[bytes], bytes | None]
    ) -> bytes | None:
        """Return the first answer that can be opened."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[bytes | None] = loop.create_future()
        left = MAX_ANSWERS

        def took(answer: bytes | None) -> None:
            nonlocal left
            if answered.done():
                return
            left -= 1
            said = opened(answer) if answer is not None else None
            if said is not None or answer is None or left <= 0:
                answered.set_result(said)

        def heard(answer: bytes | None, replier: str = "") -> None:
            _soon(loop, lambda: took(answer))

        with anyio.move_on_after(ASK_SECONDS):
            end = await self._in_thread(peer or RELAY, lambda: network.ask(peer, key, payload, ASK_SECONDS, heard))
            try:
                return await answered
            finally:
                end()
        return None

    def _tell_changed(self) -> None:
        self._linked = None
        self._changed()

    def _came(self, loop: asyncio.AbstractEventLoop, what: What, query: AskedOfUs) -> None:
        """Take a question, in Zenoh's thread: it only hands over.

        One of a link that proves nobody is dropped, and one that is larger than any that is answered.
        """
        if len(query.payload) > MAX_ENVELOPE_BYTES or query.peer == ANYBODY:
            query.drop()
        else:
            self._queue(loop, _Come(what, query, query.peer))

    def _came_relayed(self, loop: asyncio.AbstractEventLoop, what: What, query: AskedOfUs) -> None:
        """Take a question that a relay brings, in Zenoh's thread; nobody has proven yet who asks it."""
        between = relayed_between(query.key)
        if len(query.payload) > MAX_QUESTION_BYTES or query.peer != ANYBODY or between is None:
            query.drop()
        else:
            self._queue(loop, _Come(what, query, f"{RELAY} {between[1]}", relayed=True))

    def _queue(self, loop: asyncio.AbstractEventLoop, come: _Come) -> None:
        with self._lock:
            full = self._pending[come.share] >= MAX_PENDING_OF_PEER or (
                come.relayed and self._pending[RELAY] >= MAX_RELAYED
            )
            if full:
                come.query.drop()
                return
            self._pending[come.share] += 1
            if come.relayed:
                self._pending[RELAY] += 1
        _soon(loop, lambda: self._begin_answer(come))

    def _begin_answer(self, come: _Come) -> None:
        try:
            if self._come is not None:
                self._come.send_nowait(come)
                return
        except (anyio.WouldBlock, anyio.BrokenResourceError):
            pass
        self._over(come)
        come.query.drop()

    async def _give(self, come: _Come) -> None:
        query = come.query
        try:
            said = await (self._said_sealed(come) if come.relayed else self._said(come.what, query.payload, query.peer))
            if said is None:
                query.drop()
                return
            await self._in_thread(RELAY if come.relayed else query.peer, lambda: query.reply(said))
        finally:
            self._over(come)

    async def _said(self, what: What, payload: bytes, peer: str) -> bytes | None:
        return await self._answer(what, payload, peer) if self._answer is not None else None

    async def _said_sealed(self, come: _Come) -> bytes | None:
        relayed = self._relayed
        found = relayed.opened(come.what, come.query.key, come.query.payload) if relayed is not None else None
        if relayed is None or found is None:
            return None
        node, question = found
        said = await self._said(come.what, question.payload, node.id)
        return relayed.answer(node, come.what, question, said) if said is not None else None

    async def _in_thread(self, peer: str, call: Callable[[], T]) -> T:
        """Do in a thread what waits while the link of a peer is congested; no peer has all threads."""
        share = self._shares.setdefault(peer, _Share(anyio.Semaphore(MAX_BLOCKED_OF_PEER)))
        share.users += 1
        try:
            async with share.room:
                return await anyio.to_thread.run_sync(call, limiter=self._blocked)
        finally:
            share.users -= 1
            if not share.users:
                del self._shares[peer]

    def _over(self, come: _Come) -> None:
        with self._lock:
            for share in (come.share, RELAY) if come.relayed else (come.share,):
                self._pending[share] -= 1
                if self._pending[share] <= 0:
                    del self._pending[share]


def _soon(loop: asyncio.AbstractEventLoop, run: Callable[[], object]) -> None:
    """Run something on the event loop, from any thread; once that has ended nothing needs it any more."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(run)
