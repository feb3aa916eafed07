"""Decides recorded routes again, from what was recorded and nothing else (SuperAgent 12, DESIGN 7). Without any I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import ValidationError

from sublet.protocol.canonical import JsonValue
from sublet.protocol.events import Event, EventKind
from sublet.supervisor.router.model import Classification, RouteRequest
from sublet.supervisor.router.rules import decide

MAX_TEXT_JOURNALLED: Final = 20_000
"""Characters of a request's text that ``route_decided`` keeps."""

Result = Literal["equal", "different", "not_replayable"]

NOT_JUDGED: Final = frozenset(
    {
        EventKind.TOOL_CALL,
        EventKind.POLICY_REJECTED,
        EventKind.GUARDRAIL_FAILED,
        EventKind.DISPATCH_RESULT,
    }
)
"""Decisions and ends whose events do not hold all that they came from."""
_FROM_ELSEWHERE: Final = frozenset({"answer", "guardrail"})
"""Rules that decide from a person's answer or a failed one, which the event does not hold."""
_COMPARED: Final = ("decision", "target", "rule")


@dataclass(frozen=True, slots=True)
class Step:
    """One recorded decision, and what came of deciding it again.

    ``recorded`` and ``replayed`` hold the decision, target and rule; ``replayed`` is None where nothing was decided.
    ``out_of_order`` tells that the event stands before one that came earlier, or before the one it follows from.
    """

    seq: int
    kind: EventKind
    result: Result
    note: str = ""
    recorded: dict[str, JsonValue] | None = None
    replayed: dict[str, JsonValue] | None = None
    out_of_order: bool = False


def replay(events: Sequence[Event]) -> tuple[Step, ...]:
    """Return a step for each decision among ``events``, in their order; other kinds have none."""
    highest = 0
    steps: list[Step] = []
    for event in events:
        cause = event.keys.causation_id
        late = event.seq <= highest or (cause is not None and cause >= event.seq)
        highest = max(highest, event.seq)
        if event.kind is EventKind.ROUTE_DECIDED:
            steps.append(_route(event, late))
        elif event.kind in NOT_JUDGED:
            note = "what it was decided from is not recorded"
            steps.append(Step(event.seq, event.kind, "not_replayable", note, out_of_order=late))
    return tuple(steps)


def _route(event: Event, late: bool) -> Step:
    recorded = {name: event.data.get(name) for name in _COMPARED}

    def without(note: str) -> Step:
        return Step(event.seq, event.kind, "not_replayable", note, recorded, out_of_order=late)

    if recorded["rule"] in _FROM_ELSEWHERE:
        return without("decided from an answer that is not recorded with it")
    try:
        facts = RouteRequest.model_validate(event.data.get("request"))
        kept = event.data.get("classified")
        classified = None if kept is None else Classification.model_validate(kept)
    except ValidationError:
        return without("what is recorded can't be read")
    if len(facts.text) >= MAX_TEXT_JOURNALLED:
        return without("cut")
    route = decide(facts, classified)
    replayed: dict[str, JsonValue] = {"decision": route.decision, "target": route.target, "rule": route.rule}
    result: Result = "equal" if replayed == recorded else "different"
    return Step(event.seq, event.kind, result, "", recorded, replayed, late)
