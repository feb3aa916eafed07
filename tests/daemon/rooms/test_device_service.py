"""Operations on devices: of the person alone, and what is refused before anything is asked for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sublet.daemon.api.devices import AddDevice, LinkDevice, OneDevice
from sublet.daemon.api.operation import Nothing
from sublet.daemon.peering.identity import load_identity
from sublet.daemon.rooms.device_service import DeviceService
from sublet.daemon.rooms.own_device import OwnDevice
from sublet.messaging.calls import device_calls, room_calls
from sublet.policy.decision import Subject
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.sealing.device_link import parse_link
from support.decisions import gatekeeper

pytestmark = pytest.mark.anyio
PERSON, AGENT = Subject("human"), Subject("mcp")
HOME = "node-aaaaaaaaaaaaaaaa"
FOUND = {"id": "ab" * 16, "name": "laptop", "node_id": HOME, "this": False, "first": False}


class Speaking:
    """As whom callers speak, with the rooms that they are in."""

    def __init__(self, rooms: list[dict[str, Any]]) -> None:
        self.rooms, self.told = rooms, list[str]()

    async def call(self, caller: Subject, operation: Any, **arguments: Any) -> Any:
        answers = {room_calls.list_rooms.id: self.rooms, device_calls.devices.id: [FOUND]}
        return answers.get(operation.id, FOUND)

    async def service(self) -> Any:
        async def tell(entity: str) -> None:
            self.told.append(entity)

        return SimpleNamespace(devices=SimpleNamespace(tell=tell))


def service(place: Path, rooms: list[dict[str, Any]] | None = None) -> tuple[Any, OwnDevice, Speaking]:
    identity = load_identity(place / "keys")
    own, speaking = OwnDevice(identity, place), Speaking(rooms or [])
    peers = SimpleNamespace(node_of=lambda name: HOME if name == "home" else None)

    async def kept(*_: Any, **__: Any) -> int:
        return 1

    unused: Any = SimpleNamespace(events=SimpleNamespace(append_event=kept))
    made: Any = DeviceService(gatekeeper(unused), speaking, own, identity, peers)  # type: ignore[arg-type]
    return made, own, speaking


async def test_agents_have_no_devices(tmp_path: Path) -> None:
    made, own, speaking = service(tmp_path)
    for operation, request in (
        (made.list_devices, Nothing()),
        (made.link, LinkDevice(peer="home", name="laptop")),
        (made.add, AddDevice(link="x")),
        (made.remove, OneDevice(device="laptop")),
    ):
        with pytest.raises(SubletError) as refused:
            await operation(request, AGENT)
        assert refused.value.code is LocalCode.POLICY_DENIED
    assert (own.kept, speaking.told) == (None, [])


async def test_a_link_is_for_the_person_of_a_peer_and_shows_the_key(tmp_path: Path) -> None:
    made, own, _ = service(tmp_path)
    with pytest.raises(SubletError, match="no peer is called"):
        await made.link(LinkDevice(peer="nobody", name="laptop"), PERSON)
    view = await made.link(LinkDevice(peer="home", name="laptop"), PERSON)
    assert view.entity_id == own.waits_for == f"@human:{HOME}"
    assert parse_link(view.link).name == "laptop"
    assert view.fingerprint == load_identity(tmp_path / "keys").fingerprint
    listed = await made.list_devices(Nothing(), PERSON)
    assert (listed.standing, listed.waits_for) == ("own", own.waits_for)


async def test_who_has_rooms_of_its_own_here_becomes_no_device(tmp_path: Path) -> None:
    made, own, _ = service(tmp_path)
    made, own, _ = service(tmp_path, [{"created_by": own.person}])
    with pytest.raises(SubletError, match="you have opened 1 rooms here"):
        await made.link(LinkDevice(peer="home", name="laptop"), PERSON)
    assert own.kept is None


async def test_rooms_are_told_what_was_added_and_removed(tmp_path: Path) -> None:
    made, own, speaking = service(tmp_path)
    link = (await made.link(LinkDevice(peer="home", name="laptop"), PERSON)).link
    added = await made.add(AddDevice(link=link), PERSON)
    assert added.fingerprint == load_identity(tmp_path / "keys").fingerprint
    removed = await made.remove(OneDevice(device="laptop"), PERSON)
    assert (removed.name, removed.fingerprint) == ("laptop", "")
    assert speaking.told == [own.person, own.person]
