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

from sublet.daemon import data_link
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.messages import Done, Progress
from sublet.supervisor.model import Job, Outcome, Report
from sublet.workspace.sftp_listener import DataPlane
from support.worker import ALICE, HERE, Worker, work_for_ever, worker

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


async def write_once_it_works(job: Job, name: str) -> None:
    path = job.workspace / name
    while await asyncio.to_thread(fails, lambda: path.write_text("written\n")):
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("way", ["direct", "reverse"])
async def test_a_link_that_is_cut_comes_back_and_the_work_goes_on(side: Worker, way: str) -> None:
    async def work(job: Job, report: Report) -> Outcome:
        for number in range(2):
            with await asyncio.to_thread((job.workspace / "hello.txt").open) as opened:
                cut_links(side.lender)
                assert await asyncio.to_thread(fails, opened.read), "its handle is gone, and it is not the file's end"
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
