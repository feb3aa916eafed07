"""The example of ``agent.json`` in the specification of agents, unchanged: it loads, and what it says acts (7.3)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from support import acp_agent
from support.daemons import Daemon

pytestmark = pytest.mark.timeout(120)

EXAMPLE: dict[str, Any] = {
    "id": "executor-1",
    "role": "executor",
    "provider": {"type": "iflow", "model": "gpt-5.3-codex"},
    "session": {"bindingScope": "finger+agent", "resume": True},
    "tools": {
        "whitelist": ["shell.exec", "capability.bd"],
        "blacklist": ["file.delete"],
        "authorizationRequired": ["shell.exec"],
    },
    "governance": {
        "iflow": {
            "allowedTools": ["read_file", "write_file"],
            "disallowedTools": ["network"],
            "approvalMode": "default",
            "injectCapabilities": True,
            "commandNamespace": "cap_",
        }
    },
}
ISSUES = {"id": "bd", "name": "Beads", "version": "1", "description": "An issue tracker.", "command": "./bd"}
OTHER = {**ISSUES, "id": "other"}


def test_the_example_loads_and_acts(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "iflow"
    program.write_text(f"#!/usr/bin/env python3\nimport sys\nsys.argv[1:] = ['tools', *sys.argv[1:]]\n{_source()}")
    program.chmod(0o755)
    # The system's interpreter, which the sandbox shows.
    daemon = Daemon(tmp_path / "a", environ={"PATH": f"{programs}:/usr/bin:/bin:{os.environ['PATH']}"})
    for module in (ISSUES, OTHER):
        directory = daemon.home / "config" / "capabilities" / str(module["id"])
        directory.mkdir(mode=0o700, parents=True)
        (directory / "module.json").write_text(json.dumps(module))
        (directory / "bd").write_text('#!/bin/sh\necho "$1: 3 issues"\n')
    try:
        daemon.up(agent=EXAMPLE)
        found = daemon.json("ask", json.dumps([["cap_bd", {"args": ["list"]}]]), timeout=100)
        offered, answer = json.loads(found["result"])
        # The one that its whitelist grants, and not the other one, which it could never call.
        assert list(offered) == ["cap_bd"]
        assert answer == [False, "list: 3 issues\n"]
        assert found["providerSessionId"] == "ses-1"
        for tool, expected in (
            ("capability.bd", "allow"),
            ("capability.other", "deny"),
            ("file.read", "allow"),
            ("file.write", "allow"),
            ("file.delete", "deny"),
            ("network.fetch", "deny"),
            ("shell.exec", "needs_grant"),
        ):
            asked = ("--subject", "executor-1", "--action", "tool.call", "--resource", tool)
            assert daemon.json("policy", "explain", *asked, check=None)["decision"] == expected, tool
    finally:
        daemon.down()


def _source() -> str:
    source = Path(acp_agent.__file__).read_text(encoding="utf-8")
    # What has to be first in a file is not first here.
    return source.replace("from __future__ import annotations\n", "", 1)
