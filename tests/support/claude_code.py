"""The real Claude Code, pinned and offline, as MCP host and as an executor's agent."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

JsonObject = dict[str, Any]

VERSION = "2.1.197"
HOSTS = Path(__file__).resolve().parents[2] / ".cache" / "hosts"
BINARY = HOSTS / "node_modules" / ".bin" / "claude"
ACP_BINARY = HOSTS / "node_modules" / ".bin" / "claude-agent-acp"
MAX_SECONDS = 50.0

EDITING_TOOLS = ("Read", "Edit", "Write", "Glob", "Grep")


def program() -> Path:
    """Return the real path of the pinned program.

    It is one native executable: nothing of Node or of the package around it is needed to run it. Without Node it can't
    be installed, and the tests that need it are left out; in every other case its absence is a failure.
    """
    if not BINARY.exists() and shutil.which("npm") is None:
        pytest.skip("no npm here to install Claude Code with")
    assert BINARY.exists(), f"Claude Code {VERSION} is not installed: run scripts/setup-hosts"
    return BINARY.resolve()


def acp_program() -> Path:
    """Return the path of the pinned adapter that makes it speak the Agent Client Protocol; it needs Node to run."""
    program()
    assert ACP_BINARY.exists(), "claude-agent-acp is not installed: run scripts/setup-hosts"
    return ACP_BINARY


def environment(home: Path, model_url: str) -> dict[str, str]:
    """Return everything the program gets to see: an empty home of its own, and the scripted model."""
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
        "TMPDIR": str(home),
        "CLAUDE_CODE_TMPDIR": str(home),
        "ANTHROPIC_BASE_URL": model_url,
        "ANTHROPIC_API_KEY": "dummy",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        # Otherwise it begins without a server of MCP that a busy machine has not started after five seconds.
        "MCP_CONNECT_TIMEOUT_MS": "40000",
    }


def mcp_config(name: str, command: Sequence[str], env: Mapping[str, str] | None = None) -> JsonObject:
    """Return an MCP configuration with one stdio server."""
    return {
        "mcpServers": {
            name: {"type": "stdio", "command": command[0], "args": list(command[1:]), "env": {**(env or {})}}
        }
    }


def host_argv(config: Path, tools: Sequence[str]) -> list[str]:
    """Return the argv of Claude Code as MCP host, the prompt on stdin.

    Args:
        config: file with an MCP configuration; no other server is started.
        tools: full names of the tools it may use, such as ``mcp__sublet__delegate``.
    """
    return [
        *(str(program()), "-p", "--output-format", "json"),
        *("--mcp-config", str(config), "--strict-mcp-config"),
        *("--allowedTools", ",".join(tools)),
    ]


def worker_argv(tools: Sequence[str] = EDITING_TOOLS) -> list[str]:
    """Return the argv of Claude Code as an agent that edits in its current directory, the prompt on stdin.

    Settings, hooks and MCP servers that the directory itself brings along are not read: it is somebody else's.
    """
    return [
        *(str(program()), "-p", "--output-format", "text"),
        *("--permission-mode", "acceptEdits", "--allowedTools", ",".join(tools)),
        *("--strict-mcp-config", "--setting-sources", "user"),
    ]


@dataclass(frozen=True, slots=True)
class Run:
    """How a run ended."""

    exit_code: int
    stdout: str
    stderr: str

    def json(self) -> JsonObject:
        """Return the object that ``--output-format json`` printed."""
        parsed = json.loads(self.stdout)
        assert isinstance(parsed, dict)
        return parsed


async def run(
    argv: Sequence[str], prompt: str, *, cwd: Path, env: Mapping[str, str], seconds: float = MAX_SECONDS
) -> Run:
    """Run ``argv`` with ``prompt`` on stdin to its end; it is killed after ``seconds``."""
    with anyio.fail_after(seconds):
        done = await anyio.run_process(
            list(argv), input=prompt.encode(), stderr=subprocess.PIPE, check=False, cwd=cwd, env=env
        )
    return Run(done.returncode, done.stdout.decode(), done.stderr.decode())
