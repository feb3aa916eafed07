"""Which calls are under way between members: a bound on how many, and on their bytes, for each.

A call counts with its Agent and with its Computer, until it is answered, runs out or one of the two is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MAX_CALLS: Final = 64
"""Under way at one time, of one Agent or to one Computer."""
MAX_CALL_BYTES: Final = 24 << 20
"""Of memory that all their requests take, for each: parsed, and as the texts that they are."""


@dataclass(eq=False, slots=True)
class Call:
    """A call under way.

    Args:
        agent: the connection that calls.
        computer: the connection that is called.
        req_id: as the Agent has it.
        tool: what is called, for people.
        size: bytes of memory that the request takes.
        ended: is told why, once the call can't be answered any more.
    """

    agent: str
    computer: str
    req_id: str
    tool: str
    size: int
    ended: Callable[[], object]


class Calls:
    """The calls under way."""

    def __init__(self) -> None:
        self._of: dict[str, dict[Call, None]] = {}

    def begin(self, call: Call) -> str | None:
        """Take a call, or return why it is refused."""
        for sid in (call.agent, call.computer):
            there = self._of.get(sid, {})
            if len(there) >= MAX_CALLS or sum(one.size for one in there) + call.size > MAX_CALL_BYTES:
                return "too many calls are under way"
        if any(one.req_id == call.req_id and one.agent == call.agent for one in self._of.get(call.agent, ())):
            return "a call with this req_id is under way"
        for sid in (call.agent, call.computer):
            self._of.setdefault(sid, {})[call] = None
        return None

    def end(self, call: Call) -> None:
        """Forget a call; does nothing the second time."""
        for sid in (call.agent, call.computer):
            there = self._of.get(sid, {})
            there.pop(call, None)
            if not there:
                self._of.pop(sid, None)

    def gone(self, sid: str) -> None:
        """End the calls of a connection that is no longer where it was."""
        for call in list(self._of.get(sid, ())):
            self.end(call)
            call.ended()

    def of(self, sid: str) -> list[Call]:
        """Return the calls of which a connection is a part."""
        return list(self._of.get(sid, ()))
