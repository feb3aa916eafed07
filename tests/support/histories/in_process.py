"""A stage in one process: whole messaging services over Zenoh and links with pinned keys, each with a home of its own.

A partition is made by what each daemon trusts, so links are cut and refused as those of a removed peer are. A kill
takes the home as it is between two commits, with all links cut before: what was acknowledged is in it, and nothing was
closed.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sublet.daemon.rooms.views import message_view
from sublet.messaging.backends.zenoh_network import Endpoints, ZenohNetwork
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.registry import Registry
from sublet.messaging.extensions import EXTENSIONS
from sublet.messaging.links.keys import LinkKeys
from sublet.messaging.links.links import Links
from sublet.messaging.service import MessagingService
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ids import node_id
from support.consents import TakesAll
from support.histories.attacking import Attacker
from support.histories.damaging import damage
from support.histories.stage import NotRunning
from support.ports import free_port
from support.rooms import entity_key, local_entity

DATABASE: Final = "messaging.db"
DISK_MIB: Final = 192
CALL_SECONDS: Final = 60.0
ATTACKER: Final = "mallory"


def link_key(name: str) -> Ed25519PrivateKey:
    """Return the identity key of the daemon of that name, which vouches for its entity, too."""
    return Ed25519PrivateKey.from_private_bytes(bytes(entity_key(f"daemon of {name}")))


def public(key: Ed25519PrivateKey) -> bytes:
    """Return the key by which others know it."""
    return key.public_key().public_bytes_raw()


def mount_disk(place: Path) -> None:
    """Mount a small file system, which can be filled."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(place)], check=True)


def unmount_disk(place: Path) -> None:
    """Take it away again."""
    subprocess.run(["umount", "-l", str(place)], check=True)


class PinnedLinks(ZenohNetwork):
    """The network of one daemon, which lets in whom it trusts just then.

    Args:
        key: the daemon's.
        place: of its sockets and its certificate.
        address: where others call it.
        doors: where it calls whom, by key.
        trusted: whom it trusts at first.
        known: whom it may ever have a link with, by key.
    """

    def __init__(
        self,
        key: Ed25519PrivateKey,
        place: Path,
        address: tuple[str, int],
        doors: Mapping[bytes, tuple[str, int]],
        trusted: Sequence[bytes],
        known: Sequence[bytes],
    ) -> None:
        with socket.create_server(address) as listener:
            self._pinned = Links(LinkKeys(place / "keys", key), place / "s", listener)
        self._pinned.trust(trusted)
        called = self._pinned.call({one: [door] for one, door in doors.items()})
        super().__init__(Endpoints())
        self.join(
            {
                node_id(one): Endpoints((self._pinned.inbound(one),), (called[one],) if one in called else ())
                for one in known
            }
        )

    def trust(self, keys: Sequence[bytes]) -> None:
        """Let these in and nobody else."""
        self._pinned.trust(keys)

    def close(self) -> None:
        super().close()
        self._pinned.close()


class _Home:
    """One daemon: where it is, and what runs over it."""

    def __init__(self, number: int, place: Path) -> None:
        self.name = f"d{number}"
        self.place = place
        self.address = ("127.0.0.1", free_port())
        self.key = link_key(self.name)
        self.ahead_ms = 0
        self.service: MessagingService | None = None
        self.network: PinnedLinks | None = None
        self.end: anyio.Event | None = None
        self.ended: anyio.Event | None = None

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms


