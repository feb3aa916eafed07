"""Live leases that overwrite what others edit, and are taken back: real daemons, real mounts (cases D05 and D11)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from attacks.kit.audited_lease import names_of
from sublet.daemon.api.delegation_fields import OneDelegation
from sublet.daemon.api.results import UNDO_RESULT, Undone
from sublet.protocol.errors import LocalCode, SubletError
from support.daemons import Daemon, two_daemons, wait_for
from support.leases import ask, begin, delegate, finish, restart

WAITS = "until [ -e go ]; do sleep 0.05; done"


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Daemon]]:
    with two_daemons(tmp_path_factory.mktemp("kept")) as pair:
        yield pair


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "f").write_text("one\ntwo\nthree\n")
    return root


def undo(daemon: Daemon, found: str) -> Undone:
    return ask(daemon, lambda client: client.call(UNDO_RESULT, OneDelegation(delegation_id=found)))


def has_noted(daemon: Daemon, path: Path) -> bool:
    """Tell whether a lease's list says last how it left a file: whoever is killed before that can't know whose it is.

    A file that is made, and then written, is noted when it is made, when it is written, and when that is over.
    """
    status = path.stat()
    inode = b"%d" % status.st_ino
    lines = [
        line.split() for log in daemon.home.rglob("log") if log.is_file() for line in log.read_bytes().split(b"\n")
    ]
    last = [line for line in lines if line[:2] in ([b"K", inode], [b"W", inode])][-1:]
    left = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return [tuple(map(int, line[2:])) for line in last] == [left]


def is_written(daemon: Daemon, project: Path) -> bool:
    """Tell whether the worker of ``f`` and ``ready`` has written both, and the lease's list says how it left them."""
    ready = project / "ready"
    if not ready.exists() or ready.read_text() != "ready\n":
        return False
    return has_noted(daemon, ready) and has_noted(daemon, project / "f")


def rewriting(project: Path) -> str:
    """Return a worker that reads a file, waits, and writes it anew, whole."""
    return f"text=$(cat f); echo ready > ready; {WAITS}; printf '%s\\nfour\\n' \"$text\" > f"


def test_d05_a_line_that_a_person_adds_meanwhile_is_told_and_kept(
    daemons: tuple[Daemon, Daemon], project: Path
) -> None:
    found = begin(daemons[0], project, rewriting(project))
    wait_for(lambda: (project / "ready").exists())
    with (project / "f").open("a") as file:
        file.write("by a person\n")
    (project / "go").touch()
    ended = finish(daemons[0], found).model_dump(mode="json")
    assert ended["error"] is None
    assert (project / "f").read_text() == "one\ntwo\nthree\nfour\n"
    [told] = ended["audit"]["others_edits"]
    assert told["path"] == "f"
    assert told["overwritten"]
    assert Path(told["kept"]).read_text() == "one\ntwo\nthree\nby a person\n"
    report = undo(daemons[0], found)
    assert report.conflicts == []
    assert (project / "f").read_text() == "one\ntwo\nthree\nby a person\n"


