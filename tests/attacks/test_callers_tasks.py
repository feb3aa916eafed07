"""Callers over A2A: what one request for many tasks costs, what many requests keep from others, and revoked access."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from a2a.client import A2AClientError
from a2a.types import ListTasksRequest
from a2a.utils.errors import UnsupportedOperationError

from sublet.a2a_server import context_builder, plain
from sublet.a2a_server.task_store import MAX_PAGE_BYTES
from sublet.daemon.peering import nonces as nonce_memory
from sublet.daemon.peering.nonces import NonceMemory
from sublet.daemon.ports.given_to_a2a import AskedBack
from sublet.daemon.storage.store import Store
from sublet.protocol.errors import SubletError
from support.a2a_world import TOKEN, text, until, world

pytestmark = pytest.mark.anyio


async def test_a_page_of_large_tasks_is_bounded_in_bytes(tmp_path: Path) -> None:
    said = "é" * 60_000
    async with world(tmp_path) as bob, bob.rpc(TOKEN) as rpc:
        for _ in range(6):
            await rpc.send_message(text(said))
        seen: list[str] = []
        request = ListTasksRequest(page_size=100, include_artifacts=True)
        while True:
            page = await rpc.list_tasks(request)
            assert page.ByteSize() < MAX_PAGE_BYTES or len(page.tasks) == 1
            assert page.total_size == 6
            seen += [task.id for task in page.tasks]
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
    assert len(seen) == len({*seen}) == 6


@pytest.mark.parametrize(("at", "found"), [("0001-01-01T00:00:00Z", 1), ("9999-12-31T23:59:59Z", 0)])
async def test_tasks_since_any_time_can_be_asked_for(tmp_path: Path, at: str, found: int) -> None:
    async with world(tmp_path) as bob, bob.rpc(TOKEN) as rpc:
        await rpc.send_message(text("hello"))
        request = ListTasksRequest()
        request.status_timestamp_after.FromJsonString(at)
        assert (await rpc.list_tasks(request)).total_size == found


async def test_a_task_that_asks_again_and_again_does_not_grow_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context_builder, "MAX_TASK_BYTES", 10_000)
    said = "x" * 1_000

    async def asks(*_: object, **__: object) -> AsyncGenerator[AskedBack, None]:
        yield AskedBack("And?")

    async with world(tmp_path) as bob, bob.rpc(TOKEN) as rpc:
        monkeypatch.setattr(bob.messages, "answer", asks)
        task = (await rpc.send_message(text(said))).task

        async def goes_on() -> None:
            nonlocal task
            for _ in range(20):
                task = (await rpc.send_message(text(said, task_id=task.id))).task

        with pytest.raises(UnsupportedOperationError, match="So much"):
            await goes_on()
        assert task.ByteSize() < 20_000
        assert (await rpc.send_message(text(said, context_id=task.context_id))).task.id != task.id


async def test_a_caller_that_fills_the_replay_memory_keeps_nobody_else_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nonce_memory, "MAX_NONCES", 40)
    monkeypatch.setattr(nonce_memory, "MAX_OF_ONE", 30)
    monkeypatch.setattr(nonce_memory, "KEPT_FOR_EACH", 15)
    store = await Store.open(tmp_path / "store.sqlite3")
    try:
        memory = await NonceMemory.load(store)
        async with world(tmp_path, nonces=memory) as bob:
            async with bob.rpc(bob.mallory) as rpc:

                async def flood() -> None:
                    for _ in range(60):
                        await rpc.list_tasks(ListTasksRequest())

                with pytest.raises(A2AClientError, match="503"):
                    await flood()
            async with bob.rpc(bob.alice) as rpc:
                for _ in range(12):
                    await rpc.list_tasks(ListTasksRequest())
        # Of the person at this machine everything is taken; of a caller, what others leave.
        now = int(time.time())
        assert all(memory.first_seen(secrets.token_hex(8), now) for _ in range(60))
        mallory = memory.of(f"peer:{bob.mallory.node_id}")
        with pytest.raises(SubletError):
            mallory.first_seen("another", now)
    finally:
        await store.close()


@pytest.mark.parametrize("streams", [False, True])
async def test_work_of_a_caller_whose_access_is_taken_away_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, streams: bool
) -> None:
    monkeypatch.setattr(plain, "RECHECK_SECONDS", 0.01)
    tokens = {TOKEN: "ci"}
    async with world(tmp_path, find_token=tokens.get) as bob:
        bob.messages.gate.clear()

        async def ask() -> None:
            async with bob.rpc(TOKEN) as rpc:
                with suppress(A2AClientError):  # how its call ends is not the question
                    if streams:
                        async for _ in rpc.send_message_streaming(text("work")):
                            pass
                    else:
                        await rpc.send_message(text("work"))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await bob.messages.running.wait()
            tokens.clear()
            await until(lambda: bob.messages.closed == 1)
            group.cancel_scope.cancel()
