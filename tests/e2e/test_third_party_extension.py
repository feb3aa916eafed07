"""An extension of somebody else in a real daemon: installed beside Sublet, and named in config.json."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemon_rooms import shared_room, until_event
from support.daemons import Daemon, two_daemons
from support.typed_commands import Typing

EXAMPLE = Path(__file__).parents[2] / "examples/extensions"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Daemon, Daemon]]:
    with two_daemons(tmp_path) as daemons:
        yield daemons


def install(directory: Path) -> Path:
    """Install the example into a directory, as a package manager does, by what its pyproject.toml says."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    metadata = directory / f"sublet_polls-{project['version']}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    points = [
        f"[{group}]\n" + "\n".join(f"{name} = {value}" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("\n\n".join(points) + "\n")
    shutil.copy(EXAMPLE / "sublet_polls.py", directory)
    return directory


def restart(daemon: Daemon, extensions: list[str]) -> None:
    daemon.run("down")
    daemon.wait_gone()
    config = daemon.home / "config"
    config.mkdir(mode=0o700, parents=True, exist_ok=True)
    (config / "config.json").write_text(json.dumps({"messaging": {"extensions": extensions}}))
    daemon.up()


def test_a_daemon_runs_what_it_was_told_to_and_another_keeps_its_data(
    pair: tuple[Daemon, Daemon], tmp_path: Path
) -> None:
    alice, bob = pair
    level = alice.json("status")["ezagent_level"]
    alice.environ = {**alice.environ, "PYTHONPATH": str(install(tmp_path / "site"))}
    # Where one that is named is not installed, rooms say why they do not begin, and all else goes on.
    restart(alice, ["polls", "missing"])
    refused = alice.run("whoami", "--json", check=None)
    assert "the extension missing of config.json is not installed" in json.loads(refused.stdout)["error"]["message"]
    assert alice.json("status")["ezagent_level"] is None

    restart(alice, ["polls"])
    assert alice.json("status")["ezagent_level"] == level
    # Commands know no extension: they are typed here, where it is not installed.
    hers, his = Typing(alice), Typing(bob)
    room = shared_room(hers, his)
    assert "polls" in hers.json("room", "show", room)["config"]["enabled_extensions"]
    wrong = alice.run("send", room, "poll: Lunch? pizza", "--json", check=None)
    assert "a poll has a question" in json.loads(wrong.stdout)["error"]["message"]
    ref = hers.json("send", room, "poll: Lunch? pizza | pasta")["ref_id"]
    until_event(hers, 0, "poll.opened", ref_id=ref)
    until_event(his, 0, "message.new", ref_id=ref)
    asked = {"question": "Lunch?", "options": ["pizza", "pasta"]}
    assert [one["ext"]["poll"] for one in hers.json("read", room)] == [asked]
    assert [one["ext"]["poll"] for one in his.json("read", room)] == [asked], "who does not know it keeps it"
