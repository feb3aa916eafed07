"""The executor's side where nothing is mounted: which transport it takes, and the work in an unpacked view."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskGroup

from sublet.daemon.working.acceptance import choose_transport
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.messages import Accept, Done, Invite, Start
from sublet.supervisor.job import Job, Outcome, Report
from support.worker import ALICE, HERE, Worker, invite, work_for_ever, worker

pytestmark = pytest.mark.anyio


def lacking(*missing: str) -> Callable[[str], None]:
    """Return a machine that lacks what the transports ``missing`` need."""

    def require(transport: str) -> None:
        if transport in missing:
            raise SubletError(ErrorCode.DEP_MISSING, f"no {transport}: a thing is missing", f"Install {transport}.")

    return require


def asking(*transports: str, wanted: str | None = None) -> Invite:
    """Return an INVITE that offers ``transports``."""
    message = invite("dlg_1").model_dump(mode="json")
    message["requirements"] = {"transport": wanted or transports[0]}
    message["sublet"] = {"transports": list(transports)}
    return Invite.model_validate(message)


@pytest.mark.parametrize(
    ("offered", "missing", "chosen"),
    [
        (("sshfs", "archive"), (), "sshfs"),
        (("sshfs", "archive"), ("sshfs",), "archive"),
        (("archive",), ("sshfs",), "archive"),
        (("pigeon", "archive"), (), "archive"),
    ],
)
def test_the_first_transport_that_works_here_is_chosen(
    offered: tuple[str, ...], missing: tuple[str, ...], chosen: str
) -> None:
    assert choose_transport(asking(*offered), ["sshfs", "archive"], lacking(*missing)) == chosen


def test_what_is_missing_is_named_with_the_transport_that_would_do() -> None:
    with pytest.raises(SubletError) as refused:
        choose_transport(asking("sshfs"), ["sshfs", "archive"], lacking("sshfs"))
    assert refused.value.code == ErrorCode.DEP_MISSING
    assert refused.value.message == "no sshfs: a thing is missing"
    assert refused.value.hint.startswith("Install sshfs. Or: Delegate with --transport archive")


def test_no_transport_is_named_where_none_would_do() -> None:
    with pytest.raises(SubletError) as refused:
        choose_transport(asking("sshfs"), ["sshfs", "archive"], lacking("sshfs", "archive"))
    assert "--transport" not in refused.value.hint


def test_a_plain_peer_gets_what_it_asks_for_or_nothing() -> None:
    plain = Invite.model_validate({**invite("dlg_1").model_dump(mode="json"), "requirements": {"transport": "archive"}})
    assert choose_transport(plain, ["sshfs", "archive"], lacking()) == "archive"
    with pytest.raises(SubletError, match="transport pigeon is not served here"):
        choose_transport(asking("sshfs", wanted="pigeon"), ["sshfs", "archive"], lacking())


@pytest.fixture
async def side(tmp_path: Path) -> AsyncIterator[Worker]:
    async with worker(tmp_path) as made:
        yield made


async def failure_in(group: TaskGroup, side: Worker, start: Start) -> list[SubletError]:
    """Follow START in a task of its own; then the list holds how it failed."""
    ended: list[SubletError] = []

    async def follow() -> None:
        try:
            await side.updates(start)
        except SubletError as error:
            ended.append(error)

    group.start_soon(follow)
    return ended


async def accepted(side: Worker) -> Accept:
    return await side.executor.invite(asking("archive"), ALICE, source_host=HERE)


async def test_work_in_an_unpacked_view_comes_back(side: Worker) -> None:
    async def edit(job: Job, report: Report) -> Outcome:
        assert job.workspace.is_relative_to(side.root / "work" / "dlg_1")
        (job.workspace / "hello.txt").write_text("hi\nthere\n")
        return Outcome("done", "said hello", 0)

    side.agent.work = edit
    accept = await accepted(side)
    assert accept.sublet.transport == "archive"
    assert accept.remote_mount.mount_point == str(side.root / "work" / "dlg_1")
    assert isinstance((await side.updates(side.start(accept)))[-1], Done)
    assert (side.project / "hello.txt").read_text() == "hi\nthere\n"
    await side.check_nothing_held()
    assert os.listdir(side.root / "work") == []


async def test_what_a_failed_agent_did_comes_back_too(side: Worker) -> None:
    async def fail(job: Job, report: Report) -> Outcome:
        (job.workspace / "hello.txt").write_text("half\n")
        return Outcome("failed", "no", 3)

    side.agent.work = fail
    with pytest.raises(SubletError, match="exit code 3"):
        await side.updates(side.start(await accepted(side)))
    assert (side.project / "hello.txt").read_text() == "half\n"
    assert os.listdir(side.root / "work") == []


async def test_what_a_cancelled_agent_did_does_not(side: Worker) -> None:
    async def begin(job: Job, report: Report) -> Outcome:
        (job.workspace / "hello.txt").write_text("half\n")
        wrote.set()
        return await work_for_ever(job, report)

    wrote = asyncio.Event()

    side.agent.work = begin
    start = side.start(await accepted(side))
    async with anyio.create_task_group() as group:
        ended = await failure_in(group, side, start)
        await wrote.wait()
        await side.executor.cancel("dlg_1", ALICE)
    assert [error.code for error in ended] == [ErrorCode.CANCELLED]
    assert (side.project / "hello.txt").read_text() == "hi\n"
    assert os.listdir(side.root / "work") == []


async def test_a_revoked_lease_ends_the_agent(side: Worker) -> None:
    side.agent.work = work_for_ever
    start = side.start(await accepted(side))
    async with anyio.create_task_group() as group:
        ended = await failure_in(group, side, start)
        await side.agent.began.wait()
        side.lender.revoke("dlg_1", "a test")
    assert [error.code for error in ended] == [ErrorCode.MOUNT_FAILED]
    assert os.listdir(side.root / "work") == []


async def test_start_can_not_change_the_transport(side: Worker) -> None:
    accept = await accepted(side)
    start = side.start(accept)
    other = start.model_copy(update={"mount": start.mount.model_copy(update={"transport": "sshfs"})})
    with pytest.raises(SubletError, match="'archive' was agreed on"):
        await side.updates(other)
