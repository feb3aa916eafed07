"""What waits for the engine's thread: calls in order, and samples and queries in turn of who has sent them.

Who has sent something is the daemon whose pinned key its link has proven; whoever floods so fills a queue of their own,
under however many names. In each batch everybody else's samples and queries come as soon as before, and calls of this
machine before all of them. A batch is short while several wait, as each of them waits until it is over; where one alone
waits it is long, since a commit costs the same for either. Weak: behind a relay nobody proves who they are, so there
turns are those of who is claimed to have signed; a forger can take somebody's, and what is lost is asked for again.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeAlias, TypeVar

from sublet.messaging.ports.network import PeerQuery, Sample
from sublet.messaging.running.fair_queue import ITEM_BYTES, Bounds, FairQueue, claimed_signer
from sublet.protocol.ezagent.bundle import MAX_BUNDLE_BYTES
from sublet.protocol.ezagent.envelope import MAX_ENVELOPE_BYTES

MAX_WAITING: Final = 65_536
"""Samples and queries that wait."""
MAX_WAITING_BYTES: Final = 32 << 20
MAX_OF_SIGNER: Final = 5_120
MAX_BYTES_OF_SIGNER: Final = MAX_BUNDLE_BYTES + MAX_ENVELOPE_BYTES + ITEM_BYTES
"""As large as one message can be: an envelope, with the contents that are attached to it.

Beyond all of these they are dropped, and a difference heals it.
"""
BATCH_BYTES: Final = 256 << 10
"""Of samples and queries that are taken at once; calls of this machine come in between, however large these are."""
SHORT_BATCH: Final = 32
SHORT_BATCH_BYTES: Final = 32 << 10
"""The same, while others wait as well: tens of milliseconds at most, whatever it is that was sent."""
SHORT_SECONDS: Final = 1.0
"""For how long batches stay short once several have waited, since whoever comes next finds one that has begun."""
MAX_SIGNERS: Final = 1_024
"""Queues; whoever comes beyond shares one, unless a link has proven who it is."""
_ASKER_BYTES: Final = 128
"""A question begins with the record of who asks, which is another one for each."""

CallT = TypeVar("CallT")
Item: TypeAlias = "Sample | PeerQuery | CallT | None"
"""A call of this machine, what others have sent, or None for the end."""


class Arrivals(Generic[CallT]):
    """A queue that many threads fill and one empties.

    Args:
        displaced: told of what was taken off again, since its sender filled the queue when others came.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        displaced: Callable[[Sample | PeerQuery], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._displaced = displaced
        self._clock = clock
        self._short_until = -math.inf
        self._ready = threading.Condition(threading.Lock())
        self._calls: deque[CallT | None] = deque()
        bounds = Bounds(MAX_WAITING, MAX_WAITING_BYTES, MAX_OF_SIGNER, MAX_BYTES_OF_SIGNER, MAX_SIGNERS)
        self._others: FairQueue[Sample | PeerQuery] = FairQueue(bounds)

    def __len__(self) -> int:
        return len(self._others)

    def put(self, item: CallT | None) -> None:
        """Add a call, or what ends the thread; never refused."""
        with self._ready:
            self._calls.append(item)
            self._ready.notify()

    def offer(self, query: PeerQuery) -> bool:
        """Add a query; tell whether there was room for it and for its asker."""
        asker = query.peer.encode() or query.payload[:_ASKER_BYTES]
        return self._add(b"?" + asker, query, ITEM_BYTES + len(query.payload), is_proven=bool(query.peer))

    def hear(self, sample: Sample) -> bool:
        """Add a sample; tell whether there was room for it and for its sender."""
        size = ITEM_BYTES + len(sample.payload) + len(sample.attachment)
        owner = b"!" + (sample.peer.encode() or claimed_signer(sample.payload))
        return self._add(owner, sample, size, is_proven=bool(sample.peer))

    def take(self, most: int, wait_seconds: float | None = None) -> list[Item[CallT]]:
        """Return what comes next, waiting for it: calls first, but no more than half where others wait.

        Args:
            most: how many items.
            wait_seconds: after which nothing is returned; None to wait without end.
        """
        with self._ready:
            self._ready.wait_for(lambda: self._calls or self._others, wait_seconds)
            batch: list[Item[CallT]] = []
            calls = most - min(most // 2, len(self._others))
            others, size = (SHORT_BATCH, SHORT_BATCH_BYTES) if self._is_short() else (most, BATCH_BYTES)
            while self._calls and len(batch) < calls:
                batch.append(self._calls.popleft())
            most, least = min(most, len(batch) + others), self._others.size - size
            while self._others and len(batch) < most and self._others.size > least:
                batch.append(self._others.take())
        return batch

    def _is_short(self) -> bool:
        """Tell whether others wait beside whoever has sent something, or have a moment ago."""
        now = self._clock()
        if self._others and (self._calls or self._others.owners > 1):
            self._short_until = now + SHORT_SECONDS
        return now < self._short_until

    def rest(self) -> list[CallT | PeerQuery | None]:
        """Return all calls and queries that wait, and wait for nothing."""
        with self._ready:
            queries = [item for item in self._others.clear() if not isinstance(item, Sample)]
            rest: list[CallT | PeerQuery | None] = [*self._calls, *queries]
            self._calls.clear()
        return rest

    def _add(self, signer: bytes, item: Sample | PeerQuery, size: int, *, is_proven: bool) -> bool:
        with self._ready:
            left_out = self._others.add(signer, item, size, is_proven=is_proven)
            self._ready.notify()
        for other in left_out:
            if other is not item:
                self._displaced(other)
        return not any(other is item for other in left_out)
