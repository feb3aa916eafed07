"""An agent in the sandbox delegates further by its own tools, within its chain, depth and lease (C37, DESIGN 4.9)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sublet.daemon.api.delegations import WAIT_FOR_END, WaitForEnd
from support import acp_agent
from support.daemons import SHELL_AGENT, Daemon, pair
from support.leases import ask

pytestmark = pytest.mark.timeout(300)

PYTHON = shutil.which("python3", path="/usr/bin:/bin") or "python3"
TOOLS = ["sublet.delegate", "sublet.delegate_output", "sublet.delegate_cancel"]
ALLOWED = {
    "version": 1,
    "global": [
        {
            "id": "agents-delegate",
            "effect": "allow",
            "action": ["delegation.create", "delegation.read", "delegation.cancel", "workspace.lend"],
            "subject": {"kind": "agent"},
        }
    ],
}
LEASE_SECONDS = 300


def helper(*tools: str) -> dict[str, Any]:
    return {
        "id": "helper",
        "role": "executor",
        "provider": {"type": "acp", "argv": [PYTHON, acp_agent.__file__, "tools"]},
        "sandbox": {"readable": [str(Path(acp_agent.__file__).parent)]},
        "tools": {"whitelist": [*tools]} if tools else {},
    }


@contextmanager
def with_helper(base: Path, *tools: str, policy: object = ALLOWED) -> Iterator[Daemon]:
    """Run a daemon with the helper, alone and as the worker of a team."""
    one = Daemon(base / "a")
    config = one.home / "config"
    config.mkdir(mode=0o700, parents=True)
    (config / "policy.json").write_text(json.dumps(policy))
    (config / "config.json").write_text(json.dumps({"supervisor": {"max_depth": 1, "lease_seconds": LEASE_SECONDS}}))
    team = {"id": "team", "provider": {"type": "super", "workers": ["helper"]}}
    (config / "agent.json").write_text(json.dumps({"agents": [helper(*tools), team]}))
    try:
        yield one.up()
    finally:
        one.down()


@contextmanager
def with_shell(base: Path, lender: Daemon) -> Iterator[Daemon]:
    """Run a daemon with a shell that is the peer bob of ``lender``."""
    other = Daemon(base / "b")
    try:
        other.up(agent=SHELL_AGENT)
        pair(lender, other)
        yield other
    finally:
        other.down()


def made(daemon: Daemon, calls: list[Any], agent: str = "helper") -> list[Any]:
    """Have the agent make ``calls`` and return what it tells: its tools first, then what came of each."""
    found = json.loads(daemon.json("ask", "--agent", agent, json.dumps(calls), timeout=150)["result"])
    assert isinstance(found, list)
    return found


def test_it_delegates_what_was_allowed_for_no_longer_than_it_has_itself(tmp_path: Path) -> None:
    project, secret = tmp_path / "project", tmp_path / "secret"
    project.mkdir()
    secret.mkdir()
    task = {"workspace_dir": str(project), "peer": "bob", "prompt": "echo done > out.txt", "transport": "archive"}
    with with_helper(tmp_path, *TOOLS) as one, with_shell(tmp_path, one) as other:
        one.run("allow", str(project))
        offered, begun, forbidden, foreign = made(
            one,
            [
                ["delegate", {**task, "ttl_seconds": 3_000}],
                ["delegate", {**task, "workspace_dir": str(secret)}],
                ["delegate_output", {"delegation_id": "dlg_" + "0" * 32}],
            ],
        )
        assert set(offered) == {"delegate", "delegate_output", "delegate_cancel"}
        assert begun[0] is False, begun
        view = json.loads(begun[1].partition("\n")[2])
        assert view["ttl_seconds"] <= LEASE_SECONDS
        assert forbidden[0] is True
        assert "POLICY_DENIED" in forbidden[1] or "allow" in forbidden[1]
        assert "you have begun no delegation" in foreign[1]
        ended = ask(
            one, lambda client: client.call(WAIT_FOR_END, WaitForEnd(delegation_id=view["delegation_id"], timeout=45))
        )
        assert ended.state in ("completed", "cancelled", "error", "expired")
        # Only the one that was allowed came to be worked on, called by the agent and not by a person.
        [work] = other.json("work", "--all")["assignments"]
        assert work["delegation_id"] == view["delegation_id"]
        # Who is called by a team is one deeper than this daemon allows: nothing is begun.
        _, refused = made(one, [["delegate", task]], agent="team")
        assert "nested 2 deep" in refused[1], refused
        assert len(other.json("work", "--all")["assignments"]) == 1


@pytest.mark.parametrize(("tools", "policy"), [((), ALLOWED), (("sublet.*", "file.*"), {"version": 1})])
def test_nothing_is_delegated_unless_both_the_tool_and_the_action_are_allowed(
    tmp_path: Path, tools: tuple[str, ...], policy: object
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    task = {"workspace_dir": str(project), "peer": "bob", "prompt": "echo done > out.txt"}
    with with_helper(tmp_path, *tools, policy=policy) as one:
        one.run("allow", str(project))
        if tools:
            _, refused = made(one, [["delegate", task]])
            assert refused[0] is True
            assert "POLICY_DENIED" in refused[1], refused
        else:
            # It is not even told of them.
            assert made(one, []) == []
        assert one.json("ls", "--all")["delegations"] == []
