"""What is declared of an agent follows from what holds it."""

from __future__ import annotations

from typing import Any

import pytest

from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.confinement import Confinement, confinement
from sublet.supervisor.limits import LIMITS

SHELL = {"type": "command", "argv": ["sh", "-s"]}
MODEL = {"type": "model", "base_url": "https://models.example/v1", "model": "m"}


def agent(agent_id: str = "one", provider: dict[str, Any] | None = None, **more: Any) -> AgentConfig:
    return AgentConfig.model_validate({"id": agent_id, "provider": provider or SHELL, **more})


def held(one: AgentConfig, *others: AgentConfig, sandboxed: bool = True) -> tuple[bool, bool, bool]:
    found = confinement(one, (one, *others), sandboxed=sandboxed)
    return found.cwd_only, found.allow_network, found.allow_exec


@pytest.mark.parametrize(
    ("one", "sandboxed", "expected"),
    [
        (agent(), True, (True, False, True)),
        (agent(), False, (False, True, True)),
        (agent(sandbox={"allow_network": True}), True, (True, True, True)),
        (agent(sandbox={"readable": ["/srv"]}), True, (False, False, True)),
        (agent(provider={"type": "preset", "name": "claude"}), True, (True, True, True)),
        (agent(provider={"type": "acp", "preset": "codex"}), True, (True, True, True)),
        (agent(provider={"type": "a2a", "url": "https://agents.example"}), True, (False, True, True)),
        (agent(provider=MODEL), True, (True, False, True)),
        (agent(provider=MODEL, sandbox={"allow_exec": False}), True, (True, False, False)),
        (agent(provider=MODEL, sandbox={"allow_exec": False}), False, (False, True, False)),
        (agent(provider=MODEL, mcpServers={"it": {"url": "https://tools.example"}}), True, (True, True, True)),
        (agent(provider=MODEL, mcpServers={"it": {"command": "tool"}}), True, (True, False, True)),
    ],
)
def test_each_kind_of_agent(one: AgentConfig, sandboxed: bool, expected: tuple[bool, bool, bool]) -> None:
    assert held(one, sandboxed=sandboxed) == expected


def test_a_super_agent_is_held_as_the_least_held_of_its_workers() -> None:
    workers = (
        agent("near"),
        agent("far", sandbox={"allow_network": True}, limits={"memory_bytes": None}),
        agent("inner", {"type": "super", "workers": ["far"]}),
    )
    for names, network in ((["near"], False), (["near", "far"], True), (["near", "inner"], True)):
        one = agent("all", {"type": "super", "workers": names})
        assert held(one, *workers) == (True, network, True)
        assert ("memory" in confinement(one, (one, *workers), sandboxed=True).limits) is not network


def test_only_restrictions_that_are_in_force_are_enforced() -> None:
    limits = frozenset({"memory"})
    assert Confinement(True, False, False, limits).enforced == {"cwd_only", "allow_network", "allow_exec", "memory"}
    assert Confinement(False, True, True, limits).enforced == {"memory"}


def test_of_an_agent_elsewhere_only_its_answer_is_bounded() -> None:
    one = agent(provider={"type": "a2a", "peer": "bob"})
    assert confinement(one, (one,), sandboxed=True).enforced == {"output"} < set(LIMITS)
