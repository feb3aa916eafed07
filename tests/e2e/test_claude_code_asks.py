"""The real Claude Code as an MCP host whose call waits for a person: what it shows, and what its yes is worth."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from nacl.signing import SigningKey

from sublet.daemon.api.approval_statements import approve_statement
from sublet.daemon.api.approvals import (
    APPROVE,
    GET_APPROVER,
    LIST_APPROVALS,
    SET_APPROVER,
    ApprovalView,
    ApproveRequest,
    ListApprovals,
    Terms,
)
from sublet.daemon.api.operation import Nothing
from sublet.protocol.statement_signing import sign_statement
from support import claude_code
from support.approvals import setting
from support.daemons import SUBLET, Daemon, wait_for
from support.leases import ask
from support.model_stub import Call, ModelStub, Say, Script

pytestmark = pytest.mark.anyio

POLICY = {
    "version": 1,
    "global": [
        {
            "id": "ask-first",
            "effect": "approval",
            "action": "tool.call",
            "subject": {"kind": "mcp"},
            "resource": "sublet.directory",
        }
    ],
}
YES = '{"hookSpecificOutput": {"hookEventName": "Elicitation", "action": "accept", "content": {}}}'


def approve(daemon: Daemon, key: SigningKey) -> None:
    """Approve what waits, by the key, as a person does in a terminal."""

    def look() -> ApprovalView | None:
        return next(iter(ask(daemon, lambda client: client.call(LIST_APPROVALS, ListApprovals()))), None)

    asked: ApprovalView = wait_for(look, 40, "a question")
    owner = ask(daemon, lambda client: client.call(GET_APPROVER, Nothing())).daemon
    signed = sign_statement(approve_statement(owner, asked, Terms()), key)
    ask(daemon, lambda client: client.call(APPROVE, ApproveRequest(approval_id=asked.id, signed=signed)))


@pytest.mark.parametrize("approved", [True, False])
async def test_claude_code_shows_the_exact_call_and_its_yes_waits_for_the_key(tmp_path: Path, approved: bool) -> None:
    claude_code.program()
    config, home, project = (tmp_path / name for name in ("mcp.json", "home", "project"))
    (home / ".claude").mkdir(parents=True)
    project.mkdir()
    # Its hook takes the place of the person at the screen: it sees what she would, and either clicks yes or closes it.
    hook = home / "hook"
    hook.write_text(f"#!/bin/sh\ncat > {home}/shown.json\n" + (f"echo '{YES}'\n" if approved else ""))
    hook.chmod(0o700)
    hooks = {"Elicitation": [{"hooks": [{"type": "command", "command": str(hook)}]}]}
    (home / ".claude" / "settings.json").write_text(json.dumps({"hooks": hooks}))
    daemon = Daemon(tmp_path / "a")
    (daemon.home / "config").mkdir(mode=0o700, parents=True)
    (daemon.home / "config" / "policy.json").write_text(json.dumps(POLICY))
    key = SigningKey.generate()
    script = Script([Call("sublet__directory", {}), Say("Done.")], when="Who is there")
    try:
        daemon.up()
        await anyio.to_thread.run_sync(pin, daemon, key)
        with ModelStub([script]) as model:
            server = claude_code.mcp_config("sublet", [str(SUBLET), "mcp"], {"SUBLET_HOME": str(daemon.home)})
            config.write_text(json.dumps(server))
            async with anyio.create_task_group() as group:
                if approved:
                    group.start_soon(anyio.to_thread.run_sync, approve, daemon, key)
                run = await claude_code.run(
                    claude_code.host_argv(config, ["mcp__sublet__directory"]),
                    "Who is there?",
                    cwd=project,
                    env=claude_code.environment(home, model.url),
                )
        assert (model.faults, run.exit_code) == ([], 0), run.stderr
        [result] = model.results
        shown = json.loads((home / "shown.json").read_text())
        assert shown["hook_event_name"] == "Elicitation"
        for part in ("mcp:claude-code wants to call sublet.directory", "Arguments: {}", "sha256 ", "rule ask-first"):
            assert part in shown["message"]
        assert "sublet approvals approve apr_" in shown["message"]
        assert result.is_error is not approved
        if approved:
            assert result.json()["peers"] == []
        else:
            assert result.text.startswith("APPROVAL_REQUIRED")
            assert "sublet approvals approve apr_" in result.text
            # The host is gone, and nobody needs an answer any more.
            wait_for(lambda: daemon.json("approvals")["approvals"] == [], 20, "the end of the question")
    finally:
        daemon.down()


def pin(daemon: Daemon, key: SigningKey) -> None:
    """Make ``key`` the approver's."""
    owner = ask(daemon, lambda client: client.call(GET_APPROVER, Nothing())).daemon
    ask(daemon, lambda client: client.call(SET_APPROVER, setting(key, key, owner)))
