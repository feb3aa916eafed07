"""A stage of real daemons: each a process in a network namespace of its own, asked over its control socket.

Homes that know each other are made once for a run of the program, since each pairing takes a second, and copied for
every history. A kill is ``kill -9``, a partition is a cable in another switch, and a clock that is wrong is one that a
file sets (``support/clock_site``).
"""

from __future__ import annotations

import atexit
import functools
import shutil
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.rooms import WHOAMI
from sublet.daemon.config.paths import resolve_home
from sublet.daemon.control.client import ControlClient
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import EntityId, RoomId
from support.daemons import SHELL_AGENT, CommandFailed, Daemon, pair
from support.histories.attacking import Attacker
from support.histories.by_control import by_control
from support.histories.damaging import damage
from support.histories.in_process import (
    ATTACKER,
    CALL_SECONDS,
    PinnedLinks,
    fill,
    link_key,
    mount_disk,
    unmount_disk,
)
from support.histories.stage import NotRunning
from support.rooms import entity_key
from support.switched import Switched, switched_machines

A2A_PORT: Final = 8642
BUS_PORT: Final = 7447
STARTS: Final = 3
DATABASE: Final = "messaging.db"
CLOCK_SITE: Final = Path(__file__).parents[1] / "clock_site"


def _daemon(base: Path, number: int, network: Switched) -> Daemon:
    environ = {"PYTHONPATH": str(CLOCK_SITE), "SUBLET_TEST_CLOCK": str(base / f"clock{number}")}
    return Daemon(base / f"d{number}", prefix=network.machines[number].prefix, environ=environ)


def _up(daemon: Daemon, number: int, network: Switched) -> None:
    """Start a daemon; on a machine that is busy with others that may take more than one try.

    Raises:
        CommandFailed: it does not start.
    """
    address = network.machines[number].address
    for left in reversed(range(STARTS)):
        try:
            daemon.up(a2a=f"{address}:{A2A_PORT}", sftp=f"{address}:0", agent=SHELL_AGENT)
            return
        except CommandFailed:
            if not left:
                raise


def _state(daemon: Daemon) -> Path:
    return Path(resolve_home({"SUBLET_HOME": str(daemon.home)}).state_dir)


def _lacks(database: Path, room: RoomId) -> bool:
    """Tell whether no document of a room is in the database of a daemon that runs."""
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as there:
            return there.execute("SELECT 1 FROM documents WHERE room_id = ? LIMIT 1", (room,)).fetchone() is None
    except sqlite3.Error:
        return False


@functools.cache
def _known_homes(count: int) -> tuple[Path, tuple[EntityId, ...]]:
    """Make homes of so many daemons that know each other; return where they are, and who each is in rooms.

    One more, the last, is whoever attacks: paired with all, and no daemon runs over it.
    """
    base = Path(tempfile.mkdtemp(prefix="cvt-"))
    atexit.register(shutil.rmtree, base, ignore_errors=True)
    with switched_machines(count + 1) as network:
        daemons = [_daemon(base, number, network) for number in range(count + 1)]
        keys = _state(daemons[count]) / "keys"
        keys.mkdir(mode=0o700, parents=True)
        for place in (daemons[count].home, keys.parent):
            place.chmod(0o700)
        (keys / "identity.key").touch(mode=0o600)
        (keys / "identity.key").write_bytes(bytes(entity_key(f"daemon of {ATTACKER}")))
        entities = []
        try:
            for number, daemon in enumerate(daemons):
                _up(daemon, number, network)
                for before in range(number):
                    pair(daemon, daemons[before], f"d{before}")
                entities.append(anyio.run(_whoami, daemon))
        finally:
            for daemon in daemons:
                daemon.down()
    return base, tuple(entities)


async def _whoami(daemon: Daemon) -> EntityId:
    async with _client(daemon) as client:
        return (await client.call(WHOAMI, Nothing())).entity_id


def _client(daemon: Daemon) -> ControlClient:
    return ControlClient(resolve_home({"SUBLET_HOME": str(daemon.home)}))


