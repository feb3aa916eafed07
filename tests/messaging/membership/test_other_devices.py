"""What other devices of ours are told at once, and that nothing is told where there is but one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sublet.messaging.membership.other_devices import OtherDevices, with_several
from sublet.messaging.syncing.wanted import Offer

pytestmark = pytest.mark.anyio
SEVERAL, ALONE = "@alice:node-a", "@bob:node-a"


def engine() -> Any:
    keyring = SimpleNamespace(local={SEVERAL: None, ALONE: None}, has_several=lambda entity: entity == SEVERAL)
    here = SimpleNamespace(
        is_member=lambda _, room: room != "other",
        of=lambda _: [SimpleNamespace(room_id="r1"), SimpleNamespace(room_id="r2")],
    )
    return SimpleNamespace(keyring=keyring, here=here)


def told() -> tuple[OtherDevices, list[Offer], list[str]]:
    offers: list[Offer] = []
    rooms: list[str] = []

    async def call(run: Any) -> Any:
        return run(engine())

    async def say_here(room_id: str) -> None:
        rooms.append(room_id)

    return OtherDevices(call, offers.append, say_here), offers, rooms


def test_only_who_has_several_devices_is_found() -> None:
    assert with_several(engine()) == [SEVERAL]
    assert with_several(engine(), "r1") == [SEVERAL]
    assert with_several(engine(), "other") == []


async def test_a_room_is_offered_to_the_other_devices_of_its_members_alone() -> None:
    devices, offers, _ = told()
    await devices.offer("r1")
    await devices.offer("other")
    assert offers == [Offer("r1", SEVERAL)]


async def test_all_rooms_are_told_which_devices_there_are() -> None:
    devices, _, rooms = told()
    await devices.tell(SEVERAL)
    assert rooms == ["r1", "r2"]
