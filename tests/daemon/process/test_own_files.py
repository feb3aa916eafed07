"""A running daemon looks after its sockets and its state."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from sublet.daemon.config.paths import Home, resolve_home
from sublet.daemon.net.unix_socket import bind_private
from sublet.daemon.process.endings import Ending, Stop
from sublet.daemon.process.kept_face import KeptFace
from sublet.daemon.process.lock import InstanceLock, read_owner
from sublet.daemon.process.own_files import STORE, OwnFiles
from sublet.protocol.errors import SubletError
from sublet.tasks import Services

pytestmark = pytest.mark.anyio


class Door:
    """A face that is nothing but its socket."""

    def __init__(self, home: Home) -> None:
        self._home = home

    @property
    def address(self) -> str:
        return self._home.control_socket

    async def start(self) -> None:
        self._socket = bind_private(self.address)

    async def serve(self) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            self._socket.close()

    def release(self) -> None:
        self._socket.close()


class Running:
    def __init__(self, home: Home, lock: InstanceLock) -> None:
        self.home = home
        self.lock = lock
        self.stop = Stop()
        self.face = KeptFace("door", lambda _: Door(self.home))
        self.files = OwnFiles(home, lock, [self.face], self.stop, self._moved)

    def _moved(self, home: Home) -> None:
        self.home = home

    async def mended(self) -> None:
        """Look until the socket is there again."""
        with anyio.fail_after(20):
            while not (self.face.running and self.face.is_there()):
                await self.files.look()
                await anyio.sleep(0)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = resolve_home({"SUBLET_HOME": str(tmp_path / "h")})
    made.make()
    (Path(made.state_dir) / STORE).touch()
    yield made
    shutil.rmtree(made.found().runtime_dir, ignore_errors=True)


@pytest.fixture
def lock(home: Home) -> Iterator[InstanceLock]:
    with InstanceLock.acquire(home) as held:
        yield held


async def test_a_socket_that_is_gone_is_made_again(home: Home, lock: InstanceLock) -> None:
    running = Running(home, lock)
    await running.face.start()
    async with Services().running(running.face.service):
        for _ in range(3):
            shutil.rmtree(home.runtime_dir)
            await running.mended()
        # Somebody else's socket by that name is none of ours.
        Path(home.control_socket).unlink()
        bind_private(home.control_socket).close()
        await running.mended()
        assert running.home.runtime_dir == home.runtime_dir
        # Where the directory can't be made again, it is another one, and the lock file tells which.
        shutil.rmtree(home.runtime_dir)
        Path(home.runtime_dir).touch()
        spare = home.spare()
        if spare.runtime_dir != home.runtime_dir:
            await running.mended()
            assert home.found().control_socket == running.home.control_socket
            owner = read_owner(home)
            assert owner is not None
            assert owner.socket == running.home.control_socket


async def test_a_lock_file_that_was_removed_is_held_again(home: Home, lock: InstanceLock) -> None:
    running = Running(home, lock)
    Path(home.lock_file).unlink()
    await running.files.look()
    running.stop.check()
    with pytest.raises(SubletError, match="already running"):
        InstanceLock.acquire(home)


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_state_that_is_gone_ends_the_daemon(home: Home, lock: InstanceLock, replaced: bool) -> None:
    running = Running(home, lock)
    shutil.rmtree(home.state_dir)
    if replaced:
        home.make()
    await running.files.look()
    await running.stop.wait()
    with pytest.raises(SubletError, match="state directory was removed or replaced"):
        running.stop.check()


async def test_the_first_reason_to_end_counts_and_a_wish_is_no_failure() -> None:
    stop = Stop()
    stop.ask()
    stop.now(Ending.STORE_BROKEN)
    await stop.wait()
    stop.check()
    assert [one.failed for one in Ending] == [False, True, True]
