"""What a relay is told of our rooms: by owners alone, daemons alone, and nothing of rooms that are not ours."""

from __future__ import annotations

from pathlib import Path

from sublet.messaging.membership.room_homes import homes_to_state, rooms_here
from sublet.protocol.ezagent.ids import created_ms, room_id
from support.rooms import peers, shared_room


def test_an_owners_daemon_tells_which_daemons_are_in_its_rooms(tmp_path: Path) -> None:
    alice, bob = peers("alice", "bob")
    room = shared_room(alice, bob)
    assert rooms_here(alice.engine) == rooms_here(bob.engine) == {room}
    (homes,) = homes_to_state(alice.engine, [room]).values()
    nodes = {one.entity.record.home for one in (alice, bob)}
    assert homes.creator == alice.id
    assert room_id(homes.creator, created_ms(room), homes.salt) == room
    assert homes.writers == nodes
    assert homes.readers == frozenset()
    assert homes.managers == {alice.entity.record.home}
    assert homes_to_state(bob.engine, [room]) == {}, "only an owner's daemon says who is in a room"
