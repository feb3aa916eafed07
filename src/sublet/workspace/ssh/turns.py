"""Divides the event loop among peers, among the leases of each, and among what works for a lease.

Whatever a peer has sent is worked off in slices of a few milliseconds. After each slice the loop gets on with
everything else: other leases, cancellations, the daemon's own work. A peer with many leases, connections or channels
gets the time of one peer, since time is counted by peer first. What is weak: a single step that takes longer than a
slice is not interrupted; it counts against its peer afterwards.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import Final, Protocol

SLICE_SECONDS: Final = 0.002
"""How long one piece of work may go on before others get the loop."""

_log = logging.getLogger(__name__)


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

    Work is done at once as long as nobody waits, for one slice in each pass of the loop; then everybody waits for a
    turn. The next turn is that of the peer that has used the least time while it waited, and of its leases likewise.
    """

    def __init__(self) -> None:
        self._peers: dict[str, _Peer] = {}
        self._clock = 0.0
        self._until = 0.0
        self._in_turn = False
        self._in_pass = False

    @property
    def waiting(self) -> int:
        """How many workers wait for a turn."""
        return sum(len(lease.workers) for peer in self._peers.values() for lease in peer.leases.values())

    def share(self, peer: str, lease: str, *, at_once: bool = True) -> Share:
        """Return the share of a lease.

        Args:
            peer: whose lease it is.
            lease: its id.
            at_once: whether work may begin without waiting for a turn while nobody waits.
        """
        return Share(self, peer, lease, at_once=at_once)

    def until(self, *, at_once: bool) -> float:
        """Return the monotonic time until which work may go on now; it is in the past where a turn is needed."""
        if self._in_turn:
            return self._until
        if self._peers or not at_once:
            return 0.0
        if not self._in_pass:
            self._in_pass = True
            self._until = time.monotonic() + SLICE_SECONDS
            asyncio.get_running_loop().call_soon(self._pass_ended)
        return self._until

    def ask(self, peer: str, lease: str, worker: Worker) -> None:
        """Give ``worker`` a turn when its lease's time has come. Asking again before has no effect."""
        if not self._peers:
            asyncio.get_running_loop().call_soon(self._turn)
        waiting = self._peers.get(peer)
        if waiting is None:
            waiting = self._peers[peer] = _Peer(self._clock)
        of_lease = waiting.leases.get(lease)
        if of_lease is None:
            of_lease = waiting.leases[lease] = _Lease(waiting.clock)
        of_lease.workers[worker] = None

    def _pass_ended(self) -> None:
        self._in_pass = False

    def _turn(self) -> None:
        name, peer = min(self._peers.items(), key=_time_used)
        lease_id, lease = min(peer.leases.items(), key=_time_used)
        worker = next(iter(lease.workers))
        del lease.workers[worker]
        self._clock, peer.clock = peer.used, lease.used
        began = time.monotonic()
        self._until, self._in_turn = began + SLICE_SECONDS, True
        try:
            worker.work()
        except Exception:  # a worker that breaks must not keep all others from their turns
            _log.exception("a turn broke")
        finally:
            self._in_turn = False
        spent = time.monotonic() - began
        peer.used += spent
        lease.used += spent
        if not lease.workers:
            del peer.leases[lease_id]
            if not peer.leases:
                del self._peers[name]
        if self._peers:
            asyncio.get_running_loop().call_soon(self._turn)


class Share:
    """The share of one lease, or of a caller that has not logged in yet."""

    __slots__ = ("_at_once", "_lease", "_peer", "_turns")

    def __init__(self, turns: Turns, peer: str, lease: str, *, at_once: bool) -> None:
        self._turns = turns
        self._peer = peer
        self._lease = lease
        self._at_once = at_once

    def belong_to(self, peer: str, lease: str) -> None:
        """Count for a lease from now on, and work at once where nobody waits: its caller has logged in."""
        self._peer, self._lease, self._at_once = peer, lease, True

    def until(self) -> float:
        """Return ``Turns.until`` of this share."""
        return self._turns.until(at_once=self._at_once)

    def is_over(self) -> bool:
        """Tell whether the time for work is over, so that a turn has to be asked for."""
        return time.monotonic() >= self._turns.until(at_once=self._at_once)

    def ask(self, worker: Worker) -> None:
        """Ask for a turn of ``worker``."""
        self._turns.ask(self._peer, self._lease, worker)


def _time_used(item: tuple[str, _Peer] | tuple[str, _Lease]) -> float:
    return item[1].used
