"""D28: the schema of ``agent.json`` and its loader are one model: what one refuses, the other does as well."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from sublet.protocol.errors import SubletError
from sublet.protocol.strict_model import read_strictly
from sublet.supervisor.agent_config import AgentConfig, agent_json_schema, load_agents

SCHEMA = Draft202012Validator(agent_json_schema())
OTHERS: list[Any] = ["5", "yes", "", 5, 0, 1, 5.0, 5.5, -1, True, False, None, [], ["x"], [1], {}, {"x": 1}]
WHOLE: list[dict[str, Any]] = [
    {
        "id": "coder",
        "role": "executor",
        "name": "Coder",
        "description": "d",
        "version": "1.0.0",
        "provider": {
            "type": "model",
            "base_url": "https://example.com/v1",
            "model": "m",
            "api_key_env": "KEY",
            "temperature": 0.5,
            "max_steps": 5,
            "json_schema": True,
            "prices": {"input_per_million": 1, "output_per_million": 2.5},
            "max_cost": 3,
        },
        "session": {"bindingScope": "finger", "resume": True},
        "tools": {"whitelist": ["file.*"], "blacklist": ["file.delete"], "authorizationRequired": ["file.write"]},
        "governance": {
            "model": {
                "allowedTools": ["file.read"],
                "disallowedTools": ["network"],
                "approvalMode": "default",
                "injectCapabilities": True,
                "capabilityIds": ["x"],
                "commandNamespace": "cap_",
            }
        },
        "skills": [{"id": "s", "name": "n", "description": "d", "tags": ["t"], "examples": ["e"]}],
        "routing": {"cost": 1, "trust": 0.5},
        "sandbox": {"cwd_only": True, "allow_network": False, "allow_exec": True, "readable": ["~/x"]},
        "limits": {"memory_bytes": None, "processes": 10, "cpu_seconds": 60, "output_bytes": 2048},
        "environment": ["PATH"],
        "mcpServers": {"box": {"command": "box", "args": ["x"], "env": ["A"]}},
        "timeout_seconds": 5,
    },
    {"id": "a", "provider": {"type": "command", "argv": ["x"]}},
    {"id": "a", "provider": {"type": "preset", "name": "claude", "model": "m"}},
    {"id": "a", "provider": {"type": "acp", "argv": ["x"]}},
    {"id": "a", "provider": {"type": "iflow", "model": "m"}},
]


def places(document: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the place of every value."""
    if at:
        yield at
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in items:
        yield from places(value, (*at, key))


def with_value(document: Any, at: tuple[str | int, ...], value: Any) -> Any:
    made = copy.deepcopy(document)
    inner = made
    for step in at[:-1]:
        inner = inner[step]
    inner[at[-1]] = value
    return made


@pytest.mark.parametrize("document", WHOLE, ids=lambda document: str(document["provider"]["type"]))
def test_a_value_of_another_type_is_refused_by_both_or_by_none(document: dict[str, Any]) -> None:
    assert SCHEMA.is_valid(document)
    read_strictly(AgentConfig, document)
    for at in places(document):
        for value in OTHERS:
            changed = with_value(document, at, value)
            by_schema, refused = SCHEMA.is_valid(changed), refusal(changed)
            if refused is None:
                assert by_schema, f"the schema alone refuses {value!r} at {at}"
            elif by_schema:
                own = all(one["type"] == "value_error" for one in refused.errors())
                assert own, f"the loader alone refuses {value!r} at {at}: {refused}"


def refusal(document: Any) -> ValidationError | None:
    """Return why the loader refuses a document, or None."""
    try:
        read_strictly(AgentConfig, document)
    except ValidationError as error:
        return error
    return None


@pytest.mark.parametrize(
    "change",
    [
        {"session": {"resume": "yes"}},
        {"session": {"binding_scope": "finger"}},
        {"timeout_seconds": "5"},
        {"routing": {"cost": "3"}},
        {"limits": {"processes": True}},
        {"sandbox": {"cwd_only": 1}},
        {"mcp_servers": {}},
    ],
)
def test_nothing_is_made_of_another_type_or_name(tmp_path: Path, change: dict[str, Any]) -> None:
    file = tmp_path / "agent.json"
    file.write_text(json.dumps({**WHOLE[1], "provider": {"type": "acp", "argv": ["x"]}, **change}))
    with pytest.raises(SubletError, match=next(iter(change))):
        load_agents(file)
