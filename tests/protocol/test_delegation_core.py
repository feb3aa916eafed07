"""Steps of the delegator's core, one at a time: what the model has found, and what no schedule shows by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sublet.protocol.delegation import core, phases
from sublet.protocol.delegation.events import (
    AcceptCame,
    CallerLeft,
    CancelCame,
    Created,
    DoneCame,
    Event,
    ExtensionAllowed,
    ExtensionAnswered,
    Failed,
    FollowUpSaid,
    FollowUpUnheard,
    FoundAgain,
    InviteUnheard,
    Opened,
    Prepared,
    ProgressCame,
    ReadAsOver,
    TakenOver,
    TimePassed,
    Undone,
)
from sublet.protocol.delegation.outputs import (
    Answer,
    AskPolicy,
    Deliver,
    InviteLater,
    Lengthen,
    Output,
    Record,
    Refuse,
    Revoke,
    SendExtension,
    Serve,
    Settle,
)
from sublet.protocol.delegation.state import Delegation, ExtensionAsked
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.lifecycle import DelegationState
from sublet.protocol.messages import Accept
from sublet.protocol.times import Now
from support.delegation_model.journal import delegation_kept

BEGIN = Now(1_000_000.0, 10.0)
ACCEPT = Accept.model_validate(
    {
        "delegation_id": "dlg_1",
        "remote_mount": {"mount_point": "/m"},
        "remote_constraints": {"public_key": "ssh-ed25519 AAAA"},
        "sublet": {"renewable": True},
    }
)
WAY: tuple[Event, ...] = (Created(), Prepared(), AcceptCame(ACCEPT), Opened(), ProgressCame(running=True))
WHY = SubletError(ErrorCode.CANCELLED, "enough")
NOBODY = SubletError(LocalCode.PEER_UNREACHABLE, "nobody answers")


def after(seconds: float) -> Now:
    return Now(BEGIN.wall + seconds, BEGIN.steady + seconds)


def at(*events: Event, seconds: float = 0.0, **asked: object) -> tuple[Delegation, tuple[Output, ...]]:
    """Return the state after ``events``, and what the last one led to."""
    state = Delegation("dlg_1", "bob", "rw", 60, BEGIN.wall)
    state = replace(state, **asked)  # type: ignore[arg-type]
    outputs: tuple[Output, ...] = ()
    for event in events:
        state, outputs = core.step(state, event, after(seconds))
    return state, outputs


def names(outputs: tuple[Output, ...]) -> list[str]:
    return [type(output).__name__ for output in outputs]


def test_a_delegation_goes_its_way() -> None:
    ways = ["Record Prepare", "Record SendInvite", "Record Open", "Record Serve SendStart", "Record"]
    for length, wanted in enumerate(ways, 1):
        assert names(at(*WAY[:length])[1]) == wanted.split()
    assert names(at(*WAY, DoneCame())[1]) == ["Record", "Revoke", "Settle"]


def test_what_is_served_ends_when_the_record_says() -> None:
    state, outputs = at(*WAY[:4], seconds=0.0007)
    serve = next(output for output in outputs if isinstance(output, Serve))
    assert phases.overdue(state, Now(0.0, serve.deadline))
    assert state.expires_at is not None
    assert state.expires_at.endswith(".000Z"), "it is rounded down"
    assert serve.deadline == pytest.approx(BEGIN.steady + 60)


def test_no_lease_outlives_its_callers_though_it_was_long_in_coming() -> None:
    state, _ = at(*WAY[:3], seconds=0.0, within=BEGIN.wall + 40)
    _, outputs = core.step(state, Opened(), after(30))
    assert next(output.deadline for output in outputs if isinstance(output, Serve)) == BEGIN.steady + 40


@pytest.mark.parametrize("event", [CancelCame(WHY), DoneCame(), Failed(WHY, by_peer=True), TimePassed()])
def test_after_the_lease_everything_is_its_end(event: Event) -> None:
    state, _ = at(*WAY)
    over, outputs = core.step(state, event, after(60))
    assert over.state is DelegationState.EXPIRED
    assert names(outputs) == ["Record", "Revoke", "Settle"]
    settle = outputs[-1]
    assert isinstance(settle, Settle)
    assert settle.tell is isinstance(event, CancelCame | TimePassed), "who has ended by itself needs no word"


def test_a_reader_that_was_told_of_the_end_was_told_the_truth() -> None:
    state, _ = at(*WAY)
    over, _ = core.step(state, ReadAsOver(), after(59))  # the clock was set back meanwhile
    assert over.state is DelegationState.EXPIRED


def test_a_cancel_before_there_is_a_lease_is_a_cancel_however_late() -> None:
    state, _ = at(*WAY[:2])
    assert core.step(state, CancelCame(WHY), after(61))[0].state is DelegationState.CANCELLED
    assert core.step(state, TimePassed(), after(61))[0].state is DelegationState.EXPIRED


def test_an_end_that_is_not_durable_cuts_access_and_is_left_to_the_next_process() -> None:
    state, _ = at(*WAY)
    _, outputs = core.step(state, CancelCame(WHY), BEGIN)
    record = outputs[0]
    assert isinstance(record, Record)
    left, outputs = core.step(state, Undone(record, NOBODY), BEGIN)
    assert names(outputs) == ["Revoke"]
    assert core.step(left, DoneCame(), BEGIN) == (left, ())


def test_a_record_that_is_not_durable_ends_what_goes_on() -> None:
    state, _ = at(*WAY[:1])
    _, outputs = core.step(state, Prepared(), BEGIN)
    failed, outputs = core.step(state, Undone(outputs[0], NOBODY), BEGIN)
    assert failed.state is DelegationState.ERROR
    assert names(outputs) == ["Record", "Revoke", "Settle"]


def test_an_unheard_invite_is_sent_again_where_that_is_safe() -> None:
    state, _ = at(*WAY[:2])
    waits: list[float] = []
    while (step := core.step(state, InviteUnheard(NOBODY, sent=False), BEGIN))[1] and len(waits) < 5:
        state, (later,) = step
        assert isinstance(later, InviteLater)
        waits.append(later.seconds)
    assert waits == [0.25, 0.5, 1.0, 2.0, 4.0], "it ends when the time is over, which does not pass here"
    busy = SubletError(LocalCode.PEER_UNREACHABLE, "busy", retry_after_seconds=7)
    assert core.step(at(*WAY[:2])[0], InviteUnheard(busy), BEGIN)[1] == (InviteLater(7.0, "busy", busy),)
    over, outputs = core.step(at(*WAY[:2])[0], InviteUnheard(NOBODY), BEGIN)
    assert over.state is DelegationState.ERROR
    assert outputs[-1] == Settle(tell=True), "it may have arrived"
    assert core.step(at(*WAY[:2])[0], InviteUnheard(NOBODY, sent=False), after(9))[1][-1] == Settle(tell=False)


def test_one_extension_is_agreed_on_at_a_time() -> None:
    state, outputs = at(*WAY, ExtensionAsked("a", 100, 600))
    assert outputs == (AskPolicy("a", 100, 160),)
    state, outputs = core.step(state, ExtensionAsked("b", 100, 600), BEGIN)
    assert outputs == ()
    state, outputs = core.step(state, ExtensionAllowed("a", 100), BEGIN)
    assert outputs == (SendExtension("a", 100),)
    state, outputs = core.step(state, ExtensionAnswered("a", 100, 160, 150), BEGIN)
    assert names(outputs) == ["Record", "Lengthen", "Answer", "AskPolicy"]
    assert outputs[1:] == (Lengthen(90), Answer("a"), AskPolicy("b", 100, 250))
    assert core.step(state, ExtensionAnswered("a", 100, 160, 160), BEGIN) == (state, ()), "it was answered"
    state, outputs = core.step(state, CallerLeft("b"), BEGIN)
    assert (state.turn, state.extensions, outputs) == (None, (), ())


def test_who_waits_for_an_extension_is_told_of_the_end() -> None:
    state, _ = at(*WAY, ExtensionAsked("a", 100, 600), ExtensionAsked("b", 100, 600))
    _, outputs = core.step(state, CancelCame(WHY), BEGIN)
    assert [output.key for output in outputs if isinstance(output, Refuse)] == ["a", "b"]


def test_a_process_that_takes_over_says_nothing_before_it_serves() -> None:
    """The model has found this: START names how long the lease is served, which was not known yet."""
    killed = delegation_kept(at(*WAY, FollowUpSaid("one", "more", "digest"))[0])
    state, outputs = core.step(killed, TakenOver(), BEGIN)
    assert names(outputs) == ["Record", "FindAgain"]
    state, outputs = core.step(state, ExtensionAsked("a", 100, 600), BEGIN)
    assert outputs == ()
    state, outputs = core.step(state, FoundAgain(), BEGIN)
    assert names(outputs) == ["Serve", "Follow", "AskPolicy"]
    assert state.generation == 2


def test_a_follow_up_that_is_not_heard_waits_longer_each_time_and_lets_others_go_first() -> None:
    state, outputs = at(*WAY, FollowUpSaid("one", "more", "digest"))
    assert names(outputs) == ["Record", "Answer", "Deliver"]
    state, outputs = core.step(state, FollowUpUnheard("one"), BEGIN)
    assert names(outputs) == ["DeliverLater"]
    state, outputs = core.step(state, ExtensionAsked("a", 100, 600), BEGIN)
    assert names(outputs) == ["AskPolicy"]
    state, outputs = core.step(state, ExtensionAllowed("a", 100, NOBODY), BEGIN)
    assert [type(output) for output in outputs] == [Refuse, Deliver]
    again, outputs = core.step(state, FollowUpSaid("one", "other", "other"), BEGIN)
    assert names(outputs) == ["Refuse"]
    assert again == state


def test_revoke_follows_its_record_at_once() -> None:
    for event in (CancelCame(WHY), Failed(WHY), DoneCame()):
        outputs = at(*WAY, event)[1]
        record = next(number for number, output in enumerate(outputs) if isinstance(output, Record))
        assert isinstance(outputs[record + 1], Revoke)