class InNamespaces:
    """See ``Stage``.

    Args:
        base: of all homes.
        daemons: how many.
        network: between them.
        disks: give each home a small file system of its own.
    """

    def __init__(self, base: Path, daemons: int, network: Switched, disks: bool) -> None:
        self._base = base
        self._count = daemons
        self._network = network
        self._disks: list[Path] = []
        self._daemons = [_daemon(base, number, network) for number in range(daemons)]
        self._copies: dict[int, Daemon] = {}
        self._up: set[int] = set()
        self._entities: tuple[EntityId, ...] = ()
        self._attacker: Attacker | None = None
        self._attacks = 0
        self._with_disks = disks

    async def begin(self) -> None:
        """Copy the homes, and start all."""
        known, self._entities = await anyio.to_thread.run_sync(_known_homes, self._count)
        for number, daemon in enumerate(self._daemons):
            daemon.home.mkdir(mode=0o700)
            if self._with_disks:
                mount_disk(daemon.home)
                daemon.home.chmod(0o700)
                self._disks.append(daemon.home)
            shutil.copytree(known / f"d{number}", daemon.home, dirs_exist_ok=True, symlinks=True)
        async with anyio.create_task_group() as group:
            for number in range(self._count):
                group.start_soon(self.start, number)

    async def close(self) -> None:
        """End all."""
        await self.end_attack()
        for number in range(self._count):
            await self.end_copy(number)
            await self.kill(number)
        for disk in self._disks:
            unmount_disk(disk)

    def entity(self, who: int) -> EntityId:
        return self._entities[who]

    def running(self) -> list[int]:
        return sorted(self._up)

    async def call(self, who: int, operation: str, /, *, of_copy: bool = False, **arguments: Any) -> Any:
        daemon = self._copies.get(who) if of_copy else self._daemons[who] if who in self._up else None
        if daemon is None:
            raise NotRunning
        with anyio.fail_after(CALL_SECONDS):
            async with _client(daemon) as client:
                try:
                    return await by_control(client, operation, arguments)
                except SubletError as error:
                    if error.code == LocalCode.INTERNAL:
                        raise AssertionError(str(error)) from error
                    raise

    async def sum_of(self, who: int, room: RoomId) -> Any:
        """Real daemons tell nobody."""

    async def lacks(self, who: int, room: RoomId) -> bool:
        return who in self._up and await anyio.to_thread.run_sync(_lacks, _state(self._daemons[who]) / DATABASE, room)

    # Being there or not.

    async def start(self, who: int) -> None:
        if who in self._up:
            return
        with suppress(CommandFailed):  # over a damaged home, for example
            await anyio.to_thread.run_sync(_up, self._daemons[who], who, self._network)
            self._up.add(who)

    async def kill(self, who: int) -> None:
        if who in self._up:
            self._up.discard(who)
            await anyio.to_thread.run_sync(self._daemons[who].kill)

    async def save(self, who: int) -> None:
        await anyio.to_thread.run_sync(_save, _state(self._daemons[who]), self._base / f"saved{who}")

    async def roll_back(self, who: int) -> None:
        saved = self._base / f"saved{who}"
        if not saved.exists():
            raise NotRunning
        await self.kill(who)
        await anyio.to_thread.run_sync(_restore, _state(self._daemons[who]), saved)
        await self.start(who)

    async def copy(self, who: int) -> None:
        if who not in self._up or who in self._copies:
            raise NotRunning
        original = self._daemons[who]
        copy = Daemon(self._base / f"copy{who}", prefix=original.prefix, environ=original.environ)
        await anyio.to_thread.run_sync(_copy_home, original.home, copy.home)
        await anyio.to_thread.run_sync(_save, _state(original), self._base / f"copied{who}")
        await anyio.to_thread.run_sync(_restore, _state(copy), self._base / f"copied{who}")
        try:
            await anyio.to_thread.run_sync(partial(copy.up, a2a=f"{self._network.machines[who].address}:0"))
        except CommandFailed as failed:
            raise NotRunning from failed
        self._copies[who] = copy

    async def end_copy(self, who: int) -> None:
        copy = self._copies.pop(who, None)
        if copy is not None:
            await anyio.to_thread.run_sync(copy.kill)
            shutil.rmtree(copy.home)

    # Who reaches whom.

    async def cut(self, groups: Sequence[Sequence[int]]) -> None:
        await anyio.to_thread.run_sync(self._network.part, groups)

    async def heal(self) -> None:
        await self.cut([range(len(self._network.machines))])

    # What is wrong with a home.

    async def fill(self, who: int) -> None:
        home = self._daemons[who].home
        if home not in self._disks:
            raise NotRunning
        await anyio.to_thread.run_sync(fill, home / "filler")

    async def make_room(self, who: int) -> None:
        (self._daemons[who].home / "filler").unlink(missing_ok=True)

    async def clock(self, who: int, ms: int) -> None:
        (self._base / f"clock{who}").write_text(str(ms))

    async def damage(self, who: int, how: str, seed: int) -> None:
        if who in self._up:
            raise NotRunning
        await anyio.to_thread.run_sync(damage, _state(self._daemons[who]) / DATABASE, how, seed)

    async def ask_first(self, who: int, asks: bool) -> None:
        """Real daemons ask always here; who answers is told by whoever plays."""

    # Who means harm.

    async def attacker(self) -> EntityId:
        if self._attacker is None:
            self._attacks += 1
            network = await anyio.to_thread.run_sync(self._attackers_network)
            self._attacker = Attacker(ATTACKER, network, self._attacks)
        return self._attacker.id

    def _attackers_network(self) -> PinnedLinks:
        place = self._base / "mallory"
        place.mkdir(exist_ok=True)
        machine = self._network.machines[self._count]
        doors = {
            _public_key(_state(daemon)): (self._network.machines[number].address, BUS_PORT)
            for number, daemon in enumerate(self._daemons)
        }
        with machine.inside():
            return PinnedLinks(link_key(ATTACKER), place, (machine.address, BUS_PORT), doors, list(doors), list(doors))

    async def attack(self, how: str, room: RoomId, seed: int) -> None:
        await self.attacker()
        assert self._attacker is not None
        await anyio.to_thread.run_sync(self._attacker.attack, how, room, self._entities[: self._count], seed)

    async def end_attack(self) -> None:
        if self._attacker is not None:
            attacker, self._attacker = self._attacker, None
            await anyio.to_thread.run_sync(attacker.close)

    # The end.

    async def repair(self) -> None:
        await self.end_attack()
        for number in range(self._count):
            await self.end_copy(number)
            await self.make_room(number)
            await self.clock(number, 0)
        await self.heal()
        for number in range(self._count):
            await self.start(number)

    def offences(self) -> list[str]:
        if self._attacks:  # it may be that one, whom the log does not name
            return []
        return [
            f"d{number} has shut out a daemon: {line}"
            for number, daemon in enumerate(self._daemons)
            for line in _offences(daemon.home)
        ]

    async def reconcile(self) -> None:
        """Real daemons are left to themselves."""


