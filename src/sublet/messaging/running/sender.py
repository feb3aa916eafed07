"""The thread that publishes and answers, since a congested link blocks whoever publishes.

Rules: what waits is bounded in number and in bytes; what is left out is durable, so peers fetch it by a difference.
Answers wait in turns of the peers that asked. Weak: one link that takes nothing delays what is published to all others,
within these bounds.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final, NamedTuple

import structlog

from sublet.messaging.ports.network import Network, PeerQuery
from sublet.messaging.ports.outbox import Outgoing
from sublet.messaging.running.fair_queue import ITEM_BYTES, Bounds, FairQueue
from sublet.stop_time import within

log = structlog.get_logger(__name__)

MAX_OUTGOING: Final = 16_384
MAX_OUTGOING_BYTES: Final = 32 << 20
"""Of what waits to be published; a link that is congested may take none of it for long."""
MAX_ANSWERS: Final = 16_384
MAX_ANSWERS_BYTES: Final = 64 << 20
"""Of answers that wait until a link takes them."""
MAX_ANSWERS_OF_PEER: Final = 4_096
MAX_ANSWERS_BYTES_OF_PEER: Final = 16 << 20
"""Of them for one peer, which may ask much and take little."""


class Reply(NamedTuple):
    """An answer, and whose share it takes while it waits: the asker's daemon, or nobody's for what is everybody's."""

    peer: str
    payload: bytes


def _size(outgoing: Outgoing) -> int:
    return len(outgoing.payload) + len(outgoing.attachment)


class Sender:
    """Publishes and answers on a thread of its own, in turns; of the answers, in turns of the peers that asked.

    Weak: what is everybody's, such as a key, is asked for without a name. Whoever does so shares one share.

    Args:
        network: where to publish.
        stop_seconds: how long ``stop`` waits for what is being published.
    """

    def __init__(self, network: Network, stop_seconds: float) -> None:
        self._stop_seconds = stop_seconds
        self._network = network
        self._waiting: deque[Outgoing] = deque()
        bounds = Bounds(MAX_ANSWERS, MAX_ANSWERS_BYTES, MAX_ANSWERS_OF_PEER, MAX_ANSWERS_BYTES_OF_PEER)
        self._answers: FairQueue[tuple[PeerQuery, bytes]] = FairQueue(bounds)
        self._answered = False
        self._ready = threading.Condition()
        self._outgoing = 0
        """Bytes of what waits to be published."""
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="messaging-sender", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def send(self, outgoing: list[Outgoing]) -> None:
        """Publish something soon; of too much the oldest is left out."""
        if outgoing:
            with self._ready:
                self._waiting.extend(outgoing)
                self._outgoing += sum(map(_size, outgoing))
                # What is left out is durable already: peers fetch it by a difference.
                while len(self._waiting) > MAX_OUTGOING or self._outgoing > MAX_OUTGOING_BYTES:
                    self._first_outgoing()
                self._ready.notify()

    def reply(self, query: PeerQuery, reply: Reply) -> None:
        """Answer a peer soon; one for whom there is no room asks again."""
        item = query, reply.payload
        with self._ready:
            left_out = self._answers.add(reply.peer.encode(), item, len(reply.payload) + ITEM_BYTES)
            self._ready.notify()
        for gone, _ in left_out:  # whoever asks again is answered then
            gone.drop()

    def stop(self) -> None:
        """Publish what waits, and end the thread."""
        with self._ready:
            self._stopping = True
            self._ready.notify()
        self._thread.join(within(self._stop_seconds))

    def _first_outgoing(self) -> Outgoing:
        """Take out what has waited longest to be published; the caller holds the lock."""
        item = self._waiting.popleft()
        self._outgoing -= _size(item)
        return item

    def _next(self) -> Outgoing | tuple[PeerQuery, bytes] | None:
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
                    self._network.publish(item.key, item.payload, item.attachment, item.qos, item.to)
                else:
                    item[0].reply(item[1])
            except Exception:
                log.exception("could not publish")
