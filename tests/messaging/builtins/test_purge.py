"""Purging as it is asked for: by whom, of what, and what is answered."""

from __future__ import annotations

import pytest

from sublet.messaging.builtins.purge import PURGE
from sublet.protocol.errors import LocalCode, SubletError
from support.rooms import peers, shared_room


def test_who_may_not_and_what_is_not_there_are_refused_with_what_to_do_instead() -> None:
    alice, bob, eve = peers("alice", "bob", "eve")
    room = shared_room(alice, bob)
    ref = alice.do("message.send", room_id=room, body="text")["ref_id"]
    bob.hear(alice.published())
    for peer, more, code in (
        (bob, {"ref_id": ref}, LocalCode.POLICY_DENIED),
        (alice, {"ref_id": ref, "files": True}, LocalCode.CONFLICT),
        (alice, {"ref_id": ref[:-1] + ("0" if ref[-1] != "0" else "1")}, LocalCode.NOT_FOUND),
        (eve, {"ref_id": ref}, LocalCode.NOT_FOUND),
    ):
        with pytest.raises(SubletError) as refused:
            peer.do("purge.message", room_id=room, **more)
        assert refused.value.code is code
        assert refused.value.hint
    assert alice.bodies(room) == bob.bodies(room) == ["text"]


def test_a_room_can_not_switch_it_off() -> None:
    (alice,) = peers("alice")
    room = shared_room(alice)
    ref = alice.do("message.send", room_id=room, body="text")["ref_id"]
    assert PURGE.id not in alice.engine.rooms.state(room).enabled_extensions
    alice.do("purge.message", room_id=room, ref_id=ref)
    assert alice.bodies(room) == [None]
