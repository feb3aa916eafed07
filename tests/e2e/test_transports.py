"""Leases without a mount (issue 3, case C15): archives between real daemons, with all that can go wrong on the way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from support.daemons import SHELL_AGENT, Daemon, pair, two_daemons, wait_for
from support.fuseless import fuseless
from support.leases import begin, delegate, finish, wait_state
from support.leftovers import held, left_behind

Pair = tuple[Daemon, Daemon]


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with two_daemons(tmp_path_factory.mktemp("pair")) as both:
        yield both


@contextmanager
def executor_without_fuse(lender: Daemon, base: Path, device: Literal["absent", "forbidden"]) -> Iterator[Daemon]:
    """Run an executor that can't mount, paired by the name of what is wrong with its device."""
    if os.geteuid() != 0:
        pytest.skip("hiding a device needs root")
    daemon = fuseless(base, device)
    try:
        daemon.up(agent=SHELL_AGENT)
        pair(lender, daemon, device)
        yield daemon
    finally:
        daemon.down()


@pytest.fixture(scope="module")
def bare(daemons: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """An executor without ``/dev/fuse``."""
    with executor_without_fuse(daemons[0], tmp_path_factory.mktemp("bare"), "absent") as daemon:
        yield daemon


def work_left(executor: Daemon) -> list[str]:
    """Return what is left of unpacked views."""
    return os.listdir(executor.home / "state" / "work")


def refused_mount(lender: Daemon, directory: Path, peer: str) -> dict[str, Any]:
    """Delegate by sshfs to an executor that can't, and return how it is refused."""
    ended = delegate(lender, directory, "true", peer=peer)
    assert ended["error"]["code"] == "DEP_MISSING"
    assert "--transport archive" in ended["error"]["hint"]
    error = ended["error"]
    assert isinstance(error, dict)
    return error


def test_c15_a_missing_device_is_named_and_an_archive_does_without(daemons: Pair, bare: Daemon, tmp_path: Path) -> None:
    assert "/dev/fuse does not exist" in refused_mount(daemons[0], tmp_path, "absent")["message"]
    (tmp_path / "file").write_text("one\n")
    ended = delegate(daemons[0], tmp_path, "echo two >> file", "--transport", "auto", peer="absent")

    assert ended["state"] == "completed", ended
    assert ended["transport"] == "archive"
    assert (tmp_path / "file").read_text() == "one\ntwo\n"
    assert held(bare) == []
    assert work_left(bare) == []


def test_c15_a_device_that_can_not_be_opened_is_named(
    daemons: Pair, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with executor_without_fuse(daemons[0], tmp_path_factory.mktemp("bare"), "forbidden"):
        error = refused_mount(daemons[0], tmp_path, "forbidden")
    assert "/dev/fuse can't be opened: Permission denied" in error["message"]


def test_auto_mounts_where_it_can(daemons: Pair, tmp_path: Path) -> None:
    assert delegate(daemons[0], tmp_path, "true", "--transport", "auto")["transport"] == "sshfs"


def test_a_lender_without_fuse_lends(daemons: Pair, bare: Daemon, tmp_path: Path) -> None:
    pair(bare, daemons[1], "carol")
    (tmp_path / "file").write_text("one\n")
    ended = delegate(bare, tmp_path, "echo two >> file", peer="carol")

    assert (ended["state"], ended["transport"]) == ("completed", "sshfs")
    assert (tmp_path / "file").read_text() == "one\ntwo\n"


def test_all_kinds_of_files_go_both_ways(daemons: Pair, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept\n")
    os.utime(tmp_path / "kept", ns=(1, 1_234_567_890_123_456_789))
    (tmp_path / "absolute").symlink_to("/etc/passwd")
    (tmp_path / "upwards").symlink_to("../../elsewhere")
    (tmp_path / "gone").write_text("gone\n")
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "inner").write_text("inner\n")
    (tmp_path / ".env").write_text("TOKEN=1\n")
    os.mkfifo(tmp_path / "fifo")
    script = """
        set -e
        [ "$(readlink absolute)" = /etc/passwd ]; [ "$(readlink upwards)" = ../../elsewhere ]
        [ "$(stat -c %Y kept)" = 1234567890 ]
        [ ! -e .env ]; [ ! -e fifo ]
        rm gone; rm -r dir; mkdir -p new/empty
        printf '#!/bin/sh\\n' > new/run; chmod 755 new/run; touch -d @1700000000.5 new/run
        ln new/run new/run2; ln -s run new/link; ln -s /etc/passwd out; mv absolute new/absolute
        mkfifo pipe; printf x > "$(printf 'odd\\n-o\\377')"
    """
    ended = delegate(daemons[0], tmp_path, script, "--transport", "archive")

    assert ended["state"] == "completed", ended
    assert (tmp_path / "kept").stat().st_mtime_ns == 1_234_567_890_123_456_789
    assert (tmp_path / "upwards").readlink() == Path("../../elsewhere")
    assert not (tmp_path / "gone").exists()
    assert not (tmp_path / "dir").exists()
    assert (tmp_path / "new" / "empty").is_dir()
    run = (tmp_path / "new" / "run").stat()
    assert (run.st_mode & 0o777, run.st_mtime_ns) == (0o755, 1_700_000_000_500_000_000)
    assert (tmp_path / "new" / "run2").read_bytes() == b"#!/bin/sh\n"
    assert (tmp_path / "new" / "link").readlink() == Path("run")
    assert (tmp_path / os.fsdecode(b"odd\n-o\xff")).read_text() == "x"
    assert not (tmp_path / "out").is_symlink()
    assert not (tmp_path / "pipe").exists()
    assert (tmp_path / ".env").read_text() == "TOKEN=1\n"
    assert "new/run" in ended["audit"]["added"]
    assert ended["unmountable"] == []
    assert sorted(line.partition(":")[0] for line in ended["left_behind"]) == ["new/absolute", "out"]
    assert ended["audit"]["by_others"] == []
    assert work_left(daemons[1]) == []


def test_what_both_sides_changed_is_kept_twice_and_told(daemons: Pair, tmp_path: Path) -> None:
    lender, executor = daemons
    (tmp_path / "merged").write_text("".join(f"{n}\n" for n in range(20)))
    for name in ("both", "theirs", "mine"):
        (tmp_path / name).write_text("old\n")
    script = """
        set -e
        sed -i 's/^19$/nineteen/' merged; echo theirs > both; echo theirs > theirs; : > begun
        while [ ! -e ../go ]; do sleep 0.05; done
    """
    delegation = begin(lender, tmp_path, script, "--transport", "archive")
    place = executor.home / "state" / "work" / delegation
    wait_for((place / "workspace" / "begun").exists, what="the executor's changes")
    (tmp_path / "merged").write_text((tmp_path / "merged").read_text().replace("0\n", "zero\n", 1))
    (tmp_path / "both").write_text("mine\n")
    (tmp_path / "mine").write_text("mine\n")
    (place / "go").touch()
    ended = finish(lender, delegation)

    assert str(ended.state) == "completed", ended
    lines = (tmp_path / "merged").read_text().splitlines()
    assert (lines[0], lines[19]) == ("zero", "nineteen")
    assert [(tmp_path / name).read_text() for name in ("both", "theirs", "mine")] == ["mine\n", "theirs\n", "mine\n"]
    [kept] = tmp_path.glob("both.conflict-*")
    assert kept.read_text() == "theirs\n"
    [told] = ended.left_behind
    assert told.startswith("both: ")
    assert str(kept) in told
    assert ended.result is not None
    assert ended.result.change_set is not None
    assert ended.result.change_set.status == "partly_applied"
    assert ended.audit is not None
    assert "mine" in ended.audit.by_others
    undone = lender.json("undo", delegation)
    assert (tmp_path / "theirs").read_text() == "old\n"
    assert (tmp_path / "mine").read_text() == "mine\n"
    assert undone["change_set"]["status"] == "undone"


def test_an_agent_works_in_a_repository_of_its_own(daemons: Pair, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("one\n")
    (tmp_path / "ignored").write_text("here\n")
    (tmp_path / ".gitignore").write_text("ignored\n")
    script = """
        set -e
        git status --porcelain; git log --oneline; cat ignored
        echo two >> file; echo more >> ignored; mkdir dir; echo x > dir/run; chmod 755 dir/run
        git diff --stat
    """
    ended = delegate(daemons[0], tmp_path, script, "--transport", "git")

    assert ended["state"] == "completed", ended
    assert ended["transport"] == "git"
    assert (tmp_path / "file").read_text() == "one\ntwo\n"
    assert (tmp_path / "ignored").read_text() == "here\nmore\n"
    assert (tmp_path / "dir" / "run").stat().st_mode & 0o777 == 0o755
    assert not (tmp_path / ".git").exists()
    assert sorted(ended["audit"]["added"]) == ["dir/run"]
    assert os.listdir(daemons[1].home / "state" / "clones") == []


def test_a_staged_archive_waits_for_review(daemons: Pair, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("one\n")
    ended = delegate(daemons[0], tmp_path, "echo two >> file", "--transport", "archive", "--staged")

    assert ended["state"] == "completed", ended
    assert ended["result"]["change_set"]["status"] == "pending"
    assert (tmp_path / "file").read_text() == "one\n"
    daemons[0].run("apply", ended["delegation_id"])
    assert (tmp_path / "file").read_text() == "one\ntwo\n"


def test_a_read_only_archive_changes_nothing(daemons: Pair, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("one\n")
    ended = delegate(daemons[0], tmp_path, "cat file; echo two >> file", "--transport", "archive", "--ro")

    assert ended["state"] == "error"
    assert "Read-only" in ended["result"]["final_summary"]
    assert (tmp_path / "file").read_text() == "one\n"


def test_a_quota_is_met_by_what_comes_back(daemons: Pair, tmp_path: Path) -> None:
    script = "head -c 5000 /dev/zero > large; echo x > small"
    ended = delegate(daemons[0], tmp_path, script, "--transport", "archive", "--max-total-bytes", "4000")

    assert ended["state"] == "error"
    assert ended["error"]["code"] == "TASK_FAILED"
    assert "quota" in ended["error"]["message"]
    assert os.listdir(tmp_path) == []


def test_what_was_done_until_a_failure_is_there(daemons: Pair, tmp_path: Path) -> None:
    ended = delegate(daemons[0], tmp_path, "echo half > file; exit 3", "--transport", "archive")

    assert ended["state"] == "error"
    assert (tmp_path / "file").read_text() == "half\n"
    assert ended["audit"]["added"] == ["file"]


def test_a_cancel_during_the_work_brings_nothing_back(daemons: Pair, tmp_path: Path) -> None:
    lender, executor = daemons
    delegation = begin(lender, tmp_path, "echo half > file; echo begun; sleep 60", "--transport", "archive")
    wait_state(lender, delegation, "running")
    place = executor.home / "state" / "work" / delegation / "workspace" / "file"
    wait_for(place.exists, what="the file at the executor")
    lender.run("cancel", delegation)

    assert str(finish(lender, delegation).state) == "cancelled"
    assert os.listdir(tmp_path) == []
    wait_for(lambda: work_left(executor) == [], what="the view to be gone")


def test_an_expiry_during_the_work_leaves_nothing_at_the_executor(daemons: Pair, tmp_path: Path) -> None:
    lender, executor = daemons
    delegation = begin(lender, tmp_path, "echo half > file; sleep 60", "--transport", "archive", "--ttl", "3")

    assert str(finish(lender, delegation).state) == "expired"
    wait_for(lambda: work_left(executor) == [], what="the view to be gone")


def test_a_killed_executor_leaves_no_view(
    daemons: Pair, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lender = daemons[0]
    executor = Daemon(tmp_path_factory.mktemp("killed") / "d")
    try:
        executor.up(agent=SHELL_AGENT)
        pair(lender, executor, "killed")
        delegation = begin(lender, tmp_path, "echo half > file; sleep 60", "--transport", "archive", peer="killed")
        wait_state(lender, delegation, "running")
        wait_for((executor.home / "state" / "work" / delegation / "workspace" / "file").exists, what="the file")
        executor.kill()
        assert work_left(executor) == [delegation]
        executor.up(agent=SHELL_AGENT)
        assert work_left(executor) == []
        assert held(executor) == []
        lender.run("cancel", delegation)
        assert str(finish(lender, delegation).state) in ("cancelled", "error")
    finally:
        executor.down()
    assert left_behind(executor) == []


@pytest.mark.parametrize("transport", ["archive", "git"])
def test_work_goes_on_when_the_lender_was_killed(daemons: Pair, tmp_path: Path, transport: str) -> None:
    lender, executor = daemons
    (tmp_path / "file").write_text("one\n")
    (tmp_path / "both").write_text("old\n")
    script = """
        echo two >> file; echo theirs > both; : > begun
        while [ ! -e ../go ]; do sleep 0.05; done
    """
    delegation = begin(lender, tmp_path, script, "--transport", transport)
    place = executor.home / "state" / ("work" if transport == "archive" else "clones") / delegation
    wait_for((place / "workspace" / "begun").exists, what="the executor's changes")
    (tmp_path / "both").write_text("mine\n")
    lender.kill()
    lender.up(agent=SHELL_AGENT)
    (place / "go").touch()
    ended = finish(lender, delegation)

    assert str(ended.state) == "completed", ended
    assert (tmp_path / "file").read_text() == "one\ntwo\n"
    assert (tmp_path / "both").read_text() == "mine\n"
    [told] = ended.left_behind
    assert told.startswith("both: ")
    assert ended.audit is not None
    assert "both" in ended.audit.by_others
