"""What holds without any file, action by action: whoever changes a default changes this table, and docs/policy.md."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from sublet.policy.config import parse
from sublet.policy.decision import Action, Kind, Resource, Subject
from sublet.policy.engine import Policy
from sublet.policy.lending import Protected
from sublet.protocol.canonical import JsonValue

DELEGATION = {action for action in Action if action.value.startswith("delegation.")}
ALLOWED: dict[Kind, set[Action]] = {
    "human": set(Action),
    # Lending is allowed below what a person has allowed; of tools, Sublet's own.
    "mcp": DELEGATION | {Action.WORKSPACE_LEND, Action.ROOM_READ, Action.ROOM_SEND, Action.ROOM_MANAGE},
    # Pairing is what a person did for it: its owner may have agents here work, in a lease or by a message.
    "peer": {Action.ASSIGNMENT_ACCEPT, Action.AGENT_MESSAGE},
    "a2a": {Action.AGENT_MESSAGE},
    # A task of a node is allowed by what it is: one that says how an agent works is not.
    "node": {Action.NODE_READ, Action.AGENT_MESSAGE},
    # Tools by name, below; agents only that its entry names.
    "agent": set(),
    "office": {Action.OFFICE_CALL, Action.OFFICE_LOOK},
}
TOOLS: dict[Kind, dict[str, bool]] = {
    "human": {"shell.exec": True},
    "mcp": {
        "sublet.delegate": True,
        "sublet.directory": True,
        "shell.exec": False,
        "file.read": False,
        "sublet": False,
    },
    "peer": {"file.read": False, "sublet.delegate": False},
    "a2a": {"file.read": False, "sublet.delegate": False},
    "node": {"file.read": False, "sublet.delegate": False},
    "agent": {
        "file.read": True,
        "file.delete": True,
        "shell.exec": True,
        "network.fetch": False,
        "mcp.files.read": False,
        "capability.deploy": False,
        "sublet.delegate": False,
    },
    "office": {"file.read": False, "sublet.delegate": False},
}
DEFAULTS = Policy(Protected(Path("/nowhere")))


@pytest.mark.parametrize("kind", get_args(Kind))
@pytest.mark.parametrize("action", [action for action in Action if action is not Action.TOOL_CALL])
def test_what_each_kind_may_do_by_default(kind: Kind, action: Action, tmp_path: Path) -> None:
    name = str(tmp_path) if action is Action.WORKSPACE_LEND else "thing"
    decision = DEFAULTS.decide(Subject(kind, "one", (str(tmp_path),)), action, Resource(name))
    assert decision.allowed == (action in ALLOWED[kind]), decision
    assert not decision.needs_grant, "nothing waits for a person before she has asked for that"


@pytest.mark.parametrize(("kind", "tool"), [(kind, tool) for kind, tools in TOOLS.items() for tool in tools])
def test_which_tools_each_kind_may_call_by_default(kind: Kind, tool: str) -> None:
    assert DEFAULTS.decide(Subject(kind, "one"), Action.TOOL_CALL, Resource(tool)).allowed == TOOLS[kind][tool]


def test_an_agent_may_call_the_workers_that_its_entry_names_and_no_others() -> None:
    for declared in (True, False):
        asked = Resource("worker", {"declared": declared, "depth": 1})
        assert DEFAULTS.decide(Subject("agent", "one"), Action.AGENT_DISPATCH, asked).allowed == declared


@pytest.mark.parametrize("action", [Action.ASSIGNMENT_ACCEPT, Action.AGENT_MESSAGE])
def test_what_a_peer_may_do_can_be_taken_from_one_peer(action: Action) -> None:
    rule: JsonValue = {
        "id": "no",
        "effect": "deny",
        "action": ["assignment.accept", "agent.message"],
        "subject": {"kind": "peer", "name": "mallory"},
    }
    mine = Policy(Protected(Path("/nowhere")), parse({"version": 1, "global": [rule]}))
    assert not mine.decide(Subject("peer", "mallory"), action, Resource("coder")).allowed
    assert mine.decide(Subject("peer", "bob"), action, Resource("coder")).allowed
