"""What a plain message asks for is done or refused, never left out: D54 to D56, and whose tasks are whose."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from a2a.helpers import get_artifact_text
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    Part,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskState,
)
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    PushNotificationNotSupportedError,
    TaskNotFoundError,
)
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value

from support.a2a_world import TOKEN, World, an_invite, text, world

pytestmark = pytest.mark.anyio


def a_value(value: Any) -> Value:
    return ParseDict(value, Value())


@pytest.mark.parametrize(
    "part",
    [
        Part(raw=b"\x89PNG", media_type="image/png", filename="a.png"),
        Part(raw=b"text"),
        Part(raw=b"caf\xe9", media_type="text/plain"),
        Part(url="https://example.org/a.txt", media_type="text/plain"),
        Part(text="<svg/>", media_type="image/svg+xml"),
        Part(data=a_value({"a": 1}), media_type="application/yaml"),
        Part(),
    ],
)
async def test_D54_a_part_that_can_t_be_read_refuses_the_message(bob: World, part: Part) -> None:
    asked = text("look at this")
    asked.message.parts.append(part)
    async with bob.rpc(TOKEN) as rpc:
        with pytest.raises(ContentTypeNotSupportedError):
            await rpc.send_message(asked)
    assert bob.messages.asked == []
    assert await bob.stored() == 0


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (Part(data=a_value({"a": [1, "é"]})), '{"a": [1, "é"]}'),
        (Part(data=a_value([1, 2]), media_type="application/json"), "[1, 2]"),
        (Part(text="# Title", media_type="text/markdown"), "# Title"),
        (Part(raw=b"one\n", media_type="text/plain; charset=utf-8", filename="a.txt"), "a.txt:\none\n"),
    ],
)
async def test_D54_what_the_card_declares_reaches_the_agent(bob: World, part: Part, told: str) -> None:
    asked = text("look at this")
    asked.message.parts.append(part)
    async with bob.rpc(TOKEN) as rpc:
        answer = await rpc.send_message(asked)
    assert answer.task.status.state == TaskState.TASK_STATE_COMPLETED
    assert bob.messages.asked[0][0] == f"look at this\n{told}"


async def test_D54_data_alone_is_a_message(bob: World) -> None:
    asked = text("")
    del asked.message.parts[:]
    asked.message.parts.append(Part(data=a_value({"do": "it"})))
    async with bob.rpc(TOKEN) as rpc:
        await rpc.send_message(asked)
    assert bob.messages.asked[0][0] == '{"do": "it"}'


async def test_D54_an_answer_of_a_kind_that_is_not_accepted_is_refused(bob: World) -> None:
    async with bob.rpc(TOKEN) as rpc:
        asked = text("hello")
        asked.configuration.accepted_output_modes.append("image/png")
        with pytest.raises(ContentTypeNotSupportedError):
            await rpc.send_message(asked)
        asked.configuration.accepted_output_modes.append("text/plain")
        await rpc.send_message(asked)


@pytest.mark.parametrize("at_once", [True, False])
async def test_D55_who_subscribes_reads_along_however_it_was_asked(bob: World, at_once: bool) -> None:
    bob.messages.gate.clear()
    asked = text("hello")
    asked.configuration.return_immediately = at_once
    pieces: list[str] = []
    async with bob.rpc(TOKEN) as rpc, bob.rpc(TOKEN) as other, asyncio.TaskGroup() as group:
        sent = group.create_task(rpc.send_message(asked))
        await bob.messages.running.wait()
        task_id = await the_task(bob)
        first = asyncio.Event()

        async def follow() -> None:
            async for event in other.subscribe(SubscribeToTaskRequest(id=task_id)):
                if event.HasField("task"):
                    pieces.extend(get_artifact_text(one) for one in event.task.artifacts)
                if event.HasField("artifact_update"):
                    pieces.append(get_artifact_text(event.artifact_update.artifact))
                if pieces:
                    first.set()

        following = group.create_task(follow())
        await first.wait()
        assert pieces == ["you said: "], "what is said so far comes while it works"
        bob.messages.gate.set()
        await following
        await sent
        found = await other.get_task(GetTaskRequest(id=task_id))
    assert pieces == ["you said: ", "hello"]
    assert [part.text for part in found.artifacts[0].parts] == ["you said: hello"]


async def test_D55_what_was_said_stays_where_the_task_is_cancelled(bob: World) -> None:
    bob.messages.gate.clear()
    asked = text("hello")
    asked.configuration.return_immediately = True
    async with bob.rpc(TOKEN) as rpc:
        task_id = (await rpc.send_message(asked)).task.id
        await said_so_far(rpc, task_id)
        cancelled = await rpc.cancel_task(CancelTaskRequest(id=task_id))
        found = await rpc.get_task(GetTaskRequest(id=task_id))
    assert cancelled.status.state == found.status.state == TaskState.TASK_STATE_CANCELED
    assert [get_artifact_text(one) for one in found.artifacts] == ["you said: "]


async def said_so_far(rpc: Any, task_id: str) -> None:
    """Wait until the task tells something of the answer."""
    while not (await rpc.get_task(GetTaskRequest(id=task_id))).artifacts:
        await asyncio.sleep(0.01)


async def the_task(bob: World) -> str:
    """Return the id of the only task."""
    while not (rows := await bob.face._store._rows("SELECT id FROM a2a_task", {})):
        await asyncio.sleep(0.01)
    return str(rows[0][0])


def with_push(asked: SendMessageRequest) -> SendMessageRequest:
    asked.configuration.task_push_notification_config.url = "https://example.org/hook"
    return asked


async def test_D56_a_push_configuration_is_refused(bob: World) -> None:
    async with bob.rpc(TOKEN) as rpc:
        with pytest.raises(PushNotificationNotSupportedError):
            await rpc.send_message(with_push(text("hello")))
        with pytest.raises(PushNotificationNotSupportedError):
            async for _ in rpc.send_message_streaming(with_push(text("hello"))):
                pass
    async with bob.rpc(bob.alice) as rpc:
        with pytest.raises(PushNotificationNotSupportedError):
            await rpc.send_message(with_push(bob.request(bob.alice, an_invite())))
    assert bob.messages.asked == []
    assert await bob.stored() == 0


async def test_a_later_token_of_the_same_name_sees_none_of_the_tasks(tmp_path: Path) -> None:
    tokens = {TOKEN: "ci"}
    async with world(tmp_path, find_token=tokens.get) as bob:
        async with bob.rpc(TOKEN) as rpc:
            task_id = (await rpc.send_message(text("hello"))).task.id
            assert (await rpc.get_task(GetTaskRequest(id=task_id))).id == task_id
        later = "tok_" + "b" * 40
        tokens.clear()
        tokens[later] = "ci"
        async with bob.rpc(later) as rpc:
            with pytest.raises(TaskNotFoundError):
                await rpc.get_task(GetTaskRequest(id=task_id))
