"""What clients of A2A 1.0 get of their tasks is what they ask for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import anyio
import pytest
from a2a.types import GetTaskRequest, ListTasksRequest, Part, Task, TaskState
from a2a.utils.errors import ContentTypeNotSupportedError, PushNotificationNotSupportedError

from support.a2a_world import TOKEN, World, text

pytestmark = pytest.mark.anyio


async def asked(bob: World, *words: str) -> list[Task]:
    """Return the ended tasks of plain messages, in order."""
    async with bob.rpc(TOKEN) as client:
        return [(await client.send_message(text(one))).task for one in words]


async def test_of_many_tasks_a_page_is_listed(bob: World) -> None:
    made = await asked(bob, "first", "second", "third")
    async with bob.rpc(TOKEN) as client:
        page = await client.list_tasks(ListTasksRequest(page_size=2))
        more = await client.list_tasks(ListTasksRequest(page_size=2, page_token=page.next_page_token))
    assert [len(page.tasks), len(more.tasks)] == [2, 1]
    assert {task.id for task in (*page.tasks, *more.tasks)} == {task.id for task in made}


async def test_what_does_not_fit_the_question_is_not_listed(bob: World) -> None:
    first, _ = await asked(bob, "first", "second")
    late = ListTasksRequest()
    late.status_timestamp_after.FromDatetime(datetime.now(UTC) + timedelta(hours=1))
    async with bob.rpc(TOKEN) as client:
        ended = ListTasksRequest(status=TaskState.TASK_STATE_COMPLETED)
        assert len((await client.list_tasks(ended)).tasks) == 2
        failed = ListTasksRequest(status=TaskState.TASK_STATE_FAILED)
        assert not (await client.list_tasks(failed)).tasks
        assert not (await client.list_tasks(late)).tasks
        one = await client.list_tasks(ListTasksRequest(context_id=first.context_id))
    assert [task.id for task in one.tasks] == [first.id]


async def test_artifacts_and_history_are_listed_for_who_asks_for_them(bob: World) -> None:
    (made,) = await asked(bob, "first")
    async with bob.rpc(TOKEN) as client:
        plain = (await client.list_tasks(ListTasksRequest())).tasks[0]
        whole = (await client.list_tasks(ListTasksRequest(include_artifacts=True, history_length=0))).tasks[0]
        short = await client.get_task(GetTaskRequest(id=made.id, history_length=0))
        full = await client.get_task(GetTaskRequest(id=made.id))
        question = text("again")
        question.configuration.history_length = 0
        answer = (await client.send_message(question)).task
    assert (len(plain.artifacts), len(whole.artifacts)) == (0, 1)
    assert (bool(plain.history), bool(whole.history)) == (True, False)
    assert (bool(full.history), bool(short.history), bool(answer.history)) == (True, False, False)


async def test_who_does_not_wait_is_answered_while_the_work_goes_on(bob: World) -> None:
    bob.messages.gate.clear()
    question = text("hello")
    question.configuration.return_immediately = True
    async with bob.rpc(TOKEN) as client:
        with anyio.fail_after(10):
            task = (await client.send_message(question)).task
        assert task.status.state != TaskState.TASK_STATE_COMPLETED
        bob.messages.gate.set()


async def test_what_would_be_ignored_is_refused(bob: World) -> None:
    pushed, spoken, fetched = text("x"), text("x"), text("x")
    pushed.configuration.task_push_notification_config.url = "https://client.example/"
    spoken.configuration.accepted_output_modes.append("audio/wav")
    fetched.message.parts.append(Part(url="https://files.example/x.txt"))
    async with bob.rpc(TOKEN) as client:
        with pytest.raises(PushNotificationNotSupportedError):
            await client.send_message(pushed)
        with pytest.raises(ContentTypeNotSupportedError, match="answers with text"):
            await client.send_message(spoken)
        with pytest.raises(ContentTypeNotSupportedError, match="would have to fetch"):
            await client.send_message(fetched)
    assert bob.messages.asked == []


async def test_a_file_that_is_text_is_told_with_its_name(bob: World) -> None:
    sent = text("look")
    sent.message.parts.append(Part(raw=b"a = 1\n", filename="a.py", media_type="text/x-python"))
    async with bob.rpc(TOKEN) as client:
        await client.send_message(sent)
    assert [words for words, *_ in bob.messages.asked] == ["look\na.py:\na = 1\n"]
