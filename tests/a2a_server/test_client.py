"""START for work that runs already: it renews, is answered at once, and never reaches the SDK's queue (DESIGN 4.2)."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from a2a.types import GetTaskRequest, TaskState

from sublet.a2a_client import stream
from sublet.a2a_client.client import A2APeerLink
from sublet.daemon.ports.peer_link import PeerAddress, RemoteTask, Update
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.messages import Accept, Done, Error, FollowUp, Start, StartExtension
from support.a2a_world import World, a_progress, a_start, an_invite, until

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "FIRST_RETRY_SECONDS", 0.01)


async def invited(link: A2APeerLink, peer: PeerAddress) -> RemoteTask:
    task, answer = await link.invite(peer, an_invite())
    assert isinstance(answer, Accept)
    return task


def again(task: RemoteTask, **extension: object) -> Start:
    """Return the START of a later moment."""
    start = a_start(task.context_id)
    return start.model_copy(update={"sublet": StartExtension.model_validate({"remaining_seconds": 33, **extension})})


async def started_and_left(bob: World, link: A2APeerLink, peer: PeerAddress) -> RemoteTask:
    """Start work as a process does that is killed afterwards."""
    bob.executor.gate.clear()
    task = await invited(link, peer)
    async with aclosing(link.run(peer, task, a_start(task.context_id))) as updates, asyncio.TaskGroup() as group:
        reading = group.create_task(anext(updates))
        await bob.executor.running.wait()
        # Only then does it count as begun: until its first update the task waits for START, as far as others see.
        async with bob.rpc(bob.alice) as rpc:
            while (await rpc.get_task(GetTaskRequest(id=task.task_id))).status.state != TaskState.TASK_STATE_WORKING:
                await asyncio.sleep(0.005)
        reading.cancel()
    return task


async def followed(link: A2APeerLink, peer: PeerAddress, task: RemoteTask) -> list[Update]:
    return [update async for update in link.follow(peer, task, lambda: again(task, generation=2))]


async def test_a_renewal_is_answered_while_the_work_goes_on(bob: World, link: A2APeerLink) -> None:
    task = await started_and_left(bob, link, bob.peer())
    follow_up = FollowUp(id="fup_1", prompt="and now this")
    answer = await link.renew(bob.peer(), task, again(task, generation=2, follow_up=follow_up))
    assert isinstance(answer, Accept)
    assert answer.remote_constraints.max_ttl_seconds == 33
    assert [(start.sublet.generation, start.sublet.follow_up) for start in bob.executor.renewed] == [(2, follow_up)]
    assert len(bob.executor.started) == 1
    async with bob.rpc(bob.alice) as rpc:
        told = await rpc.get_task(GetTaskRequest(id=task.task_id))
    assert told.status.state == TaskState.TASK_STATE_WORKING
    assert "and now this" not in str(told.history)
    bob.executor.gate.set()


async def test_a_refused_renewal_says_why_and_harms_nothing(bob: World, link: A2APeerLink) -> None:
    task = await started_and_left(bob, link, bob.peer())
    bob.executor.renewal_refusal = SubletError(ErrorCode.DECLINED, "an older process", "Stop it.")
    answer = await link.renew(bob.peer(), task, again(task))
    assert isinstance(answer, Error)
    assert (answer.code, answer.message) == (ErrorCode.DECLINED, "an older process")
    bob.executor.gate.set()
    assert isinstance((await followed(link, bob.peer(), task))[-1], Done)


async def test_a_renewal_is_taken_once_and_from_the_delegator_only(bob: World, link: A2APeerLink) -> None:
    task = await started_and_left(bob, link, bob.peer())
    async with bob.rpc(bob.alice) as rpc:
        alive = await rpc.get_task(GetTaskRequest(id=task.task_id))
        request = bob.request(bob.alice, again(task), alive)
        answer = await rpc.send_message(request)
        assert answer.HasField("message")
        with pytest.raises(Exception, match="received before"):
            await rpc.send_message(request)
    async with bob.rpc(bob.mallory) as rpc:
        with pytest.raises(Exception, match="not found"):
            await rpc.send_message(bob.request(bob.mallory, again(task), alive))
    assert len(bob.executor.renewed) == 1
    bob.executor.gate.set()


async def test_work_that_runs_is_followed_under_a_new_process(bob: World, link: A2APeerLink) -> None:
    task = await started_and_left(bob, link, bob.peer())
    bob.executor.late_updates = [a_progress("late\n")]
    async with asyncio.TaskGroup() as group:
        following = group.create_task(followed(link, bob.peer(), task))
        await until(lambda: bool(bob.executor.renewed))
        bob.executor.gate.set()
    assert isinstance(following.result()[-1], Done)
    assert [start.sublet.generation for start in bob.executor.renewed] == [2]
    assert len(bob.executor.started) == 1


async def test_work_that_ended_while_nobody_listened_is_told(bob: World, link: A2APeerLink) -> None:
    task = await started_and_left(bob, link, bob.peer())
    bob.executor.gate.set()
    await until(lambda: bool(bob.executor.closed))
    updates = await followed(link, bob.peer(), task)
    assert isinstance(updates[-1], Done)
    assert bob.executor.renewed == []


async def test_a_task_that_still_waits_is_started_once(bob: World, link: A2APeerLink) -> None:
    task = await invited(link, bob.peer())
    assert isinstance((await followed(link, bob.peer(), task))[-1], Done)
    assert [start.sublet.generation for start in bob.executor.started] == [2]
    assert bob.executor.renewed == []


async def test_a_refusal_that_stays_is_the_end(bob: World, link: A2APeerLink) -> None:
    task = await started_and_left(bob, link, bob.peer())
    bob.executor.renewal_refusal = SubletError(ErrorCode.DECLINED, "an older process")
    end = (await followed(link, bob.peer(), task))[-1]
    assert isinstance(end, Error)
    assert end.message == "an older process"
    assert len(bob.executor.renewed) == 2
    bob.executor.gate.set()
