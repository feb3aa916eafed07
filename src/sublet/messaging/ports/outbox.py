"""What is to be published once it is durable; whoever runs the engine takes it out after each commit."""

from __future__ import annotations

from dataclasses import dataclass

from sublet.messaging.ports.network import Qos


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Something to be published, to the daemons with these node ids; None for all."""

    key: str
    payload: bytes
    attachment: bytes
    qos: Qos
    to: frozenset[str] | None = None


class Outbox:
    """What waits to be published, in the order in which it was written; bounded by one batch of the engine."""

    def __init__(self) -> None:
        self._waiting: list[Outgoing] = []

    def put(self, outgoing: Outgoing) -> None:
        """Publish something after the next commit."""
        self._waiting.append(outgoing)

    def take(self) -> list[Outgoing]:
        """Return what waits, and hold it no longer."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def clear(self) -> None:
        """Forget what waits, after a commit that failed."""
        self._waiting.clear()
