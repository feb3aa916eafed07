"""The durable task store: owners, ends, pages, pruning."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from a2a.server.context import ServerCallContext
from a2a.types import ListTasksRequest, Task, TaskState, TaskStatus

from sublet.a2a_server import task_store
from sublet.a2a_server.caller import CallerUser
from sublet.a2a_server.task_store import SqliteTaskStore

pytestmark = pytest.mark.anyio

WORKING, FAILED = TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_FAILED
COMPLETED, WAITING = TaskState.TASK_STATE_COMPLETED, TaskState.TASK_STATE_INPUT_REQUIRED


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteTaskStore]:
    store = SqliteTaskStore(tmp_path / "t.sqlite3", lambda _: None)
    await store.open()
    yield store
    await store.aclose()
    await store.aclose()


def by(owner: str) -> ServerCallContext:
    return ServerCallContext(user=CallerUser(owner))


def a_task(task_id: str, state: TaskState = WORKING, *, age: float = 0) -> Task:
    task = Task(id=task_id, context_id=f"c-{task_id}", status=TaskStatus(state=state))
    task.status.timestamp.FromNanoseconds(time.time_ns() - int(age * 1e9))
    return task


async def test_an_end_is_never_overwritten(store: SqliteTaskStore) -> None:
    await store.save(a_task("t", COMPLETED), by("a"))
    await store.save(a_task("t", WORKING), by("a"))
    await store.save(a_task("t", FAILED), by("a"))
    task = await store.get("t", by("a"))
    assert task is not None
    assert task.status.state == COMPLETED


async def test_tasks_belong_to_their_owner(store: SqliteTaskStore) -> None:
    await store.save(a_task("t"), by("a"))
    await store.save(a_task("t", FAILED), by("b"))
    assert await store.get("t", by("b")) is None
    await store.delete("t", by("b"))
    kept = await store.get("t", by("a"))
    assert kept is not None
    assert kept.status.state == WORKING
    await store.delete("t", by("a"))
    assert await store.get("t", by("a")) is None


async def test_pages(store: SqliteTaskStore) -> None:
    for number in range(5):
        await store.save(a_task(f"t{number}", age=number), by("a"))
    await store.save(a_task("foreign"), by("b"))
    seen: list[str] = []
    request = ListTasksRequest(page_size=2)
    while True:
        page = await store.list(request, by("a"))
        assert page.total_size == 5
        seen += [task.id for task in page.tasks]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert seen == ["t0", "t1", "t2", "t3", "t4"]
    assert [task.id for task in (await store.list(ListTasksRequest(context_id="c-t3"), by("a"))).tasks] == ["t3"]
    assert (await store.list(ListTasksRequest(status=FAILED), by("a"))).total_size == 0
    recent = ListTasksRequest()
    recent.status_timestamp_after.FromNanoseconds(time.time_ns() - int(1.5e9))
    assert (await store.list(recent, by("a"))).total_size == 2


async def test_old_tasks_go(store: SqliteTaskStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_store, "MAX_ENDED_TASKS", 2)
    week = task_store.ENDED_RETENTION_SECONDS
    for task in [
        a_task("old end", FAILED, age=week + 1),
        a_task("old parked", WAITING, age=task_store.PARKED_RETENTION_SECONDS + 1),
        a_task("old work", WORKING, age=week + 1),
        a_task("parked", WAITING),
        *(a_task(f"end {number}", COMPLETED, age=number) for number in range(4)),
    ]:
        await store.save(task, by("a"))
    again = SqliteTaskStore(tmp_path / "t.sqlite3", lambda _: None)
    await again.open()
    left = {task.id for task in (await again.list(ListTasksRequest(), by("a"))).tasks}
    assert left == {"old work", "parked", "end 0", "end 1"}
    assert [task.id for _, task in await again.orphans()] == ["old work"]
    assert await again.count_open("a") == 2
    monkeypatch.setattr(task_store, "MAX_ENDED_BYTES", 50)
    await again.aclose()
    again = SqliteTaskStore(tmp_path / "t.sqlite3", lambda _: None)
    await again.open()
    left = {task.id for task in (await again.list(ListTasksRequest(), by("a"))).tasks}
    assert left == {"old work", "parked", "end 0"}
    await again.aclose()
