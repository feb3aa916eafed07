"""Who speaks for this daemon: the person, hosts, each agent and the daemon, with keys of their own that last."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from sublet.daemon.config.config_file import MessagingConfig
from sublet.daemon.rooms.bus_port import BusPort
from sublet.daemon.rooms.entities import (
    agent_of,
    daemon_of,
    entity_of,
    human_of,
    load_agent,
    load_entities,
    load_named,
)
from sublet.daemon.rooms.messaging import Messaging
from sublet.policy.decision import Subject
from sublet.protocol.errors import SubletError
from sublet.tasks import Service, Services
from support.pairing import side
from support.rooms import ANY_BUS

pytestmark = pytest.mark.anyio


async def test_each_has_a_key_of_its_own_that_stays(tmp_path: Path) -> None:
    keys = tmp_path / "entities"
    keys.mkdir(mode=0o700)
    async with side(tmp_path, 1) as half:
        node = half.identity.node_id
        first = load_entities(keys, half.identity, ["helper", "reviewer", "helper", "daemon"])
        again = load_entities(keys, half.identity, ["reviewer"])
    ids = [one.record.entity_id for one in first]
    assert ids == [human_of(node), f"@mcp:{node}", daemon_of(node), f"@helper:{node}", f"@reviewer:{node}"]
    assert len({bytes(one.key) for one in first}) == len(first)
    assert {one.record.entity_id: bytes(one.key) for one in again}.items() <= {
        one.record.entity_id: bytes(one.key) for one in first
    }.items()
    assert [str(one.record.kind) for one in first] == ["human", "agent", "daemon", "agent", "agent"]
    assert all(file.stat().st_mode & 0o077 == 0 for file in keys.iterdir())


async def test_a_name_that_somebody_chooses_is_one_and_free(tmp_path: Path) -> None:
    keys = tmp_path / "entities"
    keys.mkdir(mode=0o700)
    async with side(tmp_path, 1) as half:
        made = load_named(keys, half.identity, "carol")
        assert made.record.entity_id == f"@carol:{half.identity.node_id}"
        assert load_named(keys, half.identity, "carol").key == made.key, "the key is kept"
        assert load_agent(keys, half.identity, "carol").key == made.key, "one name is one entity"
        before = sorted(keys.iterdir())
        for name in ("human", "mcp", "daemon", "", "Carol", "a/b", "../human", "a" * 65, "a\n"):
            with pytest.raises(SubletError):
                load_named(keys, half.identity, name)
        assert sorted(keys.iterdir()) == before


def test_an_agent_has_no_entity_under_the_name_of_another() -> None:
    assert agent_of("helper", "node-a") == "@helper:node-a"
    assert [agent_of(name, "node-a") for name in ("human", "mcp", "daemon")] == [None, None, None]
    assert entity_of(Subject("mcp", "human"), "node-a") == "@mcp:node-a", "what a host calls itself is no choice"


async def test_an_agent_that_is_served_later_gets_its_entity_while_rooms_run(tmp_path: Path) -> None:
    agents, port = ["helper"], BusPort(ANY_BUS, None)
    try:
        async with side(tmp_path, 1) as half, anyio.create_task_group() as group:
            messaging = Messaging(
                half.identity, tmp_path, port, half.peers, half.link, MessagingConfig(), lambda: agents
            )
            Services().start(group, Service("rooms", messaging.serve, messaging.wanted))
            service = await messaging.use()
            agents.append("reviewer")
            messaging.agents_changed()
            reviewer = f"@reviewer:{half.identity.node_id}"
            with anyio.fail_after(20):
                while True:
                    with suppress(SubletError):
                        await service.call(reviewer, "room.create", name="Review")
                        break
                    await anyio.sleep(0.01)
            (room,) = await service.call(reviewer, "room.list")
            assert room["role"] == "owner"
            group.cancel_scope.cancel()
    finally:
        port.close()
