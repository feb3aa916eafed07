"""Links in a mount: those that stay inside work, and no lender leads anybody out of it by one (CVE-2026-47187)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import asyncssh
import pytest

from sublet.workspace.export import Export, LentDirectory, MountTarget
from sublet.workspace.mount.mount import Mount
from sublet.workspace.mount.mounts import Mounts
from sublet.workspace.mount.table import mounted_below
from sublet.workspace.serving.listener import DataPlane
from sublet.workspace.ssh.connection import connect
from support.sftp_lender import LEASE, lender, public_line
from support.views import default_rules

pytestmark = pytest.mark.anyio
KEY = asyncssh.generate_private_key("ssh-ed25519")


@pytest.fixture
def mounts(tmp_path: Path) -> Iterator[Mounts]:
    mounts = Mounts(tmp_path / "mounts")
    yield mounts
    mounts.reap()
    assert mounted_below(mounts.root) == []


@contextlib.asynccontextmanager
async def mounted(mounts: Mounts, target: MountTarget) -> AsyncIterator[Mount]:
    async with await connect(target, KEY, 5) as connection:
        mount = await mounts.attach(mounts.reserve("dlg_1"), connection)
        try:
            yield mount
        finally:
            await mount.detach()


@contextlib.asynccontextmanager
async def lent(directory: Path) -> AsyncIterator[MountTarget]:
    plane = DataPlane(asyncssh.generate_private_key("ssh-ed25519"))
    await plane.start("127.0.0.1", 0)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(plane.serve())
        try:
            resource = LentDirectory("workspace", directory, "rw", default_rules())
            plane.open(Export(LEASE, (resource,), public_line(KEY), 60, {"task.json": b"{}"}))
            yield MountTarget(*plane.address, LEASE, plane.host_key_line)
        finally:
            serving.cancel()


async def shell(script: str, where: Path) -> str:
    """Run ``script`` in a thread, since this very process serves the mount, and return what it prints."""

    def run() -> str:
        done = subprocess.run(["sh", "-ec", script], cwd=where, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    return await asyncio.to_thread(run)


async def test_links_that_stay_inside_work_in_a_mount(mounts: Mounts, tmp_path: Path) -> None:
    """D02: as those of ``node_modules/.bin`` do."""
    project = tmp_path / "project"
    for name in ("a", "sub/deep", "node_modules/.bin", "node_modules/tool"):
        (project / name).mkdir(parents=True)
    (project / "a" / "x").write_text("hi\n")
    (project / "node_modules/tool/cli").write_text("#!/bin/sh\necho ran\n")
    (project / "node_modules/tool/cli").chmod(0o755)
    (project / "sub" / "l").symlink_to("../a/x")
    (project / "sub" / "deep" / "up").symlink_to("../../a")
    (project / "node_modules/.bin/tool").symlink_to("../tool/cli")
    async with lent(project) as target, mounted(mounts, target) as mount:
        where = mount.path / "workspace"
        assert await shell("cat sub/l sub/deep/up/x; node_modules/.bin/tool", where) == "hi\nhi\nran\n"
        assert await shell("ln -s ../a/x sub/made; cat sub/made; cp -a sub copy; cat copy/l", where) == "hi\nhi\n"
        made = "git init -q g; cd g; mkdir b; ln -s ../f b/l; echo x >f; git add . && git status --short"
        # .git can't be made in a lease, so the repository lies elsewhere and the tree in the mount.
        made = made.replace(
            "git init -q g; cd g", f"mkdir g; cd g; export GIT_DIR={tmp_path}/r GIT_WORK_TREE=.; git init -q"
        )
        assert await shell(made, where) == "A  b/l\nA  f\n"
        assert await shell("tar cf - sub | tar tvf - | grep -c -- '->'", where) == "3\n"
    assert (project / "sub" / "made").readlink() == Path("../a/x")


async def test_links_that_lead_out_are_told_to_nobody(mounts: Mounts, tmp_path: Path) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    (project / "sub").mkdir(parents=True)
    outside.write_text("secret\n")
    (project / "sub" / "far").symlink_to("../../outside")
    (project / "root").symlink_to("/etc/hostname")
    async with lent(project) as target, mounted(mounts, target) as mount:
        where = mount.path / "workspace"
        assert "secret" not in await shell("cat sub/far root; readlink sub/far root || true", where)


def hostile(root: Path, target: bytes) -> Callable[[asyncssh.SSHServerChannel[bytes]], asyncssh.SFTPServer]:
    """Return the files of a lender who says ``target`` of every link, whatever it is."""

    class Lying(asyncssh.SFTPServer):
        def readlink(self, path: bytes) -> bytes:
            return target

    return lambda channel: Lying(channel, chroot=bytes(root))


OUT = (
    b"/etc/hostname",
    b"../stolen",
    b"../../stolen",
    b"sub/../../../stolen",
    b"..\0x",
    b"../..\0/x/stolen",
    b"d/" * 2100 + b"../..",
    b"",
)


@pytest.mark.parametrize("target", OUT)
async def test_a_hostile_lender_leads_nobody_out_of_the_mount(mounts: Mounts, tmp_path: Path, target: bytes) -> None:
    export = tmp_path / "export"
    (export / "sub").mkdir(parents=True)
    (export / "d").symlink_to(".")
    (export / "top").symlink_to("any")
    (export / "sub" / "low").symlink_to("any")
    async with lender(hostile(export, target), KEY) as at, mounted(mounts, at) as mount:
        stolen = mount.path.parent / "stolen"
        stolen.write_text("of the executor\n")
        try:
            said = await shell("readlink top; readlink sub/low; cat top sub/low; ls top sub/low || true", mount.path)
        finally:
            stolen.unlink()
        assert "of the executor" not in said
        assert mount.path.name not in said  # nor is the directory of all mounts listed
        told = await asyncio.to_thread(os.lstat, mount.path / "top")
        assert told.st_size >= 0


async def test_the_check_counts_from_what_is_mounted(mounts: Mounts, tmp_path: Path) -> None:
    export = tmp_path / "export"
    (export / "a" / "b").mkdir(parents=True)
    (export / "a" / "b" / "l").symlink_to("x")
    async with lender(hostile(export, b"../../x"), KEY) as at, await connect(at, KEY, 5) as connection:
        mount = await mounts.attach(mounts.reserve("dlg_1"), connection, "/a")
        try:
            with pytest.raises(PermissionError):
                await asyncio.to_thread(os.readlink, mount.path / "b" / "l")
        finally:
            await mount.detach()