class InProcess:
    """See ``Stage``.

    Args:
        group: in which the services run.
        base: of all homes.
        daemons: how many.
        disks: give each home a small file system of its own, which takes root.
    """

    def __init__(self, group: TaskGroup, base: Path, daemons: int, disks: bool = False) -> None:
        self._group = group
        self._base = base
        self._count = daemons
        self._starts = 0
        self._disks: list[Path] = []
        self._homes = [_Home(number, base / f"d{number}") for number in range(daemons)]
        self._copies: dict[int, _Home] = {}
        self._groups: list[list[int]] = [list(range(daemons))]
        self._attacker: Attacker | None = None
        for home in self._homes:
            home.place.mkdir()
            if disks:
                mount_disk(home.place)
                self._disks.append(home.place)

    async def begin(self) -> None:
        """Start all."""
        for number in range(self._count):
            await self.start(number)

    async def close(self) -> None:
        """End all."""
        await self.end_attack()
        for number in list(self._copies):
            await self.end_copy(number)
        for home in self._homes:
            await self._stop(home)
        for disk in self._disks:
            unmount_disk(disk)

    def entity(self, who: int) -> EntityId:
        return local_entity(f"d{who}", 1).record.entity_id

    def running(self) -> list[int]:
        return [number for number, home in enumerate(self._homes) if home.service is not None]

    async def call(self, who: int, operation: str, /, *, of_copy: bool = False, **arguments: Any) -> Any:
        home = self._copies.get(who) if of_copy else self._homes[who]
        if home is None or home.service is None:
            raise NotRunning
        with anyio.fail_after(CALL_SECONDS):
            answer = await home.service.call(self.entity(who), operation, **arguments)
        if operation == "timeline.list":  # what a daemon makes of it has to be possible, too
            for ref in answer["refs"]:
                message_view(ref, lambda *_: True).model_dump_json()
        return answer

    # Being there or not.

    async def start(self, who: int) -> None:
        home = self._homes[who]
        if home.service is None:
            await self._run(home, {public(one.key): one.address for one in self._homes[:who]}, self._trusted(who))

    async def _run(self, home: _Home, doors: Mapping[bytes, tuple[str, int]], trusted: Sequence[bytes]) -> None:
        """Start a daemon over a home; one that can't start stays down."""
        self._starts += 1
        links = self._base / f"l{self._starts}"
        links.mkdir()
        known = [public(one.key) for one in self._homes if one.name != home.name] + [public(link_key(ATTACKER))]
        make = partial(PinnedLinks, home.key, links, home.address, doors, trusted, known)
        network = await anyio.to_thread.run_sync(make)
        service = MessagingService(
            home.place / DATABASE,
            Registry((*BUILT_INS, *EXTENSIONS)),
            network,
            [local_entity(home.name, 1 + self._starts)],
            home.now_ms,
            lambda _: True,
            consent=TakesAll(),
        )
        home.end, home.ended = anyio.Event(), anyio.Event()
        begun = anyio.Event()
        self._group.start_soon(self._serve, home, service, begun)
        await begun.wait()
        home.network = network if home.service is not None else None

    async def _serve(self, home: _Home, service: MessagingService, begun: anyio.Event) -> None:
        assert home.end is not None
        assert home.ended is not None
        try:
            async with service.running():
                home.service = service
                begun.set()
                await home.end.wait()
        except Exception as error:
            print(f"{home.name} has ended: {error!r}")
        finally:
            home.service = None
            begun.set()
            home.ended.set()

    async def _stop(self, home: _Home) -> None:
        if home.service is not None:
            assert home.end is not None
            assert home.ended is not None
            home.end.set()
            await home.ended.wait()

    async def _snapshot(self, home: _Home, place: Path) -> None:
        """Copy a home that runs, between two commits."""
        service = home.service
        assert service is not None
        shutil.rmtree(place, ignore_errors=True)
        await service.on_engine(lambda _: _copy(home.place, place))

    async def kill(self, who: int) -> None:
        home = self._homes[who]
        if home.service is None:
            return
        assert home.network is not None
        await anyio.to_thread.run_sync(home.network.trust, ())
        aside = self._base / f"killed{who}"
        await self._snapshot(home, aside)
        await self._stop(home)
        _replace(home.place, aside)

    async def save(self, who: int) -> None:
        home = self._homes[who]
        if home.service is not None:
            await self._snapshot(home, self._base / f"saved{who}")

    async def roll_back(self, who: int) -> None:
        saved = self._base / f"saved{who}"
        if not saved.exists():
            raise NotRunning
        await self.kill(who)
        _replace(self._homes[who].place, saved)
        await self.start(who)

    async def copy(self, who: int) -> None:
        original = self._homes[who]
        if original.service is None or who in self._copies:
            raise NotRunning
        home = _Home(who, self._base / f"copy{who}")
        await self._snapshot(original, home.place)
        self._copies[who] = home
        others = [one for number, one in enumerate(self._homes) if number != who]
        await self._run(home, {public(one.key): one.address for one in others}, self._trusted(who))

    async def end_copy(self, who: int) -> None:
        home = self._copies.pop(who, None)
        if home is not None:
            await self._stop(home)
            shutil.rmtree(home.place)

    # Who reaches whom.

    def _trusted(self, who: int) -> list[bytes]:
        """Return the keys of whom a daemon reaches now; the attacker's is among them, as that of a paired daemon."""
        mine = next((group for group in self._groups if who in group), [])
        return [public(self._homes[one].key) for one in mine if one != who] + [public(link_key(ATTACKER))]

    async def _trust(self) -> None:
        for number, home in enumerate(self._homes):
            if home.service is not None and home.network is not None:
                await anyio.to_thread.run_sync(home.network.trust, self._trusted(number))

    async def cut(self, groups: Sequence[Sequence[int]]) -> None:
        self._groups = [list(group) for group in groups]
        await self._trust()

    async def heal(self) -> None:
        await self.cut([list(range(self._count))])

    # What is wrong with a home.

    async def fill(self, who: int) -> None:
        home = self._homes[who]
        if home.place not in self._disks:
            raise NotRunning
        await anyio.to_thread.run_sync(fill, home.place / "filler")

    async def make_room(self, who: int) -> None:
        (self._homes[who].place / "filler").unlink(missing_ok=True)

    async def clock(self, who: int, ms: int) -> None:
        self._homes[who].ahead_ms = ms

    async def damage(self, who: int, how: str, seed: int) -> None:
        home = self._homes[who]
        if home.service is not None:
            raise NotRunning
        await anyio.to_thread.run_sync(damage, home.place / DATABASE, how, seed)

    # Who means harm.

    async def attacker(self) -> EntityId:
        if self._attacker is None:
            links = self._base / "mallory"
            links.mkdir(exist_ok=True)
            others = [public(home.key) for home in self._homes]
            doors = {public(home.key): home.address for home in self._homes}
            make = partial(PinnedLinks, link_key(ATTACKER), links, ("127.0.0.1", free_port()), doors, others, others)
            self._starts += 1
            self._attacker = Attacker(ATTACKER, await anyio.to_thread.run_sync(make), 1 + self._starts)
        return self._attacker.id

    async def attack(self, how: str, room: RoomId, seed: int) -> None:
        await self.attacker()
        assert self._attacker is not None
        entities = [self.entity(number) for number in range(self._count)]
        await anyio.to_thread.run_sync(self._attacker.attack, how, room, entities, seed)

    async def end_attack(self) -> None:
        if self._attacker is not None:
            attacker, self._attacker = self._attacker, None
            await anyio.to_thread.run_sync(attacker.close)

    # The end.

    async def repair(self) -> None:
        await self.end_attack()
        for number, home in enumerate(self._homes):
            await self.end_copy(number)
            await self.make_room(number)
            home.ahead_ms = 0
            await self.start(number)
        await self.heal()

    async def reconcile(self) -> None:
        for home in self._homes:
            if home.service is None:
                continue
            with suppress(SubletError):
                rooms = await home.service.call(self.entity(self._homes.index(home)), "room.list")
                for room in rooms:
                    await home.service.asking.room(room["room_id"])


