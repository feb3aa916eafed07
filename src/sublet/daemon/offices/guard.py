"""Policy, approvals and the audit before whatever an Agent asks of a Computer (DESIGN 7, 8).

A tool call is ``office.call`` of its tool, an upload ``office.call`` of ``put_blob``; all else is ``office.look`` of
what is read: ``config``, ``desktop``, ``tools``, ``resources``, ``skills``, ``skill`` or ``blob``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from sublet.daemon.api.call_api import AskedCall, Begun, CallApi
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.offices.ports import Allowed, AskedOfComputer, Refused
from sublet.policy.decision import Action, Resource, Subject
from sublet.policy.tool_calls import tool_resource
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.offices.names import ClientEvent

UPLOAD: Final = "put_blob"
_UNKNOWN: Final = "there is no such computer"


@dataclass(frozen=True, slots=True)
class _Begun:
    calls: CallApi
    begun: Begun

    async def ended(self, error: str | None) -> None:
        """``Allowed.ended``."""
        await self.calls.ended(self.begun, error)


class _Free:
    async def ended(self, error: str | None) -> None:
        """``Allowed.ended``: nothing was written down before, so nothing is now."""


class TellsOfCalls(Protocol):
    """Is told how calls end."""

    def called(self, asked: AskedOfComputer, error: str | None, seconds: float) -> None:
        """Take note that a call has ended; ``error`` is None where its Computer has answered."""


@dataclass(frozen=True, slots=True)
class _Told:
    allowed: Allowed
    asked: AskedOfComputer
    news: TellsOfCalls
    clock: Callable[[], float]
    began: float

    async def ended(self, error: str | None) -> None:
        """``Allowed.ended``."""
        self.news.called(self.asked, error, self.clock() - self.began)
        await self.allowed.ended(error)


class OfficeGuard:
    """Implements ``GuardsOffices``.

    Args:
        gate: asks policy.
        calls: policy, grants and people before a call.
        news: is told how calls end.
        clock: returns monotonic seconds.
    """

    def __init__(
        self, gate: Gatekeeper, calls: CallApi, news: TellsOfCalls, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._gate = gate
        self._calls = calls
        self._news = news
        self._clock = clock

    async def begin(self, asked: AskedOfComputer) -> Allowed:
        """``GuardsOffices.begin``."""
        allowed = await self._begin(asked)
        if asked.event not in (ClientEvent.TOOL_CALL, ClientEvent.PUT_BLOB) or asked.goes_on:
            return allowed
        return _Told(allowed, asked, self._news, self._clock, self._clock())

    async def _begin(self, asked: AskedOfComputer) -> Allowed:
        call = _call(asked)
        try:
            if asked.goes_on:
                # The first piece of the upload is in the audit log; a rule that came since stops it all the same.
                record = self._gate.foresee(call.caller, call.action, call.resource, granted=True)
                if record.decision.allowed:
                    return _Free()
            begun = await self._calls.begin(call, _UNKNOWN)
        except SubletError as error:
            raise Refused(_words(error), hidden=error.code is LocalCode.NOT_FOUND) from None
        return _Free() if begun.entry is None and begun.use is None else _Begun(self._calls, begun)


def _call(asked: AskedOfComputer) -> AskedCall:
    caller = Subject("office", f"{asked.agent.office}/{asked.agent.name}", role=str(asked.agent.role))
    about = {"office": asked.agent.office, "computer": asked.computer}
    if asked.event is ClientEvent.TOOL_CALL:
        found = tool_resource(asked.tool, asked.arguments)
        resource = Resource(asked.tool, {**found.attributes, **about})
        action, tool = Action.OFFICE_CALL, asked.tool
    elif asked.event is ClientEvent.PUT_BLOB:
        resource, action, tool = Resource(UPLOAD, about), Action.OFFICE_CALL, UPLOAD
    else:
        tool = asked.event.removeprefix("client:get_")
        resource, action = Resource(tool, about), Action.OFFICE_LOOK
    # A grant is for this Computer in this office, not for a tool of that name anywhere.
    return AskedCall(caller, action, resource, tool, asked.arguments, scope=f"{asked.agent.office_id}/{asked.computer}")


def _words(error: SubletError) -> str:
    return f"{error.message}. {error.hint}" if error.hint else error.message
