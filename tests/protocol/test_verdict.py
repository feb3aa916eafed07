"""Why work is not done: each reason where it counts, told once more as a table of all that can come together."""

from __future__ import annotations

from itertools import product

import pytest

from sublet.protocol.assignment.verdict import Ended, why_not_done
from sublet.protocol.errors import AgentEnd, ErrorCode, SubletError
from sublet.protocol.prompt_state import PromptState

STOPPED = SubletError(ErrorCode.CANCELLED, "stopped")
FAILED = SubletError(ErrorCode.DECLINED, "failed", "so", from_peer=True)
PROMPTS = (PromptState(follow_up_id=None, state="done"),)
OUTCOMES: dict[str | None, Ended | None] = {
    None: None,
    **{reason: Ended(reason, "said", 3, f"it ended as {reason}") for reason in ("done", "failed", "timeout", "limit")},
}


def expected(
    outcome: str | None, *, late: bool, began: bool, missing: bool, lost: bool, stopped: bool, failed: bool
) -> ErrorCode | None:
    """Say the rules in the order in which they count."""
    nothing_more = outcome in (None, "timeout") or (outcome == "done" and missing)
    rules = {
        ErrorCode.EXPIRED: late and nothing_more,
        STOPPED.code: stopped,
        FAILED.code: failed,
        ErrorCode.MOUNT_FAILED: outcome is None or (lost and outcome != "done"),
        ErrorCode.TASK_FAILED: outcome != "done" or missing,
    }
    code = next((code for code, holds in rules.items() if holds), None)
    assert code is None or isinstance(code, ErrorCode)
    return code


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_the_reason_that_counts_is_told(outcome: str | None) -> None:
    names = ("late", "began", "missing", "lost", "stopped", "failed")
    for given in product((False, True), repeat=len(names)):
        facts = dict(zip(names, given, strict=True))
        found = why_not_done(
            "dlg_1",
            OUTCOMES[outcome],
            PROMPTS,
            late=facts["late"],
            began=facts["began"],
            missing=facts["missing"],
            lost="cable cut" if facts["lost"] else None,
            stopped=STOPPED if facts["stopped"] else None,
            failed=FAILED if facts["failed"] else None,
            left="something is left",
        )
        code = expected(outcome, **facts)
        assert (found.code if found else None) == code, facts
        if found is None:
            continue
        if code is ErrorCode.EXPIRED:
            assert ("something is left" in found.message) == facts["began"]
            assert ("never started" in found.message) != facts["began"]
        elif code is STOPPED.code:
            assert found is STOPPED
        elif code is FAILED.code:
            assert (found.message, found.hint, found.from_peer) == ("failed", "so", True)
            assert (found is FAILED) == (outcome is None)
        elif code is ErrorCode.MOUNT_FAILED or outcome == "done":
            assert ("cable cut" in found.message) == facts["lost"]
        ended = OUTCOMES[outcome]
        told_of_agent = code is FAILED.code or (code is ErrorCode.TASK_FAILED and outcome != "done")
        if ended is not None and told_of_agent:
            assert found.agent_end == AgentEnd(ended.reason, 3, "said", PROMPTS)
        elif code is not FAILED.code:
            assert found.agent_end is None
        if code is ErrorCode.TASK_FAILED and ended is not None and outcome != "done":
            assert found.message == ended.why
            assert "dlg_1" in found.hint


def test_a_lease_that_ended_leaves_nothing_to_tell_of() -> None:
    found = why_not_done(
        "dlg_1", None, (), late=True, began=True, missing=False, lost=None, stopped=None, failed=None
    )  # fmt: skip
    assert found is not None
    assert "directory unmounted" in found.message
