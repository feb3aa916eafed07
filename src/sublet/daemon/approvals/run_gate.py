"""The gate before every tool of an agent: policy, then a grant, then a person (SuperAgent 6.2, DESIGN 7).

What is allowed is in the audit log and in the journal before the provider hears of it. A grant is used up in the same
transaction as the ``tool_call`` event, so that a crash between that and the tool spends a use and never makes one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import anyio
import structlog

from sublet.daemon.approvals.called_events import begun, call_name, ended, not_done, path_names, tool_name
from sublet.daemon.approvals.foresight import Foresight
from sublet.daemon.approvals.gate_parts import GateParts
from sublet.daemon.approvals.grant_store import Called
from sublet.daemon.approvals.questions import Approval, QuestionOrigin
from sublet.daemon.approvals.run_facts import RunFacts
from sublet.daemon.operations.asking import decisions_noted
from sublet.policy.decision import Action, Decision, Subject
from sublet.policy.grants import Call, arguments_digest, canonical_arguments
from sublet.policy.path_denies import PathDenies
from sublet.policy.recorded import DECIDED, Record
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import EventKeys, EventKind
from sublet.protocol.text import clean_line
from sublet.supervisor.tool_gate import ToolCall, Verdict

MAX_OPEN_CALLS: Final = 1_024
"""Calls of one run that were allowed and have not ended; of more, the oldest is told to be unknown."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Running:
    """A call that was allowed: its event, its entry in the audit log, the use of a grant."""

    call: ToolCall
    event: int
    entry: int | None
    use: int | None


