"""More time and further prompts for work that runs, and work that goes on under a new process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from sublet.daemon.lending import steering
from sublet.daemon.times import rfc3339
from sublet.protocol.chain import Chain
from sublet.protocol.delegation import steering as core_steering
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.lifecycle import DelegationState
from sublet.protocol.messages import Accept, Done, Error, FollowUp, Invite, Start
from sublet.protocol.times import unix_seconds
from support.lender import Lender, lender
from support.scripted_link import UNREACHABLE, accepting, agreeing

pytestmark = pytest.mark.anyio

RENEWABLE = {"renewable": True}


@pytest.fixture
async def side(tmp_path: Path) -> AsyncIterator[Lender]:
    async with lender(tmp_path) as side:
        side.link.answer = accepting(sublet=RENEWABLE)
        yield side


async def allowing(ttl_seconds: int) -> None:
    """Ask nobody."""


def for_ever(chain: Chain) -> float:
    """Tell of a caller whose lease does not end."""
    return float("inf")


async def refused(side: Lender, delegation_id: str, seconds: int = 100, limit: int = 600) -> str:
    with pytest.raises(SubletError) as caught:
        await side.delegator.extend(delegation_id, seconds, limit, allowing, for_ever)
    return str(caught.value.code)


async def printed(side: Lender, delegation_id: str, text: str) -> None:
    """Wait until the peer's ``text``, and so all that it said before, is dealt with."""
    with anyio.fail_after(10):
        while True:
            events = (await side.journal.events.events_after(0, delegation_id, limit=100)).events
            if any(text in str(event.data.get("text")) for event in events):
                return
            await anyio.sleep(0.01)


async def ends(side: Lender, delegation_id: str) -> float:
    return unix_seconds((await side.record(delegation_id)).expires_at or "")


async def test_an_extension_moves_every_deadline(side: Lender) -> None:
    found = await side.running(ttl=60)
    before, lease = await ends(side, found), side.data_plane._leases[found]
    deadline = lease.deadline
    view = await side.delegator.extend(found, 100, 600, allowing, for_ever)
    assert view.ttl_seconds == 160
    assert await ends(side, found) - before == pytest.approx(100)
    assert lease.deadline - deadline == pytest.approx(100)
    (asked,) = side.link.renewals
    assert unix_seconds(asked.lease.expires_at) - before == pytest.approx(100)
    assert 157 <= (asked.sublet.remaining_seconds or 0) <= 160
    side.link.done(found)
    assert (await side.settled(found)).state is DelegationState.COMPLETED


async def test_neither_side_gives_more_than_its_limit(side: Lender) -> None:
    found = await side.running(ttl=60)
    assert (await side.delegator.extend(found, 1000, 100, allowing, for_ever)).ttl_seconds == 100
    assert await refused(side, found, limit=100) == LocalCode.POLICY_DENIED

    async def stingy(start: Start) -> Accept:
        accept = await agreeing(start)
        less = accept.remote_constraints.model_copy(
            update={"max_ttl_seconds": (start.sublet.remaining_seconds or 0) - 90}
        )
        return accept.model_copy(update={"remote_constraints": less})

    side.link.renewal = stingy
    assert (await side.delegator.extend(found, 100, 600, allowing, for_ever)).ttl_seconds == 110
    assert await refused(side, found, seconds=50) == ErrorCode.DECLINED

    async def generous(start: Start) -> Accept:
        accept = await agreeing(start)
        more = accept.remote_constraints.model_copy(update={"max_ttl_seconds": 5000})
        return accept.model_copy(update={"remote_constraints": more})

    side.link.renewal = generous
    assert (await side.delegator.extend(found, 10, 600, allowing, for_ever)).ttl_seconds == 120
    await side.delegator.cancel(found, "enough")
    await side.settled(found)


async def test_no_extension_outlives_the_lease_of_the_agent_that_asked(side: Lender) -> None:
    chain = Chain(("coder@node-a",), "dlg_outer", 60)
    found = await side.running(ttl=60, chain=chain)
    asked: list[Chain] = []

    def rest_of(caller: Chain) -> float:
        asked.append(caller)
        return 80

    view = await side.delegator.extend(found, 1000, 5000, allowing, rest_of)
    assert 60 < view.ttl_seconds <= 80
    assert asked == [chain]
    for rest in (0.0, 79.0):

        def over(_: Chain, rest: float = rest) -> float:
            return rest

        with pytest.raises(SubletError) as no:
            await side.delegator.extend(found, 1000, 5000, allowing, over)
        assert no.value.code is LocalCode.LEASE_OVER
        assert "coder@node-a" in no.value.message
    assert len(side.link.renewals) == 1
    await side.delegator.cancel(found, "enough")
    await side.settled(found)