def _copy(place: Path, there: Path) -> None:
    """Copy a home, without what fills it and without the files by which SQLite's processes share memory."""
    shutil.copytree(place, there, ignore=shutil.ignore_patterns("filler", "*-shm"))


def _replace(place: Path, by: Path) -> None:
    """Put a copy in place of a home, which may be where something is mounted."""
    for one in place.iterdir():
        if one.name == "filler":
            continue
        if one.is_dir():
            shutil.rmtree(one)
        else:
            one.unlink()
    shutil.copytree(by, place, dirs_exist_ok=True)


def fill(path: Path) -> None:
    """Write a file until the file system has no room left."""
    piece = bytes(1 << 20)
    with open(path, "wb", buffering=0) as file:
        while True:
            try:
                file.write(piece)
            except OSError:
                if len(piece) == 1:
                    return
                piece = piece[: len(piece) // 16]


@asynccontextmanager
async def in_process(base: Path, daemons: int, disks: bool = False) -> AsyncIterator[InProcess]:
    """Run a stage; nothing of it is left afterwards."""
    async with anyio.create_task_group() as group:
        stage = InProcess(group, base, daemons, disks and os.geteuid() == 0)
        try:
            await stage.begin()
            yield stage
        finally:
            with anyio.CancelScope(shield=True):
                await stage.close()
