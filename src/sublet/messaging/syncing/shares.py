"""How peers have answered lately: who is asked with all others, and who is asked last.

A peer fails if it gives no answer in time, an answer that can't be opened, or something that is forged. One that has
failed is asked after all others, by one question after a pause that doubles with each failure, and nobody waits for
what it says. When it has answered such a question it is asked like the others again; failures are forgotten one by one
as it goes on answering. So a peer costs others little for each ``MAX_PAUSE_SECONDS``, however it fails.

Weak: a peer that says that it has nothing is not told apart from one that has nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MAX_PEERS: Final = 4_096
"""Peers that are remembered; beyond it, those without failures are forgotten first."""
MAX_FAILURES: Final = 8
FIRST_PAUSE_SECONDS: Final = 1.0
MAX_PAUSE_SECONDS: Final = 60.0
TRIAL_SECONDS: Final = 60.0
"""How long one that is asked last is left alone where the question to it comes to no end."""
GOOD_ANSWERS: Final = 32
"""After so many good answers one failure is forgotten."""
MAX_WASTE_BYTES: Final = 16 << 20
"""Of answers that were good for nothing, within ``WASTE_SECONDS``; beyond it a peer is asked last as well."""
WASTE_SECONDS: Final = 60.0


class Failure(StrEnum):
    """How a peer has failed."""

    SILENT = "gives no answer in time"
    JUNK = "gives answers that say nothing"
    FORGED = "gives answers that are forged"


@dataclass(slots=True)
class _Share:
    failures: int = 0
    """That are not forgotten yet."""
    good: int = 0
    """Answers since one was forgotten."""
    is_last: bool = False
    due: float = 0.0
    """When it may be asked again."""
    on_trial: bool = False
    """Whether it was asked, last of all, and has neither answered nor failed yet."""
    why: Failure | None = None
    wasted: int = 0
    wasted_since: float = 0.0
    latency: float = 0.0
    """Seconds that an answer takes, about."""


class Shares:
    """What is known of each peer's answers. Used on the event loop.

    Args:
        clock: seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._peers: dict[str, _Share] = {}

    def is_last(self, peer: str) -> bool:
        """Tell whether a peer is asked after all others."""
        share = self._peers.get(peer)
        return share is not None and share.is_last

    def take_turn(self, peer: str) -> bool:
        """Tell whether a peer that is asked last may be asked now, and let nobody else ask it for a while."""
        share, now = self._of(peer), self._clock()
        if now < share.due:
            return False
        share.due = now + TRIAL_SECONDS
        share.on_trial = True
        return True

    def latency(self, peer: str) -> float:
        """Return about how many seconds an answer of a peer takes."""
        share = self._peers.get(peer)
        return share.latency if share is not None else 0.0

    def answered(self, peer: str, seconds: float) -> bool:
        """Note a good answer; tell whether the peer was asked last until now.

        Args:
            peer: its node id.
            seconds: how long it took.
        """
        share = self._of(peer)
        if share.is_last and not share.on_trial:
            return False  # a question from before, such as one about which it had nothing to say
        share.latency = seconds if not share.latency else 0.75 * share.latency + 0.25 * seconds
        was_last, share.is_last = share.is_last, False
        share.on_trial = False
        share.good += 1
        if share.good >= GOOD_ANSWERS and share.failures:
            share.good, share.failures = 0, share.failures - 1
        return was_last

    def failed(self, peer: str, why: Failure, size: int = 0) -> None:
        """Note a failure of a peer.

        Args:
            peer: its node id.
            why: how it has failed.
            size: bytes of what was good for nothing.
        """
        share, now = self._of(peer), self._clock()
        if now - share.wasted_since >= WASTE_SECONDS:
            share.wasted, share.wasted_since = 0, now
        share.wasted += size
        if share.is_last and not share.on_trial and share.wasted <= MAX_WASTE_BYTES:
            return  # a question from before
        share.failures = MAX_FAILURES if share.wasted > MAX_WASTE_BYTES else min(share.failures + 1, MAX_FAILURES)
        share.good, share.is_last, share.on_trial, share.why = 0, True, False, why
        share.due = now + _pause(share.failures)

    def asked_last(self) -> Mapping[str, Failure]:
        """Return the peers that are asked last, and how each has failed."""
        return {peer: share.why for peer, share in self._peers.items() if share.is_last and share.why is not None}

    def _of(self, peer: str) -> _Share:
        share = self._peers.get(peer)
        if share is None:
            if len(self._peers) >= MAX_PEERS:
                gone = next((one for one, known in self._peers.items() if not known.failures), next(iter(self._peers)))
                del self._peers[gone]
            share = self._peers[peer] = _Share()
        return share


def _pause(failures: int) -> float:
    return min(MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** max(0, failures - 1))
