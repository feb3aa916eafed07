"""Files that pages show, taken by the loaders that take them in a daemon."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from sublet.daemon.config.config_file import read_config
from sublet.federation.settings import FEDERATION_FILE, read_settings
from sublet.policy.capabilities.module_file import parse_module
from sublet.policy.config import load as load_policy
from sublet.supervisor.agent_config import load_agents
from sublet.supervisor.gateways.module_file import parse_gateway

_COMMAND: Final = {"id": "agent", "provider": {"type": "command", "argv": ["sh", "-s"]}}
_ACP: Final = {"id": "agent", "provider": {"type": "acp", "preset": "claude"}}
_MODEL: Final = {"id": "agent", "provider": {"type": "model", "base_url": "http://127.0.0.1:1/v1", "model": "small"}}
_GATEWAY: Final = {
    "id": "chat",
    "name": "Chat",
    "version": "1",
    "description": "Rooms.",
    "direction": "duplex",
    "protocol": "stdio",
    "process": {"command": "cat"},
}
WHOLE: Final[Mapping[str, Callable[[Any], Any]]] = {
    "part of agent.json": lambda part: {**_COMMAND, **part},
    "part of an acp agent.json": lambda part: {**_ACP, **part},
    "part of a model agent.json": lambda part: {**_MODEL, **part},
    "rule of policy.json": lambda rule: {"version": 1, "global": [rule]},
    "part of gateways/chat/module.json": lambda part: {**_GATEWAY, **part},
}
"""How the part that a page shows becomes a whole file."""


def load(kind: str, text: str, directory: Path) -> None:
    """Let the loader of a kind of file take what a page shows of one.

    Raises:
        SubletError: it does not; ValueError: it is not JSON, or there is no such kind.
    """
    if kind == FEDERATION_FILE:
        path = directory / FEDERATION_FILE
        path.write_text(text)
        read_settings(path)
        return
    part = json.loads(text if text.lstrip().startswith(("{", "[")) else f"{{{text}}}")
    whole = WHOLE[kind](part) if kind in WHOLE else part
    path = directory / "file.json"
    path.write_text(json.dumps(whole))
    kind_of_file = kind.rpartition(" ")[2]
    match kind_of_file.split("/"):
        case ["agent.json"]:
            load_agents(path)
        case ["policy.json"]:
            load_policy(path)
        case ["config.json"]:
            read_config(path)
        case ["capabilities", name, "module.json"]:
            parse_module(path.read_bytes(), name)
        case ["gateways", name, "module.json"]:
            parse_gateway(path.read_bytes(), name)
        case _:
            raise ValueError(f"no loader is known for {kind}")
