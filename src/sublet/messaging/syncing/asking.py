"""Asks peers side by side, each over its own link, and lets none of them hold up what the others answer.

Rules: a peer is the daemon whose pinned key its link has proven. Only daemons that may answer are asked, and what
comes over a link counts for its peer, once it was opened. Each peer has its own places for questions that run, so one
that takes questions and answers none fills these alone. Whoever asks waits for all that are in good standing, but no
longer than a moment after the first answer, and not at all for one that is late already; what comes later is handed on
when it comes. Peers that have failed lately are asked last, in the background (see ``shares``).

Why links and not signatures: a signature shows who has answered after the answer was received and opened, and its
check is what a stranger would have us pay for. A link is known before a byte is read from it. So an answer over the
link of a daemon that may not answer is never asked for, and junk takes the share of the one whose link it came over.

Weak: those behind a relay share one link, which proves none of them; they wait for each other, and answers that can't
be opened are passed over without being laid at anybody's door.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.abc import TaskGroup

from sublet.messaging.ports.network import ANYBODY, Network
from sublet.messaging.running.fair_queue import ITEM_BYTES, Bounds, FairQueue
from sublet.messaging.syncing.shares import Failure, Shares
from sublet.protocol.ezagent.errors import Refused
from sublet.tasks import start_alone

ANSWER_SECONDS: Final = 2.5
"""How long a peer in good standing has for its answer."""
LAST_SECONDS: Final = 15.0
"""How long one that is asked last has, for which nobody waits; it may be slow and honest."""
ANYBODY_SECONDS: Final = 5.0
GRACE_SECONDS: Final = 0.2
"""How long the others are waited for after the first answer, beside four times what they take as a rule."""
MAX_GRACE_SECONDS: Final = 2.0
MAX_AT_ONCE_OF_PEER: Final = 4
"""Questions that one peer has to answer at the same time."""
MAX_WAITING_OF_PEER: Final = 64
"""Questions that wait for one of these places; of more the peer is not asked."""
MAX_LAST: Final = 64
"""Questions to peers that are asked last, of all together."""
MAX_THREADS: Final = 16
"""Threads that hand questions to the network; a congested link holds up ``MAX_AT_ONCE_OF_PEER`` of them at most."""
MAX_UNOPENED: Final = 1_024
MAX_UNOPENED_BYTES: Final = 16 << 20
"""Answers to one question that wait to be opened; where there are more, whoever has sent the most makes room."""
OPENED_ON_LOOP_BYTES: Final = 32 << 10
"""A longer answer is opened on a thread."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """An answer that was opened.

    Args:
        peer: node id of the daemon that has given it; ``ANYBODY`` where its link does not prove that.
        said: what it says.
    """

    peer: str
    said: T


Opens = Callable[[bytes], T]
"""Opens an answer; raises ``Refused`` where it says nothing."""
Late = Callable[[Answer[T]], Awaitable[Any]]


class Asking:
    """Asks. Used on the event loop.

    Args:
        network: whom to ask.
        recovered: told that a peer that was asked last has answered, so that much may be asked for again.
        shares: how peers have answered lately.
    """

    def __init__(self, network: Network, recovered: Callable[[], object], shares: Shares | None = None) -> None:
        self._network = network
        self._recovered = recovered
        self._shares = shares or Shares()
        self._places: dict[str, anyio.Semaphore] = {}
        self._waiting: dict[str, int] = {}
        self._put_at: dict[str, dict[object, float]] = {}
        """When each question was put that a peer has not answered yet."""
        self._last = 0
        self._group: TaskGroup | None = None
        self._threads = anyio.CapacityLimiter(MAX_THREADS)

    def begin(self, group: TaskGroup) -> None:
        """Ask in a task group from now on, which outlasts whoever asks."""
        self._group = group

    def linked(self) -> Collection[str]:
        """Return the peers that can be asked now; ``ANYBODY`` among them where there may be others."""
        return self._network.linked()

    def asked_last(self) -> Mapping[str, Failure]:
        """Return the peers that are asked last, and why."""
        return self._shares.asked_last()

    def forged(self, peer: str, size: int) -> None:
        """Note that a peer has answered with something that nobody has signed."""
        if peer != ANYBODY:
            self._shares.failed(peer, Failure.FORGED, size)

    async def ask(
        self, key: str, payload: bytes, peers: Collection[str] | None, opens: Opens[T], late: Late[T] | None = None
    ) -> list[Answer[T]]:
        """Return what peers answer, each at most once, those that answer first in front.

        Args:
            key: what is asked for.
            payload: the question.
            peers: node ids of those that may answer; None for all.
            opens: opens an answer.
            late: takes the answers that come after this has returned.
        """
        group = self._group
        if group is None:
            return []
        asked = [one for one in self._network.linked() if one == ANYBODY or peers is None or one in peers]
        first = [one for one in asked if not self._shares.is_last(one)]
        in_time = {one for one in first if not self._is_overdue(one)}
        question = _Question(self, key, payload, opens, late, in_time or set(first))
        for peer in first:
            start_alone(group, "a question to a peer", self._of_first, question, peer)
        await question.answered()
        for peer in asked:
            if peer not in first and self._last < MAX_LAST and self._shares.take_turn(peer):
                self._last += 1
                start_alone(group, "a question to a peer that is asked last", self._of_last, question, peer)
        return question.close()

    async def _of_first(self, question: _Question[Any], peer: str) -> None:
        try:
            if peer == ANYBODY:
                await self._put(question, peer, ANYBODY_SECONDS)
            elif self._waiting.get(peer, 0) < MAX_WAITING_OF_PEER:
                self._waiting[peer] = self._waiting.get(peer, 0) + 1
                try:
                    await self._placed(question, peer)
                finally:
                    self._waiting[peer] -= 1
        finally:
            question.done(peer)

    async def _placed(self, question: _Question[Any], peer: str) -> None:
        async with self._places.setdefault(peer, anyio.Semaphore(MAX_AT_ONCE_OF_PEER)):
            if not self._shares.is_last(peer):  # it may have failed meanwhile
                await self._put(question, peer, ANSWER_SECONDS)

    async def _of_last(self, question: _Question[Any], peer: str) -> None:
        try:
            if await self._put(question, peer, LAST_SECONDS):
                self._recovered()
        finally:
            self._last -= 1

    async def _put(self, question: _Question[Any], peer: str, seconds: float) -> bool:
        """Put a question to a peer and take its answers; tell whether it was asked last, and has answered now."""
        unopened, began = _Unopened(), anyio.current_time()
        end: Callable[[], None] | None = None
        failure, size = Failure.SILENT, 0
        scope = anyio.CancelScope()
        put_at = self._put_at.setdefault(peer, {})
        put_at[unopened] = began
        try:
            with anyio.move_on_after(seconds):
                put = partial(self._network.ask, peer, question.key, question.payload, seconds, unopened.hear)
                end = await anyio.to_thread.run_sync(put, limiter=self._threads, abandon_on_cancel=True)
            while True:
                with anyio.move_on_at(began + seconds) as scope:
                    raw = await unopened.next()
                if scope.cancelled_caught or raw is None:
                    break
                try:
                    said = await _opened(question.opens, raw)
                except Refused:
                    failure, size = Failure.JUNK, len(raw)
                else:
                    await question.take(Answer(peer, said))
                    failure = Failure.SILENT
                if peer != ANYBODY:
                    break  # a daemon answers a question once
        finally:
            del put_at[unopened]
            unopened.close()
            if end is not None:
                end()
        if peer == ANYBODY:
            return False
        if scope.cancelled_caught or failure is Failure.JUNK:
            self._shares.failed(peer, failure, size)
            return False
        return self._shares.answered(peer, anyio.current_time() - began)

    def _is_overdue(self, peer: str) -> bool:
        """Tell whether a peer is late with an answer, so that nobody waits for others of it."""
        oldest = min(self._put_at.get(peer, {}).values(), default=None)
        return oldest is not None and anyio.current_time() - oldest > self.grace((peer,))

    def grace(self, peers: Collection[str]) -> float:
        """Return for how long these peers are waited for after the first answer."""
        slowest = max((self._shares.latency(peer) for peer in peers), default=0.0)
        return min(MAX_GRACE_SECONDS, max(GRACE_SECONDS, 4 * slowest))


class _Question(Generic[T]):
    """A question, and the answers that came while its asker was waiting.

    Args:
        asking: knows how long to wait.
        key: what is asked for.
        payload: as it travels.
        opens: opens an answer.
        late: takes answers that come when nobody waits any more.
        waited_for: the peers that are waited for.
    """

    def __init__(
        self, asking: Asking, key: str, payload: bytes, opens: Opens[T], late: Late[T] | None, waited_for: set[str]
    ) -> None:
        self.key = key
        self.payload = payload
        self.opens = opens
        self._asking = asking
        self._late = late
        self._waited_for = waited_for
        self._found: list[Answer[T]] = []
        self._closed = False
        self._first = anyio.Event()
        self._all = anyio.Event()
        if not waited_for:
            self._all.set()

    async def answered(self) -> None:
        """Wait until all have answered, or a moment has passed since the first one has."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._moment_after_first, group.cancel_scope)
            await self._all.wait()
            group.cancel_scope.cancel()

    async def _moment_after_first(self, scope: anyio.CancelScope) -> None:
        await self._first.wait()
        with anyio.move_on_after(self._asking.grace(self._waited_for)):
            await self._all.wait()
        scope.cancel()

    def close(self) -> list[Answer[T]]:
        """Return what was answered; what comes from now on is late."""
        self._closed = True
        return self._found

    def done(self, peer: str) -> None:
        """Wait for a peer no longer; that it has nothing is an answer too."""
        self._first.set()
        self._waited_for.discard(peer)
        if not self._waited_for:
            self._all.set()

    async def take(self, answer: Answer[T]) -> None:
        """Take an answer."""
        if not self._closed:
            self._found.append(answer)
            self._first.set()
        elif self._late is not None:
            await self._late(answer)


