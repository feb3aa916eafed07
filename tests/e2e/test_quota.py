"""What a lease may add, and what the lender's disk has room for: enforced, told, and the reason of the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.daemons import Daemon, two_daemons, wait_for
from support.leases import assignment, begin, delegate, events, finish, view, wait_state
from support.small_disk import small_disk

Pair = tuple[Daemon, Daemon]
MEBIBYTE = 1024 * 1024
POLICY = {
    "version": 1,
    "limits": {"admission": {"max_total_bytes": 4 * MEBIBYTE, "max_files": 50, "max_file_bytes": 2 * MEBIBYTE}},
}


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A lender whose policy lets 4 MiB, 50 files and 2 MiB in one file be added; and a worker."""
    with two_daemons(tmp_path_factory.mktemp("quota"), policy=POLICY) as both:
        yield both


def sizes(root: Path) -> dict[str, int]:
    """Return the files below ``root`` with their sizes."""
    return {str(path.relative_to(root)): path.stat().st_size for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("options", "script", "said"),
    [
        (("--max-total-bytes", "64K"), "head -c 200000 /dev/zero > big", "65,536 bytes to the directory"),
        (("--max-files", "3"), "touch a b c d", "3 files, links and directories"),
        (("--max-file-bytes", "1K"), "head -c 900 /dev/zero > s; truncate -s 2000 s", "grow beyond 1,024 bytes"),
        (("--max-file-bytes", "1K"), "for i in $(seq 30); do seq 20 >> log; done", "grow beyond 1,024 bytes"),
    ],
)
def test_both_sides_name_the_bound_that_was_met(
    daemons: Pair, tmp_path: Path, options: tuple[str, ...], script: str, said: str
) -> None:
    lender, worker = daemons

    ended = delegate(lender, tmp_path, script, *options)

    assert (ended["state"], ended["error"]["code"], ended["error"]["from_peer"]) == ("error", "TASK_FAILED", False)
    assert said in ended["error"]["message"]
    there = assignment(worker, ended["delegation_id"])
    assert (there["state"], there["error"]["code"]) == ("error", "TASK_FAILED")
    assert said in there["error"]["message"]
    quota, used = ended["quota"], ended["usage"]
    found = sizes(tmp_path)
    assert sum(found.values()) == used["bytes_added"] <= quota["max_total_bytes"]
    assert len(found) == used["files_added"] <= quota["max_files"]
    assert max(found.values()) <= quota["max_file_bytes"]


def test_the_program_sees_the_error_and_how_much_is_left(daemons: Pair, tmp_path: Path) -> None:
    script = """
    df --output=size,avail,pcent -B1 . | tail -1
    if why=$(head -c 70000 /dev/zero 2>&1 > big); then echo no error; fi
    echo "$why" >&2; rm big
    head -c 65536 /dev/zero > big
    df --output=size,avail,pcent -B1 . | tail -1
    df --output=itotal,iavail . | tail -1
    cat ../meta/lease.json
    """
    ended = delegate(daemons[0], tmp_path, script, "--max-total-bytes", "64K", "--max-files", "10")

    said = [event.data for event in events(daemons[0], ended["delegation_id"]) if "text" in event.data]
    log = "".join(str(data["text"]) for data in said)
    before, after, inodes = (line.split() for line in log.splitlines() if line.strip()[:1].isdigit())
    assert before == ["65536", "65536", "0%"]
    assert after == ["65536", "0", "100%"]
    assert inodes == ["10", "9"]
    assert "Input/output error" in log
    assert '"max_total_bytes": 65536' in log
    assert '"quota_exceeded": "quota exceeded: the agent may add at most 65,536 bytes' in log
    assert "no error" not in log
    assert ended["error"]["code"] == "TASK_FAILED"


@pytest.mark.parametrize(
    "options",
    [("--staged",), ("--transport", "archive"), ("--transport", "archive", "--staged"), ("--transport", "git")],
)
def test_the_quota_holds_however_the_files_travel(daemons: Pair, tmp_path: Path, options: tuple[str, ...]) -> None:
    lender, worker = daemons
    (tmp_path / "there").write_text("before\n")

    ended = delegate(lender, tmp_path, "touch a b c d; true", "--max-files", "3", *options)

    assert "3 files, links and directories (max_files)" in ended["error"]["message"]
    assert assignment(worker, ended["delegation_id"])["error"]["message"] == ended["error"]["message"]
    assert sizes(tmp_path) == {"there": 7}


