"""The gate before calls by others than agents at work here: of MCP hosts, and of people (SuperAgent 6.2, DESIGN 7).

Like ``run_gate``, but nobody waits inside: who calls is told what waits and calls again, or waits for a while.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import anyio

from sublet.daemon.api.call_api import AskedCall, Became, Begun, OpenQuestion
from sublet.daemon.approvals.called_events import begun, ended, not_done
from sublet.daemon.approvals.gate_parts import GateParts
from sublet.daemon.approvals.grant_store import Called
from sublet.daemon.approvals.questions import Approval, QuestionOrigin
from sublet.daemon.operations.asking import decisions_noted, note_decision
from sublet.daemon.storage.event_log import Recorder
from sublet.policy.decision import Action, Subject
from sublet.policy.grants import Call, arguments_digest, canonical_arguments
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import EventKeys

MAX_NAME_CHARS: Final = 64
FOR_EVER: Final = 7 * 24 * 3600.0
"""A call of no lease ends with no lease."""


def caller_key(caller: Subject) -> str:
    """Return what a grant names ``caller``: an id for an agent, and what can be no id for everybody else."""
    return caller.name if caller.kind == "agent" else f"{caller.kind}:{caller.name}"[:MAX_NAME_CHARS]


class CallGate:
    """Implements ``CallApi``."""

    def __init__(self, parts: GateParts) -> None:
        self._parts = parts

    async def question(self, call: AskedCall) -> OpenQuestion | None:
        """``CallApi.question``."""
        record = self._parts.gate.foresee(call.caller, call.action, call.resource)
        decision = record.decision
        if not decision.needs_grant:
            return None
        wanted, canonical = _wanted(call)
        if await self._parts.grants.find(wanted) is not None:
            return None
        self._parts.approver.require()
        context: dict[str, JsonValue] = {
            "rule": decision.rule,
            "layer": decision.layer,
            "reason": decision.reason,
            "paths": [],
            "role": call.caller.role,
        }
        asking = QuestionOrigin(None, EventKeys(agent_id=wanted.agent), record)
        until = self._parts.clock() + FOR_EVER
        approval = await self._parts.questions.ask(wanted, canonical, context, asking, until=until, kept=True)
        return _shown(approval, self._parts.clock())

    async def decided(self, question_id: str, seconds: float) -> Became:
        """``CallApi.decided``."""
        found = await self._parts.questions.find(question_id)
        with anyio.move_on_after(seconds):
            found = await self._parts.questions.wait(found)
        return found.state

    async def withdraw(self, question_id: str, *, denied_by: str | None = None) -> None:
        """``CallApi.withdraw``."""
        await self._parts.questions.withdraw(question_id, denied_by)

    async def begin(self, call: AskedCall, unknown: str) -> Begun:
        """``CallApi.begin``."""
        gate = self._parts.gate
        foreseen = gate.foresee(call.caller, call.action, call.resource)
        record = gate.foresee(call.caller, call.action, call.resource, granted=True)
        if foreseen.decision.allowed or not record.decision.allowed:
            return Begun(entry=await self._ask(call, unknown, {}))
        wanted, canonical = _wanted(call)
        note: dict[str, JsonValue] = {"digest": wanted.digest}
        data = begun(call.tool, wanted.digest, canonical, record)
        called = Called(wanted.digest[:16], None, data, EventKeys(agent_id=wanted.agent), record.documents)
        with anyio.CancelScope(shield=True):
            use = await self._parts.grants.consume(wanted, called)
            if use is not None:
                note |= {"grant": use.grant.id, "issued_by": use.grant.issued_by}
                using = Begun(use.id, use.event.seq)
                try:
                    return replace(using, entry=await self._ask(call, unknown, note, granted=True))
                except SubletError as error:
                    await self.ended(using, not_done(error.message))
                    raise
        question = await self.question(call)
        if question is None:  # no rule wants a person; or a grant has come just now, and the next call has it
            return Begun(entry=await self._ask(call, unknown, note))
        await gate.decide(call.caller, call.action, call.resource, note={**note, "approval": question.id})
        raise approval_required(question)

    def hides(self, caller: Subject, tool: str) -> bool:
        """``CallApi.hides``."""
        return self._parts.gate.hides(caller, Action.TOOL_CALL, tool)

    async def ended(self, begun: Begun, error: str | None) -> None:
        """``CallApi.ended``."""
        with anyio.CancelScope(shield=True):
            if begun.use is not None and (event := begun.event) is not None:
                await self._parts.journal.events.transact(lambda _, events: _told(events, event, error))
                await self._parts.grants.ended(begun.use, "done" if error is None else "failed")
            if begun.entry is not None:
                self._parts.gate.outcome(begun.entry, error)

    async def _ask(
        self, call: AskedCall, unknown: str, note: Mapping[str, JsonValue], *, granted: bool = False
    ) -> int | None:
        """Ask policy, and return the entry whose outcome ``ended`` tells."""
        gate = self._parts.gate
        hidden = SubletError(LocalCode.NOT_FOUND, unknown)
        with decisions_noted() as asked:
            await gate.ask_for(call.caller, call.action, call.resource, hidden, granted=granted, note=note)
        note_decision(gate, None)
        return asked[-1][1]


def _told(events: Recorder, call: int, error: str | None) -> None:
    """Journal how the call of the event ``call`` ended."""
    kind, data = ended(error)
    events.add(kind, None, data, keys=events.keys_after(call))


def approval_required(question: OpenQuestion) -> SubletError:
    """Return the failure of a call that waits for a person."""
    return SubletError(
        LocalCode.APPROVAL_REQUIRED,
        f"{question.tool} waits until a person approves this call ({question.id}): {question.reason}",
        f"A person decides in a terminal: sublet approvals approve {question.id}. Then call it again, unchanged.",
    )


def _wanted(call: AskedCall) -> tuple[Call, str]:
    canonical = canonical_arguments(call.arguments)
    digest = arguments_digest(canonical)
    return Call(caller_key(call.caller), call.tool, digest, call.resource, call.scope), canonical


def _shown(approval: Approval, now: float) -> OpenQuestion:
    return OpenQuestion(
        id=approval.id,
        agent=approval.agent,
        tool=approval.tool,
        digest=approval.digest,
        arguments=approval.arguments,
        reason=str(approval.context.get("reason", "")),
        rule=f"{approval.context.get('layer')} layer, rule {approval.context.get('rule')}",
        seconds=max(0, int(approval.expires_at - now)),
    )
