"""Both sides of the transport git together: a repository to work in, and what comes back of it."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from sublet.protocol.errors import SubletError
from sublet.workspace.archive.tar_format import TarLimits
from sublet.workspace.archive.tree_pack import AllVisible
from sublet.workspace.bundles import exchange
from sublet.workspace.bundles.carrier import GitCarrier
from sublet.workspace.bundles.exchange import BRANCH, GitExchange
from sublet.workspace.bundles.runs import GitRuns, Halted
from sublet.workspace.export import Export, ExportLimits, LentDirectory, MountTarget
from sublet.workspace.git_runner import git_environment
from sublet.workspace.sandbox.git_sandbox import GitSandbox
from sublet.workspace.serving.listener import DataPlane
from sublet.workspace.ssh.connection import connect
from sublet.workspace.view.walk import Budget
from support.daemons import wait_for
from support.processes import is_alive, running
from support.sftp_lender import public_line
from support.views import default_rules

pytestmark = pytest.mark.anyio
KEY = asyncssh.generate_private_key("ssh-ed25519")
LEASE = "dlg_" + "a" * 32


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    (project / "dir").mkdir(parents=True)
    (project / "code.txt").write_text("one\n")
    (project / "gone.txt").write_text("gone\n")
    (project / "dir" / "run.sh").write_text("#!/bin/sh\n")
    (project / "dir" / "run.sh").chmod(0o755)
    (project / "link").symlink_to("code.txt")
    (project / ".gitattributes").write_text("* text eol=crlf ident\n")
    (project / ".env").write_text("TOKEN=1\n")
    (project / ".git").mkdir()
    (project / ".git" / "config").write_text("[remote]\n")
    return project


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[DataPlane]:
    plane = DataPlane(asyncssh.generate_private_key("ssh-ed25519"), scratch=tmp_path / "scratch")
    await plane.start("127.0.0.1", 0)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(plane.serve())
        try:
            yield plane
        finally:
            serving.cancel()
    assert not (tmp_path / "scratch").exists() or os.listdir(tmp_path / "scratch") == []


def lend(plane: DataPlane, project: Path, limits: ExportLimits) -> MountTarget:
    lent = LentDirectory("workspace", project, "rw", default_rules())
    plane.open(Export(LEASE, (lent,), public_line(KEY), 60, {"task.json": b"{}"}, limits, transport="git"))
    return MountTarget(*plane.address, LEASE, plane.host_key_line)


def carrier(tmp_path: Path) -> GitCarrier:
    return GitCarrier(tmp_path / "clones", lambda: TarLimits(1_000, 1 << 24, 1 << 24))


def git(at: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
        cwd=at,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


async def test_the_agent_gets_a_repository_and_its_result_comes_back(
    plane: DataPlane, project: Path, tmp_path: Path
) -> None:
    clones = carrier(tmp_path)
    async with await connect(lend(plane, project, ExportLimits()), KEY, 5) as connection:
        view = await clones.attach(clones.reserve(LEASE), connection)
        inside = view.path / "workspace"
        assert sorted(os.listdir(inside)) == [".git", ".gitattributes", "code.txt", "dir", "gone.txt", "link"]
        assert (inside / "code.txt").read_bytes() == b"one\n"
        assert os.listdir(view.path / "meta") == ["task.json"]
        assert git(inside, "status", "--porcelain") == ""
        assert "TOKEN" not in git(inside, "log", "-p")
        (inside / ".git" / "hooks").mkdir()
        (inside / ".git" / "hooks" / "post-commit").write_text(f"#!/bin/sh\ntouch {tmp_path}/owned\n")
        (inside / ".git" / "hooks" / "post-commit").chmod(0o755)
        (inside / ".git" / "config").write_text(f"[core]\n\tfsmonitor = touch {tmp_path}/owned\n")
        (inside / "code.txt").write_text("two\n")
        (inside / "gone.txt").unlink()
        (inside / "new" / "deep").mkdir(parents=True)
        (inside / "new" / "deep" / "tool").write_text("#!/bin/sh\n")
        (inside / "new" / "deep" / "tool").chmod(0o755)
        (inside / "new" / "away").symlink_to("/etc/passwd")
        (inside / ".gitignore").write_text("new\n")
        assert await view.detach()
        usage = plane.usage(LEASE)

    assert not (tmp_path / "owned").exists()
    assert (project / "code.txt").read_text() == "two\n"
    assert not (project / "gone.txt").exists()
    assert (project / "new" / "deep" / "tool").stat().st_mode & 0o777 == 0o755
    assert not (project / "new" / "away").is_symlink()
    assert (project / ".git" / "config").read_text() == "[remote]\n"
    assert (project / ".env").read_text() == "TOKEN=1\n"
    assert usage is not None
    assert usage.returned
    assert [line.partition(":")[0] for line in usage.refused] == ["new/away"]
    assert os.listdir(tmp_path / "clones") == []


async def test_a_result_that_passes_the_quota_changes_nothing(plane: DataPlane, project: Path, tmp_path: Path) -> None:
    clones = carrier(tmp_path)
    async with await connect(lend(plane, project, ExportLimits(max_total_bytes=1_000)), KEY, 5) as connection:
        view = await clones.attach(clones.reserve(LEASE), connection)
        (view.path / "workspace" / "large").write_bytes(bytes(5_000))
        (view.path / "workspace" / "code.txt").unlink()
        assert not await view.detach()
        usage = plane.usage(LEASE)
    assert usage is not None
    assert usage.quota.met is not None
    assert (project / "code.txt").exists()
    assert not (project / "large").exists()


def exchange_at(directory: Path, runs: GitRuns | None = None) -> GitExchange:
    made = GitExchange(directory, runs or GitRuns(GitSandbox()))
    made.create()
    return made


def snapshot(tmp_path: Path, content: bytes) -> GitExchange:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "file").write_bytes(content)
    repository = exchange_at(tmp_path / "made")
    committed(repository, tree)
    return repository


def committed(repository: GitExchange, tree: Path) -> str:
    descriptor = os.open(tree, os.O_RDONLY)
    try:
        return repository.snapshot(descriptor, AllVisible(), Budget(100, 10)).commit
    finally:
        os.close(descriptor)


def test_a_bundle_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    with snapshot(tmp_path, bytes(1 << 20)).bundle() as bundle:
        assert os.fstat(bundle.fileno()).st_size < 10_000
        with pytest.raises(SubletError, match="which is more than may come"):
            exchange_at(tmp_path / "other").take(bundle, max_bytes=1 << 19, max_names=10)


def test_a_bundle_of_too_many_objects_is_refused_before_git_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "OBJECTS_BESIDE_NAMES", 0)
    with snapshot(tmp_path, b"content").bundle() as bundle:
        runs = GitRuns(GitSandbox())
        other = exchange_at(tmp_path / "other", runs)
        runs.halt()
        with pytest.raises(SubletError, match="more than 2 objects"):
            other.take(bundle, max_bytes=1 << 20, max_names=2)
        with pytest.raises(SubletError, match="more than 9 bytes"):
            other.take(bundle, max_bytes=9, max_names=2)


def test_one_tree_in_very_many_places_counts_as_often_as_it_stands_there(tmp_path: Path) -> None:
    repository = snapshot(tmp_path, b"content")

    def git(*arguments: str, given: str = "") -> str:
        argv = ["git", *arguments]
        environment = git_environment(
            GIT_DIR=str(tmp_path / "made" / "repository"), GIT_COMMITTER_NAME="x", GIT_COMMITTER_EMAIL="x"
        )
        environment |= {"GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "x"}
        return subprocess.run(
            argv, env=environment, input=given, capture_output=True, text=True, check=True
        ).stdout.strip()

    tree = git("rev-parse", f"{BRANCH}^{{tree}}")
    for _ in range(4):
        tree = git("mktree", given="".join(f"040000 tree {tree}\t{number}\n" for number in range(10)))
    git("update-ref", BRANCH, git("commit-tree", "-m", "bomb", tree))
    with repository.bundle() as bundle:
        for number, (max_bytes, max_names) in enumerate(((1 << 20, 1_000), (10_000, 100_000))):
            with pytest.raises(SubletError, match="holds more than"):
                exchange_at(tmp_path / f"other-{number}").take(bundle, max_bytes=max_bytes, max_names=max_names)


def test_a_result_is_measured_by_what_it_adds(tmp_path: Path) -> None:
    repository = snapshot(tmp_path, bytes(100_000))
    base = committed(repository, tmp_path / "tree")
    (tmp_path / "tree" / "new").mkdir()
    (tmp_path / "tree" / "new" / "more").write_bytes(b"more")
    descriptor = os.open(tmp_path / "tree", os.O_RDONLY)
    bundle = repository.result(descriptor, AllVisible(), Budget(100, 10), base)
    os.close(descriptor)
    assert bundle is not None
    other = exchange_at(tmp_path / "other")
    (tmp_path / "tree" / "new" / "more").unlink()
    (tmp_path / "tree" / "new").rmdir()
    assert committed(other, tmp_path / "tree") == base
    with bundle:
        taken = other.take(bundle, max_bytes=1_000, max_names=10, base=base)
    (change,) = taken.changes
    assert (change.path, taken.more_bytes, taken.directories) == (b"new/more", 4, set())
    (content,) = [file.read(4) for file in other.contents([(change.blob, taken.sizes[change.blob])])]
    assert content == b"more"


def test_a_tree_that_did_not_change_has_no_result(tmp_path: Path) -> None:
    repository = snapshot(tmp_path, b"content")
    base = committed(repository, tmp_path / "tree")
    descriptor = os.open(tmp_path / "tree", os.O_RDONLY)
    assert repository.result(descriptor, AllVisible(), Budget(100, 10), base) is None
    os.close(descriptor)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no bundle at all",
        b"# v2 git bundle\n\n",
        b"# v3 git bundle\n@filter=blob:none\n\nPACK\0\0\0\2\0\0\0\0",
        b"# v2 git bundle\n" + b"0" * 40 + b" refs/heads/sublet\n\nPACK\0\0\0\2\0\0\0\0",
    ],
)
def test_what_is_no_bundle_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bundle").write_bytes(content)
    with open(tmp_path / "bundle", "rb") as bundle, pytest.raises(SubletError):
        exchange_at(tmp_path / "other").take(bundle, max_bytes=1 << 20, max_names=10)


def test_git_that_runs_is_killed_with_what_it_has_started_and_nothing_follows(tmp_path: Path) -> None:
    runs = GitRuns(GitSandbox())
    started = tmp_path / "started"
    ended: list[str] = []

    def work() -> None:
        try:
            runs.run(["sh", "-c", f"sleep 600 & echo $! > {started}.new; mv {started}.new {started}; wait"], {}, None)
        except Halted:
            ended.append("halted")

    thread = threading.Thread(target=work)
    thread.start()
    wait_for(started.exists, what="the process")
    runs.halt()
    thread.join()
    assert ended == ["halted"]
    wait_for(lambda: not is_alive(int(started.read_text())), what="the end of what it had started")
    with pytest.raises(Halted):
        runs.run(["touch", str(tmp_path / "late")], dict(os.environ), None)
    assert not (tmp_path / "late").exists()


def hanging_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> Callable[[], list[int]]:
    """Put a git on PATH that hangs at ``command``, and return what tells the processes that hang."""
    fake, real, seconds = tmp_path / "fake" / "bin", shutil.which("git"), f"6{secrets.randbelow(10**9):09}"
    fake.mkdir(parents=True)
    (fake / "git").write_text(
        f'#!/bin/sh\ncase " $* " in *" {command} "*) exec sleep {seconds};; esac\nexec {real} "$@"\n'
    )
    (fake / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake}:{os.environ['PATH']}")
    return lambda: running("sleep", seconds)


@pytest.mark.parametrize("way", ["download", "upload"])
async def test_a_lease_that_ends_takes_its_git_along(
    plane: DataPlane, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Git hangs, as it may for minutes on a large tree; what it has begun to make is gone with it."""
    clones = carrier(tmp_path)
    async with await connect(lend(plane, project, ExportLimits()), KEY, 5) as connection:
        view = await clones.attach(clones.reserve(LEASE), connection) if way == "upload" else None
        # what the executor's side does with commits is not held up: only the lender imports and bundles from here on
        hanging = hanging_git(tmp_path, monkeypatch, "bundle" if way == "download" else "index-pack")
        if view is None:
            transfer = asyncio.create_task(_failing(clones.attach(clones.reserve(LEASE), connection)))
        else:
            (view.path / "workspace" / "code.txt").write_text("two\n")
            transfer = asyncio.create_task(view.detach())
        await asyncio.to_thread(wait_for, hanging, what="git at the lender")
        plane.revoke(LEASE, "a test")
        assert not await transfer
        await asyncio.to_thread(wait_for, lambda: not hanging(), what="the end of the lender's git")
    await asyncio.to_thread(
        wait_for, lambda: os.listdir(tmp_path / "scratch") == [], what="the lender's directory to be gone"
    )
    assert (project / "code.txt").read_text() == "one\n"
    assert os.listdir(tmp_path / "clones") == []


async def _failing(attaching: Coroutine[Any, Any, object]) -> bool:
    """Tell whether a view came after all."""
    try:
        await attaching
    except SubletError:
        return False
    return True


async def test_work_that_is_cancelled_takes_the_executors_git_along(
    plane: DataPlane, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clones = carrier(tmp_path)
    hanging = hanging_git(tmp_path, monkeypatch, "checkout")
    async with await connect(lend(plane, project, ExportLimits()), KEY, 5) as connection:
        attaching = asyncio.create_task(clones.attach(clones.reserve(LEASE), connection))
        await asyncio.to_thread(wait_for, hanging, what="git at the executor")
        attaching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attaching
    await asyncio.to_thread(wait_for, lambda: not hanging(), what="the end of the executor's git")
    assert os.listdir(tmp_path / "clones") == []
