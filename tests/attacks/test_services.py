"""What would end a daemon, hide it from its owner, or let it declare what is not so."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.daemons import SHELL_AGENT, Daemon, pair, two_daemons, wait_for

NOT_UTF8 = b"caf\xe9"
REMARK_SECONDS = 30


def agent(**more: Any) -> dict[str, Any]:
    return {**SHELL_AGENT, **more}


# A part that dies


@pytest.mark.parametrize("make", ["touch", "mkdir", "mkfifo"])
def test_a_worker_names_a_file_beside_the_agents_of_the_lender(tmp_path: Path, make: str) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "agent.json").write_text(json.dumps(agent(id="first")))
    with two_daemons(tmp_path) as (lender, _):
        lender.down()
        lender.up("--agent", str(project / "agent.json"))
        pid = lender.pid
        lender.run("delegate", str(project), "--to", "bob", f"{make} \"$(printf 'caf\\351')\"; true", check=None)
        if make != "mkfifo":  # sshfs makes none
            assert NOT_UTF8 in os.listdir(os.fsencode(project))
            wait_for(lambda: any("caf\\xe9" in one for one in lender.json("status")["remarks"]), REMARK_SECONDS)
        # What is written after that is taken up all the same.
        (project / "agent.json").write_text(json.dumps(agent(id="second")))
        wait_for(lambda: lender.json("status")["agents"] == ["second"], REMARK_SECONDS)
        assert lender.json("status")["pid"] == pid


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path / "a")
    try:
        yield daemon.up()
    finally:
        daemon.down()


@pytest.mark.parametrize("where", ["config", "config/capabilities", "config/gateways"])
def test_a_name_that_is_not_utf8_in_the_configuration(tmp_path: Path, where: str) -> None:
    """D01: it ends nothing, and the status tells it."""
    daemon = Daemon(tmp_path / "a")
    place = daemon.home / where
    place.mkdir(mode=0o700, parents=True)
    try:
        daemon.up()
        os.mkdir(os.fsencode(place) + b"/" + NOT_UTF8)
        wait_for(lambda: any("caf\\xe9" in one for one in daemon.json("status")["remarks"]), REMARK_SECONDS)
        for command in (["reload"], ["capability", "list"], ["gateway", "list"], ["doctor"]):
            daemon.run(*command)
        # It is there at the next start as well.
        daemon.down()
        daemon.up()
    finally:
        daemon.down()


def test_the_state_of_a_daemon_is_taken_away(alone: Daemon) -> None:
    shutil.rmtree(alone.home / "state")
    alone.wait_gone(30)


def test_services_are_told(alone: Daemon) -> None:
    status = alone.json("status")
    assert {"sftp", "a2a", "mcp", "file watcher", "stall watch"} <= {one["name"] for one in status["services"]}
    assert all(one["state"] == "running" and not one["restarts"] for one in status["services"])
    assert status["stalls"] == [] or all(one["milliseconds"] >= 250 for one in status["stalls"])


def test_a_daemon_that_was_stopped_by_its_system_goes_on(alone: Daemon) -> None:
    alone.kill(signal.SIGSTOP)
    try:
        time.sleep(1)  # longer than a turn of its loop may take
    finally:
        alone.kill(signal.SIGCONT)
    assert alone.json("status")["pid"] == alone.pid


# A daemon that nobody can reach


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon whose directories follow XDG, as those of a login session do."""
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    places = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(runtime)}
    daemon = XdgDaemon(tmp_path / "unused", environ=places)
    try:
        yield daemon.up()
    finally:
        daemon.down()


class XdgDaemon(Daemon):
    def environment(self) -> dict[str, str]:
        return {name: value for name, value in super().environment().items() if name != "SUBLET_HOME"}


def test_another_shell_has_another_runtime_directory(session: Daemon, tmp_path: Path) -> None:
    other = XdgDaemon(tmp_path, environ={**session.environ, "XDG_RUNTIME_DIR": str(tmp_path / "elsewhere")})
    none = XdgDaemon(tmp_path, environ={"HOME": str(tmp_path)})
    for shell in (other, none):
        assert shell.json("status")["pid"] == session.pid
        assert "is already running" in shell.run("up", "--detach", check=(3,)).stderr
    none.run("down")
    session.wait_gone()


