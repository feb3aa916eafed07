"""The link to the lender's files: cut, brought back either way, and given up, with a real lender and real mounts."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import asyncssh
import pytest
from anyio.abc import TaskGroup

from sublet.daemon.working import data_link
from sublet.daemon.working.assignment_run import MAX_LAUNCHES
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.messages import Done, Progress
from sublet.supervisor.job import Job, Outcome, Report
from sublet.workspace.export import Export
from sublet.workspace.mount.mount import Mount
from sublet.workspace.serving.listener import DataPlane
from support.worker import ALICE, HERE, HOST_KEY, Worker, work_for_ever, worker

pytestmark = pytest.mark.anyio


@pytest.fixture
async def side(tmp_path: Path) -> AsyncIterator[Worker]:
    async with worker(tmp_path) as side:
        yield side
        await side.check_nothing_held()


def phases(updates: list[Progress | Done]) -> list[str]:
    return [update.phase for update in updates if isinstance(update, Progress) and not update.text]


def links(updates: list[Progress | Done]) -> list[str]:
    """Return what was said of the link, each state once in a row."""
    said = [update.link for update in updates if isinstance(update, Progress) and update.link is not None]
    return [state for number, state in enumerate(said) if number == 0 or said[number - 1] != state]


def cut_links(lender: DataPlane, name: str = "dlg_1") -> None:
    for connection in list(lender._leases[name].connections):
        connection.sever()


def fails(attempt: Callable[[], object]) -> bool:
    """Tell whether ``attempt`` ends in the error of a mount without its link."""
    try:
        attempt()
    except FileNotFoundError:
        return False
    except OSError as error:
        return error.errno == errno.EIO
    return False


async def see_an_error(job: Job) -> None:
    """Wait until work in the mount fails."""
    number = 0
    while not await asyncio.to_thread(fails, (job.workspace / f"absent-{number}").stat):
        number += 1


async def lose_the_link(side: Worker, job: Job) -> None:
    """Cut the link where work can't fail to notice, however soon the next one is there."""
    with await asyncio.to_thread((job.workspace / "hello.txt").open) as opened:
        cut_links(side.lender)
        assert await asyncio.to_thread(fails, opened.read), "its handle is gone, and it is not the file's end"


async def write_once_it_works(job: Job, name: str) -> None:
    path = job.workspace / name
    while await asyncio.to_thread(fails, lambda: path.write_text("written\n")):
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("way", ["direct", "reverse"])
async def test_a_link_that_is_cut_comes_back_and_the_work_goes_on(side: Worker, way: str) -> None:
    async def work(job: Job, report: Report) -> Outcome:
        for number in range(2):
            await lose_the_link(side, job)
            await write_once_it_works(job, f"after-{number}")
        return Outcome("done", "went on", 0)

    side.agent.work = work
    own = DataPlane(asyncssh.generate_private_key("ssh-ed25519"), side.reverse)
    await own.start("127.0.0.1", 0)
    host, port = own.address
    async with anyio.create_task_group() as group:
        group.start_soon(own.serve)
        if way == "reverse":
            side.reverse_port = port
        said: list[Progress | Done] = []
        start = side.start(await side.accepted(), data_path=way)
        async for update in side.executor.run(start, ALICE, source_host=HERE):
            said.append(update)
            if isinstance(update, Progress) and update.phase == "need_reverse":
                group.start_soon(side.lender.dial, host, port, "dlg_1")
        group.cancel_scope.cancel()
    done = said[-1]
    assert isinstance(done, Done)
    assert done.sublet.link_losses == 2
    assert done.sublet.interrupted_operations >= 2
    assert links(said) == ["down", "up", "down", "up"]
    assert sum(phase == "need_reverse" for phase in phases(said)) == (3 if way == "reverse" else 0)
    assert sorted(path.name for path in side.project.iterdir()) == ["after-0", "after-1", "hello.txt"]


