"""The watch over configuration goes on whatever lies beside the files, and says what it could not read."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from sublet.daemon.reloading import watching
from sublet.daemon.reloading.reloader import Reloader
from sublet.daemon.reloading.watching import Watcher

pytestmark = pytest.mark.anyio
SECONDS = 30.0


@dataclass
class Read:
    """Stands in for the reloader: counts how often files were read anew."""

    root: Path
    times: int = 0
    news: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self.source = SimpleNamespace(file=self.root / "agent.json")
        self.policy_file = self.root / "policy.json"
        self.module_roots = (self.root / "capabilities", self.root / "gateways")

    async def reload(self, *, only_if_changed: bool = False) -> None:
        self.times += 1
        self.news.set()
        self.news = anyio.Event()

    async def after(self, change: Callable[[], object]) -> None:
        """Return once files were read again after a change."""
        before = self.times
        change()
        with anyio.fail_after(SECONDS):
            while self.times == before:
                await self.news.wait()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LOOK_AGAIN_MS", 200)
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.05)


@asynccontextmanager
async def watched(root: Path) -> AsyncIterator[tuple[Watcher, Read]]:
    read = Read(root)
    watcher = Watcher(cast("Reloader", read))
    async with anyio.create_task_group() as group:
        group.start_soon(watcher.serve)
        await read.after(lambda: None)
        yield watcher, read
        group.cancel_scope.cancel()


async def remarked(watcher: Watcher, part: str) -> None:
    with anyio.fail_after(SECONDS):
        while not any(part in remark for remark in watcher.remarks):
            await anyio.sleep(0.05)


def not_utf8(directory: Path) -> bytes:
    return os.fsencode(directory) + b"/caf\xe9"


def put(root: Path, text: str = "{}") -> Callable[[], object]:
    return lambda: (root / "agent.json").write_text(text)


@pytest.mark.parametrize("where", [".", "capabilities", "gateways"])
@pytest.mark.parametrize(
    "make", [lambda name: open(name, "wb").close(), os.mkdir, os.mkfifo], ids=["file", "dir", "fifo"]
)
async def test_a_name_that_is_not_utf8_ends_nothing_and_is_told(
    tmp_path: Path, where: str, make: Callable[[bytes], object]
) -> None:
    """D01: the watcher goes on, and tells what it could not read."""
    for directory in ("capabilities", "gateways"):
        (tmp_path / directory).mkdir()
    name = not_utf8(tmp_path / where)
    async with watched(tmp_path) as (watcher, read):
        await read.after(put(tmp_path))  # now it is watched
        make(name)
        await remarked(watcher, "caf\\xe9 is not UTF-8")
        for remark in watcher.remarks:
            remark.encode()
        await read.after(put(tmp_path, "[]"))
        (os.rmdir if os.path.isdir(name) else os.unlink)(name)
        with anyio.fail_after(SECONDS):
            while watcher.remarks:
                await anyio.sleep(0.05)


async def test_a_directory_whose_own_name_is_not_utf8(tmp_path: Path) -> None:
    root = Path(os.fsdecode(not_utf8(tmp_path)))
    root.mkdir()
    async with watched(root) as (watcher, read):
        await remarked(watcher, "is not UTF-8")
        await read.after(put(root))


async def test_directories_that_go_and_come_back(tmp_path: Path) -> None:
    root = tmp_path / "config"
    root.mkdir()
    put(root)()
    async with watched(root) as (_, read):
        await read.after(lambda: shutil.rmtree(root))

        def again() -> None:
            root.mkdir()
            put(root)()

        await read.after(again)
        await read.after(lambda: (root / "agent.json").unlink())
        await read.after(lambda: (root / "agent.json").mkdir())


async def test_no_watches_left_in_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import watchfiles

    working = watchfiles.awatch
    refusing = True

    def refused(*paths: Any, **options: Any) -> Any:
        if refusing:
            raise OSError(28, "inotify watch limit\x1b[31m reached")
        return working(*paths, **options)

    monkeypatch.setattr(watchfiles, "awatch", refused)
    async with watched(tmp_path) as (watcher, read):
        await remarked(watcher, "inotify watch limit reached")
        await read.after(put(tmp_path))
        refusing = False
        with anyio.fail_after(SECONDS):
            while watcher.remarks:
                await anyio.sleep(0.05)
        await read.after(put(tmp_path, "[]"))


async def test_thousands_of_files_beside_it_are_read_for_once(tmp_path: Path) -> None:
    async with watched(tmp_path) as (_, read):
        before = read.times
        for number in range(5_000):
            (tmp_path / f"beside-{number}").touch()
        await read.after(put(tmp_path))
        assert read.times <= before + 2, "what lies beside the files is not read"
