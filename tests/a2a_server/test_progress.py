"""Progress: joined, bounded, out of task history; and subscribers that come late or fall behind."""

from __future__ import annotations

import asyncio

import pytest
from a2a.types import GetTaskRequest, SubscribeToTaskRequest

from sublet.a2a_server.delegated import MAX_PROGRESS_CHARS
from sublet.a2a_server.outbox import Outbox
from sublet.daemon.ports.peer_link import RemoteTask
from sublet.protocol.messages import Accept, Done, Progress
from support.a2a_world import World, a_progress, a_start, an_invite

pytestmark = pytest.mark.anyio


async def run(bob: World) -> tuple[RemoteTask, list[Progress]]:
    link = bob.alice.link()
    task, answer = await link.invite(bob.peer(), an_invite())
    assert isinstance(answer, Accept)
    *progress, done = [update async for update in link.run(bob.peer(), task, a_start(task.context_id))]
    await link.aclose()
    assert isinstance(done, Done)
    return task, [update for update in progress if isinstance(update, Progress)]


async def test_many_pieces_become_few_events_and_none_is_lost(bob: World) -> None:
    bob.executor.updates = [a_progress(f"{number}\n") for number in range(1_000)]
    task, progress = await run(bob)
    assert "".join(update.text for update in progress) == "".join(f"{number}\n" for number in range(1_000))
    assert len(progress) < 20
    async with bob.rpc(bob.alice) as rpc:
        stored = await rpc.get_task(GetTaskRequest(id=task.task_id))
    assert len(stored.history) == 3  # INVITE, ACCEPT, START: progress is in the metadata (trap)


async def test_what_does_not_fit_is_counted(bob: World) -> None:
    piece = "x" * 10_000
    bob.executor.updates = [a_progress(piece) for _ in range(20)]
    _, progress = await run(bob)
    assert max(len(update.text) for update in progress) <= MAX_PROGRESS_CHARS
    assert sum(len(update.text) + update.dropped_chars for update in progress) == 200_000


async def test_every_phase_is_told_in_order(bob: World) -> None:
    phases = ["mounting", "need_reverse", "running", "unmounting"]
    bob.executor.updates = [a_progress("", phase=phase, stream="note") for phase in phases]
    _, progress = await run(bob)
    assert [update.phase for update in progress] == phases


async def test_a_late_subscriber_gets_the_task_and_what_follows(bob: World) -> None:
    bob.executor.gate.clear()
    bob.executor.updates = [a_progress("hello")]
    async with bob.rpc(bob.alice) as rpc:
        task = (await rpc.send_message(bob.request(bob.alice, an_invite()))).task
        first = rpc.send_message_streaming(bob.request(bob.alice, a_start(task.context_id), task))
        await anext(aiter(first))
        await bob.executor.running.wait()
        await first.aclose()
        kinds: list[str | None] = []
        async for event in rpc.subscribe(SubscribeToTaskRequest(id=task.id)):
            kinds.append(event.WhichOneof("payload"))
            bob.executor.gate.set()
    assert kinds[0] == "task"
    assert kinds[-1] == "status_update"
    assert "artifact_update" in kinds


async def test_outbox_does_not_wait_for_a_new_lane() -> None:
    outbox: Outbox[str] = Outbox(key=lambda item: (item[0], item[0]), merge=str.__add__)
    taken: list[str] = []

    async def take() -> None:
        items = outbox.items()
        while (item := await anext(items, None)) is not None:
            taken.append(item)

    async with asyncio.TaskGroup() as group:
        group.create_task(take())
        outbox.put("a1")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        outbox.put("a2")
        outbox.put("b1")
        outbox.put("a3")
        for _ in range(10):
            await asyncio.sleep(0)
        seen = list(taken)
        outbox.close()
    assert seen[:2] == ["a1", "a2a3"]
    assert "".join(taken) == "a1a2a3b1"
