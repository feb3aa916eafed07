"""This daemon as a device of somebody else: what it asks for, what becomes of it, and what is kept."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from nacl.signing import SigningKey

from sublet.daemon.peering.identity import load_identity
from sublet.daemon.rooms import own_device
from sublet.daemon.rooms.own_device import FILE, OwnDevice
from sublet.messaging.identities.keyring import LocalEntity
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.identity import EntityRecord
from sublet.protocol.ezagent.sealing.device_link import DeviceLink, parse_link
from sublet.protocol.ezagent.sealing.device_statements import add, remove
from sublet.protocol.ezagent.sealing.wire import NO_ID
from support.rooms import local_entity

pytestmark = pytest.mark.anyio
ALICE = local_entity("alice", 1)


class Rooms:
    """What a running service of rooms is to a device: ``known`` is the record that peers tell, after some failures."""

    def __init__(self, known: EntityRecord | None = None, failures: int = 0) -> None:
        self.known, self.failures = known, failures
        self.local: dict[str, LocalEntity] = {}
        self.asked = self.full = 0
        self.asking = SimpleNamespace(key=self._key)
        self.devices = SimpleNamespace(tell=self._tell)

    async def _key(self, entity: str) -> None:
        self.asked += 1
        if self.asked <= self.failures:
            raise SubletError(LocalCode.UNAVAILABLE, "nobody is there", "Wait.")

    async def _tell(self, entity: str) -> None:
        assert entity in self.local

    async def add(self, entity: LocalEntity) -> None:
        if self.full:
            self.full -= 1
            raise SubletError(LocalCode.UNAVAILABLE, "no space is left", "Make some.")
        self.local[entity.record.entity_id] = entity

    async def on_engine(self, run: Any) -> Any:
        keyring = SimpleNamespace(record=lambda _: self.known, local=self.local)
        return run(SimpleNamespace(keyring=keyring))


def own(place: Path) -> OwnDevice:
    return OwnDevice(load_identity(place / "keys"), place)


def added(link: DeviceLink) -> EntityRecord:
    said = add(ALICE.key, link.entity, NO_ID, link.key, link.name, link.seal_key, link.held)
    return ALICE.record.with_statements((said,))


async def until(device: OwnDevice, rooms: Any, standing: str) -> None:
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(device.run, rooms)
            while device.standing != standing:
                await anyio.sleep(0.01)
            group.cancel_scope.cancel()


async def unasked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a device look again and again at once."""
    monkeypatch.setattr(own_device, "ASK_SECONDS", 0.01)
    monkeypatch.setattr(own_device, "LOOK_SECONDS", 0.01)


async def test_a_device_is_one_once_it_was_added_and_until_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await unasked_again(monkeypatch)
    entity, device = ALICE.record.entity_id, own(tmp_path)
    mine = device.person
    link = parse_link(device.link(entity, "laptop").encode())
    assert (link.entity, link.name, device.waits_for, device.person) == (entity, "laptop", entity, mine)
    rooms = Rooms(added(link), failures=2)
    await until(device, rooms, "device")
    assert device.person == entity
    assert rooms.asked > 2
    assert rooms.local[entity].key == load_identity(tmp_path / "keys").key
    again = own(tmp_path)
    found = again.local()
    assert found is not None
    assert (again.person, found.record) == (entity, rooms.known)
    with pytest.raises(SubletError, match="is a device of"):
        again.link(entity, "other")
    del rooms.local[entity]
    assert rooms.known is not None
    [said] = rooms.known.statements
    gone = remove(ALICE.key, entity, said.id, link.key, NO_ID)
    rooms.known = rooms.known.with_statements((gone,))
    await until(again, rooms, "removed")
    assert (again.person, again.waits_for, again.local()) == (mine, None, None)
    assert own(tmp_path).standing == "removed"
    with pytest.raises(SubletError, match="for good"):
        again.link(entity, "other")


async def test_a_record_that_says_nothing_of_it_or_of_another_device_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await unasked_again(monkeypatch)
    entity, device = ALICE.record.entity_id, own(tmp_path)
    device.link(entity, "laptop")
    (tmp_path / "other").mkdir()
    other = own(tmp_path / "other").link(entity, "other")
    for known in (None, ALICE.record, added(other)):
        rooms: Any = Rooms(known)
        async with anyio.create_task_group() as group:
            group.start_soon(device.run, rooms)
            while rooms.asked < 3:
                await anyio.sleep(0.01)
            group.cancel_scope.cancel()
        assert (device.waits_for, rooms.local) == (entity, {})


async def test_a_device_that_could_not_be_taken_up_at_once_was_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await unasked_again(monkeypatch)
    entity, device = ALICE.record.entity_id, own(tmp_path)
    rooms: Any = Rooms(added(parse_link(device.link(entity, "laptop").encode())))
    rooms.full = 2
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(device.run, rooms)
            while entity not in rooms.local:
                await anyio.sleep(0.01)
            group.cancel_scope.cancel()
    assert (device.standing, device.person) == ("device", entity)


def test_a_file_that_can_not_be_read_is_none(tmp_path: Path) -> None:
    for content in (b"", b"{", b'{"entity": 1}', b'{"entity": "@a:b", "name": "x", "standing": "king"}'):
        (tmp_path / FILE).write_bytes(content)
        assert own(tmp_path).kept is None
    broken = b'{"entity": "@a:b", "name": "x", "standing": "device", "record": "%s"}'
    for record in (b"", b"AAAA", b"?"):
        (tmp_path / FILE).write_bytes(broken % record)
        assert own(tmp_path).local() is None


def test_another_device_gives_another_link(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    links = [own(place).link(ALICE.record.entity_id, "x") for place in (tmp_path, tmp_path / "other")]
    assert len({one.key for one in links}) == 2
    assert all(SigningKey(bytes(32)).verify_key.encode() != one.key for one in links)