class RunGate:
    """Implements ``ToolGate`` for one run of one agent."""

    def __init__(self, parts: GateParts, facts: RunFacts) -> None:
        self._parts = parts
        self._facts = facts
        self._foresight = Foresight(parts.gate, facts)
        self._running: OrderedDict[str, _Running] = OrderedDict()

    def of_agent(self, subject: Subject, keys: EventKeys) -> RunGate:
        """Return the gate of another agent that works in the same run."""
        return RunGate(self._parts, replace(self._facts, subject=subject, keys=keys))

    async def ask(self, call: ToolCall) -> Verdict:
        """Decide on ``call``: ``ToolGate.ask``."""
        try:
            canonical = canonical_arguments(call.arguments)
        except SubletError as error:
            refused = Decision(False, "global", "limits.arguments", error.message, error.hint)
            return await self._refused(call, None, refused)
        call = self._foresight.strictest(call)
        wanted = Call(
            agent=self._facts.subject.name,
            tool=call.tool,
            digest=arguments_digest(canonical),
            resource=self._foresight.resource(call),
            scope=self._facts.scope,
            callers=self._facts.chain.execution_chain,
        )
        try:
            return await self._decided(call, wanted, canonical)
        except SubletError as error:
            # What can't be written down or looked up is not allowed.
            log.error("a tool call could not be decided on", tool=clean_line(call.tool, 80), reason=str(error))
            return Verdict(False, "global", "unavailable", error.message, error.hint)

    def reveals(self, call: ToolCall, path: str) -> bool:
        """``ToolGate.reveals``."""
        return self._foresight.reveals(call, path)

    def conceals(self, call: ToolCall, path: str) -> bool:
        """``ToolGate.conceals``."""
        return self._foresight.conceals(call, path)

    def path_denies(self) -> PathDenies:
        """``ToolGate.path_denies``."""
        return self._foresight.path_denies()

    async def ended(
        self, call: ToolCall, *, error: str | None = None, result: Mapping[str, JsonValue] | None = None
    ) -> None:
        """Journal how ``call`` ended: ``ToolGate.ended``."""
        running = self._running.pop(call.call_id, None)
        if running is None:
            return
        with anyio.CancelScope(shield=True):
            try:
                await self._told(running, error, result)
            except SubletError as failure:
                log.error("the end of a tool call could not be journalled", reason=str(failure))

    async def _decided(self, call: ToolCall, wanted: Call, canonical: str) -> Verdict:
        """Ask policy, a grant, and where policy wants one a person; and again after she has decided."""
        with decisions_noted() as asked:
            record = await self._parts.gate.decide_on_record(
                self._facts.subject,
                Action.TOOL_CALL,
                wanted.resource,
                self._facts.narrowing,
                note=_note(call, wanted),
            )
        decision = record.decision
        if decision.allowed:
            event = await self._parts.journal.events.append_event(
                EventKind.TOOL_CALL,
                self._facts.delegation_id,
                self._data(call, wanted, canonical, record),
                keys=self._keys(),
                keeps=record.documents,
            )
            await self._begin(call, _Running(call, event.seq, asked[-1][1] if asked else None, None))
            return _verdict(decision)
        while True:
            if (verdict := await self._by_grant(call, wanted, canonical)) is not None:
                return verdict
            if not decision.needs_grant:
                return await self._refused(call, wanted, decision, record)
            refused = await self._by_person(call, wanted, canonical, record)
            if refused is not None:
                return await self._refused(call, wanted, refused, record)

    async def _by_grant(self, call: ToolCall, wanted: Call, canonical: str) -> Verdict | None:
        """Use a grant for the call, where there is one and no deny or limit stands against it."""
        record = self._parts.gate.foresee(
            self._facts.subject, Action.TOOL_CALL, wanted.resource, self._facts.narrowing, granted=True
        )
        if not record.decision.allowed or not all(
            self._foresight.foreseen(call, one, granted=True).allowed for one in call.also
        ):
            return None
        data = self._data(call, wanted, canonical, record)
        called = Called(call.call_id, self._facts.delegation_id, data, self._keys(), record.documents)
        # Shielded, so that a use which is spent is also known here.
        with anyio.CancelScope(shield=True):
            use = await self._parts.grants.consume(wanted, called)
            if use is None:
                return None
            running = _Running(call, use.event.seq, None, use.id)
            note = {**_note(call, wanted), "grant": use.grant.id, "issued_by": use.grant.issued_by}
            try:
                with decisions_noted() as asked:
                    record = await self._parts.gate.decide_on_record(
                        self._facts.subject,
                        Action.TOOL_CALL,
                        wanted.resource,
                        self._facts.narrowing,
                        granted=True,
                        note=note,
                    )
            except SubletError as error:
                await self._told(running, not_done(error.message), None)
                raise
            decision = record.decision
            running = replace(running, entry=asked[-1][1] if asked else None)
            if not decision.allowed:
                # A policy that was reloaded meanwhile denies it now.
                await self._told(running, not_done(decision.reason), None)
                return await self._refused(call, wanted, decision, record)
            await self._begin(call, running)
        return _verdict(decision)

    async def _by_person(self, call: ToolCall, wanted: Call, canonical: str, record: Record) -> Decision | None:
        """Wait until a person has decided; return the refusal, or None where there may be a grant now."""
        decision = record.decision
        try:
            self._parts.approver.require()
        except SubletError as error:
            return replace(_plain(decision), reason=f"{decision.reason}; {error.message}", hint=error.hint)
        left = max(0.0, self._facts.deadline.at - anyio.current_time())
        context: dict[str, JsonValue] = {
            "rule": decision.rule,
            "layer": decision.layer,
            "reason": decision.reason,
            "paths": path_names(self._foresight.lent(call.paths)),
            "role": self._facts.subject.role,
            "delegationId": self._facts.delegation_id,
            "peer": self._facts.peer,
            "chain": list(self._facts.chain.execution_chain),
        }
        try:
            approval = await self._parts.questions.ask(
                wanted,
                canonical,
                context,
                QuestionOrigin(self._facts.delegation_id, self._keys(), record),
                until=self._parts.clock() + left,
            )
        except SubletError as error:
            return replace(_plain(decision), reason=error.message, hint=error.hint)
        shown = f"{wanted.agent} waits until a person approves {approval.tool} ({approval.id})"
        self._facts.waiting(shown)
        try:
            approval = await self._parts.questions.wait(approval)
        finally:
            self._facts.waiting(None)
        return None if approval.state == "approved" else replace(_plain(decision), reason=_why(approval), hint=_AFTER)

    async def _begin(self, call: ToolCall, running: _Running) -> None:
        # An agent that gives two calls one id hides the end of neither.
        over = self._running.pop(call.call_id, None)
        self._running[call.call_id] = running
        if len(self._running) > MAX_OPEN_CALLS:
            _, over = self._running.popitem(last=False)
        if over is not None:
            await self._told(over, "nobody said how it ended", None)

    async def _told(self, running: _Running, error: str | None, result: Mapping[str, JsonValue] | None) -> None:
        call = running.call
        kind, end = ended(error, result)
        data: dict[str, JsonValue] = {"tool": tool_name(call.tool), "callId": call_name(call.call_id), **end}
        await self._parts.journal.events.append_event(
            kind, self._facts.delegation_id, data, keys=self._keys(running.event)
        )
        if running.use is not None:
            await self._parts.grants.ended(running.use, "done" if error is None else "failed")
        if running.entry is not None:
            self._parts.gate.outcome(running.entry, error)

    async def _refused(
        self, call: ToolCall, wanted: Call | None, decision: Decision, record: Record | None = None
    ) -> Verdict:
        """Journal a refusal; ``record`` is what policy decided, which may have left it to a person."""
        data: dict[str, JsonValue] = {
            "subject": f"agent {self._facts.subject.name}",
            "action": str(Action.TOOL_CALL),
            "resource": tool_name(call.tool),
            "tool": tool_name(call.tool),
            "callId": call_name(call.call_id),
            "digest": wanted.digest if wanted is not None else None,
            "layer": decision.layer,
            "rule": decision.rule,
            "reason": decision.reason,
            "code": str(LocalCode.POLICY_DENIED),
            **({DECIDED: record.data()} if record is not None else {}),
        }
        await self._parts.journal.events.append_event(
            EventKind.POLICY_REJECTED,
            self._facts.delegation_id,
            data,
            keys=self._keys(),
            keeps=record.documents if record is not None else (),
        )
        verdict = _verdict(replace(decision, allowed=False))
        if not decision.hidden:
            return verdict
        return replace(verdict, layer="", rule="", reason=_ABSENT if call.paths else _NO_TOOL, hint="", hidden=True)

    def _keys(self, cause: int | None = None) -> EventKeys:
        keys = self._facts.keys.model_copy(update={"agent_id": self._facts.subject.name})
        return keys if cause is None else keys.model_copy(update={"causation_id": cause})

    def _data(self, call: ToolCall, wanted: Call, canonical: str, record: Record) -> dict[str, JsonValue]:
        return {
            **begun(call.tool, wanted.digest, canonical, record),
            "callId": call_name(call.call_id),
            "accessMode": str(wanted.resource.attributes.get("access_mode", "")),
            "paths": path_names(call.paths),
        }


_ABSENT: Final = "there is no such file or directory"
_NO_TOOL: Final = "there is no such tool"
_AFTER: Final = "Do without this call, or ask for something else."


def _note(call: ToolCall, wanted: Call) -> dict[str, JsonValue]:
    return {"digest": wanted.digest, "call_id": call_name(call.call_id)}


def _plain(decision: Decision) -> Decision:
    return replace(decision, needs_grant=False)


def _verdict(decision: Decision) -> Verdict:
    return Verdict(decision.allowed, decision.layer, decision.rule, decision.reason, decision.hint)


def _why(approval: Approval) -> str:
    match approval.state:
        case "denied":
            return f"a person denied it ({approval.id})"
        case "expired":
            return f"nobody approved it in time ({approval.id})"
        case _:
            return f"the question to a person was closed ({approval.id})"
