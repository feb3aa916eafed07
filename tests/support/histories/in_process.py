"""A stage in one process: whole messaging services over Zenoh and links with pinned keys, each with a home of its own.

A partition is made by what each daemon trusts, so links are cut and refused as those of a removed peer are. A kill
takes the home as it is between two commits, with all links cut before: what was acknowledged is in it, and nothing was
closed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
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
from sublet.messaging.membership.consent import Consent
from sublet.messaging.mending.asking_again import Asks
from sublet.messaging.mending.healing import Healing
from sublet.messaging.service import MessagingService
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ids import node_id
from support.consents import TakesAll
from support.histories.attacking import Attacker
from support.histories.damaging import damage
from support.histories.stage import INVITATIONS, NOWHERE, NotRunning
from support.ports import free_port
from support.rooms import entity_key, local_entity

DATABASE: Final = "messaging.db"
DISK_MIB: Final = 192
CALL_SECONDS: Final = 60.0
RESTART_SECONDS: Final = 0.02
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

    def shut_out(self) -> dict[bytes, str]:
        """Return who is let in no more for a while, or was not long ago, and why."""
        return self._pinned.shut_out()

    def close(self) -> None:
        super().close()
        self._pinned.close()


class _TakesUp(TakesAll):
    """Takes rooms up, or has a person asked."""

    def __init__(self) -> None:
        self.asks = False

    def foresee(self, home: str) -> Consent:
        return Consent.ASK if self.asks else super().foresee(home)

    async def decide(self, home: str, whom: Collection[EntityId]) -> Consent:
        return Consent.ASK if self.asks else await super().decide(home, whom)


class _Home:
    """One daemon: where it is, and what runs over it."""

    def __init__(self, number: int, place: Path) -> None:
        self.name = f"d{number}"
        self.place = place
        self.address = ("127.0.0.1", free_port())
        self.key = link_key(self.name)
        self.ahead_ms = 0
        self.consent = _TakesUp()
        self.service: MessagingService | None = None
        self.network: PinnedLinks | None = None
        self.end: anyio.Event | None = None
        self.ended: anyio.Event | None = None

    @property
    def is_up(self) -> bool:
        """Whether it runs, or is started anew just now."""
        return self.ended is not None and not self.ended.is_set()

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
        self._offences: list[str] = []
        self._viewed: dict[tuple[int, str], Any] = {}
        """Messages of which a daemon could make what it shows, as they were then."""
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
            if operation in INVITATIONS:
                return await _invited(home.service, operation, **arguments)
            answer = await home.service.call(self.entity(who), operation, **arguments)
        if operation == "timeline.list":  # what a daemon makes of it has to be possible, too
            for ref in answer["refs"]:
                if self._viewed.get((who, ref["ref_id"])) != ref:
                    message_view(ref, lambda *_: True).model_dump_json()
                    self._viewed[who, ref["ref_id"]] = ref
        return answer

    async def sum_of(self, who: int, room: RoomId) -> Any:
        service = self._homes[who].service
        if service is None:
            return None
        try:
            root = await service.on_engine(lambda engine: engine.store.tree.root(room))
        except SubletError:  # it is started anew just now
            return None
        return root if root.count else NOWHERE

    async def lacks(self, who: int, room: RoomId) -> bool:
        service = self._homes[who].service
        if service is None:
            return False
        try:
            return await service.on_engine(
                lambda engine: room not in engine.here.ids and not engine.store.tree.root(room).count
            )
        except SubletError:  # it is started anew just now
            return False

    # Being there or not.

    async def start(self, who: int) -> None:
        home = self._homes[who]
        if not home.is_up:
            await self._run(
                home, {public(one.key): one.address for one in self._homes[:who]}, partial(self._trusted, who)
            )

    async def _run(
        self, home: _Home, doors: Mapping[bytes, tuple[str, int]], trusted: Callable[[], Sequence[bytes]]
    ) -> None:
        """Start a daemon over a home; one that can't start stays down."""
        home.end, home.ended = anyio.Event(), anyio.Event()
        begun = anyio.Event()
        self._group.start_soon(self._serve, home, doors, trusted, begun)
        await begun.wait()

    def _network(
        self, number: int, home: _Home, doors: Mapping[bytes, tuple[str, int]], trusted: Callable[[], Sequence[bytes]]
    ) -> PinnedLinks:
        links = self._base / f"l{number}"
        links.mkdir()
        known = [public(one.key) for one in self._homes if one.name != home.name] + [public(link_key(ATTACKER))]
        return PinnedLinks(home.key, links, home.address, doors, trusted(), known)

    async def _serve(
        self,
        home: _Home,
        doors: Mapping[bytes, tuple[str, int]],
        trusted: Callable[[], Sequence[bytes]],
        begun: anyio.Event,
    ) -> None:
        """Run rooms over a home as a daemon does: they are started anew where something was found to be damaged."""
        assert home.end is not None
        assert home.ended is not None
        healing = Healing(home.place / DATABASE, home.now_ms)
        registry, mends = Registry((*BUILT_INS, *EXTENSIONS)), True
        try:
            while mends:
                mends = False
                try:
                    mends = await self._until_damaged(home, healing, registry, doors, trusted, begun)
                except Exception as error:
                    mends = await anyio.to_thread.run_sync(partial(healing.blame, error, starting=home.service is None))
                    if not mends:
                        print(f"{home.name} has ended: {error!r}")
                finally:
                    home.service = home.network = None
        finally:
            begun.set()
            home.ended.set()

    async def _until_damaged(
        self,
        home: _Home,
        healing: Healing,
        registry: Registry,
        doors: Mapping[bytes, tuple[str, int]],
        trusted: Callable[[], Sequence[bytes]],
        begun: anyio.Event,
    ) -> bool:
        """Run rooms until they are ended, or have to be mended; tell which."""
        assert home.end is not None
        end, found = home.end, list[bool]()
        self._starts += 1
        number = self._starts  # others may be started anew while this one is
        local = [local_entity(home.name, 1 + number)]
        await anyio.to_thread.run_sync(healing.mend, registry, local)
        network = await anyio.to_thread.run_sync(self._network, number, home, doors, trusted)
        service = MessagingService(
            home.place / DATABASE,
            registry,
            network,
            local,
            home.now_ms,
            lambda _: True,
            consent=home.consent,
            damaged=healing.suspect,
            lacking=healing.lacking,
        )
        loop = asyncio.get_running_loop()
        network.on_change(lambda: _soon(loop, healing.link_changed))
        asks = Asks(service.on_engine, service.asking.document, service.asking.key, service.fetch)
        async with service.running(), anyio.create_task_group() as group:
            home.service, home.network = service, network
            await anyio.to_thread.run_sync(network.trust, trusted())  # it may be another one by now
            begun.set()

            async def watch() -> None:
                found.append(bool(await healing.watch(registry, local, asks)))
                group.cancel_scope.cancel()

            group.start_soon(watch)
            try:
                await end.wait()
            finally:
                self._offences += self._of_honest(home, network)
            group.cancel_scope.cancel()
        return bool(found) and not end.is_set()

    def offences(self) -> list[str]:
        there = [home for home in (*self._homes, *self._copies.values()) if home.network is not None]
        return self._offences + [one for home in there if home.network for one in self._of_honest(home, home.network)]

    def _of_honest(self, home: _Home, network: PinnedLinks) -> list[str]:
        """Return which honest daemons one has shut out, and why."""
        found, told = {public(other.key): other.name for other in self._homes}, network.shut_out()
        return [f"{home.name} has shut out {name}: {told[key]}" for key, name in found.items() if key in told]

    async def _stop(self, home: _Home) -> None:
        if home.is_up:
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
        while home.is_up and home.service is None:
            await anyio.sleep(RESTART_SECONDS)  # it is started anew just now
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
        await self._run(home, {public(one.key): one.address for one in others}, partial(self._trusted, who))

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
        if home.is_up:
            raise NotRunning
        await anyio.to_thread.run_sync(damage, home.place / DATABASE, how, seed)

    async def ask_first(self, who: int, asks: bool) -> None:
        self._homes[who].consent.asks = asks

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


async def _invited(service: MessagingService, operation: str, room_id: RoomId = "") -> Any:
    """Do what daemons do with invitations."""
    if operation == "invitations.list":
        return [
            {"room_id": one.room_id, "name": one.name, "members": one.members, "answer": str(one.answer)}
            for one in await service.invited.all()
        ]
    answer = service.invited.accept if operation == "invitations.accept" else service.invited.decline
    return await answer(room_id)


def _soon(loop: asyncio.AbstractEventLoop, run: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # it has ended
        loop.call_soon_threadsafe(run)


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
