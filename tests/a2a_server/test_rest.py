"""The REST binding: the same handler, gate and bounds as JSON-RPC has, in its own words."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.client.transports.rest import RestTransport
from a2a.types import AgentCard, CancelTaskRequest, GetTaskRequest, ListTasksRequest, SubscribeToTaskRequest, TaskState
from a2a.utils.errors import PushNotificationNotSupportedError, TaskNotFoundError, UnsupportedOperationError
from google.protobuf.json_format import MessageToDict, ParseDict
from sse_starlette.sse import EventSourceResponse

from a2a_server.test_json_rpc import REQUEST, mutations
from sublet.a2a_server.json_rpc import MAX_DEPTH, MAX_VALUES
from sublet.a2a_wire.names import DONE_ARTIFACT, REST_PATH
from support.a2a_world import TOKEN, World, a_start, an_invite, text

pytestmark = pytest.mark.anyio

MESSAGE: dict[str, Any] = REQUEST["params"]
GIVES_UP_SECONDS = 5
"""The SDK's own client, where a stream says nothing."""


@asynccontextmanager
async def asking(bob: World, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
    given = {"Authorization": f"Bearer {TOKEN}", "A2A-Version": "1.0", **headers}
    async with httpx.AsyncClient(base_url=bob.url + REST_PATH, headers=given, trust_env=False) as http:
        yield http


async def card_of(bob: World) -> AgentCard:
    async with httpx.AsyncClient(base_url=bob.url, trust_env=False) as http:
        return ParseDict(
            (await http.get("/.well-known/agent-card.json")).json(), AgentCard(), ignore_unknown_fields=True
        )


async def test_the_card_names_it_and_the_sdks_client_finds_it_there(bob: World) -> None:
    async with asking(bob) as http:
        client = ClientFactory(
            ClientConfig(httpx_client=http, supported_protocol_bindings=["HTTP+JSON"], streaming=False)
        ).create(await card_of(bob))
        [answer] = [event async for event in client.send_message(text("hello"))]
    assert answer.task.status.state == TaskState.TASK_STATE_COMPLETED


async def test_work_is_lent_over_it(bob: World) -> None:
    async with bob.rpc(bob.alice) as rpc:
        rest = RestTransport(rpc.httpx_client, AgentCard(), bob.url + REST_PATH, is_shared_httpx=True)
        task = (await rest.send_message(bob.request(bob.alice, an_invite()))).task
        assert task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
        start = bob.request(bob.alice, a_start(task.context_id), task)
        kinds = [event.WhichOneof("payload") async for event in rest.send_message_streaming(start)]
        assert kinds[-1] == "status_update"
        ended = await rest.get_task(GetTaskRequest(id=task.id))
        assert ended.status.state == TaskState.TASK_STATE_COMPLETED
        assert [artifact.artifact_id for artifact in ended.artifacts] == [DONE_ARTIFACT]
        assert [one.id for one in (await rest.list_tasks(ListTasksRequest())).tasks] == [task.id]
        # What one asks for is one's own, by whatever binding.
        assert (await rpc.get_task(GetTaskRequest(id=task.id))).id == task.id


async def test_a_task_is_cancelled_and_followed(bob: World) -> None:
    bob.executor.gate.clear()
    async with bob.rpc(bob.alice) as rpc:
        rest = RestTransport(rpc.httpx_client, AgentCard(), bob.url + REST_PATH, is_shared_httpx=True)
        task = (await rest.send_message(bob.request(bob.alice, an_invite()))).task
        start = bob.request(bob.alice, a_start(task.context_id), task)
        start.configuration.return_immediately = True
        await rest.send_message(start)
        followed = rest.subscribe(SubscribeToTaskRequest(id=task.id))
        assert (await anext(followed)).task.id == task.id
        assert (await rest.cancel_task(CancelTaskRequest(id=task.id))).status.state == TaskState.TASK_STATE_CANCELED
        assert [event async for event in followed]
    assert set(bob.executor.cancelled) == {task.context_id}


async def test_nobody_sees_anything_of_others(bob: World) -> None:
    async with bob.rpc(bob.alice) as rpc:
        rest = RestTransport(rpc.httpx_client, AgentCard(), bob.url + REST_PATH, is_shared_httpx=True)
        task = (await rest.send_message(bob.request(bob.alice, an_invite()))).task
    async with bob.rpc(bob.mallory) as rpc:
        rest = RestTransport(rpc.httpx_client, AgentCard(), bob.url + REST_PATH, is_shared_httpx=True)
        for ask in (rest.get_task(GetTaskRequest(id=task.id)), rest.cancel_task(CancelTaskRequest(id=task.id))):
            with pytest.raises(TaskNotFoundError):
                await ask
        with pytest.raises(TaskNotFoundError):
            await anext(rest.subscribe(SubscribeToTaskRequest(id=task.id)))
        assert list((await rest.list_tasks(ListTasksRequest())).tasks) == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/message:send"),
        ("POST", "/message:stream"),
        ("GET", "/tasks"),
        ("GET", "/tasks/x"),
        ("POST", "/tasks/x:cancel"),
        ("GET", "/tasks/x:subscribe"),
        ("GET", "/tasks/x/pushNotificationConfigs"),
        ("GET", "/extendedAgentCard"),
    ],
)
async def test_a_stranger_gets_nothing(bob: World, method: str, path: str) -> None:
    async with asking(bob, Authorization="Bearer wrong") as http:
        answer = await http.request(method, REST_PATH + path, json=MESSAGE if method == "POST" else None)
    assert answer.status_code == 401
    assert await bob.stored() == 0


