"""Clients that know nothing of Sublet: A2A 1.0 by the SDK, 0.3 by hand and by the SDK's compat transport (C43)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.helpers import get_artifact_text
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    SubscribeToTaskRequest,
    TaskState,
)
from a2a.utils.errors import A2AError, TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError

from sublet.policy.decision import Subject
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.messages import AWCP_URI
from support.a2a_world import TOKEN, World, text

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def sdk_client(bob: World, version: str, *, streaming: bool = True) -> AsyncIterator[Client]:
    """The SDK's client, led by the card alone, on one of the card's interfaces."""
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False) as http:
        card = await A2ACardResolver(http, bob.url).get_agent_card()
        chosen = [item for item in card.supported_interfaces if item.protocol_version == version]
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(chosen)
        yield ClientFactory(ClientConfig(httpx_client=http, streaming=streaming)).create(card)


class Legacy:
    """A 0.3 client, written by hand from the specification."""

    def __init__(self, bob: World) -> None:
        self._http = httpx.AsyncClient(
            base_url=bob.url, headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False, timeout=20
        )

    async def __aenter__(self) -> Legacy:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        answer = await self._http.post("/", json={"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
        body: dict[str, Any] = answer.json()
        assert body["id"] == 7
        return body

    async def stream(self, params: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        body = {"jsonrpc": "2.0", "id": 7, "method": "message/stream", "params": params}
        async with self._http.stream("POST", "/", json=body) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            async for line in answer.aiter_lines():
                if line.startswith("data:"):
                    yield json.loads(line.removeprefix("data:"))["result"]


def said(words: str) -> dict[str, Any]:
    return {
        "message": {"kind": "message", "messageId": "m1", "role": "user", "parts": [{"kind": "text", "text": words}]}
    }


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_c43_a_plain_message_is_answered(bob: World, version: str) -> None:
    async with sdk_client(bob, version, streaming=False) as client:
        (answer,) = [event async for event in client.send_message(text("hello"))]
    assert answer.task.status.state == TaskState.TASK_STATE_COMPLETED
    assert [get_artifact_text(artifact) for artifact in answer.task.artifacts] == ["you said: hello"]
    assert bob.messages.asked == [("hello", Subject("a2a", "ci"), answer.task.context_id)]


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_c43_a_plain_message_is_streamed(bob: World, version: str) -> None:
    bob.messages.gate.clear()
    pieces: list[str] = []
    async with sdk_client(bob, version) as client:
        async for event in client.send_message(text("hello")):
            if event.HasField("artifact_update"):
                pieces.append(get_artifact_text(event.artifact_update.artifact))
                bob.messages.gate.set()
    assert pieces == ["you said: ", "hello"]


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_c43_a_plain_message_is_cancelled(bob: World, version: str) -> None:
    bob.messages.gate.clear()
    async with sdk_client(bob, version) as client:
        states: list[int] = []
        task_id = ""
        async for event in client.send_message(text("hello")):
            if event.HasField("task"):
                task_id = event.task.id
            if event.HasField("artifact_update"):
                cancelled = await client.cancel_task(CancelTaskRequest(id=task_id))
                states.append(cancelled.status.state)
        assert (await client.get_task(GetTaskRequest(id=task_id))).status.state == TaskState.TASK_STATE_CANCELED
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(CancelTaskRequest(id=task_id))
    assert states == [TaskState.TASK_STATE_CANCELED]
    assert bob.messages.closed == 1


async def test_c43_a_hand_written_0_3_client(bob: World) -> None:
    async with Legacy(bob) as client:
        task = (await client.call("message/send", said("hello")))["result"]
        assert task["kind"] == "task"
        assert task["status"]["state"] == "completed"
        assert task["artifacts"][0]["parts"] == [{"kind": "text", "text": "you said: hello"}]
        again = (await client.call("tasks/get", {"id": task["id"]}))["result"]
        assert again["status"]["state"] == "completed"
        assert (await client.call("tasks/cancel", {"id": task["id"]}))["error"]["code"] == -32002
        assert (await client.call("tasks/get", {"id": "nope"}))["error"]["code"] == -32001
        assert (await client.call("tasks/nonsense", {}))["error"]["code"] == -32601

        bob.messages.gate.clear()
        kinds: list[str] = []
        async for event in client.stream(said("wait")):
            kinds.append(event["kind"])
            if event["kind"] == "artifact-update":
                cancelled = (await client.call("tasks/cancel", {"id": event["taskId"]}))["result"]
                assert cancelled["status"]["state"] == "canceled"
        assert kinds[0] == "task"
        assert "artifact-update" in kinds


async def test_c43_the_card_suits_both_versions_and_the_old_path_leads_to_it(bob: World) -> None:
    async with httpx.AsyncClient(base_url=bob.url) as http:
        card = (await http.get("/.well-known/agent-card.json")).json()
        old = await http.get("/.well-known/agent.json")
    assert (old.status_code, old.headers["location"]) == (308, "/.well-known/agent-card.json")
    assert card["url"] == bob.url + "/"
    assert card["protocolVersion"].startswith("0.3")
    assert card["preferredTransport"] == "JSONRPC"
    assert {item["protocolVersion"] for item in card["supportedInterfaces"]} == {"1.0", "0.3"}
    assert card["securitySchemes"]["bearer"]["scheme"] == "bearer"


async def test_c43_a_1_0_method_without_its_version_header_is_told_so(bob: World) -> None:
    async with Legacy(bob) as client:
        answer = await client.call("SendMessage", {"message": {"messageId": "1", "role": "ROLE_USER", "parts": []}})
    assert answer["error"]["code"] == -32009


@pytest.mark.parametrize(
    ("failure", "state", "words"),
    [
        (SubletError(LocalCode.POLICY_DENIED, "rule 7"), TaskState.TASK_STATE_REJECTED, "does not answer"),
        (SubletError(ErrorCode.DECLINED, "busy", "Wait."), TaskState.TASK_STATE_REJECTED, "busy. Wait."),
        (SubletError(LocalCode.INTERNAL, "/home/bob/x"), TaskState.TASK_STATE_FAILED, "The agent failed"),
        (OSError("/home/bob/x"), TaskState.TASK_STATE_FAILED, "The agent failed"),
    ],
)
async def test_failures_are_told_without_local_facts(bob: World, failure: Exception, state: int, words: str) -> None:
    bob.messages.failure = failure
    async with bob.rpc(TOKEN) as rpc:
        task = (await rpc.send_message(text("hello"))).task
    assert task.status.state == state
    told = task.status.message.parts[0].text
    assert words in told
    assert "/home" not in told


async def test_callers_do_not_see_each_other(bob: World) -> None:
    async with bob.rpc(TOKEN) as mine, bob.rpc(bob.alice) as other:
        task = (await mine.send_message(text("hello"))).task
        assert (await mine.list_tasks(ListTasksRequest())).total_size == 1
        assert (await other.list_tasks(ListTasksRequest())).total_size == 0
        for call in (other.get_task(GetTaskRequest(id=task.id)), other.cancel_task(CancelTaskRequest(id=task.id))):
            with pytest.raises(TaskNotFoundError):
                await call
        with pytest.raises(TaskNotFoundError):
            await anext(aiter(other.subscribe(SubscribeToTaskRequest(id=task.id))))


async def test_a_message_to_a_task_is_refused_instead_of_dropped(bob: World) -> None:
    """Trap: the SDK queues it behind the running work and forgets it."""
    bob.messages.gate.clear()
    async with bob.rpc(TOKEN) as rpc, asyncio.TaskGroup() as group:
        group.create_task(rpc.send_message(text("hello", context_id="talk-1")))
        await bob.messages.running.wait()
        (task,) = (await rpc.list_tasks(ListTasksRequest(context_id="talk-1"))).tasks
        with pytest.raises(UnsupportedOperationError):
            await rpc.send_message(text("more", task_id=task.id))
        bob.messages.gate.set()


async def test_the_extension_is_echoed_in_the_header_that_asked(bob: World) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}
    headers = {"Authorization": f"Bearer {TOKEN}", "A2A-Version": "1.0"}
    async with httpx.AsyncClient(base_url=bob.url, headers=headers) as http:
        for name in ("A2A-Extensions", "X-A2A-Extensions"):
            answer = await http.post("/", json=body, headers={name: f"https://other.example, {AWCP_URI}"})
            assert answer.headers[name] == AWCP_URI
        assert "a2a-extensions" not in (await http.post("/", json=body)).headers


async def test_push_notifications_are_not_offered(bob: World) -> None:
    async with Legacy(bob) as client:
        params = {"taskId": "x", "pushNotificationConfig": {"url": "http://127.0.0.1:1/"}}
        answer = await client.call("tasks/pushNotificationConfig/set", params)
    assert answer["error"]["code"] == -32003


async def test_errors_of_the_sdk_are_a2a_errors(bob: World) -> None:
    async with bob.rpc(TOKEN) as rpc:
        with pytest.raises(A2AError):
            await rpc.list_tasks(ListTasksRequest(page_token="nonsense"))
        with pytest.raises(A2AError):
            await rpc.list_tasks(ListTasksRequest(page_token=f"{2**63}:x"))
