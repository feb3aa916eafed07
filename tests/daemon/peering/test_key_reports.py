"""That somebody poses as a peer is journalled, however often it happens."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from nacl.signing import SigningKey

from sublet.daemon.peering import key_reports
from sublet.daemon.peering.key_reports import key_reporter
from sublet.daemon.peering.peers import Peer
from sublet.protocol.ids import node_id
from support.pairing import side

pytestmark = pytest.mark.anyio


async def test_a_stranger_that_poses_without_end_writes_one_event_a_minute(tmp_path: Path) -> None:
    now = [0.0]
    keys = [bytes(SigningKey.generate().verify_key) for _ in range(2)]
    async with side(tmp_path / "host", 1) as host:
        for name, key in zip(("ann", "bob"), keys, strict=True):
            await host.peers.add(Peer(name, key, None, None))

        async def posed() -> list[str]:
            async with anyio.create_task_group() as group:
                report = key_reporter(host.peers, group, lambda: now[0])
                for _ in range(30):
                    report(node_id(keys[0]), "SHA256:other")
                report(node_id(keys[1]), "SHA256:other")
                now[0] += key_reports.EVENT_SECONDS
                report(node_id(keys[0]), "SHA256:other")
            events = (await host.journal.events.events_after(0)).events
            return [str(event.data["name"]) for event in events if event.kind == "peer_key_changed"]

        assert sorted(await posed()) == ["ann", "ann", "bob"]
