"""Messages that must be refused, by the right error, without changing anything (DESIGN 9.7, 9.9)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from a2a.client.transports.jsonrpc import JsonRpcTransport
from a2a.types import SendMessageRequest, Task, TaskState
from a2a.utils.errors import (
    A2AError,
    InvalidParamsError,
    InvalidRequestError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from sublet.a2a_server import context_builder
from sublet.a2a_wire.signer import signed
from sublet.protocol.errors import ErrorCode
from sublet.protocol.messages import Accept, Done, Error, RemoteMount
from support.a2a_world import TOKEN, World, a_start, an_invite, envelope, text

pytestmark = pytest.mark.anyio


async def refused(rpc: JsonRpcTransport, request: SendMessageRequest, kind: type[A2AError]) -> dict[str, Any]:
    with pytest.raises(kind) as caught:
        await rpc.send_message(request)
    return caught.value.data or {}


async def invited(bob: World, rpc: JsonRpcTransport) -> Task:
    return (await rpc.send_message(bob.request(bob.alice, an_invite()))).task


async def test_unsigned_replayed_and_foreign_messages_make_no_task(bob: World) -> None:
    async with bob.rpc(bob.alice) as rpc:
        data = await refused(rpc, envelope(an_invite()), InvalidRequestError)
        assert data["code"] == "AUTH_FAILED"
        assert data["hint"]
        for_another = bob.request(bob.alice, an_invite(), recipient=bob.mallory.fingerprint)
        assert (await refused(rpc, for_another, InvalidRequestError))["code"] == "AUTH_FAILED"
        by_another = bob.request(bob.mallory, an_invite())
        assert (await refused(rpc, by_another, InvalidRequestError))["code"] == "AUTH_FAILED"
        altered = bob.request(bob.alice, an_invite())
        fields = altered.message.parts[0].data.struct_value.fields["awcp"].struct_value.fields
        fields["task"].struct_value.fields["prompt"].string_value = "rm -rf /"
        assert (await refused(rpc, altered, InvalidRequestError))["code"] == "AUTH_FAILED"
        assert await bob.stored() == 0
        assert bob.executor.invited == []

        once = bob.request(bob.alice, an_invite())
        await rpc.send_message(once)
        assert "before" in (await refused(rpc, once, InvalidRequestError))["message"]
        assert await bob.stored() == 1


async def test_malformed_messages_make_no_task(bob: World) -> None:
    async with bob.rpc(bob.alice) as rpc:
        malformed: list[tuple[str, str | int]] = [
            ("version", "2"),
            ("type", "HELLO"),
            ("delegation_id", "../etc"),
            ("lease", 1),
        ]
        for field, value in malformed:
            request = bob.request(bob.alice, an_invite())
            awcp = request.message.parts[0].data.struct_value
            awcp.fields["awcp"].struct_value.update({field: value})
            assert (await refused(rpc, request, InvalidParamsError))["code"] == "DECLINED"
        twice = bob.request(bob.alice, an_invite())
        twice.message.parts.append(twice.message.parts[0])
        await refused(rpc, twice, InvalidParamsError)
        await refused(rpc, text("  "), InvalidParamsError)
        await refused(rpc, text("hello", context_id="../x"), InvalidParamsError)
    assert await bob.stored() == 0


async def test_too_large_awcp_message(bob: World) -> None:
    invite = an_invite()
    invite = invite.model_copy(update={"task": invite.task.model_copy(update={"prompt": "x" * 1_100_000})})
    async with bob.rpc(bob.alice) as rpc:
        data = await refused(rpc, bob.request(bob.alice, invite), InvalidParamsError)
    assert "bytes" in data["message"]
    assert await bob.stored() == 0


async def test_start_before_invite_and_on_foreign_tasks(bob: World) -> None:
    async with bob.rpc(bob.alice) as rpc, bob.rpc(bob.mallory) as hostile:
        await refused(rpc, bob.request(bob.alice, a_start("dlg_" + "0" * 32)), UnsupportedOperationError)
        task = await invited(bob, rpc)
        start = a_start(task.context_id)
        # Mallory is paired, but the task is Alice's: to Mallory it does not exist.
        await refused(hostile, bob.request(bob.mallory, start, task), TaskNotFoundError)
        await refused(hostile, bob.request(bob.mallory, start), UnsupportedOperationError)
        own = (await hostile.send_message(bob.request(bob.mallory, an_invite()))).task
        await refused(hostile, bob.request(bob.mallory, start, own), UnsupportedOperationError)
        assert bob.executor.started == []


async def test_start_of_a_delegation_that_the_executor_role_does_not_know(bob: World) -> None:
    async with bob.rpc(bob.alice) as rpc:
        task = await invited(bob, rpc)
        bob.executor.owners.clear()
        data = await refused(rpc, bob.request(bob.alice, a_start(task.context_id), task), UnsupportedOperationError)
        assert data["code"] == "DECLINED"
        assert bob.executor.started == []


async def test_start_after_the_end(bob: World) -> None:
    async with bob.rpc(bob.alice) as rpc:
        task = await invited(bob, rpc)
        done = (await rpc.send_message(bob.request(bob.alice, a_start(task.context_id), task))).task
        assert done.status.state == TaskState.TASK_STATE_COMPLETED
        await refused(rpc, bob.request(bob.alice, a_start(task.context_id), task), UnsupportedOperationError)
        assert len(bob.executor.started) == 1


async def test_what_an_executor_says_is_not_accepted_from_a_delegator(bob: World) -> None:
    async with bob.rpc(bob.alice) as rpc:
        task = await invited(bob, rpc)
        done = Done(delegation_id=task.context_id, final_summary="trust me")
        accept = Accept(delegation_id=task.context_id, remote_mount=RemoteMount(mount_point="/"))
        for request in (bob.request(bob.alice, done, task), bob.request(bob.alice, accept, task)):
            data = await refused(rpc, request, UnsupportedOperationError)
            assert data["code"] == "DECLINED"


async def test_a_plain_token_may_not_delegate(bob: World) -> None:
    async with bob.rpc(TOKEN) as rpc:
        data = await refused(rpc, bob.request(bob.alice, an_invite()), InvalidRequestError)
    assert data["code"] == "DECLINED"
    assert "pair" in data["hint"]
    assert bob.executor.invited == []
    assert await bob.stored() == 0


async def test_invites_of_one_delegation_make_one_task(bob: World) -> None:
    """Trap: the SDK makes a task per message, and two at once would race past a look-up."""
    invite = an_invite()
    bob.executor.invite_gate.clear()
    async with bob.rpc(bob.alice) as rpc:
        async with asyncio.TaskGroup() as group:
            sent = [group.create_task(rpc.send_message(bob.request(bob.alice, invite))) for _ in range(5)]
            await asyncio.sleep(0.1)
            bob.executor.invite_gate.set()
        tasks = [answer.result().task for answer in sent]
        again = (await rpc.send_message(bob.request(bob.alice, invite))).task
        streamed = [event.task async for event in rpc.send_message_streaming(bob.request(bob.alice, invite))]
    assert {task.id for task in [*tasks, again, *streamed]} == {tasks[0].id}
    assert {task.status.state for task in [*tasks, again]} == {TaskState.TASK_STATE_INPUT_REQUIRED}
    assert len(bob.executor.invited) == 1
    assert await bob.stored() == 1


async def test_a_repeated_invite_after_a_refusal_gets_the_same_refusal(bob: World) -> None:
    invite = an_invite()
    bob.executor.refusal = ValueError("broken")
    async with bob.rpc(bob.alice) as rpc:
        first = (await rpc.send_message(bob.request(bob.alice, invite))).task
        bob.executor.refusal = None
        second = (await rpc.send_message(bob.request(bob.alice, invite))).task
    assert first.status == second.status
    assert first.status.state == TaskState.TASK_STATE_REJECTED


async def test_error_while_working_is_a_cancel(bob: World) -> None:
    """Trap: the SDK queues a message to a working task and drops it at the end."""
    bob.executor.gate.clear()
    async with bob.rpc(bob.alice) as rpc:
        task = await invited(bob, rpc)
        start = bob.request(bob.alice, a_start(task.context_id), task)
        start.configuration.return_immediately = True
        await rpc.send_message(start)
        await bob.executor.running.wait()
        error = Error(delegation_id=task.context_id, code=ErrorCode.CANCELLED, message="stop")
        stopped = (await rpc.send_message(bob.request(bob.alice, error, task))).task
        assert stopped.status.state == TaskState.TASK_STATE_CANCELED
        assert bob.executor.cancelled
        assert bob.executor.closed == [task.context_id]
        again = (await rpc.send_message(bob.request(bob.alice, error, task))).task
        assert again.status.state == TaskState.TASK_STATE_CANCELED


async def test_error_for_an_invited_task_cancels_it(bob: World) -> None:
    async with bob.rpc(bob.alice) as rpc:
        task = await invited(bob, rpc)
        error = Error(delegation_id=task.context_id, code=ErrorCode.CANCELLED, message="changed my mind")
        events = [event async for event in rpc.send_message_streaming(bob.request(bob.alice, error, task))]
        assert events[-1].task.status.state == TaskState.TASK_STATE_CANCELED
        assert task.context_id in bob.executor.cancelled


async def test_open_tasks_are_bounded(bob: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: every INVITE without START costs memory."""
    monkeypatch.setattr(context_builder, "MAX_OPEN_TASKS", 3)
    async with bob.rpc(bob.alice) as rpc:
        for _ in range(3):
            await invited(bob, rpc)
        data = await refused(rpc, bob.request(bob.alice, an_invite()), UnsupportedOperationError)
        assert data["code"] == "DECLINED"
    async with bob.rpc(bob.mallory) as other:
        await other.send_message(bob.request(bob.mallory, an_invite()))