async def test_what_is_no_json_or_too_much_is_the_callers_fault(bob: World) -> None:
    deep = b'{"message":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1)
    many = json.dumps({"message": [0] * (MAX_VALUES + 1)}).encode()
    words = [b"{", b"\xff\xfe", b'{"a":"\xff"}', b"1" * 5_000, b"\0", b"[]", b"null", b'"x"', deep, many, b""]
    async with asking(bob) as http:
        for path in ("/message:send", "/message:stream", "/tasks/x/pushNotificationConfigs"):
            for body in words:
                answer = await http.post(path, content=body)
                assert answer.status_code == 400, (path, body)
                assert answer.json()["error"]["status"] == "INVALID_ARGUMENT"
                assert answer.json()["error"]["details"]


async def test_no_field_of_any_kind_is_an_internal_error(bob: World) -> None:
    tried = 0
    async with asking(bob) as http:
        for body in mutations(MESSAGE):
            answer = await http.post("/message:send", json=body)
            assert answer.status_code in (200, 400), (body, answer.text)
            tried += 1
    assert tried > 50


async def test_the_version_has_to_be_named(bob: World) -> None:
    async with asking(bob) as http:
        del http.headers["A2A-Version"]
        refused = await http.post("/message:send", json=MESSAGE)
        assert refused.status_code == 400
        assert refused.json()["error"]["details"][0]["reason"] == "VERSION_NOT_SUPPORTED"
        assert (await http.post("/message:send", json=MESSAGE, headers={"A2A-Version": "1.0"})).status_code == 200


async def test_what_is_not_there_is_refused_in_its_own_words(bob: World) -> None:
    asked = text("hello")
    asked.configuration.task_push_notification_config.url = "https://example.org/hook"
    async with bob.rpc(TOKEN) as rpc:
        rest = RestTransport(rpc.httpx_client, AgentCard(), bob.url + REST_PATH, is_shared_httpx=True)
        with pytest.raises(PushNotificationNotSupportedError):
            await rest.send_message(asked)
        task = (await rest.send_message(text("hello"))).task
        with pytest.raises(UnsupportedOperationError):
            await rest.send_message(text("more", task_id=task.id, context_id=task.context_id))
    async with asking(bob) as http:
        assert (await http.post("/tenant/message:send", json=MESSAGE)).status_code == 404
        assert (await http.get("/tasks/" + "x" * 20_000)).status_code == 404
        answer = await http.post("/message:send", json=MessageToDict(text("hello")))
        assert answer.headers["content-type"] == "application/a2a+json"


async def test_a_quiet_stream_gives_a_sign_before_the_sdks_client_gives_up(bob: World) -> None:
    assert bob.face.address
    assert EventSourceResponse.DEFAULT_PING_INTERVAL < GIVES_UP_SECONDS
