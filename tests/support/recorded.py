"""Events of a session as the daemon records them, and what they refer to by digest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sublet.policy.config import parse
from sublet.policy.decision import Action, Resource, Subject
from sublet.policy.defaults import DEFAULT_RULES
from sublet.policy.guardrail.evidence import evidence
from sublet.policy.guardrail.mask import Mask
from sublet.policy.guardrail.schema import CheckedSchema
from sublet.policy.recorded import DECIDED, Record
from sublet.policy.rule_set import RuleSet
from sublet.policy.tool_calls import tool_resource
from sublet.protocol.canonical import JsonValue
from sublet.protocol.documents import Document, unpacked
from sublet.protocol.errors import LocalCode
from sublet.protocol.events import Event, EventKeys, EventKind
from sublet.supervisor.replay.basis import Basis
from sublet.supervisor.router.route import Asker, Candidate, Classification, GivenAnswer, RouteRequest
from sublet.supervisor.router.rules import decide

CODER = Subject("agent", "coder", role="executor")


def rule_set(*rules: Mapping[str, JsonValue]) -> RuleSet:
    """Return the default rules and global ``rules`` as a policy file has them."""
    config = parse({"version": 1, "global": [{"id": f"r{n}", **rule} for n, rule in enumerate(rules)]})
    return RuleSet((*DEFAULT_RULES, *config.rules), config.limits)


class Recording:
    """A session that is recorded event by event, each with the next number."""

    def __init__(self, rules: RuleSet | None = None, *, first: int = 1) -> None:
        self.rules = rules or rule_set()
        self.events: list[Event] = []
        self.documents: dict[str, JsonValue] = {}
        self._first = first

    def basis(self, current: RuleSet | None = None) -> Basis:
        return Basis(self.documents, current)

    def add(
        self,
        kind: EventKind | str,
        data: Mapping[str, JsonValue] | None = None,
        *,
        cause: Event | int | None = None,
        keeps: Iterable[Document] = (),
    ) -> Event:
        seq = cause.seq if isinstance(cause, Event) else cause
        event = Event(
            seq=self._first + len(self.events),
            at="2026-01-01T00:00:00Z",
            kind=kind,
            keys=EventKeys(finger_session_id="ses_1", request_id="req_1", causation_id=seq),
            data=dict(data or {}),
        )
        self.events.append(event)
        self.documents |= {one.digest: unpacked(one) for one in keeps}
        return event

    def route(self, text: str, *, answer: GivenAnswer | None = None, **changed: JsonValue) -> Event:
        facts = RouteRequest(text=text, candidates=(Candidate(agent_id="coder"), Candidate(agent_id="reviewer")))
        classified: Classification | None = None
        data: dict[str, JsonValue] = {
            **decide(facts, classified).model_dump(mode="json", by_alias=True, exclude={"message"}),
            "request": facts.model_dump(mode="json", by_alias=True),
            "classified": None,
            "asker": Asker(kind="human", action="agent.dispatch", at=0).model_dump(mode="json", by_alias=True),
            "answer": answer.model_dump(mode="json", by_alias=True) if answer else None,
            **changed,
        }
        return self.add(EventKind.ROUTE_DECIDED, data)

    def record(self, resource: Resource, action: Action = Action.TOOL_CALL, *, granted: bool = False) -> Record:
        at = 1_000_000.0
        decision = self.rules.decide(CODER, action, resource, granted=granted, now=at)
        return Record(self.rules, CODER, action, resource, granted, at, decision)

    def tool(self, name: str, arguments: Mapping[str, JsonValue], *, cause: Event | None = None) -> Event:
        """Record what the rules decide on a call, as the gate before tools does."""
        record = self.record(tool_resource(name, arguments, access_mode="rw"))
        decision = record.decision
        data: dict[str, JsonValue] = {"tool": name, DECIDED: record.data()}
        if decision.allowed:
            return self.add(EventKind.TOOL_CALL, data, cause=cause, keeps=record.documents)
        refusal: dict[str, JsonValue] = {
            **data,
            "layer": decision.layer,
            "rule": decision.rule,
            "code": str(LocalCode.POLICY_DENIED),
        }
        return self.add(EventKind.POLICY_REJECTED, refusal, cause=cause, keeps=record.documents)

    def sent(self, *, cause: Event | None = None) -> Event:
        record = self.record(Resource("reviewer", {"declared": True, "depth": 0}), Action.AGENT_DISPATCH)
        return self.add(EventKind.DISPATCH_SENT, {DECIDED: record.data()}, cause=cause, keeps=record.documents)

    def failed_check(
        self, reply: str, attempt: int, kind: str, *, cause: Event, then: str = "retry", mask: Mask | None = None
    ) -> Event:
        found = evidence(reply, CheckedSchema(COUNT), mask)
        data: dict[str, JsonValue] = {
            "class": kind,
            "attempt": attempt,
            "then": then,
            "retries": 2,
            "onFailure": "reject",
            **found.data,
        }
        return self.add(EventKind.GUARDRAIL_FAILED, data, cause=cause, keeps=found.documents)

    def ended(self, cause: Event, **data: JsonValue) -> Event:
        return self.add(EventKind.DISPATCH_RESULT, data, cause=cause)


COUNT: dict[str, JsonValue] = {
    "type": "object",
    "properties": {"count": {"type": "integer"}, "secret": {"type": "string"}},
    "required": ["count"],
}


def a_session(rules: RuleSet | None = None) -> Recording:
    """Return a session with a bit of everything, every decision of which is made the same again."""
    made = Recording(rules)
    made.add(EventKind.SESSION_CREATED, {"title": "t"})
    made.route("@coder write it")
    sent = made.sent()
    made.tool("file.read", {"path": "a"}, cause=sent)
    made.tool("mail.send", {"to": "all"}, cause=sent)
    made.failed_check("none", 1, "no_json", cause=sent)
    made.failed_check('{"count": "x"}', 2, "invalid", cause=sent)
    made.failed_check("[]", 3, "invalid", cause=sent, then="reject")
    made.ended(sent, ok=False, code="GUARDRAIL_FAILED", message="m")
    made.route("/hub nowhere do it")
    second = made.sent()
    made.ended(second, ok=False, code="TASK_FAILED", end="failed")
    made.add(
        EventKind.POLICY_REJECTED,
        {
            "layer": "chain",
            "code": "LOOP_REFUSED",
            "target": "a@node-1",
            "executionChain": ["a@node-1"],
            "maxDepth": 4,
            "ttl": 5.0,
        },
        cause=second,
    )
    return made
