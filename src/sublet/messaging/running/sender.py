"""The thread that publishes and answers, since a congested link blocks whoever publishes.

Rules: what waits is bounded in number and in bytes; what is left out is durable, so peers fetch it by a difference.
Weak: one link that takes nothing delays what is published to all others, within these bounds.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

import structlog

from sublet.messaging.ports.network import Answer, Network
from sublet.messaging.ports.outbox import Outgoing

log = structlog.get_logger(__name__)

MAX_OUTGOING: Final = 16_384
MAX_OUTGOING_BYTES: Final = 32 << 20
"""Of what waits to be published; a link that is congested may take none of it for long."""
MAX_ANSWERS_BYTES: Final = 64 << 20
"""Of answers that wait until a link takes them."""


def _size(outgoing: Outgoing) -> int:
    return len(outgoing.payload) + len(outgoing.attachment)


class Sender:
    """Publishes and answers on a thread of its own.

    Args:
        network: where to publish.
        stop_seconds: how long ``stop`` waits for what is being published.
    """

    def __init__(self, network: Network, stop_seconds: float) -> None:
        self._stop_seconds = stop_seconds
        self._network = network
        self._waiting: deque[Outgoing | tuple[Answer, bytes]] = deque()
        self._ready = threading.Condition()
        self._answers = 0
        """Bytes of all answers that wait."""
        self._outgoing = 0
        """Bytes of all else that waits."""
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="messaging-sender", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def send(self, outgoing: list[Outgoing]) -> None:
        """Publish something soon; of too much the oldest is left out."""
        dropped: list[Answer] = []
        if outgoing:
            with self._ready:
                self._waiting.extend(outgoing)
                self._outgoing += sum(map(_size, outgoing))
                # What is left out is durable already: peers fetch it by a difference.
                while len(self._waiting) > MAX_OUTGOING or self._outgoing > MAX_OUTGOING_BYTES:
                    gone = self._first()
                    if not isinstance(gone, Outgoing):
                        dropped.append(gone[0])
                self._ready.notify()
        for query in dropped:
            query.drop()

    def reply(self, query: Answer, payload: bytes) -> None:
        """Answer a peer soon; one for whom there is no room asks again."""
        with self._ready:
            has_room = self._answers + len(payload) <= MAX_ANSWERS_BYTES
            if has_room:
                self._answers += len(payload)
                self._waiting.append((query, payload))
                self._ready.notify()
        if not has_room:  # whoever asks again is answered then
            query.drop()

    def stop(self) -> None:
        """Publish what waits, and end the thread."""
        with self._ready:
            self._stopping = True
            self._ready.notify()
        self._thread.join(self._stop_seconds)

    def _first(self) -> Outgoing | tuple[Answer, bytes]:
        """Take out what has waited longest; the caller holds the lock."""
        item = self._waiting.popleft()
        if isinstance(item, Outgoing):
            self._outgoing -= _size(item)
        else:
            self._answers -= len(item[1])
        return item

    def _run(self) -> None:
        while True:
            with self._ready:
                while not self._waiting and not self._stopping:
                    self._ready.wait()
                if not self._waiting:
                    return
                item = self._first()
            try:
                if isinstance(item, Outgoing):
                    self._network.publish(item.key, item.payload, item.attachment, item.qos)
                else:
                    item[0].reply(item[1])
            except Exception:
                log.exception("could not publish")
