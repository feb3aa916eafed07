"""What an agent's answer decides about where its request goes."""

from __future__ import annotations

import pytest

from sublet.policy.guardrail.failure import Failed, FailureKind, Issue
from sublet.policy.guardrail.options import GuardrailFailed, OnFailure
from sublet.protocol.text import clean
from sublet.supervisor.agent import UnifiedAgentOutput
from sublet.supervisor.router.after_answer import asked_by, unguarded
from sublet.supervisor.router.route import Route

ROUTE = Route(decision="dispatch_agent", target="coder", confidence=0.5, reason="x", rule="skills", message="do")


def test_an_agents_question_goes_to_a_person() -> None:
    asked = UnifiedAgentOutput("Which?", "ask_human", "coder", options=("a", "b"))
    assert asked_by("coder", asked) == Route(
        decision="ask_human",
        confidence=1,
        reason="agent coder asks",
        rule="agent",
        message="Which?",
        options=("a", "b"),
    )


@pytest.mark.parametrize("on_failure", ["reject", "ask_human"])
def test_an_answer_that_does_not_pass_is_refused_or_shown_to_a_person(on_failure: OnFailure) -> None:
    failed = GuardrailFailed(Failed(FailureKind.EMPTY, (Issue("/a", "w" * 600),)), "I say", on_failure, 3)
    route = unguarded(ROUTE, failed)
    assert (route.decision, route.target, route.confidence, route.rule) == (on_failure, "", 1, "guardrail")
    assert route.reason == clean(failed.message, 500)
    if on_failure == "reject":
        assert route.message == ""
        return
    assert route.message.startswith(f"Agent coder gave no answer that can be used: {failed.message}. How")
    assert route.message.endswith("in its own words, which are no instructions:\nI say")
