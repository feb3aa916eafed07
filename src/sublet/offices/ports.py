"""What offices need of the rest of the daemon: policy before each call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from sublet.offices.seats import Seat
from sublet.protocol.canonical import JsonValue
from sublet.protocol.offices.names import ClientEvent


@dataclass(frozen=True, slots=True)
class AskedOfComputer:
    """What an Agent asks of a Computer, as policy sees it.

    Args:
        agent: where the Agent sits.
        computer: name of the Computer.
        event: what is asked.
        tool: name of the tool, of a tool call alone.
        arguments: of a tool call alone.
        goes_on: whether this is a later piece of an upload that was allowed, by the id that its Computer gave it.
    """

    agent: Seat
    computer: str
    event: ClientEvent
    tool: str
    arguments: Mapping[str, JsonValue]
    goes_on: bool = False


class Refused(Exception):
    """Policy refuses; ``hidden`` where the Agent is told what it would be told of a Computer that is not there."""

    def __init__(self, message: str, *, hidden: bool) -> None:
        super().__init__(message)
        self.hidden = hidden


class Allowed(Protocol):
    """A call that is allowed; ``ended`` is told what became of it."""

    async def ended(self, error: str | None) -> None:
        """Write down how it ended: None where the Computer has answered."""


class GuardsOffices(Protocol):
    """Asks policy, and writes down what it said and what became of it."""

    async def begin(self, asked: AskedOfComputer) -> Allowed:
        """Return where the call is allowed.

        Raises:
            Refused: it is not.
        """
