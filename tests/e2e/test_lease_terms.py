"""Finer leases between two daemons: what the terms of a lease forbid does not happen, is told, and its agent knows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sublet.daemon.api.results import APPLY_RESULT, ApplyResult
from sublet.protocol.events import EventKind
from support.daemons import Daemon, two_daemons
from support.leases import ask, delegate, events

FILES = {"a": "mine\n", "src/b": "b\n", "out/c": "c\n"}


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Daemon]]:
    with two_daemons(tmp_path_factory.mktemp("terms")) as pair:
        yield pair


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def contents(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def told(daemon: Daemon, delegation_id: str) -> str:
    """Return the daemon's own lines of the log."""
    found = [one for one in events(daemon, delegation_id) if one.kind is EventKind.DELEGATION_OUTPUT]
    return "".join(str(one.data["text"]) for one in found if one.data["stream"] == "note")


def lease_of(root: Path) -> dict[str, Any]:
    """Return what the agent read of its lease, which its script has left in ``lease``."""
    found: dict[str, Any] = json.loads((root / "lease").read_text())
    return found


DELETES = (
    "cp ../meta/lease.json lease; rm a; mv src/b moved; echo new > n; mv n out/c; rmdir src; "
    "echo more >> a; echo 1 > own; mv own own2; echo 2 > gone; rm gone; true"
)


@pytest.mark.parametrize("staged", [False, True])
def test_nothing_of_yours_is_deleted_where_you_say_so(
    daemons: tuple[Daemon, Daemon], project: Path, staged: bool
) -> None:
    ended = delegate(daemons[0], project, DELETES, "--no-delete", *(["--staged"] if staged else []))
    assert ended["error"] is None
    assert ended["no_delete"] is True
    assert ended["terms"] == ["nothing may be deleted, renamed or replaced but what the lease has made itself"]
    assert ended["audit"]["deleted"] == []
    if staged:
        assert contents(project) == FILES
        request = ApplyResult(delegation_id=ended["delegation_id"])
        ask(daemons[0], lambda client: client.call(APPLY_RESULT, request))
    found = contents(project)
    assert found.pop("lease")
    assert found == FILES | {"a": "mine\nmore\n", "n": "new\n", "own2": "1\n"}
    lease = lease_of(project)
    assert (lease["no_delete"], lease["terms"]) == (True, ended["terms"])
    notes = told(daemons[0], ended["delegation_id"])
    for name in ("a", "src/b", "out/c", "src"):
        assert f"refused: {name}: this lease removes, renames and replaces nothing that it has not made itself" in notes


@pytest.mark.parametrize("options", [["--transport", "archive"], ["--transport", "git"], ["--git", "rw"], ["--ro"]])
def test_what_could_not_hold_is_refused_with_the_reason(
    daemons: tuple[Daemon, Daemon], project: Path, options: list[str]
) -> None:
    refused = delegate(daemons[0], project, "true", "--no-delete", *options)["error"]
    assert refused["code"] == "INVALID_ARGUMENT"
    assert refused["message"].startswith("no_delete can't be had here: ")
    assert refused["hint"]


def test_a_transport_is_chosen_that_can_hold_to_it(daemons: tuple[Daemon, Daemon], project: Path) -> None:
    ended = delegate(daemons[0], project, "rm a; true", "--no-delete", "--transport", "auto")
    assert ended["transport"] == "sshfs"
    assert contents(project) == FILES


WRITES = (
    "cp ../meta/lease.json out/lease 2>/dev/null || cp ../meta/lease.json lease; echo x >> a; rm src/b; "
    "mv src/b out/b; cp out/c src/c; echo y > new; mkdir -p more; echo z >> out/c; echo n > out/n; true"
)


@pytest.mark.parametrize(
    "options", [[], ["--staged"], ["--transport", "archive"], ["--transport", "git"]], ids=["live", "staged", "a", "g"]
)
def test_only_what_you_name_is_changed(daemons: tuple[Daemon, Daemon], project: Path, options: list[str]) -> None:
    ended = delegate(daemons[0], project, WRITES, "--writable", "out", *options)
    assert ended["error"] is None, ended
    assert ended["writable"] == ["out"]
    if options == ["--staged"]:
        assert contents(project) == FILES
        request = ApplyResult(delegation_id=ended["delegation_id"], partial=True)
        ask(daemons[0], lambda client: client.call(APPLY_RESULT, request))
    found = contents(project)
    lease = found.pop("out/lease", "{}")
    by_copy = "--transport" in options
    if by_copy:
        found.pop("out/b", "")  # what was moved in its copy is made in the writable place, and stays where it was
        assert ended["left_behind"], ended
    else:
        assert json.loads(lease)["writable"] == ["out"]
        assert "refused: a: only other names of this directory are lent for writing" in told(
            daemons[0], ended["delegation_id"]
        )
    assert found == FILES | {"out/c": "c\nz\n", "out/n": "n\n"}
    assert not (project / "more").exists()


@pytest.mark.parametrize(
    "options", [["--writable", "/etc"], ["--writable", "../x"], ["--writable", "!a"], ["--writable", "a", "--ro"]]
)
def test_what_could_never_be_written_is_refused(
    daemons: tuple[Daemon, Daemon], project: Path, options: list[str]
) -> None:
    refused = delegate(daemons[0], project, "true", *options)["error"]
    assert refused["code"] == "INVALID_ARGUMENT"
    assert refused["hint"]
