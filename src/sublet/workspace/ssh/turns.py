"""Divides the event loop among peers, among the leases of each, and among what works for a lease.

Whatever a peer has sent is worked off in slices of a few milliseconds. After each slice the loop gets on with
everything else: other leases, cancellations, the daemon's own work. A peer with many leases, connections or channels
gets the time of one peer, since time is counted by peer first. What is weak: a single step that takes longer than a
slice is not interrupted; it counts against its peer afterwards.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Final, Protocol

import structlog

SLICE_SECONDS: Final = 0.004
"""How long one piece of work may go on before others get the loop."""
_PAUSE_SECONDS: Final = 0.001
"""After a pause of this length the loop has certainly come round to everybody."""

log = structlog.get_logger(__name__)


class Worker(Protocol):
    """Something that has work left."""

    def work(self) -> None:
        """Go on until ``Share.is_over``, and ask for another turn if something is left then. Must not raise."""


@dataclass(slots=True)
class _Lease:
    used: float
    workers: dict[Worker, None] = field(default_factory=dict)


@dataclass(slots=True)
class _Peer:
    used: float
    leases: dict[str, _Lease] = field(default_factory=dict)
    clock: float = 0.0


class Turns:
    """Who may work on the loop, and for how long. Belongs to one event loop.

    Work is done at once as long as nobody waits, for one slice from when it begins after a pause; then everybody waits
    for a turn. The next turn is that of the peer that has used the least time while it waited, and of its leases
    likewise.
    """

    def __init__(self) -> None:
        self.peers: dict[str, _Peer] = {}
        self._clock = 0.0
        self.until = 0.0
        self.worked_at = 0.0
        self.in_turn = False

    @property
    def waiting(self) -> int:
        """How many workers wait for a turn."""
        return sum(len(lease.workers) for peer in self.peers.values() for lease in peer.leases.values())

    def share(self, peer: str, lease: str, *, at_once: bool = True) -> Share:
        """Return the share of a lease.

        Args:
            peer: whose lease it is.
            lease: its id.
            at_once: whether work may begin without waiting for a turn while nobody waits.
        """
        return Share(self, peer, lease, at_once=at_once)

    def begin(self) -> None:
        """Take note that work begins: after a pause, that is a slice of its own."""
        now = time.monotonic()
        if not self.in_turn and now >= self.until and now - self.worked_at > _PAUSE_SECONDS:
            self.until = now + SLICE_SECONDS

    def rest(self) -> None:
        """Take note that work ends."""
        self.worked_at = time.monotonic()

    def ask(self, peer: str, lease: str, worker: Worker) -> None:
        """Give ``worker`` a turn when its lease's time has come. Asking again before has no effect."""
        if not self.peers:
            asyncio.get_running_loop().call_soon(self._turn)
        waiting = self.peers.get(peer)
        if waiting is None:
            waiting = self.peers[peer] = _Peer(self._clock)
        of_lease = waiting.leases.get(lease)
        if of_lease is None:
            of_lease = waiting.leases[lease] = _Lease(waiting.clock)
        of_lease.workers[worker] = None

    def _turn(self) -> None:
        name, peer = min(self.peers.items(), key=_time_used)
        lease_id, lease = min(peer.leases.items(), key=_time_used)
        worker = next(iter(lease.workers))
        del lease.workers[worker]
        self._clock, peer.clock = peer.used, lease.used
        began = time.monotonic()
        self.until, self.in_turn = began + SLICE_SECONDS, True
        try:
            worker.work()
        except Exception:  # a worker that breaks must not keep all others from their turns
            log.exception("a turn broke")
        finally:
            self.in_turn = False
        self.worked_at = time.monotonic()
        spent = self.worked_at - began
        peer.used += spent
        lease.used += spent
        if not lease.workers:
            del peer.leases[lease_id]
            if not peer.leases:
                del self.peers[name]
        if self.peers:
            asyncio.get_running_loop().call_soon(self._turn)


class Share:
    """The share of one connection: that of its lease, or of a caller that has not logged in yet.

    ``behind`` counts what waits for a turn and has to be done before more of the connection's input is.
    """

    __slots__ = ("_at_once", "_lease", "_peer", "_turns", "behind")

    def __init__(self, turns: Turns, peer: str, lease: str, *, at_once: bool) -> None:
        self._turns = turns
        self._peer = peer
        self._lease = lease
        self._at_once = at_once
        self.behind = 0

    def belong_to(self, peer: str, lease: str) -> None:
        """Count for a lease from now on, and work at once where nobody waits: its caller has logged in."""
        self._peer, self._lease, self._at_once = peer, lease, True

    def begin(self) -> None:
        """Take note that work begins."""
        self._turns.begin()

    def is_over(self) -> bool:
        """Tell whether the time for work is over, so that a turn has to be asked for."""
        turns = self._turns
        if not turns.in_turn and (turns.peers or not self._at_once):
            return True
        turns.worked_at = now = time.monotonic()
        return now >= turns.until

    def rest(self) -> None:
        """Take note that work ends."""
        self._turns.rest()

    def ask(self, worker: Worker) -> None:
        """Ask for a turn of ``worker``."""
        self._turns.ask(self._peer, self._lease, worker)


def _time_used(item: tuple[str, _Peer] | tuple[str, _Lease]) -> float:
    return item[1].used