def _public_key(state: Path) -> bytes:
    from nacl.signing import SigningKey

    return bytes(SigningKey((state / "keys" / "identity.key").read_bytes()).verify_key)


def _offences(home: Path) -> list[str]:
    lines = (line for log in home.rglob("*.log") for line in log.read_text(errors="replace").splitlines())
    return [line for line in lines if "what no daemon says" in line]


def _save(state: Path, there: Path) -> None:
    """Copy what rooms keep, while the daemon runs or not."""
    shutil.rmtree(there, ignore_errors=True)
    there.mkdir(mode=0o700)
    source, target = sqlite3.connect(state / DATABASE), sqlite3.connect(there / DATABASE)
    with source, target:
        source.backup(target)
    source.close()
    target.close()
    if (state / "blobs").exists():
        shutil.copytree(state / "blobs", there / "blobs")


def _restore(state: Path, saved: Path) -> None:
    for name in (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm"):
        (state / name).unlink(missing_ok=True)
    shutil.rmtree(state / "blobs", ignore_errors=True)
    shutil.copytree(saved, state, dirs_exist_ok=True)
    (state / DATABASE).chmod(0o600)


def _copy_home(home: Path, there: Path) -> None:
    shutil.copytree(home, there, symlinks=True, ignore=shutil.ignore_patterns("filler", "run", "bus", f"{DATABASE}*"))


@asynccontextmanager
async def in_namespaces(base: Path, daemons: int, disks: bool = False) -> AsyncIterator[InNamespaces]:
    """Run a stage; nothing of it is left afterwards."""
    with switched_machines(daemons + 1) as network:
        stage = InNamespaces(base, daemons, network, disks)
        try:
            await stage.begin()
            yield stage
        finally:
            with anyio.CancelScope(shield=True):
                await stage.close()