def test_d05_a_checkout_of_a_person_is_told_and_kept(daemons: tuple[Daemon, Daemon], project: Path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-c", "user.name=p", "-c", "user.email=p@e", *arguments], cwd=project, check=True)

    git("init", "-q", "-b", "main")
    git("add", "f")
    git("commit", "-q", "-m", "one")
    git("checkout", "-q", "-b", "other")
    (project / "f").write_text("of the other branch\n")
    git("commit", "-q", "-a", "-m", "two")
    git("checkout", "-q", "main")
    found = begin(daemons[0], project, rewriting(project))
    wait_for(lambda: (project / "ready").exists())
    git("checkout", "-q", "other")
    (project / "go").touch()
    ended = finish(daemons[0], found).model_dump(mode="json")
    [told] = ended["audit"]["others_edits"]
    assert told["path"] == "f"
    assert Path(told["kept"]).read_text() == "of the other branch\n"
    undo(daemons[0], found)
    assert (project / "f").read_text() == "of the other branch\n"


def test_an_edit_after_the_executors_last_is_told_and_stays(daemons: tuple[Daemon, Daemon], project: Path) -> None:
    found = begin(daemons[0], project, f"echo theirs > f; echo ready > ready; {WAITS}")
    wait_for(lambda: (project / "ready").exists())
    (project / "f").write_text("by a person\n")
    (project / "go").touch()
    ended = finish(daemons[0], found).model_dump(mode="json")
    [told] = ended["audit"]["others_edits"]
    assert (told["path"], told["overwritten"]) == ("f", False)
    report = undo(daemons[0], found)
    assert [conflict.path for conflict in report.conflicts] == ["f"]
    assert (project / "f").read_text() == "by a person\n"
    assert report.conflicts[0].theirs is not None
    assert Path(report.conflicts[0].theirs).read_text() == "one\ntwo\nthree\n"
    assert not (project / "ready").exists()


def test_d11_what_a_live_lease_left_is_taken_back(daemons: tuple[Daemon, Daemon], project: Path) -> None:
    for name in ("gone", "old/inner", "kept"):
        (project / name).mkdir(parents=True)
    (project / "old/inner/x").write_text("x\n")
    (project / "tool").write_text("#!/bin/sh\n")
    (project / "removed").write_text("removed\n")
    os.symlink("f", project / "link")
    (project / "m.py").write_text("x = 1\n")
    before = names_of(project)
    contents = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    work = (
        "python3 -c 'import m'; mkdir -p __pycache__ && echo c > __pycache__/m.pyc; echo unwanted >> f; rm removed; "
        "mv old new; rmdir gone; chmod 700 kept; chmod +x tool; ln -sfn tool link; mkdir -p a/b && echo c > a/b/c"
    )
    ended = delegate(daemons[0], project, work)
    assert ended["error"] is None
    assert names_of(project) != before
    report = undo(daemons[0], ended["delegation_id"])
    assert report.conflicts == []
    assert names_of(project) == before
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == contents
    with pytest.raises(SubletError) as twice:
        undo(daemons[0], ended["delegation_id"])
    assert twice.value.code is LocalCode.CONFLICT
    assert "taken back already" in twice.value.message


def test_d11_the_last_file_of_a_quota_is_taken_back(daemons: tuple[Daemon, Daemon], project: Path) -> None:
    ended = delegate(daemons[0], project, "for i in 1 2 3 4; do echo x > new$i || exit 1; done", "--max-files", "2")
    assert ended["error"] is not None
    assert (project / "new1").exists()
    undo(daemons[0], ended["delegation_id"])
    assert sorted(path.name for path in project.iterdir()) == ["f"]


def test_taking_back_is_merged_with_what_changed_since(daemons: tuple[Daemon, Daemon], project: Path) -> None:
    lines = [f"line {number}\n" for number in range(20)]
    (project / "f").write_text("".join(lines))
    ended = delegate(daemons[0], project, "sed -i 's/^line 2$/theirs/' f; echo theirs > made")
    with (project / "f").open("a") as file:
        file.write("mine\n")
    (project / "made").write_text("mine\n")
    report = undo(daemons[0], ended["delegation_id"])
    assert (project / "f").read_text() == "".join(lines) + "mine\n"
    assert [conflict.path for conflict in report.conflicts] == ["made"]
    assert (project / "made").read_text() == "mine\n"


def test_a_lease_that_goes_on_after_a_kill_of_the_lender_is_taken_back(tmp_path: Path, project: Path) -> None:
    with two_daemons(tmp_path / "daemons") as (lender, _):
        wait = "until [ -e go ] && echo second >> f; do sleep 0.1; done"
        found = begin(lender, project, f"echo first >> f; echo ready > ready; {wait}")
        wait_for(lambda: is_written(lender, project))
        lender.kill()
        restart(lender)
        (project / "go").touch()
        ended = finish(lender, found).model_dump(mode="json")
        assert ended["error"] is None
        assert (project / "f").read_text() == "one\ntwo\nthree\nfirst\nsecond\n"
        assert ended["audit"]["others_edits"] == []
        report = undo(lender, found)
        assert (project / "f").read_text() == "one\ntwo\nthree\n"
        assert report.conflicts == []
