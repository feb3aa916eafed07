"""What is no proper request, or comes at a bad moment, is the caller's fault, and told so: never an internal error."""

from __future__ import annotations

import asyncio
import copy
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from a2a.server.request_handlers import request_handler
from a2a.types import CancelTaskRequest, SendMessageRequest, TaskState
from a2a.utils.errors import TaskNotCancelableError, UnsupportedOperationError
from a2a.utils.proto_utils import validate_proto_required_fields
from starlette.types import Message, Receive, Scope, Send

from sublet.a2a_server import handler, json_rpc
from sublet.a2a_server.json_rpc import LARGE_BYTES, LARGE_VALUES, WellFormed
from sublet.protocol.errors import ErrorCode
from sublet.protocol.messages import Error, ErrorExtension
from support.a2a_world import TOKEN, World, a_start, an_invite

pytestmark = pytest.mark.anyio

INTERNAL = -32603
REQUEST: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "SendMessage",
    "params": {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}, "configuration": {}},
}
STRANGE: list[object] = [None, True, -1, 1.5, 1e308, 10**30, "", "\0", [], [[1]], {}, {"a": 1}, "ROLE_USER"]


def ask(bob: World, **headers: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=bob.url, headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json", **headers}
    )


@pytest.mark.parametrize("version", ["1.0", "0.3", ""])
async def test_what_is_no_json_is_a_parse_error(bob: World, version: str) -> None:
    bodies = [b"", b"{", b"\xff\xfe", b'{"a":"\xff"}', b"1" * 5_000, b'{"id":' + b"1" * 5_000 + b"}", b"\0"]
    async with ask(bob, **({"A2A-Version": version} if version else {})) as http:
        for body in bodies:
            answer = (await http.post("/", content=body)).json()
            assert (answer["error"]["code"], answer["id"]) == (-32700, None), body
        for body in (b"[]", b"[1]", b"null", b'"x"', b"1", b"{}"):
            assert (await http.post("/", content=body)).json()["error"]["code"] == -32600, body