async def test_what_was_waited_for_is_not_added_to_the_callers_lease(side: Lender) -> None:
    gate = anyio.Event()

    async def late(invite: Invite) -> Accept | Error:
        await gate.wait()
        return await accepting(sublet=RENEWABLE)(invite)

    side.link.answer = late
    found = await side.create(ttl=60, chain=Chain(("coder@node-a",), "dlg_outer", 60))
    await side.until(found, "invited")
    record = await side.record(found)
    # As if it had been invited for half a minute.
    earlier = rfc3339(unix_seconds(record.created_at) - 30)
    keeper = side.delegator._runs[found]._keeper
    keeper.record = record.model_copy(update={"created_at": earlier})
    keeper.state = replace(keeper.state, within=unix_seconds(earlier) + 60)
    gate.set()
    await side.until(found, "started", "running")
    assert await ends(side, found) <= unix_seconds(earlier) + 61
    await side.delegator.cancel(found, "enough")
    await side.settled(found)


async def test_policy_is_asked_for_the_whole_time(side: Lender) -> None:
    found = await side.running(ttl=60)
    asked: list[int] = []

    async def deny(ttl_seconds: int) -> None:
        asked.append(ttl_seconds)
        raise SubletError(LocalCode.POLICY_DENIED, "no")

    with pytest.raises(SubletError, match="no"):
        await side.delegator.extend(found, 1000, 100, deny, for_ever)
    assert asked == [100]
    assert side.link.renewals == []
    await side.delegator.cancel(found, "enough")
    await side.settled(found)


async def test_what_does_not_run_is_not_extended(side: Lender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steering, "BEGIN_SECONDS", 0.01)
    early = await side.create()
    await side.until(early, "started")
    assert await refused(side, early) == LocalCode.CONFLICT
    await side.delegator.cancel(early, "enough")
    await side.settled(early)
    assert await refused(side, early) == LocalCode.CONFLICT
    assert await refused(side, "dlg_unknown") == LocalCode.NOT_FOUND
    side.link.answer = accepting()
    plain = await side.running()
    assert await refused(side, plain) == LocalCode.CONFLICT
    assert side.link.renewals == []
    await side.delegator.cancel(plain, "enough")
    await side.settled(plain)


async def test_an_end_that_is_journalled_first_stays(side: Lender) -> None:
    found = await side.running()

    async def too_late(start: Start) -> Accept:
        await side.delegator.cancel(found, "enough")
        return await agreeing(start)

    side.link.renewal = too_late
    assert await refused(side, found) == LocalCode.CONFLICT
    view = await side.settled(found)
    assert (view.state, view.ttl_seconds) == (DelegationState.CANCELLED, 60)


async def test_a_follow_up_that_is_said_while_the_work_is_being_arranged_waits_for_it(side: Lender) -> None:
    found = await side.create()
    await side.until(found, "started")
    async with anyio.create_task_group() as group:
        group.start_soon(side.delegator.say, found, FollowUp(id="one", prompt="more"))
        await anyio.wait_all_tasks_blocked()
        assert side.link.renewals == []
        side.link.progress(found)
    assert [start.sublet.follow_up for start in side.link.renewals] == [FollowUp(id="one", prompt="more")]
    side.link.done(found)
    await side.settled(found)


async def test_a_follow_up_is_said_once(side: Lender) -> None:
    found = await side.running()
    for _ in range(2):
        view = await side.delegator.say(found, FollowUp(id="one", prompt="and this\ntoo"))
        assert [(one.id, one.prompt, one.state) for one in view.follow_ups] == [("one", "and this", "delivered")]
    assert [start.sublet.follow_up for start in side.link.renewals] == [FollowUp(id="one", prompt="and this\ntoo")]
    side.link.done(found)
    await side.settled(found)


