"""Answers of agents: put through the guardrail again, and the class of a failed call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.events import Event, EventKind
from sublet.supervisor.replay.basis import GUARDRAIL, Basis
from sublet.supervisor.replay.log import Log
from sublet.supervisor.replay.steps import Facts, Step

PASSED = "passed"
TAKEN = "what the agent did is not done again: its end is taken as it was recorded"


def recorded_check(event: Event) -> Facts:
    """Return what is compared of a reply that did not pass: why not, and what became of the request."""
    return {"class": event.data.get("class"), "then": event.data.get("then")}


def check_again(event: Event, basis: Basis) -> Facts | str:
    """Return what the guardrail says of the reply; or why it can't be asked."""
    found = _verdict(event.data, basis)
    if isinstance(found, str):
        return found
    attempt, retries = event.data.get("attempt"), event.data.get("retries")
    if not isinstance(attempt, int) or not isinstance(retries, int):
        return "what is recorded can't be read"
    if found["class"] == PASSED:
        return {"class": PASSED, "then": None}
    return {"class": found["class"], "then": event.data.get("onFailure") if attempt > retries else "retry"}


def _verdict(data: Mapping[str, JsonValue], basis: Basis) -> Facts | str:
    """Return whether what was kept of a reply passes, with what was mended; or why not; or why it can't be told."""
    if isinstance(why := data.get("notKept"), str):
        return why
    kept = basis.document(data.get("kept"))
    from sublet.policy.guardrail.check import Passed  # what reads schemas is loaded by whoever uses one
    from sublet.policy.guardrail.evidence import judge_again

    try:
        schema = basis.schema(data.get("schema"))
        if schema is None or kept is None:
            return "what was checked is not kept any more"
        found = judge_again(schema, kept)
    except (ValueError, SubletError) as error:
        return str(error)
    if isinstance(found, Passed):
        return {"class": PASSED, "repairs": list(found.repairs)}
    return {"class": str(found.kind)}


def recorded_end(event: Event) -> Facts | None:
    """Return what is compared of the end of a call: the class of a failure, or how the answer passed; None for less."""
    if event.data.get("ok") is not True:
        return {"code": event.data.get("code")}
    checked = event.data.get(GUARDRAIL)
    return {"class": PASSED, "repairs": checked.get("repairs")} if isinstance(checked, dict) else None


def end_again(event: Event, log: Log, steps: Mapping[int, Step], basis: Basis) -> tuple[Facts | str, str]:
    """Return the class of the end of a call as its steps have it, or why that can't be told; and what else to say.

    Args:
        event: ``dispatch_result``.
        log: all events.
        steps: those that were made before, by the numbers of their events.
        basis: what was kept.
    """
    beneath = log.after(event.keys.causation_id)
    failed = _failed_check(beneath, steps)
    if event.data.get("ok") is True:
        if failed is not None:
            return {"code": str(LocalCode.GUARDRAIL_FAILED)}, ""
        checked = event.data.get(GUARDRAIL)
        return (_verdict(checked, basis) if isinstance(checked, dict) else "there is nothing to judge"), ""
    code = event.data.get("code")
    if failed is not None:
        return _of_check(failed), ""
    if event.data.get("end") is not None:
        return {"code": str(ErrorCode.TASK_FAILED)}, ""
    cause = _cause(code, beneath, log, steps)
    if cause is not None:
        return ({"code": cause.replayed.get("code")}, "") if cause.replayed is not None else (cause.note, "")
    if code == LocalCode.GUARDRAIL_FAILED:
        return "the answers that did not pass are not recorded", ""
    known = isinstance(code, str) and code in {*map(str, ErrorCode), *map(str, LocalCode)}
    return ({"code": code}, TAKEN) if known else ("a class of failure that is not known here", "")


def _of_check(failed: Step) -> Facts | str:
    """Return the class of a call whose last answer did not pass then."""
    if failed.replayed is None:
        return failed.note
    return {"code": None if failed.replayed.get("class") == PASSED else str(LocalCode.GUARDRAIL_FAILED)}


def _failed_check(beneath: Sequence[Event], steps: Mapping[int, Step]) -> Step | None:
    """Return the check after which nothing was asked again."""
    final = [e for e in beneath if e.kind is EventKind.GUARDRAIL_FAILED and e.data.get("then") != "retry"]
    return steps.get(final[-1].seq) if final else None


def _cause(code: JsonValue, beneath: Sequence[Event], log: Log, steps: Mapping[int, Step]) -> Step | None:
    """Return the step from which the class came: a refusal, or the end of a call that this one made."""
    inner = [one for event in beneath if event.kind is EventKind.DISPATCH_SENT for one in log.after(event.seq)]
    for event in reversed([*beneath, *inner]):
        step = steps.get(event.seq)
        if step is None or event.kind not in (EventKind.POLICY_REJECTED, EventKind.DISPATCH_RESULT):
            continue
        if step.recorded is not None and step.recorded.get("code") == code and "tool" not in event.data:
            return step
    return None
