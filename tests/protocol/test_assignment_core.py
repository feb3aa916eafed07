"""Steps of the executor's core, one at a time: what the model has found, and what no schedule shows by itself."""

from __future__ import annotations

from sublet.protocol.assignment import core, phases
from sublet.protocol.assignment.events import (
    CallerLeft,
    Event,
    InviteCame,
    InvitePrepared,
    PolicySaid,
    PromptEnded,
    RenewalCame,
    Restarted,
    StartCame,
    StopCame,
    TimePassed,
    Undone,
    WindDownCame,
    WorkEnded,
)
from sublet.protocol.assignment.outputs import Answer, AskPolicy, Begin, Output, Record, Refuse, Renew, TakeSlot, Tell
from sublet.protocol.assignment.state import Assignment, State
from sublet.protocol.assignment.verdict import Ended
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.lifecycle import AssignmentState
from sublet.protocol.messages import Done, FollowUp, Start
from sublet.protocol.times import Now, rfc3339_of
from support.delegation_model.journal import assignment_kept
from support.worker import invite

OWNER, MALLORY = "SHA256:alice", "SHA256:mallory"
BEGIN = Now(1_000_000.0, 10.0)
ENDS = BEGIN.wall + 60
WHY = SubletError(ErrorCode.CANCELLED, "enough")
FULL = SubletError(LocalCode.UNAVAILABLE, "the disk is full")
DONE = Ended("done", "all done", 0)


def after(seconds: float) -> Now:
    return Now(BEGIN.wall + seconds, BEGIN.steady + seconds)


def accept(ttl: int = 60) -> InvitePrepared:
    from sublet.protocol.messages import Accept

    body = {"delegation_id": "dlg_1", "remote_mount": {"mount_point": "/m"}, "sublet": {"renewable": True}}
    return InvitePrepared(Accept.model_validate({**body, "remote_constraints": {"max_ttl_seconds": ttl}}), 60.0)


def start(seconds: int = 60, *, later: float = 0, generation: int = 1, more: FollowUp | None = None) -> Start:
    return Start.model_validate(
        {
            "delegation_id": "dlg_1",
            "lease": {"expires_at": rfc3339_of(ENDS + later), "access_mode": "rw"},
            "mount": {
                "endpoint": {"host": "h", "port": 1, "user": "dlg_1"},
                "export_locator": "/",
                "credential": "publickey:none",
            },
            "sublet": {
                "host_key": "ssh-ed25519 AAAA",
                "remaining_seconds": seconds,
                "generation": generation,
                "follow_up": more,
            },
        }
    )


def step(state: State, event: Event, seconds: float = 0) -> tuple[Assignment, tuple[Output, ...]]:
    after_it, outputs = core.step(state, event, after(seconds))
    assert isinstance(after_it, Assignment)
    return after_it, outputs


def waiting() -> Assignment:
    considered, _ = core.step(None, InviteCame(invite(), OWNER), BEGIN)
    return step(considered, accept())[0]


def asked(outputs: tuple[Output, ...]) -> AskPolicy:
    (question,) = outputs
    assert isinstance(question, AskPolicy)
    return question


def working() -> Assignment:
    state, outputs = step(waiting(), StartCame(start(), OWNER))
    return step(state, PolicySaid(asked(outputs)))[0]


def names(outputs: tuple[Output, ...]) -> list[str]:
    return [type(output).__name__ for output in outputs]


def refusal(outputs: tuple[Output, ...]) -> str:
    return next(output.error.message for output in outputs if isinstance(output, Refuse))


def test_an_assignment_goes_its_way() -> None:
    considered, outputs = core.step(None, InviteCame(invite(), OWNER), BEGIN)
    assert names(outputs) == ["Consider"]
    state, outputs = step(considered, accept())
    assert names(outputs) == ["Record", "Answer"]
    state, outputs = step(state, StartCame(start(), OWNER))
    state, outputs = step(state, PolicySaid(asked(outputs)))
    assert names(outputs) == ["TakeSlot", "Record", "Begin"]
    state, outputs = step(state, PromptEnded(None, "done", 0))
    assert names(outputs) == ["Finish"]
    state, outputs = step(state, WorkEnded(DONE))
    assert names(outputs) == ["Record", "Free", "Tell"]
    assert (state.state, state.holds) == (AssignmentState.COMPLETED, False)


def test_whoever_sent_the_invite_meanwhile_gets_the_one_answer() -> None:
    considered, _ = core.step(None, InviteCame(invite(), OWNER), BEGIN)
    considered, outputs = core.step(considered, InviteCame(invite(), OWNER), BEGIN)
    assert outputs == ()
    assert refusal(core.step(considered, InviteCame(invite(), MALLORY), BEGIN)[1]).endswith("used before")
    considered, _ = core.step(considered, CallerLeft(WHY), BEGIN)
    _, outputs = core.step(considered, accept(), BEGIN)
    assert names(outputs) == ["Record", "Answer"], "one still waits"
    nobody, _ = core.step(considered, CallerLeft(WHY), BEGIN)
    assert (core.step(nobody, accept(), BEGIN)[0], names(core.step(nobody, accept(), BEGIN)[1])) == (None, ["Free"])


def test_an_accept_is_narrowed_whoever_words_it() -> None:
    considered, _ = core.step(None, InviteCame(invite(ttl_seconds=30, access_mode="ro"), OWNER), BEGIN)
    state, outputs = step(considered, accept(600))
    answer = outputs[-1]
    assert isinstance(answer, Answer)
    said = answer.accept.remote_constraints
    assert (said.max_ttl_seconds, said.accepted_access_mode) == (30, "ro")
    assert step(state, InviteCame(invite(ttl_seconds=30, access_mode="ro"), OWNER))[1] == (answer,)