def test_a_session_ends_and_takes_the_runtime_directory_along(session: Daemon, tmp_path: Path) -> None:
    runtime = tmp_path / "run"
    shutil.rmtree(runtime)
    wait_for(lambda: session.run("status", check=None).returncode == 0, REMARK_SECONDS)
    assert session.json("status")["control_socket"].startswith(str(runtime))
    # And where it can't be made again.
    shutil.rmtree(runtime)
    runtime.touch()
    wait_for(lambda: session.run("status", check=None).returncode == 0, REMARK_SECONDS)
    status = session.json("status")
    assert status["pid"] == session.pid
    assert not status["control_socket"].startswith(str(runtime))


# Declarations


def test_a_network_is_no_confinement(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    with two_daemons(tmp_path, agent=agent(sandbox={"allow_network": True})) as (lender, _):
        for demand in ("allow_network", "allow_network=false"):
            refused = lender.json(
                "delegate", str(project), "--to", "bob", "touch x", "--require-sandbox", demand, check=(5,)
            )
            assert refused["error"]["code"] == "DECLINED"
            assert refused["expires_at"] is None, "no access was ever given"
        done = lender.json("delegate", str(project), "--to", "bob", "true", "--require-sandbox", "allow_network=true")
        assert done["sandbox_profile"] == {"cwd_only": True, "allow_network": True, "allow_exec": True}
        assert "allow_network" not in done["sandbox_enforced"]
        shown = lender.run("delegate", str(project), "--to", "bob", "true").stdout
        assert "bob's agent  has a network" in shown
        wrong = lender.run("delegate", str(project), "--to", "bob", "true", "--require-sandbox", "memory=1", check=None)
        assert "--require-sandbox takes names" in wrong.stderr


@pytest.mark.parametrize(
    ("offered", "options", "declared"),
    [
        (agent(), ["--unsandboxed"], {"cwd_only": False, "allow_network": True, "allow_exec": True}),
        (agent(sandbox={"readable": ["/srv"]}), [], {"cwd_only": False, "allow_network": False, "allow_exec": True}),
    ],
    ids=["unsandboxed", "readable"],
)
def test_what_is_declared_is_what_holds(
    tmp_path: Path, offered: dict[str, Any], options: list[str], declared: dict[str, bool]
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    with two_daemons(tmp_path, agent=offered, options=options) as (lender, executor):
        done = lender.json("delegate", str(project), "--to", "bob", "true")
        assert done["sandbox_profile"] == declared
        assert "cwd_only" not in done["sandbox_enforced"]
        assert done["sandbox_enforced"] == executor.json("status")["enforced"]
        refused = lender.json(
            "delegate", str(project), "--to", "bob", "true", "--require-sandbox", "cwd_only=true", check=(5,)
        )
        assert refused["error"]["code"] == "DECLINED"
        [bob] = lender.json("peers", "list")["peers"]
        assert bob["agents"][0]["sandbox"] == declared


def test_a_sandbox_that_does_not_work_is_not_claimed(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    broken = programs / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    broken.chmod(0o755)
    daemon = Daemon(tmp_path / "a", environ={"PATH": f"{programs}:{os.environ['PATH']}"})
    try:
        status = daemon.up().json("status")
        assert status["sandbox"].startswith("none that works, so no agent is started: ")
        assert "Permission denied" in status["sandbox"]
        assert status["enforced"] == []
        # Once it works, it is found without a restart.
        broken.unlink()
        assert daemon.json("status")["sandbox"] == "bubblewrap"
    finally:
        daemon.down()


# Secrets and texts on the way in


def test_a_pairing_link_on_stdin(tmp_path: Path) -> None:
    one, other = Daemon(tmp_path / "a"), Daemon(tmp_path / "b")
    try:
        one.up()
        other.up(agent=SHELL_AGENT)
        link = other.json("pair")["link"]
        assert (
            json.loads(one.run("peers", "add", "-", "--name", "bob", "--json", stdin=f"{link}\n").stdout)["name"]
            == "bob"
        )
        pair(other, one, "back")
    finally:
        one.down()
        other.down()
