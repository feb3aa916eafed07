"""Decides recorded decisions again and compares: routes, policy, guardrail, classes of failures (SuperAgent 12).

Without any I/O: what policy says now is asked by whoever replays (``questions``) and handed in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import ValidationError

from sublet.protocol.canonical import JsonValue
from sublet.protocol.chain import Chain, check_call
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.events import Event, EventKind
from sublet.supervisor.router.model import Classification, RouteRequest
from sublet.supervisor.router.rules import decide

MAX_TEXT_JOURNALLED: Final = 20_000
"""Characters of a request's text that ``route_decided`` keeps."""

Result = Literal["equal", "different", "not_replayable"]
Facts = dict[str, JsonValue]

_FROM_ELSEWHERE: Final = frozenset({"answer", "guardrail"})
"""Rules that decide from a person's answer or a failed one, which the event does not hold."""
_CUT: Final = "what it was decided from is not recorded, or was cut"


@dataclass(frozen=True, slots=True)
class Question:
    """What policy was asked, at the time ``at`` (RFC 3339); ``granted`` where a grant for it was at hand."""

    seq: int
    at: str
    subject: str
    role: str
    action: str
    resource: str
    attributes: Mapping[str, JsonValue]
    granted: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What policy says now: ``allow``, ``deny`` or ``needs_grant``, by which layer and rule; and whether it hides."""

    decision: str
    layer: str
    rule: str
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One recorded decision, and what came of deciding it again.

    ``recorded`` and ``replayed`` hold what is compared, of a failure its class ``code``; ``replayed`` is None where
    nothing was decided. ``out_of_order`` tells that the event stands before one that came earlier, or before the one it
    follows from.
    """

    seq: int
    kind: EventKind
    result: Result
    note: str = ""
    recorded: Facts | None = None
    replayed: Facts | None = None
    out_of_order: bool = False


def questions(events: Sequence[Event]) -> tuple[Question, ...]:
    """Return what has to be asked of policy to replay ``events``."""
    found = (_question(event) for event in events if event.kind in (EventKind.POLICY_REJECTED, EventKind.TOOL_CALL))
    return tuple(one for one in found if one is not None)


def replay(events: Sequence[Event], answers: Mapping[int, Answer] | None = None) -> tuple[Step, ...]:
    """Return a step for each decision among ``events``, in their order; other kinds have none.

    Args:
        events: as they were recorded.
        answers: what policy says now to each of ``questions``, by the number of its event.
    """
    highest = 0
    steps: list[Step] = []
    refused: dict[tuple[str | None, JsonValue], Step] = {}
    for event in events:
        cause = event.keys.causation_id
        late = event.seq <= highest or (cause is not None and cause >= event.seq)
        highest = max(highest, event.seq)
        match event.kind:
            case EventKind.ROUTE_DECIDED:
                step = _route(event, late)
            case EventKind.POLICY_REJECTED | EventKind.TOOL_CALL:
                chain = event.data.get("layer") == "chain"
                step = _chain(event, late) if chain else _policy(event, late, (answers or {}).get(event.seq))
            case EventKind.GUARDRAIL_FAILED:
                step = _guardrail(event, late)
            case EventKind.DISPATCH_RESULT if event.data.get("ok") is False:
                step = _failure(event, late, refused.get((event.keys.request_id, event.data.get("code"))))
            case _:
                continue
        steps.append(step)
        if event.kind is EventKind.GUARDRAIL_FAILED:
            refused[event.keys.request_id, str(LocalCode.GUARDRAIL_FAILED)] = step
        elif event.kind is EventKind.POLICY_REJECTED:
            refused[event.keys.request_id, event.data.get("code")] = step
    return tuple(steps)


def _step(event: Event, late: bool, recorded: Facts, replayed: Facts | None, note: str = _CUT) -> Step:
    if replayed is None:
        return Step(event.seq, event.kind, "not_replayable", note, recorded, out_of_order=late)
    result: Result = "equal" if replayed == recorded else "different"
    return Step(event.seq, event.kind, result, "", recorded, replayed, late)


