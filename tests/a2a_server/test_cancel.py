"""C41: cancel at every state, twice, at once, and racing the end: one terminal state, and the work has stopped."""

from __future__ import annotations

import asyncio

import pytest
from a2a.client.transports.jsonrpc import JsonRpcTransport
from a2a.types import CancelTaskRequest, GetTaskRequest, Task, TaskState
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError

from sublet.a2a_client import client
from sublet.a2a_client.answers import AnswerReader
from sublet.a2a_client.session import PeerSession
from sublet.a2a_server.work import task_id_for
from sublet.daemon.ports.peer_link import RemoteTask
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.messages import Error
from support.a2a_world import World, a_start, an_invite, until

pytestmark = pytest.mark.anyio

CANCELED = TaskState.TASK_STATE_CANCELED


async def invited(bob: World, rpc: JsonRpcTransport) -> Task:
    return (await rpc.send_message(bob.request(bob.alice, an_invite()))).task


async def started(bob: World, rpc: JsonRpcTransport) -> Task:
    bob.executor.gate.clear()
    task = await invited(bob, rpc)
    start = bob.request(bob.alice, a_start(task.context_id), task)
    start.configuration.return_immediately = True
    await rpc.send_message(start)
    await bob.executor.running.wait()
    return task


async def cancelled(rpc: JsonRpcTransport, task_id: str) -> Task | None:
    """Cancel; None where the task is over already."""
    try:
        return await rpc.cancel_task(CancelTaskRequest(id=task_id))
    except TaskNotCancelableError:
        return None


async def test_c41_while_the_invite_is_being_answered(bob: World) -> None:
    bob.executor.invite_gate.clear()
    async with bob.rpc(bob.alice) as rpc, asyncio.TaskGroup() as group:
        inviting = group.create_task(invited(bob, rpc))
        await until(lambda: bob.executor.invited)
        delegation_id = bob.executor.invited[0].delegation_id
        task_id = task_id_for(f"peer:{bob.alice.node_id}", delegation_id)
        task = await cancelled(rpc, task_id)
        assert task is not None
        assert task.status.state == CANCELED
        assert await cancelled(rpc, task_id) is None
    assert inviting.result().status.state == CANCELED


async def test_c41_while_it_waits_for_start(bob: World) -> None:
    async with bob.rpc(bob.alice) as rpc:
        task = await invited(bob, rpc)
        over = await cancelled(rpc, task.id)
        assert over is not None
        assert over.status.state == CANCELED
        assert await cancelled(rpc, task.id) is None
        assert (await rpc.get_task(GetTaskRequest(id=task.id))).status.state == CANCELED
    assert set(bob.executor.cancelled) == {task.context_id}


async def test_c41_while_it_works_and_twice_at_once(bob: World) -> None:
    async with bob.rpc(bob.alice) as rpc:
        task = await started(bob, rpc)
        both = await asyncio.gather(cancelled(rpc, task.id), cancelled(rpc, task.id), cancelled(rpc, task.id))
        assert any(both)
        assert {over.status.state for over in both if over} == {CANCELED}
        stored = await rpc.get_task(GetTaskRequest(id=task.id))
        assert await cancelled(rpc, task.id) is None
    end = AnswerReader(task.context_id, bob.me.public, bob.alice.fingerprint).end(stored)
    assert isinstance(end, Error)
    assert end.code == ErrorCode.CANCELLED
    assert end.sublet.signature is not None
    assert bob.executor.closed == [task.context_id]


@pytest.mark.parametrize("head_start", [0, 1, 3, 10, 30])
async def test_c41_racing_the_end(bob: World, head_start: int) -> None:
    async with bob.rpc(bob.alice) as rpc:
        task = await started(bob, rpc)
        bob.executor.gate.set()
        for _ in range(head_start):
            await asyncio.sleep(0)
        await cancelled(rpc, task.id)
        await cancelled(rpc, task.id)
        over = await rpc.get_task(GetTaskRequest(id=task.id))
        assert over.status.state in (CANCELED, TaskState.TASK_STATE_COMPLETED)
        await asyncio.sleep(0.05)
        assert (await rpc.get_task(GetTaskRequest(id=task.id))).status == over.status
    assert bob.executor.closed == [task.context_id]


async def test_c41_after_the_end(bob: World) -> None:
    async with bob.rpc(bob.alice) as rpc:
        task = await invited(bob, rpc)
        done = (await rpc.send_message(bob.request(bob.alice, a_start(task.context_id), task))).task
        assert await cancelled(rpc, task.id) is None
        assert (await rpc.get_task(GetTaskRequest(id=task.id))).status == done.status


async def test_c41_a_stranger_can_not_cancel(bob: World) -> None:
    async with bob.rpc(bob.alice) as rpc, bob.rpc(bob.mallory) as hostile:
        task = await started(bob, rpc)
        with pytest.raises(TaskNotFoundError):
            await hostile.cancel_task(CancelTaskRequest(id=task.id))
        assert (await rpc.get_task(GetTaskRequest(id=task.id))).status.state == TaskState.TASK_STATE_WORKING
        bob.executor.gate.set()
    assert bob.executor.cancelled == []


async def test_c41_before_the_invite_is_looked_at(bob: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that was silent may be told of the end before it comes to the INVITE itself."""
    delegation_id = an_invite().delegation_id
    async with bob.rpc(bob.alice) as rpc, asyncio.TaskGroup() as group:
        link, looked = bob.alice.link(), asyncio.Event()
        ask = PeerSession.tasks_of

        async def asked(session: PeerSession, context_id: str) -> dict[str, bool]:
            known = await ask(session, context_id)
            looked.set()
            return known

        monkeypatch.setattr(PeerSession, "tasks_of", asked)
        cancelling = group.create_task(link.cancel(bob.peer(), RemoteTask("", delegation_id)))
        await looked.wait()
        task = (await rpc.send_message(bob.request(bob.alice, an_invite(delegation_id)))).task
        await cancelling
        assert (await rpc.get_task(GetTaskRequest(id=task.id))).status.state == CANCELED
        await link.aclose()
    assert set(bob.executor.cancelled) == {delegation_id}


async def test_c41_a_peer_that_tells_nothing_of_its_tasks_was_not_told(
    bob: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise nobody would tell it again, and it would work for nobody."""

    async def silent(session: PeerSession, context_id: str) -> dict[str, bool]:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(PeerSession, "tasks_of", silent)
    monkeypatch.setattr(client, "BEGINNING_SECONDS", 0.05)
    link = bob.alice.link()
    with pytest.raises(SubletError) as unheard:
        await link.cancel(bob.peer(), RemoteTask("", an_invite().delegation_id))
    assert unheard.value.code is LocalCode.PEER_UNREACHABLE
    await link.aclose()
