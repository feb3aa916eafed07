"""A lease that ends while its holder floods the lender: its time runs out, or the peer is removed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio.to_thread
import asyncssh
import pytest

from attacks.kit.executor import STAT, Hose, connected, hose, path_request, rename
from attacks.scenes import scene
from attacks.test_sftp_turns import FLOODS, SIZES, W, begun
from sublet.protocol.messages import Start
from support.daemons import Daemon, two_daemons
from support.hostile_worker import HostileWorker, in_place_of
from support.leases import begin, finish, tree
from support.sftp_client import string

pytestmark = pytest.mark.anyio
NAMES = 300
NO_CONNECTION = 6
LOOK_SECONDS = 0.01


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return what is lent to the attacker: many names below a directory, and a long chain of links."""
    fill(tmp_path / "mallory")
    (tmp_path / "honest").mkdir()
    return tmp_path


def fill(lent: Path) -> None:
    (lent / "below" / "large").mkdir(parents=True)
    for number in range(NAMES):
        (lent / "below" / "large" / f"{number}").write_text(f"{number}\n")
    deep = lent
    for _ in range(12):
        deep = deep / "deep"
        deep.mkdir()
    (deep / "link-0").write_text("the end\n")
    for number in range(1, 17):
        (deep / f"link-{number}").symlink_to(f"link-{number - 1}")


# the data plane alone


@pytest.mark.usefixtures("tuned_or_not")
@pytest.mark.parametrize("name", FLOODS)
async def test_no_request_is_done_once_the_time_of_the_lease_is_over(root: Path, name: str) -> None:
    """The timer has no part in it: the deadline is looked at before each request."""
    async with scene(root) as lent, connected(lent.attacker) as connection:
        attacker = await hose(connection)
        attacker.send(FLOODS[name])
        await begun(lent)
        served = lent.plane._leases[lent.attacker.lease]
        lent.plane._timers[lent.attacker.lease].cancel()
        served.deadline = 0.0
        at_the_end, left = tree(root / "mallory"), SIZES[FLOODS[name]] - served.usage.operations
        assert left >= SIZES[FLOODS[name]] // 2
        await attacker.until(1 + SIZES[FLOODS[name]])
        assert attacker.last_status == NO_CONNECTION
        assert tree(root / "mallory") == at_the_end


@pytest.mark.usefixtures("tuned_or_not")
@pytest.mark.parametrize("name", FLOODS)
async def test_the_timer_of_a_lease_ends_it_between_two_requests(root: Path, name: str) -> None:
    async with scene(root) as lent, connected(lent.attacker) as connection:
        attacker = await hose(connection)
        attacker.send(FLOODS[name])
        await begun(lent)
        lent.plane.extend(lent.attacker.lease, -3_600)
        at_the_end = tree(root / "mallory")
        await attacker.closed.wait()
        assert tree(root / "mallory") == at_the_end
        assert lent.attacker.lease not in lent.plane._leases
        with pytest.raises((asyncssh.PermissionDenied, asyncssh.ConnectionLost)):
            async with connected(lent.attacker):
                raise AssertionError("it was let in")


# daemons, which are processes of their own: they are as they are, tuned where asyncssh lets them


def ask_and_move(number: int) -> bytes:
    """Return a question about a long chain, or a move of the large directory up, or down again."""
    low, high = W + b"below/large", W + b"large"
    return (path_request(STAT, W + b"deep/" * 12 + b"link-16"), rename(low, high), rename(high, low))[number % 3]


@asynccontextmanager
async def flooding(worker: HostileWorker, start: Start, channels: int = 4) -> AsyncIterator[list[Hose]]:
    """Pour over several channels until they end; yields once all are being answered."""
    async with worker.connect(start) as connection, asyncio.TaskGroup() as group:
        pouring = [await hose(connection) for _ in range(channels)]
        tasks = [group.create_task(one.pour(ask_and_move)) for one in pouring]
        for one in pouring:
            await one.until(2)
        yield pouring
        for task in tasks:
            task.cancel()


@asynccontextmanager
async def lent_to_a_flood(base: Path, *options: str) -> AsyncIterator[tuple[Daemon, HostileWorker, str, Path]]:
    """Lend a directory to an attacker that has the place of a paired daemon; yields before it does anything."""
    lent = base / "lent"
    fill(lent)
    with two_daemons(base) as (lender, bob):
        async with in_place_of(bob, lender, base) as worker:
            over = asyncio.Event()

            async def hold(_: HostileWorker, start: Start) -> object:
                await over.wait()
                raise AssertionError("it woke up")

            worker.deed = hold  # type: ignore[assignment]
            id_ = await anyio.to_thread.run_sync(lambda: begin(lender, lent, "x", *options))
            while id_ not in worker.starts:
                await asyncio.sleep(LOOK_SECONDS)
            yield lender, worker, id_, lent


async def shut_out(worker: HostileWorker, start: Start) -> None:
    """Assert that the key of the lease opens nothing any more."""
    with pytest.raises((asyncssh.PermissionDenied, asyncssh.ConnectionLost)):
        async with worker.connect(start):
            raise AssertionError("it was let in")


def contents(lent: Path) -> list[bytes]:
    """Return what the files hold, wherever the large directory is just now."""
    return sorted(tree(lent).values())


async def test_a_lease_that_expires_under_a_flood_ends_it(tmp_path: Path) -> None:
    async with lent_to_a_flood(tmp_path, "--ttl", "6s") as (lender, worker, id_, lent):
        before = contents(lent)
        start = worker.starts[id_]
        async with flooding(worker, start) as pouring:
            for one in pouring:
                await one.closed.wait()
            after = tree(lent)
        await shut_out(worker, start)
        ended = await anyio.to_thread.run_sync(finish, lender, id_)
        assert str(ended.state) == "expired"
        assert tree(lent) == after
        assert contents(lent) == before


async def test_a_peer_that_is_removed_under_its_own_flood_has_nothing_any_more(tmp_path: Path) -> None:
    async with lent_to_a_flood(tmp_path) as (lender, worker, id_, lent):
        before = contents(lent)
        start = worker.starts[id_]
        async with flooding(worker, start) as pouring:
            await anyio.to_thread.run_sync(lambda: lender.run("peers", "remove", "bob"))
            # The command has returned, so nothing of the flood is done from here on.
            after = tree(lent)
            for one in pouring:
                await one.closed.wait()
        assert tree(lent) == after
        await shut_out(worker, start)
        assert lender.json("output", id_, check=None)["state"] == "cancelled"
        assert contents(lent) == before


async def test_a_lease_that_is_cancelled_under_a_flood_ends_it_before_the_command_returns(tmp_path: Path) -> None:
    async with lent_to_a_flood(tmp_path) as (lender, worker, id_, lent):
        start = worker.starts[id_]
        async with flooding(worker, start) as pouring:
            await anyio.to_thread.run_sync(lambda: lender.run("cancel", id_))
            after = tree(lent)
            for one in pouring:
                await one.closed.wait()
        assert tree(lent) == after
        await shut_out(worker, start)
        # The other side of the same connection is open to a lease that is given anew.
        again = await anyio.to_thread.run_sync(lambda: begin(lender, lent, "x"))
        while again not in worker.starts:
            await asyncio.sleep(LOOK_SECONDS)
        async with worker.connect(worker.starts[again]) as connection:
            channel = await hose(connection)
            assert (await channel.ask(STAT, string(W + b"deep"))).kind == 105
