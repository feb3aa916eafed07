"""Leases without a mount (case C15): archives between real daemons, with all that can go wrong on the way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import pytest

from sublet.daemon.api.daemon import SHOW_STATUS
from sublet.daemon.api.delegation_views import DelegationView
from sublet.daemon.api.delegations import CREATE_DELEGATION, CreateDelegation
from sublet.daemon.api.operation import Nothing
from support.daemons import SHELL_AGENT, Daemon, pair, two_daemons, wait_for
from support.fuseless import fuseless
from support.leases import ask, begin, delegate, finish
from support.leftovers import held, left_behind

Pair = tuple[Daemon, Daemon]


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with two_daemons(tmp_path_factory.mktemp("pair")) as both:
        yield both


@pytest.fixture(scope="module")
def bare(daemons: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """An executor without ``/dev/fuse``, paired as "absent", beside one that may not open it, paired as "forbidden"."""
    if os.geteuid() != 0:
        pytest.skip("hiding a device needs root")
    devices: tuple[Literal["absent", "forbidden"], ...] = ("absent", "forbidden")
    found = {device: fuseless(tmp_path_factory.mktemp(device), device) for device in devices}
    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda daemon: daemon.up(agent=SHELL_AGENT), found.values()))
        for device, daemon in found.items():
            pair(daemons[0], daemon, device)
        yield found["absent"]
    finally:
        for daemon in found.values():
            daemon.down()
    assert [left for daemon in found.values() for left in left_behind(daemon)] == []


def lend(daemon: Daemon, directory: Path, script: str, **more: object) -> DelegationView:
    """Lend ``directory`` by archive, have ``script`` run in it, and return the end."""
    request = {"workspace_dir": str(directory), "peer": "bob", "prompt": script, "transport": "archive", **more}
    handle = ask(daemon, lambda client: client.call(CREATE_DELEGATION, CreateDelegation.model_validate(request)))
    return finish(daemon, handle.delegation_id)


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


def test_c15_a_device_that_can_not_be_opened_is_named(daemons: Pair, bare: Daemon, tmp_path: Path) -> None:
    error = refused_mount(daemons[0], tmp_path, "forbidden")
    assert "/dev/fuse can't be opened: Permission denied" in error["message"]


def test_auto_mounts_where_it_can(daemons: Pair, tmp_path: Path) -> None:
    assert lend(daemons[0], tmp_path, "true", transport="auto").transport == "sshfs"


def test_a_lender_without_fuse_lends(daemons: Pair, bare: Daemon, tmp_path: Path) -> None:
    pair(bare, daemons[1], "carol")
    (tmp_path / "file").write_text("one\n")
    ended = lend(bare, tmp_path, "echo two >> file", peer="carol", transport="sshfs")

    assert (str(ended.state), ended.transport) == ("completed", "sshfs")
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
    assert (tmp_path / "new" / "run2").stat().st_ino == run.st_ino
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
    assert kept.name not in ended.audit.by_others
    assert kept.name in ended.audit.added
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
    ended = lend(daemons[0], tmp_path, "cat file; echo two >> file", access_mode="ro")

    assert str(ended.state) == "error"
    assert ended.result is not None
    assert "Read-only" in ended.result.final_summary
    assert (tmp_path / "file").read_text() == "one\n"


def test_a_quota_is_met_by_what_comes_back(daemons: Pair, tmp_path: Path) -> None:
    ended = lend(daemons[0], tmp_path, "head -c 5000 /dev/zero > large; echo x > small", max_total_bytes=4000)

    assert str(ended.state) == "error"
    assert ended.error is not None
    assert ended.error.code == "TASK_FAILED"
    assert "quota" in ended.error.message
    assert os.listdir(tmp_path) == []


def test_what_was_done_until_a_failure_is_there(daemons: Pair, tmp_path: Path) -> None:
    ended = lend(daemons[0], tmp_path, "echo half > file; exit 3")

    assert str(ended.state) == "error"
    assert (tmp_path / "file").read_text() == "half\n"
    assert ended.audit is not None
    assert ended.audit.added == ["file"]


def test_what_ends_during_the_work_brings_nothing_back_and_leaves_nothing(daemons: Pair, tmp_path: Path) -> None:
    lender, executor = daemons
    for name in ("expires", "cancelled"):
        (tmp_path / name).mkdir()
    script = "echo half > file; sleep 60"
    expires = begin(lender, tmp_path / "expires", script, "--transport", "archive", "--ttl", "3")
    cancelled = begin(lender, tmp_path / "cancelled", script, "--transport", "archive", "--staged")
    wait_for((executor.home / "state" / "work" / cancelled / "workspace" / "file").exists, what="the file")
    lender.run("cancel", cancelled)
    ended = finish(lender, cancelled)

    assert str(ended.state) == "cancelled"
    assert ended.result is None
    assert "did not come back" in lender.run("review", cancelled, check=None).stderr
    assert str(finish(lender, expires).state) == "expired"
    assert [os.listdir(tmp_path / name) for name in ("expires", "cancelled")] == [[], []]
    wait_for(lambda: work_left(executor) == [], what="the views to be gone")


def test_a_lease_that_ends_while_changes_are_looked_for_keeps_no_slot(daemons: Pair, tmp_path: Path) -> None:
    lender, executor = daemons

    # Reading so much of nothing takes far longer than the lease, and than this test.
    ended = delegate(lender, tmp_path, "truncate -s 200G sparse", "--transport", "archive", "--ttl", "3")

    assert ended["state"] == "expired"
    wait_for(
        lambda: ask(executor, lambda client: client.call(SHOW_STATUS, Nothing())).assignments_active == 0,
        20,
        "a free slot",
    )
    wait_for(lambda: work_left(executor) == [], 20, "the end of the view")
    assert os.listdir(tmp_path) == []


def test_a_killed_executor_leaves_no_view(daemons: Pair, bare: Daemon, tmp_path: Path) -> None:
    lender = daemons[0]
    delegation = begin(lender, tmp_path, "echo half > file; sleep 60", "--transport", "archive", peer="absent")
    wait_for((bare.home / "state" / "work" / delegation / "workspace" / "file").exists, what="the file")
    bare.kill()
    assert work_left(bare) == [delegation]
    bare.up(agent=SHELL_AGENT)
    assert work_left(bare) == []
    assert held(bare) == []
    lender.run("cancel", delegation)
    assert str(finish(lender, delegation).state) in ("cancelled", "error")


def test_work_goes_on_when_the_lender_was_killed(daemons: Pair, tmp_path: Path) -> None:
    lender, executor = daemons
    script = """
        echo two >> file; echo theirs > both; : > begun
        while [ ! -e ../go ]; do sleep 0.05; done
    """
    places: dict[str, Path] = {}
    for transport, root in (("archive", "work"), ("git", "clones")):
        directory = tmp_path / transport
        directory.mkdir()
        (directory / "file").write_text("one\n")
        (directory / "both").write_text("old\n")
        delegation = begin(lender, directory, script, "--transport", transport)
        places[delegation] = executor.home / "state" / root / delegation
    for place in places.values():
        wait_for((place / "workspace" / "begun").exists, what="the executor's changes")
    for transport in ("archive", "git"):
        (tmp_path / transport / "both").write_text("mine\n")
    stale = lender.home / "state" / "scratch" / "git-stale"
    stale.mkdir(parents=True)  # as a transfer by git leaves it that was under way
    lender.kill()
    lender.up(agent=SHELL_AGENT)
    assert not stale.exists()
    for place in places.values():
        (place / "go").touch()
    for delegation, transport in zip(places, ("archive", "git"), strict=True):
        ended = finish(lender, delegation)
        directory = tmp_path / transport
        assert str(ended.state) == "completed", ended
        assert (directory / "file").read_text() == "one\ntwo\n"
        assert (directory / "both").read_text() == "mine\n"
        [told] = ended.left_behind
        assert told.startswith("both: ")
        assert ended.audit is not None
        assert "both" in ended.audit.by_others