async def test_a_message_of_many_values_is_looked_through_in_a_thread_and_once(
    bob: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK looks at each value on the event loop: 50 ms for 9 KB of them."""
    seen: list[bool] = []
    loops_thread = threading.get_ident()

    def check(params: SendMessageRequest) -> None:
        seen.append(threading.get_ident() == loops_thread)
        validate_proto_required_fields(params)

    monkeypatch.setattr(handler, "validate_proto_required_fields", check)
    monkeypatch.setattr(request_handler, "validate_proto_required_fields", lambda _: pytest.fail("it looks again"))
    many = copy.deepcopy(REQUEST)
    many["params"]["message"]["parts"].append({"data": [{"": 0}] * 1_300})
    lacking = copy.deepcopy(many)
    del lacking["params"]["message"]["role"]
    async with ask(bob, **{"A2A-Version": "1.0"}) as http:
        for body in (REQUEST, many, lacking):
            answer = (await http.post("/", json=body)).json()
        assert answer["error"]["code"] == -32602
    assert seen == [True, False, False]


async def test_no_two_large_bodies_are_read_in_one_turn_of_the_loop() -> None:
    turn, read = 0, list[int]()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        read.append(turn)

    async def count() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async def unused(_: Message) -> None:
        raise AssertionError("it is answered by the application")

    body = json.dumps({"method": "SendMessage", "params": [0] * LARGE_VALUES}).encode()
    counting = asyncio.create_task(count())

    async def whole() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    checked = WellFormed(app, "/", "/a2a/v1")
    scope: Scope = {"type": "http", "path": "/", "method": "POST", "headers": []}
    await asyncio.gather(*(checked(scope, whole, unused) for _ in range(8)))
    counting.cancel()
    assert len(set(read)) == 8


def mutations(value: Any) -> Iterator[dict[str, Any]]:
    """Yield ``value`` with each of its parts replaced by each strange value."""
    places: list[tuple[str | int, ...]] = [()]
    while places:
        place = places.pop()
        found = value
        for step in place:
            found = found[step]
        steps = list(found) if isinstance(found, dict) else range(len(found)) if isinstance(found, list) else []
        places += [(*place, step) for step in steps]
        if place:
            for strange in STRANGE:
                changed = copy.deepcopy(value)
                holder = changed
                for step in place[:-1]:
                    holder = holder[step]
                holder[place[-1]] = strange
                yield changed


async def test_no_mutation_of_a_request_is_an_internal_error(bob: World) -> None:
    async with ask(bob, **{"A2A-Version": "1.0"}) as http:
        for body in mutations(REQUEST):
            answer = await http.post("/", content=json.dumps(body))
            assert answer.status_code == 200
            assert answer.json().get("error", {}).get("code") != INTERNAL, body


async def test_a_method_of_another_version_is_told_so(bob: World) -> None:
    async with ask(bob, **{"A2A-Version": "1.0"}) as http:
        answer = (await http.post("/", json={"jsonrpc": "2.0", "id": "x", "method": "tasks/get", "params": {}})).json()
    assert (answer["id"], answer["error"]["code"]) == ("x", -32009)
    assert "0.3" in answer["error"]["message"]


async def test_start_and_cancel_at_once_end_in_one_of_the_two(bob: World) -> None:
    async with bob.rpc(bob.alice) as rpc:
        for pause in range(40):
            task = (await rpc.send_message(bob.request(bob.alice, an_invite()))).task

            async def start(found: Any = task, pause: int = pause) -> object:
                if pause % 4 == 0:
                    await asyncio.sleep(pause / 10_000)
                try:
                    return await rpc.send_message(bob.request(bob.alice, a_start(found.context_id), found))
                except UnsupportedOperationError as refused:
                    return refused

            async def cancel(found: Any = task, pause: int = pause) -> object:
                if pause % 4 == 1:
                    await asyncio.sleep(pause / 10_000)
                try:
                    return await rpc.cancel_task(CancelTaskRequest(id=found.id))
                except TaskNotCancelableError as refused:
                    return refused

            await asyncio.gather(start(), cancel())


async def test_an_error_with_grace_lets_the_work_end_by_itself(bob: World) -> None:
    bob.executor.gate.clear()
    async with bob.rpc(bob.alice) as rpc:
        task = (await rpc.send_message(bob.request(bob.alice, an_invite()))).task
        start = bob.request(bob.alice, a_start(task.context_id), task)
        start.configuration.return_immediately = True
        await rpc.send_message(start)
        await bob.executor.running.wait()
        error = Error(
            delegation_id=task.context_id,
            code=ErrorCode.TASK_FAILED,
            message="quota\x1b exceeded",
            sublet=ErrorExtension(grace_seconds=5),
        )
        told = (await rpc.send_message(bob.request(bob.alice, error, task))).task
        assert told.status.state == TaskState.TASK_STATE_WORKING
        assert bob.executor.cancelled == []
        [(found, why, seconds)] = bob.executor.wound_down
        assert (found, why.code, seconds) == (task.context_id, ErrorCode.TASK_FAILED, 5.0)
        assert why.from_peer
        assert "\x1b" not in why.message
        bob.executor.gate.set()


async def test_an_error_with_grace_for_a_task_that_waits_cancels_it(bob: World) -> None:
    async with bob.rpc(bob.alice) as rpc:
        task = (await rpc.send_message(bob.request(bob.alice, an_invite()))).task
        error = Error(
            delegation_id=task.context_id,
            code=ErrorCode.TASK_FAILED,
            message="x",
            sublet=ErrorExtension(grace_seconds=5),
        )
        told = (await rpc.send_message(bob.request(bob.alice, error, task))).task
    assert told.status.state == TaskState.TASK_STATE_CANCELED
    assert bob.executor.wound_down == []


async def test_large_bodies_that_came_together_are_read_one_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by us, nor by what is behind us, which reads a body as soon as it has it."""
    loop, body, count, turn = asyncio.get_running_loop(), b'"' + b"x" * LARGE_BYTES + b'"', 5, 0
    read: list[int] = []
    passed_on: list[int] = []
    all_checked = asyncio.Event()

    def tick() -> None:
        nonlocal turn
        turn += 1
        if len(passed_on) < count:
            loop.call_soon(tick)

    def looked_at(body: bytes, version: str) -> None:
        read.append(turn)
        if len(read) == count:
            loop.call_later(0, loop.call_soon, all_checked.set)

    async def behind(scope: Scope, receive: Receive, send: Send) -> None:
        await all_checked.wait()
        await receive()
        passed_on.append(turn)

    async def whole() -> Message:
        return {"type": "http.request", "body": body}

    async def nowhere(message: Message) -> None:
        raise AssertionError(message)

    monkeypatch.setattr(json_rpc, "complaint", looked_at)
    well_formed = WellFormed(behind, "/", "/a2a/v1")
    scope = {"type": "http", "path": "/", "method": "POST", "headers": []}
    loop.call_soon(tick)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(well_formed(scope, whole, nowhere))
    assert len(set(read)) == len(set(passed_on)) == count
