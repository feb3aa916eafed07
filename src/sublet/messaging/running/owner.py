"""The engine's one thread: what Zenoh's threads and the event loop hand over is done here, in batches.

A batch is one commit; whoever asked for something gets the answer when that is durable, and only then is it published.
The event loop is woken once for all answers of a batch.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

import structlog

from sublet.messaging.accepting.arrival import Arrival, ArrivalReport
from sublet.messaging.engine.engine import Engine
from sublet.messaging.ports.network import Network, PeerQuery, Sample
from sublet.messaging.running.arrivals import Arrivals, Item
from sublet.messaging.running.sender import Reply, Sender
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.errors import Refused
from sublet.stop_time import within
from sublet.tasks import described

log = structlog.get_logger(__name__)

MAX_BATCH: Final = 256
STOP_SECONDS: Final = 2.0

ResultT = TypeVar("ResultT")
Promise: TypeAlias = "Future[ResultT] | asyncio.Future[ResultT]"
"""What somebody waits for, on a thread or on an event loop."""


@dataclass(slots=True)
class _Call(Generic[ResultT]):
    run: Callable[[Engine], ResultT]
    promise: Promise[ResultT]


@dataclass(frozen=True, slots=True)
class Settled:
    """What a promise comes to."""

    promise: Promise[Any]
    result: Any
    error: BaseException | None = None


def settle(all_of_them: Iterable[Settled]) -> None:
    """Keep promises; whoever waits no longer gets nothing. Those of an event loop are kept on it."""
    for settled in all_of_them:
        if settled.promise.done():
            continue
        if settled.error is not None:
            settled.promise.set_exception(settled.error)
        else:
            settled.promise.set_result(settled.result)


class Owner:
    """The thread that owns the engine, and the one that publishes, since publishing may block.

    Args:
        make_engine: makes the engine, on its thread.
        network: where to publish.
        answer: answers a peer's query, on the engine's thread.
        outcome: told what came of a batch of arrivals.
        settle: keeps promises where they are waited for, called from the engine's thread.
    """

    def __init__(
        self,
        make_engine: Callable[[], Engine],
        network: Network,
        answer: Callable[[Engine, PeerQuery], Reply | None],
        outcome: Callable[[ArrivalReport], None],
        settle: Callable[[list[Settled]], None] = settle,
    ) -> None:
        self._broken: Callable[[], None] = _nothing
        self._make_engine = make_engine
        self._answer = answer
        self._outcome = outcome
        self._settle = settle
        self._settled: list[Settled] = []
        self._done: list[_Call[Any]] = []
        """Calls of this batch that have what they were for, which is not durable yet."""
        self._losses = 0
        self._inbox = Arrivals[_Call[Any]](self._no_room)
        self._sender = Sender(network, STOP_SECONDS)
        self._thread = threading.Thread(target=self._run, name="messaging", daemon=True)
        self._started: Future[None] = Future()
        self._lock = threading.Lock()
        self._stopped = False
        self.dropped = 0

    def start(self, broken: Callable[[], None]) -> None:
        """Start both threads; returns when the engine is ready.

        Args:
            broken: told, on the engine's thread, where that ends though nobody has stopped it.

        Raises:
            SubletError: the engine could not be made.
        """
        self._broken = broken
        self._sender.start()
        self._thread.start()
        self._started.result()

    def stop(self) -> None:
        """Finish what waits, and end both threads."""
        self._inbox.put(None)
        self._thread.join(within(STOP_SECONDS))
        self._sender.stop()

    def heard(self, sample: Sample) -> None:
        """Take something that was published; called from Zenoh's threads."""
        if not self._inbox.hear(sample):
            self._no_room(sample)

    def asked(self, answer: PeerQuery) -> None:
        """Take a peer's query; called from Zenoh's threads."""
        if not self._inbox.offer(answer):
            self._no_room(answer)

    def _no_room(self, item: Sample | PeerQuery) -> None:
        if isinstance(item, Sample):
            self.dropped += 1
        else:
            item.drop()

    def call(self, run: Callable[[Engine], ResultT], promise: Promise[ResultT]) -> None:
        """Run something with the engine; the promise is kept when what it wrote is durable."""
        with self._lock:
            if self._stopped:
                promise.set_exception(_stopped())
            else:
                self._inbox.put(_Call(run, promise))

    def settle(self, promise: Promise[ResultT], result: ResultT) -> None:
        """Keep a promise at the end of the batch; on the engine's thread."""
        self._settled.append(Settled(promise, result))

    def _run(self) -> None:
        try:
            engine = self._make_engine()
        except BaseException as error:
            self._started.set_exception(error)
            return
        self._started.set_result(None)
        try:
            self._work(engine)
        except BaseException:
            log.exception("the thread of the engine broke")
            self._broken()
        finally:
            # Whatever ended it, nobody waits for an answer that can't come.
            self._refuse_rest()

    def _work(self, engine: Engine) -> None:
        running = True
        while running:
            waits = engine.intake.gathering.wait_seconds(), engine.seals.wait_seconds()
            batch = self._inbox.take(MAX_BATCH, min((one for one in waits if one is not None), default=None))
            running = None not in batch
            try:
                self._do(engine, batch)
            except BaseException as error:
                log.exception("a batch of messages failed")
                failed = [Settled(item.promise, None, _failure(error)) for item in batch if isinstance(item, _Call)]
                self._settled = [*failed, *self._settled]  # the first counts; events that were told stay told
            self._wake()
        engine.store.close()

    def _refuse_rest(self) -> None:
        """Answer what came too late, so that nobody waits for it."""
        with self._lock:
            self._stopped = True
        for item in self._inbox.rest():
            if isinstance(item, _Call):
                self._settled.append(Settled(item.promise, None, _stopped()))
            elif item is not None:
                item.drop()
        self._wake()

    def _wake(self) -> None:
        """Let those know who wait."""
        if self._settled:
            settled, self._settled = self._settled, []
            self._settle(settled)

    def _do(self, engine: Engine, batch: list[Item[_Call[Any]]]) -> None:
        arrivals: list[Arrival] = []
        late: list[Sample] = []
        self._done, self._losses = [], engine.staging.losses
        for item in batch:
            if isinstance(item, Sample):
                opened = engine.carrying.opened(item)
                arrivals += opened.arrivals
                late += [item] if opened.wanted else []
            elif isinstance(item, _Call):
                self._take(engine, arrivals)
                self._call(engine, item)
            elif item is not None:
                self._take(engine, arrivals)
                self._reply(engine, item)
        self._take(engine, arrivals)
        self._take(engine, self._open_late(engine, late))
        if engine.intake.gathering.wait_seconds() == 0:
            self._outcome(engine.intake.take_due())
        engine.commit()
        self._publish(engine)
        if engine.seals.turn():  # only now, since who has just been removed hears of that under the keys of before
            engine.commit()
        self._publish(engine)

    def _publish(self, engine: Engine) -> None:
        self._sender.send(engine.carrying.sealed(engine.audience.addressed(engine.outbox.take())))

    def _open_late(self, engine: Engine, late: list[Sample]) -> list[Arrival]:
        """Return what samples bring that did not open before what came with them was taken; the rest is asked for."""
        arrivals: list[Arrival] = []
        for sample in late:
            opened = engine.carrying.opened(sample)
            arrivals += opened.arrivals
            if opened.wanted:
                engine.intake.counts["unopened"] += 1
                self._outcome(ArrivalReport(gaps=set(opened.wanted)))
        return arrivals

    def _take(self, engine: Engine, arrivals: list[Arrival]) -> None:
        if arrivals:
            taken = arrivals.copy()
            arrivals.clear()
            self._outcome(engine.intake.take(taken))

    def _call(self, engine: Engine, call: _Call[Any]) -> None:
        if call.promise.cancelled():
            return
        try:
            self.settle(call.promise, call.run(engine))
            self._done.append(call)
        except BaseException as error:
            self._settled.append(Settled(call.promise, None, _failure(error)))
            self._fail_lost(engine, error)

    def _fail_lost(self, engine: Engine, error: BaseException) -> None:
        """Tell those who were done in this batch, where a commit failed before its end and their writes are gone."""
        if engine.staging.losses != self._losses:
            self._losses = engine.staging.losses
            failed = [Settled(call.promise, None, _failure(error)) for call in self._done]
            self._settled = [*failed, *self._settled]  # the first counts
            self._done = []

    def _reply(self, engine: Engine, query: PeerQuery) -> None:
        try:
            reply = self._answer(engine, query)
        except Refused:
            reply = None
        except BaseException as error:
            log.exception("could not answer a peer", key=query.key)
            self._fail_lost(engine, error)
            reply = None
        if reply is None:
            query.drop()
        else:
            self._sender.reply(query, reply)


def _nothing() -> None:
    """Tell nobody, as nobody is told before the start."""


def _failure(error: BaseException) -> Exception:
    """Return what whoever waits is told; a library in Rust that panics raises what is no ``Exception``."""
    return error if isinstance(error, Exception) else RuntimeError(described(error))


def _stopped() -> SubletError:
    return SubletError(LocalCode.UNAVAILABLE, "messaging has stopped", "Start the daemon again.")
