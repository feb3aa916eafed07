"""Carries what federation says to paired daemons over the bus of rooms, on whose links each key is proven.

What comes is answered by tasks of this service. A peer that asks faster than it is answered is answered less.
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
from sublet.tasks import start_alone

if TYPE_CHECKING:
    from sublet.messaging.backends.zenoh_link import AskedOfUs
    from sublet.messaging.backends.zenoh_network import ZenohNetwork
    from sublet.messaging.ports.network import PeerQuery

KEYS: Final[dict[What, str]] = {"event": "ezagent/federation/event", "server": "ezagent/federation/server"}
"""Below the one pattern that a daemon declares on the link of a peer."""
ASK_SECONDS: Final = 5.0
MAX_PENDING_OF_PEER: Final = 32
"""Of what a peer has asked and was not answered yet; a further question is dropped."""
MAX_PENDING: Final = 1_024
"""Of what all of them have asked."""
MAX_BLOCKED: Final = 16
"""Questions and answers that wait for congested links at one time."""
MAX_BLOCKED_OF_PEER: Final = 2
"""Of them of one peer, so that one that reads nothing leaves room for the others."""

T = TypeVar("T")
Answer = Callable[[What, bytes, str], Awaitable[bytes]]


@dataclass(slots=True)
class _Share:
    """What of the threads one peer may have, and how many wait for it or are in it."""

    room: anyio.Semaphore
    users: int = 0


class NodeCarrier:
    """Implements ``Carrier`` while rooms run; nobody is reached else."""

    def __init__(self) -> None:
        self._network: ZenohNetwork | None = None
        self._answer: Answer | None = None
        self._changed: Callable[[], None] = lambda: None
        self._come: MemoryObjectSendStream[tuple[What, AskedOfUs]] | None = None
        self._blocked = anyio.CapacityLimiter(MAX_BLOCKED)
        self._shares: dict[str, _Share] = {}
        """By peer, of those for whose links something waits."""
        self._lock = threading.Lock()
        self._pending = Counter[str]()
        self._ends: list[Callable[[], None]] = []

    def begin(self, answer: Answer, changed: Callable[[], None]) -> None:
        """Say who answers, and who is told that a peer may be reached now or no more."""
        self._answer, self._changed = answer, changed

    async def serve(self) -> None:
        """Answer what comes, until cancelled."""
        send, come = anyio.create_memory_object_stream[tuple[What, "AskedOfUs"]](MAX_PENDING)
        self._come = send
        async with anyio.create_task_group() as group:
            with come:
                try:
                    async for what, query in come:
                        start_alone(group, "an answer to a node", self._give, what, query)
                finally:
                    self._come = None
                    send.close()
                    for _ in range(come.statistics().current_buffer_used):
                        _, left = come.receive_nowait()  # nobody answers it any more
                        self._over(left)
                        left.drop()

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
        """``Carrier.reaches``."""
        return self._network is not None and node.id in self._network.linked()

    async def ask(self, node: KnownNode, what: What, payload: bytes) -> bytes | None:
        """``Carrier.ask``."""
        network = self._network
        if network is None or node.id not in network.linked():
            return None
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[bytes | None] = loop.create_future()

        def heard(answer: bytes | None, replier: str = "") -> None:
            _soon(loop, lambda: None if answered.done() else answered.set_result(answer))

        with anyio.move_on_after(ASK_SECONDS):
            end = await self._in_thread(node.id, lambda: network.ask(node.id, KEYS[what], payload, ASK_SECONDS, heard))
            try:
                return await answered
            finally:
                end()
        return None

    def _tell_changed(self) -> None:
        self._changed()

    def _came(self, loop: asyncio.AbstractEventLoop, what: What, query: AskedOfUs) -> None:
        """Take a question, in Zenoh's thread: it only hands over.

        One of a link that proves nobody is dropped, and one that is larger than any that is answered.
        """
        with self._lock:
            too_large = len(query.payload) > MAX_ENVELOPE_BYTES
            if too_large or query.peer == ANYBODY or self._pending[query.peer] >= MAX_PENDING_OF_PEER:
                query.drop()
                return
            self._pending[query.peer] += 1
        _soon(loop, lambda: self._begin_answer(what, query))

    def _begin_answer(self, what: What, query: AskedOfUs) -> None:
        try:
            if self._come is not None:
                self._come.send_nowait((what, query))
                return
        except (anyio.WouldBlock, anyio.BrokenResourceError):
            pass
        self._over(query)
        query.drop()

    async def _give(self, what: What, query: AskedOfUs) -> None:
        try:
            if self._answer is None:
                query.drop()
                return
            said = await self._answer(what, query.payload, query.peer)
            await self._in_thread(query.peer, lambda: query.reply(said))
        finally:
            self._over(query)

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

    def _over(self, query: AskedOfUs) -> None:
        with self._lock:
            self._pending[query.peer] -= 1
            if self._pending[query.peer] <= 0:
                del self._pending[query.peer]


def _soon(loop: asyncio.AbstractEventLoop, run: Callable[[], object]) -> None:
    """Run something on the event loop, from any thread; once that has ended nothing needs it any more."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(run)
