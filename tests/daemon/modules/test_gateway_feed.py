"""What a gateway is told goes on whatever lies where its place is kept."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from sublet.daemon.modules.gateway_feed import GatewayFeed
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.store import Store
from sublet.policy.engine import Policy
from sublet.policy.lending import Protected
from sublet.protocol.canonical import JsonValue
from sublet.protocol.events import EventKind
from sublet.supervisor.gateways.module_file import GatewayModule
from support.decisions import KeptDecisions, gatekeeper

pytestmark = pytest.mark.anyio
MODULE = GatewayModule.model_validate(
    {
        "id": "g",
        "name": "g",
        "version": "1",
        "description": "d",
        "direction": "output",
        "protocol": "http",
        "feed": [{"kinds": ["config_reloaded"]}],
    }
)


@pytest.mark.parametrize("spoil", [os.mkfifo, os.mkdir, lambda path: Path(path).write_text("no number")])
async def test_a_spoilt_place_costs_no_event_that_comes(tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    spoil(tmp_path / "g.cursor")
    store = await Store.open(tmp_path / "sublet.db")
    journal = Journal(store)
    feed = GatewayFeed(journal, gatekeeper(journal, Policy(Protected(Path("/nowhere"))), KeptDecisions()), tmp_path)
    told: list[JsonValue] = []

    async def deliver(_: str, message: JsonValue) -> JsonValue:
        told.append(message)
        return None

    async def connected(_: str) -> None:
        """It is."""

    try:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                group.start_soon(feed.run, MODULE, deliver, connected)
                await anyio.wait_all_tasks_blocked()
                while len(told) < 2:
                    await journal.events.append_event(EventKind.CONFIG_RELOADED, None, {})
                    await anyio.sleep(0.02)
                group.cancel_scope.cancel()
    finally:
        await store.close()
