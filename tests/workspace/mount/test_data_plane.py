"""Both sides of the data plane together: our server, our connection, sshfs, and work in the sandbox."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import asyncssh
import pytest

from sublet.supervisor.command import CommandProvider
from sublet.supervisor.job import Job, JobResource, Outcome
from sublet.workspace.export import AccessMode, Export, LentDirectory, MountTarget
from sublet.workspace.mount.mount import Mount
from sublet.workspace.mount.mounts import Mounts
from sublet.workspace.sandbox.bubblewrap import BubblewrapSandbox
from sublet.workspace.serving.listener import DataPlane
from sublet.workspace.ssh.connection import connect, connect_over
from support.jobs import Log, command
from support.sftp_lender import public_line
from support.views import default_rules

pytestmark = pytest.mark.anyio
KEY = asyncssh.generate_private_key("ssh-ed25519")
LEASE = "dlg_" + "a" * 32


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    (project / "code.txt").write_text("one\n")
    (project / ".env").write_text("TOKEN=1\n")
    return project


@contextlib.asynccontextmanager
async def running(plane: DataPlane) -> AsyncIterator[None]:
    """Serve ``plane`` while the block runs."""
    await plane.start("127.0.0.1", 0)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(plane.serve())
        try:
            yield
        finally:
            serving.cancel()


def lend(plane: DataPlane, project: Path, mode: AccessMode) -> MountTarget:
    meta = {"task.json": b"{}"}
    plane.open(Export(LEASE, (LentDirectory("workspace", project, mode, default_rules()),), public_line(KEY), 60, meta))
    return MountTarget(*plane.address, LEASE, plane.host_key_line)


async def work(mount: Mount, tmp_path: Path, script: str, mode: AccessMode) -> Outcome:
    (tmp_path / "scratch").mkdir(exist_ok=True)
    lent = [JobResource("workspace", mount.path / "workspace", mode)]
    inside = lent, mount.path / "meta", tmp_path / "scratch", mount.path
    task = Job(
        LEASE, "a test", script, mode, *inside, remaining_seconds=30, expires_at="2030-01-01T00:00:00Z", gate=None
    )
    return await CommandProvider(command(), BubblewrapSandbox([tmp_path])).run(task, Log())


async def test_a_lease_is_worked_in_and_its_changes_are_the_lenders(
    mounts: Mounts, project: Path, tmp_path: Path
) -> None:
    plane = DataPlane(asyncssh.generate_private_key("ssh-ed25519"))
    async with running(plane), await connect(lend(plane, project, "rw"), KEY, 5) as connection:
        mount = await mounts.attach(mounts.reserve(LEASE), connection)
        script = f"ls -A . $SUBLET_META; echo two >>code.txt; cat .env; touch $SUBLET_META/x; ls {tmp_path}"
        outcome = await work(mount, tmp_path, script, "rw")
        assert outcome.summary.split() == [
            *(".:", "code.txt", f"{mount.path}/meta:", "task.json"),
            *("mounts", "scratch"),
        ]
        assert await mount.detach()
    assert (project / "code.txt").read_text() == "one\ntwo\n"


async def test_a_read_only_lease_changes_nothing(mounts: Mounts, project: Path, tmp_path: Path) -> None:
    plane = DataPlane(asyncssh.generate_private_key("ssh-ed25519"))
    async with running(plane), await connect(lend(plane, project, "ro"), KEY, 5) as connection:
        mount = await mounts.attach(mounts.reserve(LEASE), connection)
        outcome = await work(mount, tmp_path, "cat code.txt; echo two >>code.txt", "ro")
        assert outcome.reason == "failed"
        assert outcome.summary.splitlines()[0] == "one"
        assert "Read-only file system" in outcome.summary
        assert await mount.detach()
    assert (project / "code.txt").read_text() == "one\n"


async def test_revoking_a_lease_ends_the_work_and_loses_the_mount(
    mounts: Mounts, project: Path, tmp_path: Path
) -> None:
    plane = DataPlane(asyncssh.generate_private_key("ssh-ed25519"))
    async with running(plane), await connect(lend(plane, project, "rw"), KEY, 5) as connection:
        mount = await mounts.attach(mounts.reserve(LEASE), connection)
        script = "touch begun; while cat code.txt >/dev/null; do :; done; exit 7"
        async with asyncio.TaskGroup() as group:
            # A read that waits when the link goes is told to its program by this.
            attending = group.create_task(mount.attend())
            working = group.create_task(work(mount, tmp_path, script, "rw"))
            while not (project / "begun").exists():
                await asyncio.sleep(0.01)
            plane.revoke(LEASE, "a test")
            assert (await working).exit_code == 7
            attending.cancel()
        async with asyncio.timeout(5):
            await mount.cut.wait()
        assert await mount.detach() is False


async def test_the_lender_dials_where_it_cannot_be_reached(mounts: Mounts, project: Path, tmp_path: Path) -> None:
    lender, worker = (DataPlane(asyncssh.generate_private_key("ssh-ed25519")) for _ in range(2))
    async with running(lender), running(worker):
        target = lend(lender, project, "rw")
        with worker.reverse.expect(LEASE) as expected:
            async with asyncio.TaskGroup() as group:
                group.create_task(lender.dial(*worker.address, LEASE))
                connection = await connect_over(await expected.wait(5), target, KEY)
        async with connection:
            mount = await mounts.attach(mounts.reserve(LEASE), connection)
            assert (await work(mount, tmp_path, "echo two >>code.txt", "rw")).reason == "done"
            assert await mount.detach()
    assert (project / "code.txt").read_text() == "one\ntwo\n"
