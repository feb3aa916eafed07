"""Files put in force while a real daemon runs: written, replaced, linked, removed, broken, and mended again."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.daemons import Daemon, wait_for

IN_FORCE_SECONDS = 15
"""Far more than the second that is promised, since a test machine may be busy."""


def agent(agent_id: str) -> str:
    return json.dumps({"id": agent_id, "role": "executor", "provider": {"type": "command", "argv": ["true"]}})


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    one = Daemon(tmp_path_factory.mktemp("h") / "a")
    config = one.home / "config"
    config.mkdir(mode=0o700, parents=True)
    (config / "agent.json").write_text(agent("first"))
    try:
        yield one.up()
    finally:
        one.down()


def config(daemon: Daemon) -> Path:
    return daemon.home / "config"


def offered(daemon: Daemon) -> list[str]:
    found = daemon.json("status")["agents"]
    assert isinstance(found, list)
    return found


def comes(daemon: Daemon, expected: list[str]) -> None:
    wait_for(lambda: offered(daemon) == expected, IN_FORCE_SECONDS, f"{expected} in force")


def replaced(path: Path, text: str) -> None:
    """Write a file as editors do that rename a new one over it."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text)
    new.replace(path)


def moved_away_first(path: Path, text: str) -> None:
    """Write a file as editors do that keep the old one as a backup."""
    path.rename(path.with_name(f"{path.name}~"))
    path.write_text(text)


@pytest.mark.parametrize("write", [replaced, moved_away_first])
def test_agents_are_offered_however_the_file_is_written(daemon: Daemon, write: Callable[[Path, str], Any]) -> None:
    name = f"by-{write.__name__.replace('_', '-')}"
    write(config(daemon) / "agent.json", agent(name))
    comes(daemon, [name])


def test_a_bad_file_changes_nothing_and_is_said_loudly_until_it_is_mended(daemon: Daemon) -> None:
    replaced(config(daemon) / "agent.json", agent("good"))
    comes(daemon, ["good"])
    (config(daemon) / "agent.json").write_text('{"id": 5}')

    def told() -> bool:
        return any("agent.json" in remark for remark in daemon.json("status")["remarks"])

    wait_for(told, IN_FORCE_SECONDS, "a remark")
    assert offered(daemon) == ["good"]
    assert "was not taken" in daemon.log()
    replaced(config(daemon) / "agent.json", agent("well"))
    comes(daemon, ["well"])
    assert not [one for one in daemon.json("status")["remarks"] if "port" not in one]


def a_fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def nothing_said(path: Path) -> None:
    replaced(path, "null")


@pytest.mark.parametrize(
    ("name", "put"), [("agent.json", a_fifo), ("policy.json", a_fifo), ("policy.json", nothing_said)]
)
def test_what_is_no_such_file_stops_nothing_and_is_said(daemon: Daemon, name: str, put: Callable[[Path], None]) -> None:
    file = config(daemon) / name
    replaced(config(daemon) / "agent.json", agent("good"))
    comes(daemon, ["good"])
    put(file)
    wait_for(lambda: any(name in one for one in daemon.json("status")["remarks"]), IN_FORCE_SECONDS, "a remark")
    assert offered(daemon) == ["good"]
    file.unlink()
    replaced(config(daemon) / "agent.json", agent("mended"))
    comes(daemon, ["mended"])


def test_never_half_of_two_files(daemon: Daemon) -> None:
    (config(daemon) / "policy.json").write_text("{")
    wait_for(
        lambda: [one for one in daemon.json("status")["remarks"] if "port" not in one], IN_FORCE_SECONDS, "a remark"
    )
    before = offered(daemon)
    replaced(config(daemon) / "agent.json", agent("with-bad-policy"))
    refused = daemon.run("reload", "--json", check=None)
    assert refused.returncode != 0
    assert offered(daemon) == before
    (config(daemon) / "policy.json").unlink()
    comes(daemon, ["with-bad-policy"])


def test_a_removed_policy_takes_its_permissions_with_it(daemon: Daemon) -> None:
    explain = ("policy", "explain", "--subject", "mcp", "--action", "workspace.reveal", "--resource", "/x")

    def decision() -> str:
        return str(daemon.json(*explain, check=(0, 1, 5))["decision"])

    assert decision() == "deny"
    rule = {"id": "may.reveal", "effect": "allow", "action": "workspace.reveal", "subject": {"kind": "mcp"}}
    replaced(config(daemon) / "policy.json", json.dumps({"version": 1, "global": [rule]}))
    wait_for(lambda: decision() == "allow", IN_FORCE_SECONDS, "the rule")
    (config(daemon) / "policy.json").unlink()
    wait_for(lambda: decision() == "deny", IN_FORCE_SECONDS, "the default")
    assert any("the default rules hold" in remark for remark in daemon.json("status")["remarks"])


def test_capabilities_come_change_and_go(daemon: Daemon) -> None:
    root = config(daemon) / "capabilities"

    def ids() -> list[str]:
        return [one["id"] for one in daemon.json("capability", "list")["capabilities"]]

    module = {"id": "tool", "name": "t", "version": "1", "description": "d", "command": "true"}
    (root / "tool").mkdir(parents=True)
    (root / "tool" / "module.json").write_text(json.dumps(module))
    wait_for(lambda: ids() == ["tool"], IN_FORCE_SECONDS, "the capability")
    replaced(root / "tool" / "module.json", json.dumps({**module, "id": "../x"}))
    wait_for(lambda: ids() == [], IN_FORCE_SECONDS, "its end")
    assert any("tool" in remark for remark in daemon.json("status")["remarks"])
    replaced(root / "tool" / "module.json", json.dumps(module))
    wait_for(lambda: ids() == ["tool"], IN_FORCE_SECONDS, "the capability")
    shutil.rmtree(root)
    wait_for(lambda: ids() == [], IN_FORCE_SECONDS, "its end")


def test_a_removed_agent_file_offers_nobody_until_one_is_there_again(daemon: Daemon, tmp_path: Path) -> None:
    file = config(daemon) / "agent.json"
    file.unlink()
    comes(daemon, [])
    assert any(f"{file} is gone" in remark for remark in daemon.json("status")["remarks"])
    target = tmp_path / "elsewhere.json"
    target.write_text(agent("linked"))
    file.symlink_to(target)
    comes(daemon, ["linked"])
    replaced(target, agent("behind-the-link"))
    comes(daemon, ["behind-the-link"])


def test_a_file_may_offer_nobody(daemon: Daemon) -> None:
    file = config(daemon) / "agent.json"
    replaced(file, '{"agents": []}')
    comes(daemon, [])
    assert any(f"no agent is offered: {file} has none" in remark for remark in daemon.json("status")["remarks"])


def test_the_whole_directory_removed_and_made_again(daemon: Daemon) -> None:
    directory = config(daemon)
    kept = directory.with_name("config.kept")
    os.rename(directory, kept)
    comes(daemon, [])
    directory.mkdir(mode=0o700)
    (directory / "agent.json").write_text(agent("again"))
    comes(daemon, ["again"])


def test_the_switch_turns_it_off(tmp_path: Path) -> None:
    one = Daemon(tmp_path / "a")
    directory = config(one)
    directory.mkdir(mode=0o700, parents=True)
    (directory / "config.json").write_text('{"watch_files": false}')
    (directory / "agent.json").write_text(agent("before"))
    try:
        one.up()
        replaced(directory / "agent.json", agent("after"))
        assert {tuple(offered(one)) for _ in range(3)} == {("before",)}
        assert one.json("reload")["agents"] == ["after"]
    finally:
        one.down()
