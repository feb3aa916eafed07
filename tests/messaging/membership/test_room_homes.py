"""What a relay is told of our rooms: by owners alone, daemons alone, and nothing of rooms that are not ours."""

from __future__ import annotations

from pathlib import Path

from nacl.signing import SigningKey

from sublet.messaging.membership.room_homes import homes_to_state, rooms_here
from sublet.protocol.ezagent.ids import created_ms, room_id
from sublet.protocol.ezagent.sealing.device_statements import add, prove_held, remove
from sublet.protocol.ezagent.sealing.wire import NO_ID
from sublet.protocol.ids import node_id
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


def test_a_relay_hears_of_devices_that_were_added_and_of_none_that_was_removed() -> None:
    alice, bob = peers("alice", "bob")
    room = shared_room(alice, bob)
    laptop = SigningKey(b"\7" * 32)
    key, seal_key = bytes(laptop.verify_key), bytes(laptop.verify_key.to_curve25519_public_key())
    first, second, of_alice = bob.entity.record.home, node_id(key), alice.entity.record.home
    said = add(bob.entity.key, bob.id, NO_ID, key, "laptop", seal_key, prove_held(laptop, bob.id, seal_key))
    record = bob.entity.record.with_statements((said,))
    alice.engine.intake.learn(record.encode())
    assert homes_to_state(alice.engine, [room])[room].writers == {of_alice, first, second}
    gone = remove(laptop, bob.id, NO_ID, bytes(bob.entity.key.verify_key), said.id)
    alice.engine.intake.learn(record.with_statements((gone,)).encode())
    assert homes_to_state(alice.engine, [room])[room].writers == {of_alice, second}
