"""What a lender and an executor are told of names, between two daemons: by mount, by copy, live and staged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sublet.daemon.api.results import APPLY_RESULT, ApplyResult
from sublet.protocol.events import EventKind
from support.daemons import Daemon, two_daemons
from support.leases import ask, delegate, events

TRANSPORTS = [("sshfs",), ("archive",), ("git",), ("sshfs", "--staged"), ("archive", "--staged")]
WORK = (
    "cat sub/l; mv prod elsewhere 2>/dev/null; "
    "mkdir -p .venv/certs && echo CA > .venv/certs/cacert.pem && cat .venv/certs/cacert.pem; "
    "echo X >> lib; cat ../meta/log.txt | grep refused || true"
)


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Daemon]]:
    with two_daemons(tmp_path_factory.mktemp("view")) as pair:
        yield pair


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name, text in {"prod/.env": "SECRET=1\n", "a/x": "hi\n", "sub/f": "f"}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "sub" / "l").symlink_to("../a/x")
    (tmp_path / "store").write_text("store\n")
    os.link(tmp_path / "store", root / "lib")
    os.link(root / "prod" / ".env", root / "shown")
    return root


def notes(lender: Daemon, delegation_id: str) -> str:
    found = events(lender, delegation_id)
    return "".join(
        str(event.data["text"])
        for event in found
        if event.kind is EventKind.DELEGATION_OUTPUT and event.data["stream"] == "note"
    )


@pytest.mark.parametrize("way", TRANSPORTS, ids=" ".join)
def test_cases_d02_and_d03_and_what_is_refused_is_told(
    daemons: tuple[Daemon, Daemon], project: Path, way: tuple[str, ...]
) -> None:
    ended = delegate(daemons[0], project, WORK, "--transport", *way)
    assert ended["error"] is None
    assert ended["result"]["final_summary"].startswith("hi\nCA")
    if "--staged" in way:
        assert not (project / ".venv").exists()
        accepted = ApplyResult(delegation_id=ended["delegation_id"], partial=True)
        ask(daemons[0], lambda client: client.call(APPLY_RESULT, accepted))
    assert {".venv/certs/cacert.pem", "lib"} <= {*ended["audit"]["added"], *ended["audit"]["changed"]}
    assert {"prod/.env", "shown"} <= set(ended["hidden"])
    assert (project / ".venv/certs/cacert.pem").read_text() == "CA\n"
    assert (project / "lib").read_text() == "store\nX\n"
    assert (project.parent / "store").read_text() == "store\n"
    assert (project / "prod/.env").read_text() == (project / "shown").read_text() == "SECRET=1\n"
    assert (project / "sub" / "l").readlink() == Path("../a/x")
    if way == ("sshfs",):
        told = notes(daemons[0], ended["delegation_id"])
        assert "refused: prod: the directory holds names of the lender's" in told
        # The executor's side reads the same in the log that it is lent.
        assert "refused: prod: the directory holds names of the lender's" in ended["result"]["final_summary"]
        assert ended["left_out"] == 0


@pytest.mark.parametrize("way", TRANSPORTS, ids=" ".join)
def test_case_d02_links_that_stay_inside_work_and_those_that_lead_out_do_not(
    daemons: tuple[Daemon, Daemon], project: Path, way: tuple[str, ...]
) -> None:
    (project.parent / "outer").write_text("of another directory\n")
    (project / "sub" / "out").symlink_to("../../outer")
    (project / "whole").symlink_to(project.parent / "outer")
    script = (
        "cat sub/l sub/../sub/l; echo more >> sub/l; cp -a sub copied; tar cf - sub | tar tf - | sort; "
        "ln -s ../a/x sub/made; cat sub/made; cat sub/out whole 2>/dev/null; echo ended"
    )
    ended = delegate(daemons[0], project, script, "--transport", *way)
    assert ended["error"] is None
    said = ended["result"]["final_summary"]
    assert "of another directory" not in said
    assert said.startswith("hi\nhi\n")
    assert said.endswith("hi\nmore\nended")
    if "--staged" in way:
        accepted = ApplyResult(delegation_id=ended["delegation_id"], partial=True)
        ask(daemons[0], lambda client: client.call(APPLY_RESULT, accepted))
    assert (project / "a" / "x").read_text() == "hi\nmore\n"
    assert (project / "sub" / "made").readlink() == Path("../a/x")
    assert (project / "copied" / "l").readlink() == Path("../a/x")
    assert (project.parent / "outer").read_text() == "of another directory\n"


def test_a_staged_result_brings_what_was_made_and_replaces_nothing_hidden(
    daemons: tuple[Daemon, Daemon], project: Path
) -> None:
    (project / "taken.pem").write_text("of the lender\n")
    script = "echo CA > new.pem; echo mine > taken.pem 2>/dev/null; true"
    ended = delegate(daemons[0], project, script, "--staged")
    assert ended["error"] is None
    assert "new.pem" in ended["audit"]["added"]
    ask(
        daemons[0],
        lambda client: client.call(APPLY_RESULT, ApplyResult(delegation_id=ended["delegation_id"], partial=True)),
    )
    assert (project / "new.pem").read_text() == "CA\n"
    assert (project / "taken.pem").read_text() == "of the lender\n"
    assert not list(project.glob("taken.pem.*"))


@pytest.mark.parametrize("way", [("sshfs",), ("archive",), ("git",), ("sshfs", "--staged"), ("archive", "--staged")])
def test_no_link_under_a_hidden_name_comes_in_and_the_next_lease_shows_all(
    daemons: tuple[Daemon, Daemon], project: Path, way: tuple[str, ...]
) -> None:
    (project / "src").mkdir()
    (project / "src" / "main.py").write_text("1")
    script = "mkdir x; ln -s ../src x/cert.pem; ln -s ../src x/l; mv x/l x/server.key 2>/dev/null; echo x > x/f; true"
    ended = delegate(daemons[0], project, script, "--transport", *way)
    if "--staged" in way:
        ask(
            daemons[0],
            lambda client: client.call(APPLY_RESULT, ApplyResult(delegation_id=ended["delegation_id"], partial=True)),
        )
    assert ended["error"] is None, ended
    assert (project / "x/f").read_text() == "x\n"
    assert not (project / "x/cert.pem").is_symlink()
    assert not (project / "x/server.key").is_symlink()
    told = notes(daemons[0], ended["delegation_id"])
    assert "x/cert.pem: a link of this name would have what it leads to hidden" in told
    again = delegate(daemons[0], project, "cat src/main.py", "--ro")
    assert again["result"]["final_summary"] == "1"


@pytest.mark.parametrize("transport", ["sshfs", "archive"])
def test_permissions_that_nobody_could_look_behind_are_told_in_the_log(
    daemons: tuple[Daemon, Daemon], project: Path, transport: str
) -> None:
    script = "chmod 0 sub/f a 2>/dev/null; chmod 600 lib; true"
    ended = delegate(daemons[0], project, script, "--transport", transport)
    assert ended["error"] is None
    assert (project / "sub/f").stat().st_mode & 0o400
    assert (project / "a").stat().st_mode & 0o500 == 0o500
    told = notes(daemons[0], ended["delegation_id"])
    if transport == "sshfs":
        assert "refused: sub/f: with these permissions nobody could look at it" in told
        assert "refused: a: with these permissions nobody could look at it" in told
    assert "lib: with these permissions" not in told