async def test_a_follow_up_waits_for_a_peer_that_is_silent(side: Lender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_steering, "FIRST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(steering, "SAY_SECONDS", 0.05)
    heard = anyio.Event()

    async def silent(start: Start) -> Accept:
        if not heard.is_set():
            raise UNREACHABLE
        return await agreeing(start)

    side.link.renewal = silent
    found = await side.running()
    assert (await side.delegator.say(found, FollowUp(id="one", prompt="more"))).follow_ups[0].state == "pending"
    heard.set()
    with anyio.fail_after(10):
        while (await side.delegator.view(found)).follow_ups[0].state == "pending":
            await anyio.sleep(0.01)
    side.link.done(found)
    assert (await side.settled(found)).follow_ups[0].state == "delivered"


async def test_each_prompt_is_followed_to_its_end(side: Lender) -> None:
    found = await side.running()
    for name in ("one", "two", "three"):
        await side.delegator.say(found, FollowUp(id=name, prompt=name))
    with pytest.raises(SubletError, match="with another prompt"):
        await side.delegator.say(found, FollowUp(id="one", prompt="another"))
    failed = {"follow_up_id": "one", "state": "failed", "reason": "failed", "exit_code": 3}
    for state in ({"follow_up_id": "one", "state": "running"}, failed, {"follow_up_id": "two", "state": "running"}):
        side.link.progress(found, prompts=[state])
    # Neither what is behind, nor what was never said, changes anything.
    side.link.progress(found, prompts=[{"follow_up_id": "one", "state": "running"}])
    side.link.progress(found, prompts=[{"follow_up_id": "forged", "state": "done"}], text="end of news")
    await printed(side, found, "end of news")
    view = await side.delegator.view(found)
    assert [(one.id, one.state, one.why) for one in view.follow_ups] == [
        ("one", "failed", "failed with exit code 3"),
        ("two", "running", ""),
        ("three", "delivered", ""),
    ]
    # DONE makes up for what was lost of the progress.
    prompts = [
        {"state": "done", "exit_code": 0},
        failed,
        *({"follow_up_id": n, "state": "done"} for n in ("two", "three")),
    ]
    side.link.say(
        found, Done.model_validate({"delegation_id": found, "final_summary": "", "sublet": {"prompts": prompts}})
    )
    view = await side.settled(found)
    assert [one.state for one in view.follow_ups] == ["failed", "done", "done"]
    assert view.result is not None
    assert view.result.prompt_notes() == [
        "first prompt: done",
        "follow-up 1: failed with exit code 3",
        "follow-up 2: done",
        "follow-up 3: done",
    ]


async def test_for_whom_the_agent_waits_is_told(side: Lender) -> None:
    found = await side.running()
    for more, kind in (
        ({"waiting": "shell.exec"}, "waiting_for_approval"),
        ({"question": "Which?"}, "waiting_for_answer"),
    ):
        side.link.progress(found, text="x", **more)
        with anyio.fail_after(10):
            while (told := (await side.delegator.view(found)).condition) is None or told.kind != kind:
                await anyio.sleep(0.01)
        assert next(iter(more.values())) in told.detail
    side.link.progress(found, text="a warning", stream="stderr")
    await printed(side, found, "a warning")
    events = (await side.journal.events.events_after(0, found, limit=100)).events
    assert [event.data["stream"] for event in events if event.data.get("text") == "a warning"] == ["stderr"]
    side.link.done(found)
    await side.settled(found)


async def test_how_prompts_ended_is_told_by_an_error_as_well(side: Lender) -> None:
    found = await side.running()
    await side.delegator.say(found, FollowUp(id="one", prompt="more"))
    prompts = [{"state": "done", "exit_code": 0}, {"follow_up_id": "one", "state": "failed", "reason": "limit"}]
    end = {"delegation_id": found, "code": "TASK_FAILED", "message": "it broke", "sublet": {"prompts": prompts}}
    side.link.say(found, Error.model_validate(end))
    (one,) = (await side.settled(found)).follow_ups
    assert (one.state, one.why) == ("failed", "failed (limit)")


async def test_a_follow_up_that_was_cut_off_is_no_success(side: Lender) -> None:
    found = await side.running()
    await side.delegator.say(found, FollowUp(id="one", prompt="more"))
    side.link.progress(found, prompts=[{"follow_up_id": "one", "state": "running"}], text="begun")
    await printed(side, found, "begun")
    await side.delegator.cancel(found, "enough")
    (one,) = (await side.settled(found)).follow_ups
    assert (one.state, one.why) == ("failed", "the work was ended while it ran")


async def test_a_follow_up_that_is_refused_or_too_late_says_why(side: Lender) -> None:
    found = await side.running()

    async def refusing(start: Start) -> Error:
        return Error(delegation_id=start.delegation_id, code=ErrorCode.DECLINED, message="too many wait")

    side.link.renewal = refusing
    with pytest.raises(SubletError, match="too many wait"):
        await side.delegator.say(found, FollowUp(id="one", prompt="more"))
    side.link.done(found)
    view = await side.settled(found)
    assert [one.state for one in view.follow_ups] == ["refused"]
    with pytest.raises(SubletError, match="is over"):
        await side.delegator.say(found, FollowUp(id="two", prompt="more"))
