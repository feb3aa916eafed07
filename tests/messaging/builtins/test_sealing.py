"""The declaration of what members say of a room's keys."""

from __future__ import annotations

from sublet.messaging.builtins.sealing import SEALS
from sublet.messaging.sealing.room_seals import SEALING, statements_doc
from support.rooms import peers, shared_room


def test_statements_are_elements_of_a_document_of_their_own() -> None:
    (datatype,) = SEALS.datatypes
    assert datatype.key_pattern.format(**{"room_id": "R", "state|updates": "state"}) == f"ezagent/R/ext/{SEALING}/state"
    assert SEALS.events == ("room.key.withheld", "room.key.unopenable")


def test_an_epoch_begins_with_a_statement_of_who_has_sealed_the_room() -> None:
    alice, bob = peers("alice", "bob")
    room = shared_room(alice, bob)
    alice.do("room.update_config", room_id=room, changes={"encryption": "members"})
    assert alice.engine.seals.turn()
    alice.engine.commit()
    elements = alice.engine.documents.open(statements_doc(room))
    assert [fields["by"] for fields in alice.engine.reading.elements(elements)] == [alice.id]
