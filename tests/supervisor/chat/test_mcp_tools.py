"""Tools of MCP servers: started in the sandbox, asked for at the gate, bounded, and gone when the server is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from sublet.supervisor.chat.mcp_tools import taken_schema
from support.chat_process import Step
from support.gates import ListGate
from support.model_jobs import model_world

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
STUB = Path(__file__).parents[2] / "support" / "mcp_stub.py"
PREFIX = Path(sys.prefix)


def servers(**more: Any) -> dict[str, Any]:
    """Return an agent's settings with the stub as its MCP server ``notes``."""
    readable = [str(path) for path in (STUB.parent, PREFIX, Path(sys.base_prefix))]
    notes = {"command": sys.executable, "args": [str(STUB)], "env": ["STUB_KEY"]}
    return {"mcpServers": {"notes": notes, **more}, "sandbox": {"readable": readable}}


async def test_tools_are_called_through_the_gate_and_a_dead_server_costs_only_its_tools(tmp_path: Path) -> None:
    script: list[Step] = [
        {"calls": [["mcp__notes__note", {"text": "hello"}], ["mcp__notes__note", {"text": 3}]]},
        {"calls": [["mcp__notes__fail", {}], ["mcp__notes__note", {"text": "x" * 1_000, "times": 900}]]},
        {"calls": [["mcp__notes__die", {}], ["mcp__notes__note", {"text": "still there?"}]]},
        {"say": "Done."},
    ]
    broken = {"command": "/bin/false"}
    with model_world(tmp_path, script, environ={"STUB_KEY": "given"}, **servers(broken=broken)) as world:
        world.gate = ListGate(["mcp.notes.note", "mcp.notes.fail", "mcp.notes.die"])
        outcome = await world.run(seconds=90)
        assert outcome.reason == "done", outcome
        first, wrong, failed, long, died, after = world.stub.results()
        assert first.startswith("[From MCP server notes.")
        assert f"hello given {world.workspace}" in first
        assert "/text" in wrong
        assert "it can't" in failed
        assert "characters left out" in long
        assert len(long) < 50_000
        assert died.startswith("Error: ")
        assert after.startswith("Error: ")
        offered = world.stub.requests()[0]["body"]["tools"]
        described = next(one["function"] for one in offered if one["function"]["name"] == "mcp__notes__note")
        assert len(described["description"]) < 1_200
        assert "\u202e" not in described["description"]
        assert "MCP server broken" in world.log.text("note")
        assert [call.tool for call in world.gate.asked][:2] == ["mcp.notes.note", "mcp.notes.fail"]


async def test_a_tool_that_is_not_allowed_is_not_called(tmp_path: Path) -> None:
    script: list[Step] = [{"calls": [["mcp__notes__note", {"text": "hello"}]]}, {"say": "Done."}]
    with model_world(tmp_path, script, **servers()) as world:
        world.gate = ListGate([])
        await world.run(seconds=60)
        assert world.stub.results() == ["Refused by policy, and not done: mcp.notes.note is not in the list."]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array"},
        {"type": "object", "properties": {"a": {"$ref": "https://example.com/schema"}}},
        {"type": "object", "properties": {"a": {"pattern": "(a+)+$(?=x)"}}},
        {"type": "object", "properties": {f"p{n}": {"description": "x" * 900} for n in range(200)}},
        {"type": "object", "required": 3},
    ],
)
async def test_a_schema_that_could_do_harm_is_not_taken(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"(?i)schema"):
        taken_schema(schema)
