"""Every tool that an agent gets from its daemon asks first: each is called, by both ways in which agents get them."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from support import acp_agent
from support.chat_process import Step, chat_stub
from support.daemons import Daemon

pytestmark = pytest.mark.timeout(240)
PYTHON = shutil.which("python3", path="/usr/bin:/bin") or "python3"
STUB = Path(__file__).parents[1] / "support" / "mcp_stub.py"
TARGET = {"id": "dlg_" + "0" * 32}
FROM_DAEMON: dict[str, dict[str, Any]] = {
    "capability.tool": {"args": ["x"]},
    "sublet.ask_human": {"question": "May I?"},
    "sublet.delegate": {"workspace_dir": "/srv", "peer": "bob", "prompt": "p"},
    "sublet.delegate_output": {"delegation_id": TARGET["id"]},
    "sublet.delegate_cancel": {"delegation_id": TARGET["id"]},
    "sublet.send_message": {"message": "hello"},
    "sublet.watch": {},
}
ONWARD = {"sublet.delegate", "sublet.delegate_output", "sublet.delegate_cancel"}
"""Those that agents elsewhere alone are given, by their socket."""
FROM_SERVERS: dict[str, dict[str, Any]] = {
    "mcp.notes.note": {"text": "hello"},
    "mcp.notes.fail": {},
    "mcp.notes.die": {},
}
FILES = {"file.read", "file.list", "file.search", "file.write", "file.edit", "file.move", "file.delete", "shell.exec"}
NARROWED = ("--only", "network.fetch")
"""What the request leaves: no tool of these. A rule that denies them always would have them not be offered at all."""
TOOLS = ["capability.*", "sublet.*", "mcp.*", *sorted(FILES)]


def daemon_with(base: Path, agent: dict[str, Any]) -> Daemon:
    """Return a daemon that offers an agent, and has a capability."""
    one = Daemon(base / "a")
    config = one.home / "config"
    capability = config / "capabilities" / "tool"
    capability.mkdir(parents=True)
    config.chmod(0o700)
    module = {"id": "tool", "name": "tool", "version": "1", "description": "does it", "command": "./run.sh"}
    (capability / "module.json").write_text(json.dumps(module))
    (capability / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (capability / "run.sh").chmod(0o755)
    (config / "agent.json").write_text(json.dumps({"agents": [agent]}))
    return one


def _of_model(tool: str) -> str:
    """Return the name by which a model calls a tool."""
    return tool.removeprefix("sublet.").replace(".", "__" if tool.startswith("mcp.") else "_")


def denied(daemon: Daemon) -> set[str]:
    """Return the tools whose calls were denied."""
    return {str(one["resource"]) for one in daemon.json("audit", "denials")["entries"] if one["action"] == "tool.call"}


def test_by_its_socket(tmp_path: Path) -> None:
    agent = {
        "id": "helper",
        "role": "executor",
        "provider": {"type": "acp", "argv": [PYTHON, acp_agent.__file__, "tools"]},
        "sandbox": {"readable": [str(Path(acp_agent.__file__).parent)]},
        "tools": {"whitelist": TOOLS},
        "governance": {"acp": {"injectCapabilities": True}},
    }
    one = daemon_with(tmp_path, agent)
    try:
        one.up()
        calls = [[name.removeprefix("sublet.").replace(".", "_"), given] for name, given in FROM_DAEMON.items()]
        said = one.json("ask", "--agent", "helper", *NARROWED, json.dumps(calls), timeout=150)["result"]
        offered, *told = json.loads(said)
        assert set(offered) == {name for name, _ in calls}, "these are all that there are"
        assert [one[0] for one in told] == [True] * len(calls)
        assert all(one[1].startswith("Refused by policy, and not done") for one in told), told
        assert denied(one) == set(FROM_DAEMON)
    finally:
        one.down()


def test_by_a_model(tmp_path: Path) -> None:
    every = {name: given for name, given in FROM_DAEMON.items() if name not in ONWARD} | FROM_SERVERS
    script: list[Step] = [{"calls": [[_of_model(name), given]]} for name, given in every.items()]
    with chat_stub(tmp_path / "c", [*script, {"say": "done"}]) as stub:
        readable = [str(path) for path in (STUB.parent, sys.prefix, sys.base_prefix)]
        notes = {"command": sys.executable, "args": [str(STUB)]}
        agent = stub.agent(
            role="executor",
            mcpServers={"notes": notes},
            sandbox={"readable": readable},
            tools={"whitelist": TOOLS},
            governance={"model": {"injectCapabilities": True}},
        )
        one = daemon_with(tmp_path, agent)
        try:
            one.up()
            one.json("ask", "--agent", "coder", *NARROWED, "do it", timeout=150)
            offered = {str(each["function"]["name"]) for each in stub.requests()[0]["body"]["tools"]}
            assert offered == {_of_model(name) for name in {*every, *FILES}}, "these are all that there are"
            told = stub.results()
            assert len(told) == len(every)
            assert all(each.startswith("Refused by policy, and not done") for each in told), told
            assert denied(one) == set(every)
        finally:
            one.down()