@pytest.mark.parametrize("mode", ["rw", "ro"])
async def test_work_that_ends_without_its_link_waits_for_it_where_it_wrote(
    side: Worker, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(data_link, "MAX_OUTAGE_SECONDS", 1.0)

    async def work(job: Job, report: Report) -> Outcome:
        side.lender.close()
        await see_an_error(job)
        return Outcome("done", "ended meanwhile", 0)

    side.agent.work = work
    start = side.start(await side.accepted(access_mode=mode), mode=mode)
    if mode == "ro":
        done = (await side.updates(start))[-1]
        assert isinstance(done, Done)
        assert done.sublet.link_losses == 1
        return
    with pytest.raises(SubletError, match="last writes did not all reach the delegator: it did not come back") as no:
        await side.updates(start)
    assert no.value.code is ErrorCode.TASK_FAILED


async def test_a_link_that_stays_away_ends_the_agent(side: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_link, "MAX_OUTAGE_SECONDS", 1.0)

    async def work(job: Job, report: Report) -> Outcome:
        side.lender.close()
        return await work_for_ever(job, report)

    side.agent.work = work
    start = side.start(await side.accepted())
    with pytest.raises(SubletError, match="did not come back within 1 s") as no:
        await side.updates(start)
    assert no.value.code is ErrorCode.MOUNT_FAILED


async def test_an_sshfs_that_is_killed_ends_the_agent_and_is_named(side: Worker) -> None:
    async def work(job: Job, report: Report) -> Outcome:
        argv = ["pgrep", "-f", f"sshfs.*{side.mounts.root / 'dlg_1'}$"]
        found = await anyio.run_process(argv)
        os.kill(int(found.stdout), signal.SIGKILL)
        return await work_for_ever(job, report)

    side.agent.work = work
    start = side.start(await side.accepted())
    with pytest.raises(SubletError, match="sshfs was killed by signal 9") as no:
        await side.updates(start)
    assert no.value.code is ErrorCode.MOUNT_FAILED


# The first link


class Lender:
    """A lender's data plane that is killed and started again at the same place, as its daemon is."""

    def __init__(self, side: Worker) -> None:
        self._side = side
        self.export: Export | None = None

    def kill(self) -> None:
        (lease,) = self._side.lender._leases.values()
        self.export = lease.export
        self.address = self._side.lender.address
        self._side.lender.close()

    async def come_back(self, group: TaskGroup) -> DataPlane:
        """Listen again, before the lease is served."""
        plane = DataPlane(HOST_KEY)
        plane.take_up.begin()
        await plane.start(*self.address)
        group.start_soon(plane.serve)
        return plane


async def test_a_lender_that_is_away_at_start_is_waited_for(side: Worker) -> None:
    said: list[Progress | Done] = []
    start, lender = side.start(await side.accepted()), Lender(side)
    lender.kill()

    async def run() -> None:
        said.extend(await side.updates(start))

    async with anyio.create_task_group() as group, anyio.create_task_group() as work:
        work.start_soon(run)
        await anyio.sleep(3 * data_link.FIRST_RETRY_SECONDS)
        plane = await lender.come_back(group)
        while not plane._strangers:
            await anyio.sleep(0.01)
        assert said == [], "whoever comes before the lease is served is not refused"
        assert lender.export is not None
        plane.take_up.expect(["dlg_1"])
        plane.open(lender.export)
        with anyio.fail_after(20):
            while not said:
                await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    assert isinstance(said[-1], Done)
    assert said[-1].sublet.link_losses == 0


async def test_a_link_that_breaks_while_the_view_is_made_is_made_again(
    side: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach, tries = side.mounts.attach, 0

    async def attach_and_break(place: Path, connection: asyncssh.SSHClientConnection, path: str) -> Mount:
        nonlocal tries
        tries += 1
        if tries == 1:
            cut_links(side.lender)
            await connection.wait_closed()
        return await attach(place, connection, path)

    monkeypatch.setattr(side.mounts, "attach", attach_and_break)
    assert isinstance((await side.updates(side.start(await side.accepted())))[-1], Done)
    assert tries == 2


async def test_an_agent_that_cannot_begin_since_the_link_broke_is_started_again(side: Worker) -> None:
    async def work(job: Job, report: Report) -> Outcome:
        if len(side.agent.jobs) == 1:
            await lose_the_link(side, job)
            return Outcome("crashed", "", detail="the command could not be started: Input/output error", launched=False)
        await write_once_it_works(job, "begun")
        return Outcome("done", "went on", 0)

    side.agent.work = work
    assert isinstance((await side.updates(side.start(await side.accepted())))[-1], Done)
    assert len(side.agent.jobs) == 2


@pytest.mark.parametrize("cut", [False, True])
async def test_an_agent_that_cannot_begin_is_not_started_for_ever(side: Worker, cut: bool) -> None:
    async def work(job: Job, report: Report) -> Outcome:
        if cut:
            await lose_the_link(side, job)
        return Outcome("crashed", "", detail="the command could not be started: no such file", launched=False)

    side.agent.work = work
    with pytest.raises(SubletError, match="no such file") as no:
        await side.updates(side.start(await side.accepted()))
    assert no.value.code is ErrorCode.TASK_FAILED
    assert len(side.agent.jobs) == (MAX_LAUNCHES if cut else 1)