async def test_numbers_arrive_as_integers(bob: World) -> None:
    """Trap: a protobuf ``Value`` turns 60 into 60.0, which no signature and no strict type would survive."""
    async with bob.rpc(bob.alice) as rpc:
        await invited(bob, rpc)
    ttl = bob.executor.invited[0].lease.ttl_seconds
    assert type(ttl) is int
    assert ttl == 60


async def test_a_task_id_without_context_id_keeps_its_context(bob: World) -> None:
    """Trap: the SDK invents a context id (a2a-python #1206)."""
    async with bob.rpc(bob.alice) as rpc:
        task = await invited(bob, rpc)
        request = bob.request(bob.alice, a_start(task.context_id), task)
        request.message.context_id = ""
        events = [event async for event in rpc.send_message_streaming(request)]
    contexts = {getattr(event, str(event.WhichOneof("payload"))).context_id for event in events}
    assert contexts == {task.context_id}


async def test_deep_and_oversized_bodies(bob: World) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "A2A-Version": "1.0", "Content-Type": "application/json"}
    nested = '{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":' + "[" * 5_000 + "]" * 5_000 + "}"
    async with httpx.AsyncClient(base_url=bob.url, headers=headers) as http:
        deep = await http.post("/", content=nested)
        assert deep.status_code == 400
        assert "nested" in deep.json()["error"]["message"]
        large = await http.post("/", content=json.dumps({"x": "y" * (3 << 20)}))
        assert large.status_code == 413
        nan = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage"}
        body = json.dumps(nan)[:-1] + (
            ',"params":{"message":{"messageId":"1","role":"ROLE_USER","parts":[{"data":{"awcp":{"ttl":NaN}}}]}}}'
        )
        answer = (await http.post("/", content=body)).json()
        assert answer["error"]["code"] in (-32700, -32602, -32600)
    assert await bob.stored() == 0


async def test_signed_for_us_but_by_a_stranger_in_the_signature_field(bob: World) -> None:
    async with bob.rpc(bob.alice) as rpc:
        stranger = signed(an_invite(), bob.me.key, bob.me.fingerprint)
        assert (await refused(rpc, envelope(stranger), InvalidRequestError))["code"] == "AUTH_FAILED"


async def test_what_nobody_reads_is_not_stored(bob: World) -> None:
    ballast = "ballast" * 1_000
    async with bob.rpc(bob.alice) as rpc:
        request = bob.request(bob.alice, an_invite())
        request.message.parts.add(text=ballast)
        request.message.parts.add(raw=ballast.encode())
        request.message.metadata.update({"x": ballast})
        await rpc.send_message(request)
        plain = text("hello")
        plain.message.metadata.update({"x": ballast})
        await rpc.send_message(plain)
    assert bob.messages.asked[0][0] == "hello"
    assert all(b"ballast" not in path.read_bytes() for path in bob.database.parent.iterdir())
