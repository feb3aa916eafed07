"""An executor's git in a mount of the lender's repository (``--git rw``): what goes on, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncssh
import pytest

from attacks.test_repository_rw import RULES, git, one_commit
from sublet.workspace.export import Export, LentDirectory, MountTarget
from sublet.workspace.git.repository import look_at
from sublet.workspace.mount.mounts import Mounts
from sublet.workspace.mount.table import mounted_below
from sublet.workspace.serving.listener import DataPlane
from sublet.workspace.ssh.connection import connect
from support.sftp_lender import LEASE, public_line

pytestmark = pytest.mark.anyio
KEY = asyncssh.generate_private_key("ssh-ed25519")
LARGE = random.Random(11).randbytes((1 << 20) + 17)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return one_commit(tmp_path / "lent")


@pytest.fixture
def mounts(tmp_path: Path) -> Iterator[Mounts]:
    mounts = Mounts(tmp_path / "mounts")
    yield mounts
    mounts.reap()
    assert mounted_below(mounts.root) == []


@contextlib.asynccontextmanager
async def mounted(repository: Path, mounts: Mounts) -> AsyncIterator[tuple[Path, DataPlane]]:
    """Lend ``repository`` with its history, and mount it as an executor does."""
    plane = DataPlane(asyncssh.generate_private_key("ssh-ed25519"))
    await plane.start("127.0.0.1", 0)
    copies = look_at(repository).copies or {}
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(plane.serve())
        try:
            lent = LentDirectory("workspace", repository, "rw", RULES, copies)
            plane.open(Export(LEASE, (lent,), public_line(KEY), 300, {"task.json": b"{}"}))
            target = MountTarget(*plane.address, LEASE, plane.host_key_line)
            async with await connect(target, KEY, 5) as connection:
                mount = await mounts.attach(mounts.reserve("dlg_1"), connection)
                try:
                    yield mount.path / "workspace", plane
                finally:
                    await mount.detach()
        finally:
            serving.cancel()


async def run(where: Path, *arguments: str) -> tuple[int, str]:
    """Run the executor's git in a thread, since this very process serves the mount."""

    def ask() -> tuple[int, str]:
        env = {**os.environ, "GIT_AUTHOR_NAME": "n", "GIT_AUTHOR_EMAIL": "e@localhost", "GIT_EDITOR": "true"}
        env |= {"GIT_COMMITTER_NAME": "n", "GIT_COMMITTER_EMAIL": "e@localhost"}
        done = subprocess.run(["git", *arguments], cwd=where, capture_output=True, text=True, env=env, check=False)
        return done.returncode, done.stdout + done.stderr

    return await asyncio.to_thread(ask)


async def do(where: Path, *arguments: str) -> str:
    code, said = await run(where, *arguments)
    assert code == 0, (arguments, said)
    return said


async def test_the_executors_git_works_in_a_mount_with_large_objects(
    repository: Path, mounts: Mounts, tmp_path: Path
) -> None:
    """A large object is looked at in a thread, under the name of a draft that the executor's git has made."""
    other = tmp_path / "other"
    git(tmp_path, "clone", "-q", str(repository), str(other))
    (other / "theirs").write_bytes(LARGE[::-1])
    git(other, "add", "-A")
    git(other, "commit", "-qm", "theirs")
    async with mounted(repository, mounts) as (where, _):
        await asyncio.to_thread((where / "large").write_bytes, LARGE)
        await do(where, "add", "large")
        await do(where, "commit", "-qm", "large")
        await asyncio.to_thread((where / "large").write_bytes, LARGE + b"x")
        await do(where, "stash")
        await do(where, "stash", "pop")
        await do(where, "commit", "-qam", "larger")
        await do(where, "fetch", "-q", "--no-write-fetch-head", str(other), "main:theirs")
        await do(where, "merge", "-q", "-m", "merged", "theirs")
        await do(where, "switch", "-qc", "topic")
        await do(where, "tag", "v1")
        await do(where, "pack-refs", "--all")
        await do(where, "fsck", "--strict")
    subjects = {"merged", "larger", "theirs", "large", "first"}
    assert set(git(repository, "log", "--format=%s", "topic").split()) == subjects
    assert git(repository, "status", "--porcelain") == ""
    git(repository, "fsck", "--strict")
    assert (repository / "large").read_bytes() == LARGE + b"x"
    assert (repository / "theirs").read_bytes() == LARGE[::-1]
    assert list((repository / ".git").rglob("tmp_*")) == []
    assert list((repository / ".git").rglob("*.lock")) == []


@pytest.mark.parametrize("arguments", [("gc",), ("repack", "-ad"), ("rebase", "side"), ("fetch", ".", "side")])
async def test_what_git_does_with_files_that_the_lenders_git_obeys_is_refused_and_told(
    repository: Path, mounts: Mounts, arguments: tuple[str, ...]
) -> None:
    git(repository, "branch", "side")
    git(repository, "commit", "-q", "--allow-empty", "-m", "second")
    git(repository, "switch", "-q", "side")
    git(repository, "commit", "-q", "--allow-empty", "-m", "aside")
    git(repository, "switch", "-q", "main")
    before = git(repository, "rev-parse", "HEAD")
    async with mounted(repository, mounts) as (where, plane):
        code, _ = await run(where, *arguments)
        assert code != 0
        usage = plane.usage(LEASE)
        assert usage is not None
        assert any("your tools run or obey" in line for line in usage.denied)
    git(repository, "fsck", "--strict")
    assert git(repository, "rev-parse", "main") == before
