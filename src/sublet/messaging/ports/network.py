"""What the engine and its service need of a network: keys that are published, heard, asked and announced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


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
    """Something that was published."""

    key: str
    payload: bytes
    attachment: bytes


class PeerQuery(Protocol):
    """A query from a peer, to be answered once or dropped."""

    key: str
    payload: bytes

    def reply(self, payload: bytes) -> None:
        """Send the answer."""

    def drop(self) -> None:
        """Send none; the peer waits no longer."""


class Network(Protocol):
    """Publish, subscribe, query. Callbacks come from foreign threads and must only enqueue."""

    def publish(self, key: str, payload: bytes, attachment: bytes, qos: Qos) -> None:
        """Publish; may block for seconds where a link is congested."""

    def subscribe(self, key: str, callback: Callable[[Sample], None]) -> Callable[[], None]:
        """Hear what others publish under an exact key; the result ends it."""

    def serve(self, key: str, callback: Callable[[PeerQuery], None]) -> Callable[[], None]:
        """Answer queries of others for an exact key; the result ends it."""

    def query(self, key: str, payload: bytes, timeout_seconds: float) -> list[bytes]:
        """Ask all others, and return every answer; blocks."""

    def announce(self, key: str) -> Callable[[], None]:
        """Let others know that we are there, until the result is called or this process ends."""

    def follow(self, key: str, callback: Callable[[bool], None]) -> Callable[[], None]:
        """Hear whether anybody else announces an exact key, now and whenever that changes; the result ends it."""

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back whenever a link to a peer came or went."""

    def close(self) -> None:
        """End all sessions."""
