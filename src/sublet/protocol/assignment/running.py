"""An assignment while its agent works: renewals by a further START, and the prompts it is given (DESIGN 4.11).

Rules: a renewal is granted as of the moment of its answer, since policy takes time; only the newest process of the
delegator is heard; the agent has one prompt at a time.
"""

from __future__ import annotations

from dataclasses import replace

from sublet.protocol.assignment import granting, refusals
from sublet.protocol.assignment.events import AgentLaunched, PolicySaid, PromptEnded, QuestionAsked, RenewalCame
from sublet.protocol.assignment.outputs import Answer, AskPolicy, Finish, Output, Prompt, Record, Refuse, Renew, Step
from sublet.protocol.assignment.state import Assignment, State
from sublet.protocol.errors import SubletError
from sublet.protocol.messages import FollowUp, Start
from sublet.protocol.times import Now


def ask_to_renew(state: Assignment, event: RenewalCame, now: Now) -> Step:
    """Ask policy for the time that a renewal would give in all, from the beginning of the work."""
    if event.owner != state.owner:
        return state, (Refuse(refusals.unknown()),)
    try:
        grant = _granted(state, event.start, event.longest, now)
    except SubletError as error:
        return state, (Refuse(error),)
    worked = now.steady - state.began
    return state, (AskPolicy(event.start, event.owner, int(worked + grant.seconds), grant, renews=True),)


def _granted(state: Assignment, start: Start, longest: float, now: Now) -> granting.GrantedTime:
    """Return what a renewal is granted now.

    Raises:
        SubletError: ``DECLINED``, ``START_EXPIRED`` or ``AUTH_FAILED``.
    """
    if state.interrupted or state.deadline <= now.steady:
        raise refusals.not_running(state.state)
    if start.sublet.follow_up is not None and (refusal := state.prompts.refusal(start.sublet.follow_up)) is not None:
        raise refusal
    if start.sublet.generation < state.generation:
        raise refusals.older_process()
    if start.lease.access_mode != state.access_mode:
        raise refusals.other_access(state.access_mode)
    return granting.renewal(
        start,
        expires_at=state.expires_at,
        began=state.began,
        deadline=state.deadline,
        longest=longest,
        asked=granting.asked_seconds(start, now),
        now=now,
    )


def renew(state: Assignment, event: PolicySaid, now: Now) -> Step:
    """Grant a renewal as of now, and answer once it is durable."""
    question = event.question
    if not question.renews:
        return state, (Refuse(refusals.not_waiting(state.state)),)
    if event.error is not None:
        return state, (Refuse(event.error),)
    start = question.start
    try:
        # Others may have been answered, or time may have passed, while policy was asked.
        grant = question.grant.within(_granted(state, start, event.longest, now))
    except SubletError as error:
        return state, (Refuse(error),)
    renewed = replace(
        state,
        generation=start.sublet.generation,
        expires_at=grant.expires_at(start),
        deadline=grant.until,
        prompts=state.prompts if (more := start.sublet.follow_up) is None else state.prompts.take(more),
    )
    seconds = max(1, int(grant.seconds))
    constraints = state.accept.remote_constraints.model_copy(update={"max_ttl_seconds": seconds})
    answer = Answer(state.accept.model_copy(update={"remote_constraints": constraints}))
    ends_at = min(renewed.deadline, renewed.winds_down_at)
    return renewed, (Record(renewed, transition=False), Renew(start, renewed.deadline, ends_at), answer)


def not_running(state: State, event: RenewalCame, now: Now) -> Step:
    """Refuse a renewal for what does not run."""
    if not isinstance(state, Assignment) or event.owner != state.owner:
        return state, (Refuse(refusals.unknown()),)
    return state, (Refuse(refusals.not_running(state.state)),)


def launched(state: Assignment, event: AgentLaunched, now: Now) -> Step:
    """Remember that the agent was started: a failure is the agent's own from now on."""
    return replace(state, launched=True), ()


def prompt_ended(state: Assignment, event: PromptEnded, now: Now) -> Step:
    """Give the agent its next prompt, or end the work where there is none."""
    prompts, follow_up = state.prompts.end(event.follow_up_id, event.reason, event.exit_code), None
    if event.reason not in ("timeout", "cancelled") and not state.interrupted:
        prompts, follow_up = prompts.next()
    return replace(state, prompts=prompts), (Finish() if follow_up is None else Prompt(follow_up),)


def question_asked(state: Assignment, event: QuestionAsked, now: Now) -> Step:
    """Answer the agent's question with the next follow-up, if one waits."""
    prompts, answer = state.prompts.answer()
    return replace(state, prompts=prompts), _given(answer)


def _given(follow_up: FollowUp | None) -> tuple[Output, ...]:
    return () if follow_up is None else (Prompt(follow_up),)