def test_an_agent_that_goes_on_is_told_and_then_ended(daemons: Pair, tmp_path: Path) -> None:
    lender, worker = daemons
    found = begin(lender, tmp_path, "echo x > a; echo y > b; sleep 100", "--max-files", "1")

    ended = finish(lender, found, 30)

    assert ended.error is not None
    assert "(max_files)" in ended.error.message
    assert "quota exceeded" in lender.run("output", found).stdout
    assert assignment(worker, found)["error"]["message"].startswith("quota exceeded")


def test_a_request_can_narrow_what_policy_allows_and_never_widen_it(daemons: Pair, tmp_path: Path) -> None:
    lender = daemons[0]

    refused = delegate(lender, tmp_path, "true", "--max-total-bytes", "5M")

    assert refused["error"]["code"] == "POLICY_DENIED"
    assert "4,194,304" in refused["error"]["message"]
    assert "4194304" in refused["error"]["hint"]
    found = begin(lender, tmp_path, "sleep 100", "--max-total-bytes", "1M")
    quota = wait_state(lender, found, "running").quota
    assert quota is not None
    assert quota.model_dump() == {"max_total_bytes": MEBIBYTE, "max_files": 50, "max_file_bytes": 2 * MEBIBYTE}
    lender.run("cancel", found)


def test_what_is_used_is_shown_while_the_work_goes_on(daemons: Pair, tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"x" * 1000)
    found = begin(daemons[0], tmp_path, "head -c 300 /dev/zero > new; rm old; mkdir d; touch said; sleep 100")
    wait_for((tmp_path / "said").exists)
    usage: Any = view(daemons[0], found).usage

    assert (usage.bytes_added, usage.files_added) == (-700, 2)
    daemons[0].run("cancel", found)


def test_both_sides_name_the_disk_that_is_full(daemons: Pair, tmp_path: Path) -> None:
    lender, worker = daemons
    script = """
    echo first > first
    sync first && echo first is there
    if head -c 2000000 /dev/zero > big; then echo no error; fi
    cat ../meta/lease.json
    """
    with small_disk(tmp_path / "small", 512) as small:
        ended = delegate(lender, small, script)

        assert (ended["state"], ended["error"]["code"], ended["error"]["from_peer"]) == ("error", "TASK_FAILED", False)
        assert "the lender's disk is full" in ended["error"]["message"]
        assert "Make space" in ended["error"]["hint"]
        there = assignment(worker, ended["delegation_id"])
        assert there["error"]["message"] == ended["error"]["message"]
        assert (small / "first").read_text() == "first\n"
        assert (small / "kept").read_text() == "kept\n"
        assert ended["audit"]["added"] == ["big", "first"]
        log = lender.run("output", ended["delegation_id"]).stdout
        assert "first is there" in log
        assert "no error" not in log
        assert '"disk_full": "the lender\'s disk is full' in log
        (small / "big").unlink()
        assert delegate(lender, small, "echo again > again")["state"] == "completed"


def test_what_came_back_waits_until_there_is_room_for_it(daemons: Pair, tmp_path: Path) -> None:
    lender = daemons[0]
    with small_disk(tmp_path / "small", 512) as small:
        (small / "ballast").write_bytes(bytes(200 * 1024))
        script = "head -c 400000 /dev/urandom > big; echo new > new"
        ended = delegate(lender, small, script, "--transport", "archive")

        assert ended["state"] == "completed"
        assert "No space left on device; it waits for: sublet apply" in ended["left_behind"][0]
        assert sorted(path.name for path in small.iterdir()) == ["ballast", "kept"]
        assert ended["result"]["change_set"]["status"] == "pending"
        (small / "ballast").unlink()
        lender.run("apply", ended["delegation_id"])
        assert (small / "big").stat().st_size == 400_000
        assert (small / "new").read_text() == "new\n"
