"""Cases C18, C21 and C23, and that time, access, directory and slots of a lease are what was agreed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sublet.protocol.messages import Error
from support.daemons import wait_for
from support.held_proxy import HeldProxy, held_proxy
from support.hostile_lender import HostileLender
from support.leases import (
    assignment,
    begin,
    delegate,
    finish,
    marker,
    processes_with,
    restart,
    states,
    tree,
    view,
    wait_state,
)
from support.ports import free_port
from support.watched_leases import (
    SLOTS,
    START,
    Pair,
    assert_gone,
    come_back,
    daemons_behind,
    ends,
    running,
)


@pytest.fixture(scope="module")
def proxy() -> Iterator[HeldProxy]:
    """Stands before the executor, so that a test can act between two messages."""
    with held_proxy(free_port()) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory, proxy: HeldProxy) -> Iterator[Pair]:
    with daemons_behind(proxy, tmp_path_factory.mktemp("pair")) as both:
        yield both


# Time: C18 and the TTL on both sides


def test_c18_an_expired_lease_is_over_on_both_sides_and_lets_the_next_one_in(daemons: Pair, tmp_path: Path) -> None:
    delegator, executor = daemons
    mark = marker()
    writing = f"while :; do date >> log; done & touch started; sleep {mark}"
    id_ = begin(delegator, tmp_path, writing, "--ttl", "4")
    wait_for((tmp_path / "started").exists, 40, "the work")

    ended = delegate(delegator, tmp_path, "cat started && echo mine")

    first = view(delegator, id_)
    assert str(first.state) == "expired"
    assert first.error is not None
    assert first.error.code == "EXPIRED"
    assert ends(delegator, id_) == ["expired"]
    assert ended["state"] == "completed"
    assert ended["result"]["final_summary"] == "mine"
    assert_gone(daemons, mark, id_)
    wait_for(lambda: assignment(executor, id_)["state"] == "error", 10, "the executor's end")
    assert assignment(executor, id_)["error"]["code"] == "EXPIRED"
    before = tree(tmp_path)
    time.sleep(0.5)
    assert tree(tmp_path) == before


def test_c18_expiry_is_told_without_anybody_who_reaps(daemons: Pair, tmp_path: Path) -> None:
    delegator, _ = daemons
    mark = marker()
    id_ = running(daemons, tmp_path, mark, "--ttl", "5")

    delegator.kill()
    wait_for(lambda: not processes_with(mark), 20, "the end of the worker, whose link is cut")
    time.sleep(max(0.0, (tmp_path / "started").stat().st_mtime + 5 - time.time()))
    restart(delegator, None)

    wait_for(lambda: str(view(delegator, id_).state) == "expired", 10, "the end by expiry")
    assert delegate(delegator, tmp_path, "true")["state"] == "completed"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("remaining", "expires_at"), [(0, "2099-01-01T00:00:00Z"), (None, "2020-01-01T00:00:00Z")], ids=["counted", "told"]
)
async def test_a_start_that_comes_too_late_is_refused(
    daemons: Pair, tmp_path: Path, remaining: int | None, expires_at: str
) -> None:
    async with HostileLender(*daemons) as lender, lender.serving(tmp_path) as port:
        invite = lender.invitation("touch started")
        task, _ = await lender.invite(invite)
        start = lender.start(invite.delegation_id, port, remaining_seconds=remaining, expires_at=expires_at)
        updates = await lender.run(task, start)

    end = updates[-1]
    assert isinstance(end, Error)
    assert end.code == "START_EXPIRED"
    assert list(tmp_path.iterdir()) == []
    assert_gone(daemons, "no such worker", invite.delegation_id)
    assert assignment(daemons[1], invite.delegation_id)["state"] == "error"


# Access


def test_a_lease_for_reading_changes_nothing(daemons: Pair, tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    (tmp_path / "old").chmod(0o640)
    (tmp_path / "deep").mkdir()
    before, modes = tree(tmp_path), {path: path.stat().st_mode for path in tmp_path.rglob("*")}
    script = """
        exec 2>&1
        (echo x > new) && echo DONE new
        (echo x >> old) && echo DONE append
        (: > old) && echo DONE truncate
        for command in "rm old" "mv old deep/" "mkdir dir" "rmdir deep" "chmod 777 old" "touch old" "touch deep" \\
            "ln old hard" "ln -s old soft" "cp old deep/copy" "truncate -s 0 old" "dd if=/dev/zero of=old count=1"; do
            $command && echo "DONE $command"
        done
        cat old
    """

    ended = delegate(daemons[0], tmp_path, script, "--ro")

    assert ended["state"] == "completed", ended
    said = ended["result"]["final_summary"]
    assert "DONE" not in said
    assert "Read-only file system" in said or "Permission denied" in said
    assert said.endswith("old")
    assert tree(tmp_path) == before
    assert {path: path.stat().st_mode for path in tmp_path.rglob("*")} == modes
    assert ended["usage"]["bytes_written"] == 0


@pytest.mark.anyio
async def test_start_cannot_widen_what_was_accepted(daemons: Pair, tmp_path: Path) -> None:
    async with HostileLender(*daemons) as lender, lender.serving(tmp_path) as port:
        invite = lender.invitation("touch started")
        reading = invite.model_copy(update={"lease": invite.lease.model_copy(update={"access_mode": "ro"})})
        task, accept = await lender.invite(reading)
        updates = await lender.run(task, lender.start(invite.delegation_id, port))

    assert accept.remote_constraints.accepted_access_mode == "ro"
    assert isinstance(updates[-1], Error)
    assert updates[-1].code == "DECLINED"
    assert list(tmp_path.iterdir()) == []


# The directory


def test_overlapping_leases_queue_visibly_and_in_order(daemons: Pair, tmp_path: Path) -> None:
    delegator, _ = daemons
    (tmp_path / "sub").mkdir()
    mark = marker()
    first = running(daemons, tmp_path, mark)
    second = begin(delegator, tmp_path / "sub", "date +%s%N")
    third = begin(delegator, tmp_path, "date +%s%N")

    def listed() -> dict[str, tuple[str, int | None]]:
        found = delegator.json("ls")["delegations"]
        return {each["delegation_id"]: (each["state"], (each["condition"] or {}).get("position")) for each in found}

    wait_for(lambda: listed().get(third) == ("created", 2), 20, "the queue")
    assert listed()[second] == ("created", 1)
    assert "queued" in delegator.run("ls").stdout

    delegator.json("cancel", first)
    ended = [finish(delegator, id_) for id_ in (second, third)]

    assert [str(each.state) for each in ended] == ["completed", "completed"]
    times = [int(each.result.final_summary) for each in ended if each.result]
    assert times == sorted(times)
    assert all(each.condition is None for each in ended)
    assert_gone(daemons, mark, first, second, third)


def test_leases_for_reading_share_a_directory(daemons: Pair, tmp_path: Path) -> None:
    delegator, _ = daemons
    (tmp_path / "file").write_text("shared")
    mark = marker()
    both = [begin(delegator, tmp_path, f"cat file; sleep {mark}", "--ro") for _ in range(2)]

    for id_ in both:
        wait_state(delegator, id_, "running")
    for id_ in both:
        delegator.json("cancel", id_)

    assert_gone(daemons, mark, *both)


# Slots


def test_a_full_executor_declines_and_says_when_to_come_again(daemons: Pair, tmp_path: Path) -> None:
    delegator, executor = daemons
    mark = marker()
    taken = [running(daemons, tmp_path / str(number), mark) for number in range(SLOTS)]
    (tmp_path / "one-more").mkdir()

    done = delegator.run("delegate", str(tmp_path / "one-more"), "--to", "bob", "touch started", check=(5,))
    ended = delegate(delegator, tmp_path / "one-more", "touch started")

    assert f"all {SLOTS} slots" in done.stderr + done.stdout
    assert ended["state"] == "error"
    assert ended["error"]["code"] == "DECLINED"
    assert "Try again in about" in ended["error"]["hint"]
    assert list((tmp_path / "one-more").iterdir()) == []
    assert executor.json("status")["assignments_active"] == SLOTS
    for id_ in taken:
        delegator.json("cancel", id_)
    assert_gone(daemons, mark, *taken)
    assert delegate(delegator, tmp_path / "one-more", "true")["state"] == "completed"


def test_c21_a_killed_executor_gets_its_slots_back(daemons: Pair, proxy: HeldProxy, tmp_path: Path) -> None:
    delegator, executor = daemons
    mark = marker()
    for number in range(SLOTS):
        id_ = running(daemons, tmp_path / "lent", mark)
        executor.kill()
        wait_for(lambda: not processes_with(mark), 20, "the end of the worker")
        condition = wait_for(lambda: view(delegator, id_).condition, 20, "word of the silence")  # noqa: B023
        assert condition.kind == "unresponsive"
        assert "bob can't be heard" in condition.detail
        come_back(executor, proxy)
        assert executor.mounts == []
        wait_for(lambda: executor.json("status")["assignments_active"] == 0, 20, f"free slots of round {number}")
        end = finish(delegator, id_)
        assert str(end.state) == "error"
        assert end.error is not None
        assert end.error.message
        assert assignment(executor, id_)["state"] == "error"

    again = [running(daemons, tmp_path / str(number), mark) for number in range(SLOTS)]
    assert executor.json("status")["assignments_active"] == SLOTS
    for id_ in again:
        delegator.json("cancel", id_)
    assert_gone(daemons, mark, *again)


# C23: the executor dies between ACCEPT and START


@pytest.mark.parametrize("returns", [False, True], ids=["for good", "and comes back"])
def test_c23_death_between_accept_and_start_is_told(
    daemons: Pair, proxy: HeldProxy, tmp_path: Path, returns: bool
) -> None:
    delegator, executor = daemons
    proxy.before(START, executor.kill)

    id_ = begin(delegator, tmp_path, "touch started")
    executor.wait_gone(30)
    if returns:
        come_back(executor, proxy)
    end = finish(delegator, id_)  # which returns as soon as the end is there
    if not returns:
        come_back(executor, proxy)

    assert str(end.state) == "error"
    assert end.error is not None
    assert end.error.message
    assert end.error.code in ({"TASK_FAILED", "DECLINED"} if returns else {"PEER_UNREACHABLE"})
    assert states(delegator, id_) == ["created", "invited", "accepted", "started", "error"]
    assert list(tmp_path.iterdir()) == []
    assert delegate(delegator, tmp_path, "true")["state"] == "completed"