def _route(event: Event, late: bool) -> Step:
    recorded = {name: event.data.get(name) for name in ("decision", "target", "rule")}
    if recorded["rule"] in _FROM_ELSEWHERE:
        return _step(event, late, recorded, None, "decided from an answer that is not recorded with it")
    try:
        facts = RouteRequest.model_validate(event.data.get("request"))
        kept = event.data.get("classified")
        classified = None if kept is None else Classification.model_validate(kept)
    except ValidationError:
        return _step(event, late, recorded, None, "what is recorded can't be read")
    if len(facts.text) >= MAX_TEXT_JOURNALLED:
        return _step(event, late, recorded, None, "cut")
    route = decide(facts, classified)
    return _step(event, late, recorded, {"decision": route.decision, "target": route.target, "rule": route.rule})


def _question(event: Event) -> Question | None:
    asked, granted = event.data.get("asked"), "grantId" in event.data
    if not isinstance(asked, dict):
        return None
    texts = [asked.get(name) for name in ("subject", "role", "action", "resource")]
    attributes = asked.get("attributes")
    if not all(isinstance(text, str) for text in texts) or not isinstance(attributes, dict):
        return None
    subject, role, action, resource = (str(text) for text in texts)
    return Question(event.seq, event.at, subject, role, action, resource, attributes, granted)


def _policy(event: Event, late: bool, answer: Answer | None) -> Step:
    """Compare whether it was allowed, by which rule, and the class of a refusal."""
    allowed = event.kind is EventKind.TOOL_CALL
    recorded: Facts = {"allowed": allowed, "code": None if allowed else event.data.get("code")}
    ruled = "rule" in event.data
    if ruled:
        recorded |= {"layer": event.data.get("layer"), "rule": event.data.get("rule")}
    if answer is None or _question(event) is None:
        return _step(event, late, recorded, None)
    now = answer.decision == "allow"
    code = None if now else str(LocalCode.NOT_FOUND if answer.hidden else LocalCode.POLICY_DENIED)
    replayed: Facts = {"allowed": now, "code": code}
    return _step(event, late, recorded, replayed | ({"layer": answer.layer, "rule": answer.rule} if ruled else {}))


def _chain(event: Event, late: bool) -> Step:
    """Decide by the chain alone, as before the call."""
    recorded: Facts = {"code": event.data.get("code")}
    callers, depth = event.data.get("executionChain"), event.data.get("maxDepth")
    target, ttl = event.data.get("target"), event.data.get("ttl")
    if not isinstance(callers, list) or not isinstance(depth, int) or not isinstance(target, str):
        return _step(event, late, recorded, None)
    chain = Chain(tuple(str(one) for one in callers), "", float(ttl) if isinstance(ttl, int | float) else None)
    try:
        check_call(chain, target, max_depth=depth)
    except SubletError as error:
        return _step(event, late, recorded, {"code": str(error.code)})
    return _step(event, late, recorded, {"code": None})


def _guardrail(event: Event, late: bool) -> Step:
    """Hold the reply against its schema again, and compare why it did not pass."""
    recorded: Facts = {"class": event.data.get("class")}
    reply, schema, fields = (event.data.get(name) for name in ("reply", "schema", "mask"))
    if not isinstance(reply, str) or not isinstance(schema, dict) or event.data.get("whole") is not True:
        return _step(event, late, recorded, None)
    from sublet.policy.guardrail.check import Passed, check  # what reads schemas is loaded by whoever uses one
    from sublet.policy.guardrail.mask import Mask
    from sublet.policy.guardrail.schema import CheckedSchema

    try:
        mask = Mask(tuple(str(one) for one in fields)) if isinstance(fields, list) else None
        result = check(reply, CheckedSchema(schema), mask)
    except SubletError:
        return _step(event, late, recorded, None, "what is recorded can't be read")
    return _step(event, late, recorded, {"class": None if isinstance(result, Passed) else str(result.kind)})


def _failure(event: Event, late: bool, refused: Step | None) -> Step:
    """Derive the class of a failure from how the agent ended, or from the refusal that it came from."""
    code = event.data.get("code")
    recorded: Facts = {"code": code}
    if event.data.get("end") is not None:
        return _step(event, late, recorded, {"code": str(ErrorCode.TASK_FAILED)})
    if refused is not None and refused.replayed is not None:
        stands = refused.replayed.get("class") is not None or refused.replayed.get("code") == code
        return _step(event, late, recorded, {"code": code if stands else None})
    return _step(event, late, recorded, None, "what the agent or module did is not done again")
