"""The gate before an agent's tools: policy decides, the audit log and the journal are told (SuperAgent 6.2).

A call that would need a grant is refused here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from sublet.daemon.gatekeeper import Gatekeeper
from sublet.daemon.storage.journal import Journal
from sublet.policy.model import Action, Subject
from sublet.policy.tool_calls import tool_resource
from sublet.protocol.canonical import JsonValue
from sublet.protocol.events import EventKeys, EventKind
from sublet.protocol.text import clean, clean_line
from sublet.supervisor.tools import ToolCall, Verdict

MAX_JOURNALLED_CHARS = 500
MAX_JOURNALLED_PATHS = 16


class PolicyGate:
    """Stands before the tools of one run.

    Args:
        gate: asks policy, and writes the decision down.
        journal: is told what happens.
        subject: the agent.
        keys: of which run its events are a part.
        access_mode: of the lease.
        delegation_id: the delegation for which it runs, if any.
        peer: the daemon that gave the work, if any.
    """

    def __init__(
        self,
        gate: Gatekeeper,
        journal: Journal,
        subject: Subject,
        keys: EventKeys,
        *,
        access_mode: Literal["ro", "rw"],
        delegation_id: str | None = None,
        peer: str | None = None,
    ) -> None:
        self._gate = gate
        self._journal = journal
        self._subject = subject
        self._keys = keys
        self._access_mode = access_mode
        self._delegation_id = delegation_id
        self._peer = peer
        self._began: dict[str, int] = {}

    async def ask(self, call: ToolCall) -> Verdict:
        """``ToolGate.ask``."""
        resource = tool_resource(
            call.tool,
            call.arguments,
            call.paths,
            access_mode=self._access_mode,
            delegation_id=self._delegation_id,
            peer=self._peer,
        )
        decision = await self._gate.decide(self._subject, Action.TOOL_CALL, resource)
        told: dict[str, JsonValue] = {"layer": decision.layer, "rule": decision.rule}
        if decision.allowed:
            self._began[call.call_id] = await self._tell(EventKind.TOOL_CALL, call, told)
        else:
            await self._tell(EventKind.POLICY_REJECTED, call, {**told, "reason": decision.reason})
        return Verdict(decision.allowed, decision.layer, decision.rule, decision.reason, decision.hint)

    async def ended(
        self, call: ToolCall, *, error: str | None = None, result: Mapping[str, JsonValue] | None = None
    ) -> None:
        """``ToolGate.ended``."""
        cause = self._began.pop(call.call_id, None)
        if error is not None:
            await self._tell(EventKind.TOOL_ERROR, call, {"error": clean(error, MAX_JOURNALLED_CHARS)}, cause)
        else:
            await self._tell(EventKind.TOOL_RESULT, call, {"result": dict(result or {})}, cause)

    async def _tell(
        self, kind: EventKind, call: ToolCall, more: Mapping[str, JsonValue], cause: int | None = None
    ) -> int:
        keys = self._keys if cause is None else self._keys.model_copy(update={"causation_id": cause})
        data: dict[str, JsonValue] = {
            **keys.model_dump(mode="json", by_alias=True, exclude_none=True),
            "tool": clean_line(call.tool, MAX_JOURNALLED_CHARS),
            "callId": clean_line(call.call_id, MAX_JOURNALLED_CHARS),
            **more,
        }
        if call.paths:
            data["paths"] = [clean_line(path, MAX_JOURNALLED_CHARS) for path in call.paths[:MAX_JOURNALLED_PATHS]]
        return (await self._journal.append_event(kind, None, data)).seq