class _Unopened:
    """Answers that wait to be opened: the network's threads fill it, and a task of the event loop empties it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._lock = threading.Lock()
        bounds = Bounds(MAX_UNOPENED, MAX_UNOPENED_BYTES, MAX_UNOPENED, MAX_UNOPENED_BYTES)
        self._answers: FairQueue[bytes] = FairQueue(bounds)
        self._ended = False

    def hear(self, answer: bytes | None, replier: str = "") -> None:
        """Take an answer, or None for the end; from any thread."""
        with self._lock:
            if self._ended:
                return
            wakes = not self._answers
            if answer is None:
                wakes = self._ended = True
            else:
                self._answers.add(replier.encode(), answer, len(answer) + ITEM_BYTES)
        if wakes:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._ready.set)

    async def next(self) -> bytes | None:
        """Return the next answer, each replier's in turn; None where no more come."""
        while True:
            with self._lock:
                answer = self._answers.take()
                if answer is not None or self._ended:
                    return answer
                self._ready.clear()
            await self._ready.wait()

    def close(self) -> None:
        """Take no more answers."""
        with self._lock:
            self._ended = True
            self._answers.clear()


async def _opened(opens: Opens[T], raw: bytes) -> T:
    if len(raw) > OPENED_ON_LOOP_BYTES:
        return await anyio.to_thread.run_sync(opens, raw)
    await anyio.lowlevel.checkpoint()
    return opens(raw)