def test_of_two_starts_that_policy_allows_one_is_begun() -> None:
    state, first = step(waiting(), StartCame(start(), OWNER))
    state, second = step(state, StartCame(start(), OWNER))
    state, outputs = step(state, PolicySaid(asked(first)))
    assert any(isinstance(output, Begin) for output in outputs)
    assert "it is active" in refusal(step(state, PolicySaid(asked(second)))[1])


def test_what_policy_took_its_time_for_is_not_added() -> None:
    state, outputs = step(waiting(), StartCame(start(), OWNER))
    question = asked(outputs)
    _, outputs = step(state, PolicySaid(question), seconds=50)
    begin = outputs[-1]
    assert isinstance(begin, Begin)
    assert begin.deadline == BEGIN.steady + 60
    _, outputs = step(state, PolicySaid(question), seconds=61)
    assert names(outputs) == ["Record", "Free", "Refuse"]


def test_a_slot_that_is_gone_ends_what_would_have_begun() -> None:
    state, _ = step(waiting(), StartCame(start(), OWNER))
    over, outputs = step(state, Undone(TakeSlot(), SubletError(ErrorCode.DECLINED, "all slots are taken")))
    assert names(outputs) == ["Record", "Free", "Refuse"]
    assert over.state is AssignmentState.ERROR


def test_two_renewals_that_policy_allows_late_give_no_more_than_the_shorter_one() -> None:
    state, long = step(working(), RenewalCame(start(60), OWNER, 600.0))
    state, short = step(state, RenewalCame(start(20), OWNER, 600.0))
    state, _ = step(state, PolicySaid(asked(short), longest=600.0))
    assert state.deadline == BEGIN.steady + 20
    state, outputs = step(state, PolicySaid(asked(long), longest=600.0))
    assert state.deadline == BEGIN.steady + 20, "neither is an extension"
    assert any(isinstance(output, Renew) for output in outputs)


def test_an_older_process_that_policy_allows_late_is_refused() -> None:
    state, old = step(working(), RenewalCame(start(), OWNER, 600.0))
    state, new = step(state, RenewalCame(start(generation=2), OWNER, 600.0))
    state, _ = step(state, PolicySaid(asked(new), longest=600.0))
    assert "another process" in refusal(step(state, PolicySaid(asked(old), longest=600.0))[1])


def test_a_done_that_is_not_durable_is_none() -> None:
    state = working()
    _, outputs = step(state, WorkEnded(DONE))
    assert isinstance(outputs[0], Record)
    over, outputs = step(state, Undone(outputs[0], FULL))
    assert names(outputs) == ["Free", "Tell"]
    assert outputs[-1] == Tell(FULL)
    assert step(over, WorkEnded(DONE))[1] == ()


def test_work_that_winds_down_takes_no_more_and_ends_as_failed() -> None:
    quota = SubletError(ErrorCode.TASK_FAILED, "quota exceeded")
    state, outputs = step(working(), WindDownCame(quota, 5.0, OWNER))
    assert (names(outputs), phases.wake_at(state)) == (["WindDown"], BEGIN.steady + 5)
    more = RenewalCame(start(more=FollowUp(id="one", prompt="more")), OWNER, 600.0)
    assert "too late" in refusal(step(state, more)[1])
    state, outputs = step(state, RenewalCame(start(), OWNER, 600.0))
    state, outputs = step(state, PolicySaid(asked(outputs), longest=600.0))
    renew = next(output for output in outputs if isinstance(output, Renew))
    assert renew.ends_at == BEGIN.steady + 5
    state, outputs = step(state, TimePassed(), seconds=5)
    assert names(outputs) == ["Interrupt"]
    told = step(state, WorkEnded(DONE), seconds=5)[1][-1]
    assert isinstance(told, Tell)
    assert isinstance(told.end, SubletError)
    assert told.end.message == "quota exceeded"


def test_a_follow_up_that_came_in_time_is_worked_on_before_the_end() -> None:
    state, outputs = step(working(), RenewalCame(start(more=FollowUp(id="one", prompt="more")), OWNER, 600.0))
    state, _ = step(state, PolicySaid(asked(outputs), longest=600.0))
    state, outputs = step(state, PromptEnded(None, "failed", 1))
    assert names(outputs) == ["Prompt"]
    state, outputs = step(state, PromptEnded("one", "done", 0))
    assert names(outputs) == ["Finish"]
    told = step(state, WorkEnded(DONE))[1][-1]
    assert isinstance(told, Tell)
    assert isinstance(told.end, Done)
    assert [one.state for one in told.end.sublet.prompts] == ["failed", "done"]


def test_what_a_killed_process_left_does_nothing_but_end() -> None:
    for left in (assignment_kept(waiting()), assignment_kept(working())):
        assert "not waiting for START" in refusal(step(left, StartCame(start(), OWNER))[1])
        assert step(left, StopCame(WHY, OWNER))[1] == ()
        over, outputs = step(left, Restarted(FULL))
        assert (names(outputs), over.state) == (["Record"], AssignmentState.ERROR)


def test_strangers_learn_nothing_in_any_phase() -> None:
    considered, _ = core.step(None, InviteCame(invite(), OWNER), BEGIN)
    over, _ = step(working(), WorkEnded(DONE))
    for state in (None, considered, waiting(), working(), over):
        said = {
            refusal(core.step(state, event, BEGIN)[1])
            for event in (
                StartCame(start(), MALLORY),
                RenewalCame(start(), MALLORY, 600.0),
                StopCame(WHY, MALLORY),
                WindDownCame(WHY, 5.0, MALLORY),
            )
        }
        assert said == {"no such delegation of yours is known here"}
