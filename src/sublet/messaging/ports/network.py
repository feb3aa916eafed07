"""What the engine and its service need of a network: keys that are published, heard, asked and announced."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

ANYBODY: Final = ""
"""Those behind a link of which nobody knows whose it is: a relay, or plain endpoints in tests."""


class Priority(Enum):
    """How urgent what is published is (ezagent 3.3)."""

    REAL_TIME = "real_time"
    DATA = "data"
    DATA_LOW = "data_low"


@dataclass(frozen=True, slots=True)
class Qos:
    """How something is published. A congested link may drop what is ``droppable``; the next difference heals that."""

    priority: Priority
    droppable: bool


@dataclass(frozen=True, slots=True)
class Sample:
    """Something that was published.

    Args:
        key: under which.
        payload: what.
        attachment: sent along.
        peer: node id of the daemon over whose link it came; ``ANYBODY`` where that is not known.
    """

    key: str
    payload: bytes
    attachment: bytes
    peer: str = field(default=ANYBODY, compare=False)


class PeerQuery(Protocol):
    """A query from a peer, to be answered once or dropped."""

    key: str
    payload: bytes
    peer: str
    """Node id of the daemon over whose link it came; ``ANYBODY`` where that is not known."""

    def reply(self, payload: bytes) -> None:
        """Send the answer."""

    def drop(self) -> None:
        """Send none; the peer waits no longer."""


class Heard(Protocol):
    """Takes the answers to a question, from foreign threads."""

    def __call__(self, answer: bytes | None, replier: str = "") -> None:
        """Take an answer, unopened; None once no more come.

        Args:
            answer: of the bytes that came.
            replier: who says to have answered, which nothing proves; for taking turns alone.
        """


class Network(Protocol):
    """Publish, subscribe, ask. Callbacks come from foreign threads and must only enqueue.

    A peer is the node id of the daemon whose pinned key its link has proven. ``ANYBODY`` stands for all of those
    that are reached over links without such a key.
    """

    def publish(self, key: str, payload: bytes, attachment: bytes, qos: Qos, to: Collection[str] | None = None) -> None:
        """Publish; may block while a link is congested.

        Args:
            key: under which.
            payload: what.
            attachment: sent along.
            qos: how.
            to: node ids of the peers that get it; None for all. Whoever is behind ``ANYBODY`` gets everything.
        """

    def subscribe(self, key: str, callback: Callable[[Sample], None]) -> Callable[[], None]:
        """Hear what others publish under an exact key; the result ends it."""

    def serve(self, key: str, callback: Callable[[PeerQuery], None]) -> Callable[[], None]:
        """Answer queries of others for an exact key; the result ends it."""

    def linked(self) -> Collection[str]:
        """Return the peers that can be asked now; ``ANYBODY`` among them where there may be others."""

    def met(self) -> Mapping[str, int]:
        """Return the peers that can be asked now, each with a number that is another one once it has come again."""

    def ask(self, peer: str, key: str, payload: bytes, timeout_seconds: float, heard: Heard) -> Callable[[], None]:
        """Ask one peer, or those that are behind ``ANYBODY``; may block while its link is congested.

        Args:
            peer: one of ``linked``.
            key: what is asked for.
            payload: the question.
            timeout_seconds: after which nobody answers any more.
            heard: takes the answers.

        Returns:
            What ends it early; nothing is told any more from then on.
        """

    def announce(self, key: str) -> Callable[[], None]:
        """Let others know that we are there, until the result is called or this process ends."""

    def follow(self, key: str, callback: Callable[[bool], None]) -> Callable[[], None]:
        """Hear whether anybody else announces an exact key, now and whenever that changes; the result ends it."""

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back whenever a link to a peer came or went."""

    def close(self) -> None:
        """End all sessions."""
