"""Attacks on the lender by what an executor leaves in the directory, and on the truth of what is told of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemons import Daemon, two_daemons, wait_for
from support.leases import begin, delegate, finish

Pair = tuple[Daemon, Daemon]
MEBIBYTE = 1024 * 1024
SMALL = {"version": 1, "limits": {"admission": {"max_total_bytes": 2 * MEBIBYTE, "max_files": 40}}}


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A lender who lends, and lets be added, 2 MiB and 40 files; and a worker."""
    with two_daemons(tmp_path_factory.mktemp("attacks"), policy=SMALL) as both:
        yield both


@pytest.mark.parametrize(
    ("script", "bound"),
    [
        ("head -c 8000000 /dev/zero > big; true", "2,097,152 bytes to the directory (max_total_bytes)"),
        ("truncate -s 8T sparse; true", "536,870,912 bytes (max_file_bytes)"),
        ("for i in $(seq 100); do mkdir d$i; done; true", "40 files, links and directories (max_files)"),
    ],
)
def test_a_lease_can_not_fill_the_disk_of_its_lender(daemons: Pair, tmp_path: Path, script: str, bound: str) -> None:
    ended = delegate(daemons[0], tmp_path, script)

    assert (ended["state"], ended["error"]["code"]) == ("error", "TASK_FAILED")
    assert "quota exceeded" in ended["error"]["message"]
    assert bound in ended["error"]["message"]
    assert ended["error"]["from_peer"] is False
    found = list(tmp_path.iterdir())
    assert len(found) <= 40
    assert sum(path.stat().st_size for path in found if path.is_file()) <= 2 * MEBIBYTE


def test_within_its_limits_a_lease_is_not_bothered(daemons: Pair, tmp_path: Path) -> None:
    script = "for i in 1 2 3 4; do head -c 1500000 /dev/zero > big; rm big; done; echo done"
    assert delegate(daemons[0], tmp_path, script)["state"] == "completed"


def test_what_became_of_a_directory_that_was_replaced_is_not_laid_at_the_executors_door(
    daemons: Pair, tmp_path: Path
) -> None:
    lender = daemons[0]
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    delegation = begin(
        lender, workspace, "touch begun; while [ ! -e ../workspace/go ]; do sleep 0.05; done; echo > new"
    )
    wait_for((workspace / "begun").exists, 30, "the work")
    workspace.rename(tmp_path / "moved")
    workspace.mkdir()
    (workspace / "unrelated").write_text("another project\n")
    (tmp_path / "moved" / "go").touch()

    ended = finish(lender, delegation)

    assert sorted(path.name for path in (tmp_path / "moved").iterdir()) == ["begun", "go", "new"]
    assert [path.name for path in workspace.iterdir()] == ["unrelated"]
    assert ended.audit is None
    assert ended.audit_error is not None
    assert "replaced" in ended.audit_error.message


def test_a_sparse_file_of_terabytes_does_not_keep_the_audit_busy(daemons: Pair, tmp_path: Path) -> None:
    """The lender's own: it was made beside the lease, where no limit holds."""
    lender = daemons[0]
    delegation = begin(lender, tmp_path, "touch begun; while [ ! -e go ]; do sleep 0.05; done")
    wait_for((tmp_path / "begun").exists, 30, "the work")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 42)
    (tmp_path / "go").touch()

    before = time.monotonic()
    ended = finish(lender, delegation)

    assert time.monotonic() - before < 20
    assert ended.audit is not None
    assert ended.audit.added == ["begun", "go", "sparse"]
    assert [entry for entry in ended.audit.unaudited if entry.startswith("sparse")] != []


def test_a_lease_can_not_use_up_the_files_that_the_daemon_may_open(tmp_path: Path) -> None:
    """A thousand handles are a lease's right, and the usual soft limit of a process is 1,024."""
    daemon = Daemon(tmp_path / "home", prefix=("sh", "-c", 'ulimit -Sn 256; exec "$@"', "sh"))
    try:
        daemon.up()
        limits = Path(f"/proc/{daemon.pid}/limits").read_text().splitlines()
        soft, hard = next(line for line in limits if line.startswith("Max open files")).split()[3:5]
        assert hard == "unlimited" or int(soft) == min(int(hard), 65_536)
    finally:
        daemon.down()
