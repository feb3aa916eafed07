"""The engine's one thread: what Zenoh's threads and the event loop hand over is done here, in batches.

A batch is one commit; whoever asked for something gets the answer when that is durable, and only then is it published.
The event loop is woken once for all answers of a batch.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import structlog

from sublet.messaging.arrivals import Arrivals
from sublet.messaging.engine.arrival import Arrival, ArrivalReport
from sublet.messaging.engine.engine import Engine
from sublet.messaging.engine.network import Answer, Network, Sample
from sublet.messaging.engine.writing import Outgoing
from sublet.messaging.fair_queue import ITEM_BYTES, Bounds, FairQueue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.bundle import RecordKind, decode_bundle
from sublet.protocol.ezagent.errors import Refused
from sublet.stop_time import within
from sublet.tasks import described

log = structlog.get_logger(__name__)

MAX_BATCH: Final = 256
MAX_OUTGOING: Final = 16_384
MAX_OUTGOING_BYTES: Final = 32 << 20
"""Of what waits to be published; a link that is congested may take none of it for long."""
MAX_ANSWERS: Final = 16_384
MAX_ANSWERS_BYTES: Final = 64 << 20
"""Of answers that wait until a link takes them."""
MAX_ANSWERS_OF_PEER: Final = 4_096
MAX_ANSWERS_BYTES_OF_PEER: Final = 16 << 20
"""Of them for one peer, which may ask much and take little."""
STOP_SECONDS: Final = 2.0

ResultT = TypeVar("ResultT")
Promise: TypeAlias = "Future[ResultT] | asyncio.Future[ResultT]"
"""What somebody waits for, on a thread or on an event loop."""


@dataclass(slots=True)
class _Call(Generic[ResultT]):
    run: Callable[[Engine], ResultT]
    promise: Promise[ResultT]


class Reply(NamedTuple):
    """An answer, and whose share it takes while it waits: the asker's daemon, or nobody's for what is everybody's."""

    peer: str
    payload: bytes


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
        broken: told, on the engine's thread, where that ends though nobody has stopped it.
    """

    def __init__(
        self,
        make_engine: Callable[[], Engine],
        network: Network,
        answer: Callable[[Engine, Answer], Reply | None],
        outcome: Callable[[ArrivalReport], None],
        settle: Callable[[list[Settled]], None] = settle,
        broken: Callable[[], None] = lambda: None,
    ) -> None:
        self._broken = broken
        self._make_engine = make_engine
        self._network = network
        self._answer = answer
        self._outcome = outcome
        self._settle = settle
        self._settled: list[Settled] = []
        self._inbox = Arrivals(self._no_room)
        self._sender = _Sender(network)
        self._thread = threading.Thread(target=self._run, name="messaging", daemon=True)
        self._started: Future[None] = Future()
        self._lock = threading.Lock()
        self._stopped = False
        self.dropped = 0

    def start(self) -> None:
        """Start both threads; returns when the engine is ready.

        Raises:
            SubletError: the engine could not be made.
        """
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

    def asked(self, answer: Answer) -> None:
        """Take a peer's query; called from Zenoh's threads."""
        if not self._inbox.offer(answer):
            self._no_room(answer)

    def _no_room(self, item: Sample | Answer) -> None:
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
            batch = self._inbox.take(MAX_BATCH, engine.intake.gathering.wait_seconds())
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

    def _do(self, engine: Engine, batch: list[Any]) -> None:
        arrivals: list[Arrival] = []
        for item in batch:
            if isinstance(item, Sample):
                arrivals += arrivals_of(item)
            elif isinstance(item, _Call):
                self._take(engine, arrivals)
                self._call(engine, item)
            elif item is not None:
                self._take(engine, arrivals)
                self._reply(engine, item)
        self._take(engine, arrivals)
        if engine.intake.gathering.wait_seconds() == 0:
            self._outcome(engine.intake.take_due())
        engine.commit()
        outgoing, engine.writing.outgoing = engine.writing.outgoing, []
        self._sender.send(outgoing)

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
        except BaseException as error:
            self._settled.append(Settled(call.promise, None, _failure(error)))

    def _reply(self, engine: Engine, query: Answer) -> None:
        try:
            reply = self._answer(engine, query)
        except Refused:
            reply = None
        except BaseException:
            log.exception("could not answer a peer", key=query.key)
            reply = None
        if reply is None:
            query.drop()
        else:
            self._sender.reply(query, reply)


def arrivals_of(sample: Sample) -> list[Arrival]:
    """Return what a sample brings: an envelope, and the contents that are attached to it."""
    contents: tuple[bytes, ...] = ()
    if sample.attachment:
        try:
            contents = tuple(decode_bundle(sample.attachment).of(RecordKind.CONTENT))
        except Refused:
            contents = ()
    return [Arrival(sample.payload, contents)]


def _failure(error: BaseException) -> Exception:
    """Return what whoever waits is told; a library in Rust that panics raises what is no ``Exception``."""
    return error if isinstance(error, Exception) else RuntimeError(described(error))


def _stopped() -> SubletError:
    return SubletError(LocalCode.UNAVAILABLE, "messaging has stopped", "Start the daemon again.")


def _size(outgoing: Outgoing) -> int:
    return len(outgoing.payload) + len(outgoing.attachment)


class _Sender:
    """Publishes and answers on a thread of its own, in turns; of the answers, in turns of the peers that asked.

    Weak: what is everybody's, such as a key, is asked for without a name. Whoever does so shares one share.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self._waiting: deque[Outgoing] = deque()
        bounds = Bounds(MAX_ANSWERS, MAX_ANSWERS_BYTES, MAX_ANSWERS_OF_PEER, MAX_ANSWERS_BYTES_OF_PEER)
        self._answers: FairQueue[tuple[Answer, bytes]] = FairQueue(bounds)
        self._answered = False
        self._ready = threading.Condition()
        self._outgoing = 0
        """Bytes of what waits to be published."""
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="messaging-sender", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def send(self, outgoing: list[Outgoing]) -> None:
        if outgoing:
            with self._ready:
                self._waiting.extend(outgoing)
                self._outgoing += sum(map(_size, outgoing))
                # What is left out is durable already: peers fetch it by a difference.
                while len(self._waiting) > MAX_OUTGOING or self._outgoing > MAX_OUTGOING_BYTES:
                    self._first_outgoing()
                self._ready.notify()

    def reply(self, query: Answer, reply: Reply) -> None:
        item = query, reply.payload
        with self._ready:
            left_out = self._answers.add(reply.peer.encode(), item, len(reply.payload) + ITEM_BYTES)
            self._ready.notify()
        for gone, _ in left_out:  # whoever asks again is answered then
            gone.drop()

    def stop(self) -> None:
        with self._ready:
            self._stopping = True
            self._ready.notify()
        self._thread.join(within(STOP_SECONDS))

    def _first_outgoing(self) -> Outgoing:
        """Take out what has waited longest to be published; the caller holds the lock."""
        item = self._waiting.popleft()
        self._outgoing -= _size(item)
        return item

    def _next(self) -> Outgoing | tuple[Answer, bytes] | None:
        """Take out an answer after each that was published, and the other way round; the caller holds the lock."""
        self._answered = not self._answered
        if self._waiting and not (self._answered and self._answers):
            return self._first_outgoing()
        return self._answers.take()

    def _run(self) -> None:
        while True:
            with self._ready:
                while (item := self._next()) is None and not self._stopping:
                    self._ready.wait()
            if item is None:
                return
            try:
                if isinstance(item, Outgoing):
                    self._network.publish(item.key, item.payload, item.attachment, item.qos)
                else:
                    item[0].reply(item[1])
            except Exception:
                log.exception("could not publish")
