"""No daemon is made to work for its own work, over however many others, and none nests without end (C37)."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.daemons import SHELL_AGENT, SUBLET, Daemon, pair

pytestmark = pytest.mark.timeout(180)

MAY_DELEGATE: dict[str, Any] = {
    "version": 1,
    "global": [
        {
            "id": "agents-delegate",
            "effect": "allow",
            "action": ["delegation.create", "delegation.read", "workspace.lend"],
            "subject": {"kind": "agent"},
        }
    ],
}


def onward(at: Daemon, to: str, script: str, project: Path) -> str:
    """Return a script with which an agent of ``at`` delegates ``script`` to a peer and says what came of it."""
    # A directory of its own, since what is lent is locked.
    lent = project / f"{at.home.name}-{len(list(project.iterdir()))}"
    lent.mkdir()
    command = shlex.join(
        [str(SUBLET), "delegate", str(lent), "--to", to, "--transport", "archive", "--ttl", "60s", "--json", script]
    )
    # Whatever environment an agent chooses, the daemon knows it by its process.
    return f"export SUBLET_HOME={shlex.quote(str(at.home))}; {command}"


@contextmanager
def ring(
    base: Path, names: Sequence[str], *, policy: dict[str, object] | None = MAY_DELEGATE
) -> Iterator[list[Daemon]]:
    """Run daemons whose agents run scripts unconfined, each paired with the next, the last one with the first."""
    daemons = [Daemon(base / name) for name in names]
    try:
        for daemon in daemons:
            config = daemon.home / "config"
            config.mkdir(mode=0o700, parents=True)
            if policy is not None:
                (config / "policy.json").write_text(json.dumps(policy))
            daemon.up("--unsandboxed", agent=SHELL_AGENT)
            daemon.run("allow", str(base / "project"))
        for number, daemon in enumerate(daemons):
            following = (number + 1) % len(daemons)
            if len(daemons) == 1:
                break
            pair(daemon, daemons[following], name=names[following])
        yield daemons
    finally:
        for daemon in daemons:
            daemon.down()


def project_in(base: Path) -> Path:
    project = base / "project"
    (project / "first").mkdir(parents=True)
    return project


def delegated(daemon: Daemon, to: str, script: str, project: Path) -> str:
    """Have a person delegate ``script``, and return all that was told of it, the other daemons' words included."""
    found = daemon.json(
        "delegate", str(project / "first"), "--to", to, "--transport", "archive", "--ttl", "90s", script, check=None
    )
    said = daemon.json("output", found["delegation_id"], check=None)
    return json.dumps(said, ensure_ascii=False).replace("\\", "")


def worked(*daemons: Daemon) -> list[int]:
    return [len(daemon.json("work", "--all")["assignments"]) for daemon in daemons]


def name_of(at: Daemon, other: Daemon) -> str:
    """Return what ``at`` calls ``other``."""
    [name] = [one["name"] for one in at.json("peers", "list")["peers"] if one["node_id"] == other.info["node_id"]]
    return str(name)


def test_cycles_are_refused_with_the_chain_before_anything_is_done(tmp_path: Path) -> None:
    project = project_in(tmp_path)
    with ring(tmp_path, ["a", "b", "c"]) as (a, b, c):
        shell_a, shell_b, shell_c = (f"shell@{daemon.info['node_id']}" for daemon in (a, b, c))
        # A person at a delegates to b, whose agent delegates to c, whose agent delegates to a, whose agent to b again.
        script = onward(b, "c", onward(c, "a", onward(a, "b", "echo never", project), project), project)
        told = delegated(a, "b", script, project)
        assert "LOOP_REFUSED" in told
        assert f"{shell_b} u2192 {shell_c} u2192 {shell_a} u2192 {shell_b}" in told
        # The one that was refused never came to be worked on.
        assert worked(a, b, c) == [1, 1, 1]
        # And of two: b's agent delegates to a, whose agent delegates to b.
        script = onward(b, name_of(b, a), onward(a, "b", "echo never", project), project)
        told = delegated(a, "b", script, project)
        assert f"{shell_b} u2192 {shell_a} u2192 {shell_b}" in told
        assert worked(a, b, c) == [2, 2, 1]


def test_an_agent_is_not_taken_for_the_person_that_it_works_for(tmp_path: Path) -> None:
    project_in(tmp_path)
    own = [{**MAY_DELEGATE["global"][0], "id": "agents-ask", "action": ["agent.ask", "agent.dispatch"]}]
    with ring(tmp_path, ["a"], policy={"version": 1, "global": own}) as (a,):
        home = f"export SUBLET_HOME={shlex.quote(str(a.home))}; {shlex.quote(str(SUBLET))}"
        for command, says in (
            ("peers list --json", "POLICY_DENIED"),
            ("token create mine --json", "POLICY_DENIED"),
            (f"delegate {shlex.quote(str(tmp_path / 'project'))} --to nobody --json x", "POLICY_DENIED"),
            # It is called by its own call, however it asks.
            ("ask --agent shell --json 'echo never'", "LOOP_REFUSED"),
            ("ask --json '@shell echo never'", "LOOP_REFUSED"),
        ):
            # A process whose parent has ended belongs to the agent as well.
            orphan = f"( ({home} {command} >part; mv part out) & ); until [ -e out ]; do sleep 0.05; done; cat out"
            found = a.json("ask", orphan)
            assert says in found["result"], found
            assert json.loads(found["result"]).get("result") is None
        assert a.json("peers", "list")["peers"] == []
