"""The agent card: its content, its signature, its cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.compat.v0_3.types import AgentCard as LegacyCard
from a2a.types import AgentCard

from sublet.a2a_wire.card import offered_agents, verify_card
from sublet.protocol.messages import AWCP_URI
from support.a2a_world import AGENT, REVIEWER, Node, World, world

pytestmark = pytest.mark.anyio

PATH = "/.well-known/agent-card.json"


async def fetched(bob: World) -> dict[str, Any]:
    async with httpx.AsyncClient() as http:
        answer = await http.get(bob.url + PATH)
    assert answer.headers["cache-control"] == "public, max-age=60"
    card: dict[str, Any] = answer.json()
    return card


async def test_one_agent(bob: World) -> None:
    card = await fetched(bob)
    assert (card["name"], card["description"], card["version"]) == ("Shell", "Runs scripts", "2.1.0")
    (skill,) = card["skills"]
    assert (skill["id"], skill["tags"], skill["examples"]) == ("run", ["shell"], ["make test"])
    assert card["capabilities"]["streaming"] is True
    (extension,) = card["capabilities"]["extensions"]
    assert extension["uri"] == AWCP_URI
    assert not extension.get("required", False)
    assert extension["params"]["sublet"]["fingerprint"] == bob.me.fingerprint
    (interface, rest, _) = card["supportedInterfaces"]
    assert interface == {"url": bob.url + "/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    assert rest == {"url": bob.url + "/a2a/v1", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"}


async def test_c43_the_card_is_valid_for_both_versions(bob: World) -> None:
    card = await fetched(bob)
    LegacyCard.model_validate(card)
    required = [field.json_name for field in AgentCard.DESCRIPTOR.fields if field.name in _REQUIRED]
    jsonschema.validate(card, {"type": "object", "required": required})


_REQUIRED = {
    "name",
    "description",
    "version",
    "supported_interfaces",
    "capabilities",
    "default_input_modes",
    "default_output_modes",
    "skills",
}


async def test_several_agents_share_a_card(tmp_path: Path) -> None:
    bare = AGENT.model_copy(update={"id": "bare", "name": "", "skills": (), "description": ""})
    async with world(tmp_path, agents=(AGENT, REVIEWER, bare)) as bob:
        card = await fetched(bob)
    assert [skill["id"] for skill in card["skills"]] == ["shell/run", "reviewer/run", "bare/work"]
    agents = offered_agents(parse_agent_card(card))
    assert [(agent.id, agent.skills) for agent in agents] == [("shell", ["run"]), ("reviewer", ["run"]), ("bare", [])]


async def test_no_agent_is_a_valid_card_too(tmp_path: Path) -> None:
    async with world(tmp_path, agents=()) as bob:
        card = await fetched(bob)
        assert card["name"] == bob.me.node_id


async def test_the_signature_covers_the_card(bob: World) -> None:
    card = parse_agent_card(await fetched(bob))
    assert verify_card(card, bob.me.public)
    assert not verify_card(card, Node("x").public)
    card.skills[0].description = "Runs anything"
    assert not verify_card(card, bob.me.public)
    del card.signatures[:]
    assert not verify_card(card, bob.me.public)


async def test_a_known_card_is_not_sent_again(bob: World) -> None:
    async with httpx.AsyncClient(base_url=bob.url) as http:
        first = await http.get(PATH)
        again = await http.get(PATH, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


async def test_agents_of_a_hostile_card_are_bounded_and_clean(bob: World) -> None:
    card = parse_agent_card(await fetched(bob))
    params = card.capabilities.extensions[0].params
    params.update({"agents": [{"id": "../x"}, {"id": "ok", "description": "a\x1b[31m\u202eb"}]})
    assert [(agent.id, agent.description) for agent in offered_agents(card)] == [("ok", "ab")]
    params.update({"agents": "many"})
    assert offered_agents(card) == []
    params.update({"agents": [{"id": "a"}] * 1_000})
    assert offered_agents(card) == []
