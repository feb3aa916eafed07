"""EXT-07: who may moderate, and what each reader is shown."""

from __future__ import annotations

import pytest

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.extensions.moderation import MODERATED
from sublet.messaging.extensions.moderation_index import overlay
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.content import sign_content, verify_content
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import own_ref_id
from sublet.protocol.ezagent.keys import doc_id
from support.rooms import NOW_MS, Peer, entity_key, peers, shared_room


def test_moderators_redact_pin_and_ban_over_what_stays_as_it_was() -> None:
    alice, bob = peers("alice", "bob", declarations=(*BUILT_INS, MODERATED))
    room = shared_room(alice, bob)
    ref = bob.do("message.send", room_id=room, body="rude")["ref_id"]
    alice.hear(bob.published())
    for action in ("pin", "redact"):
        assert alice.do(f"moderation.{action}", room_id=room, ref_id=ref, reason="rude")["changed"]
        assert not alice.do(f"moderation.{action}", room_id=room, ref_id=ref, reason="rude")["changed"]
    alice.do("moderation.ban", room_id=room, entity=bob.id)
    bob.hear(alice.published())
    (seen,) = bob.do("timeline.list", room_id=room)["refs"]
    assert "body" not in seen
    assert seen["redacted"] == {"by": alice.id, "reason": "rude"}
    assert seen["pinned"]
    assert seen["author_banned"]
    (original,) = alice.do("timeline.list", room_id=room)["refs"]
    assert original["body"] == "rude"
    assert original["redacted"]["by"] == alice.id
    assert bob.kinds().count("moderation.action") == 3
    alice.do("moderation.unpin", room_id=room, ref_id=ref)
    alice.do("moderation.unban", room_id=room, entity=bob.id)
    bob.hear(alice.published())
    (seen,) = bob.do("timeline.list", room_id=room)["refs"]
    assert "pinned" not in seen
    assert "author_banned" not in seen


def test_a_member_without_the_power_moderates_nothing() -> None:
    alice, bob = peers("alice", "bob", declarations=(*BUILT_INS, MODERATED))
    room = shared_room(alice, bob)
    ref = alice.do("message.send", room_id=room, body="fine")["ref_id"]
    bob.hear(alice.published())
    with pytest.raises(SubletError, match="moderator"):
        bob.do("moderation.redact", room_id=room, ref_id=ref)
    forged = {"action_id": "x", "action": "redact", "target_ref": ref, "by": bob.id}
    bob.engine.writing.append(bob.id, doc_id("ext", room_id=room, ext_id="moderation"), forged)
    bob.engine.commit()
    alice.hear(bob.published())
    for peer in (alice, bob):
        (seen,) = peer.do("timeline.list", room_id=room)["refs"]
        assert seen["body"] == "fine"
        assert "redacted" not in seen
    with pytest.raises(SubletError, match="no id of an entity"):
        alice.do("moderation.ban", room_id=room, entity="somebody")
    with pytest.raises(SubletError, match="reason"):
        alice.do("moderation.pin", room_id=room, ref_id=ref, reason="x" * 501)


def test_a_decision_is_signed_as_a_whole() -> None:
    (alice,) = peers("alice", declarations=(*BUILT_INS, MODERATED))
    room = shared_room(alice)
    alice.do("moderation.ban", room_id=room, entity="@bob:example.com", reason="spam")
    document = alice.engine.documents.open(doc_id("ext", room_id=room, ext_id="moderation"))
    (action,) = alice.engine.reading.elements(document)
    signed = {"type": "moderation.action", **{name: value for name, value in action.items() if name != "shard_id"}}
    keys = (entity_key("alice").verify_key,)
    verify_content(signed, keys)
    with pytest.raises(Refused):
        verify_content({**signed, "target_user": "@carol:example.com"}, keys)


def shown(peer: Peer, room: str) -> list[tuple[bool, bool]]:
    return [("redacted" in ref, "pinned" in ref) for ref in peer.do("timeline.list", room_id=room)["refs"]]


def signed(by: Peer, room: str, **fields: str) -> dict[str, str]:
    whole = {"action_id": own_ref_id(NOW_MS, room, by.id, 7), **fields, "by": by.id, "reason": "", "timestamp": "now"}
    signature = sign_content({"type": "moderation.action", "room_id": room, **whole}, by.entity.key)["signature"]
    return {**whole, "signature": str(signature)}


def test_what_decisions_take_is_what_the_room_says() -> None:
    alice, bob, carol = peers("alice", "bob", "carol", declarations=(*BUILT_INS, MODERATED))
    room = shared_room(alice, bob, carol)
    ref = alice.do("message.send", room_id=room, body="x")["ref_id"]
    alice.do("room.update_config", room_id=room, changes={"ext.moderation.power_level": 10})
    alice.do("room.set_power", room_id=room, entity=bob.id, level=20)
    assert alice.do("room.get", room_id=room)["config"]["ext.moderation.power_level"] == 10
    out = alice.published()
    for peer in (bob, carol):
        peer.hear(out)
    bob.do("moderation.pin", room_id=room, ref_id=ref)
    carol.engine.writing.append(carol.id, overlay(room), signed(carol, room, action="redact", target_ref=ref))
    carol.engine.commit()
    pins, forged = bob.published(), carol.published()
    for peer in (alice, bob, carol):
        peer.hear([*pins, *forged])
        assert shown(peer, room) == [(False, True)]
    # Who gets the power later did not have it when she decided; and what Bob decided with it stays.
    alice.do("room.update_config", room_id=room, changes={"ext.moderation.power_level": 60})
    raised = alice.published()
    for peer in (bob, carol):
        peer.hear(raised)
    for peer in (alice, bob, carol):
        assert shown(peer, room) == [(False, True)]
    with pytest.raises(SubletError, match="moderator"):
        bob.do("moderation.unpin", room_id=room, ref_id=ref)


def test_a_removed_moderator_takes_back_nothing() -> None:
    alice, bob, carol = peers("alice", "bob", "carol", declarations=(*BUILT_INS, MODERATED))
    room = shared_room(alice, bob, carol)
    ref = alice.do("message.send", room_id=room, body="x")["ref_id"]
    alice.do("room.invite", room_id=room, entity=bob.id, role="admin")
    out = alice.published()
    for peer in (bob, carol):
        peer.hear(out)
    bob.do("moderation.pin", room_id=room, ref_id=ref)
    out = bob.published()
    for peer in (alice, carol):
        peer.hear(out)
    bob.do("moderation.unpin", room_id=room, ref_id=ref)  # on its way while he is removed
    late = bob.published()
    alice.do("room.kick", room_id=room, entity=bob.id)
    removal = alice.published()
    alice.hear(late)
    carol.hear(late)
    assert shown(carol, room) == [(False, False)]
    carol.hear(removal)
    assert shown(carol, room) == shown(alice, room) == [(False, True)]


def test_a_decision_whose_signature_does_not_fit_counts_nowhere() -> None:
    alice, bob = peers("alice", "bob", declarations=(*BUILT_INS, MODERATED))
    room = shared_room(alice, bob)
    ref = alice.do("message.send", room_id=room, body="x")["ref_id"]
    forged = {**signed(alice, room, action="pin", target_ref=ref), "action": "redact"}
    alice.engine.writing.append(alice.id, overlay(room), forged)
    alice.engine.commit()
    bob.hear(alice.published())
    assert shown(bob, room) == shown(alice, room) == [(False, False)]
    alice.do("moderation.pin", room_id=room, ref_id=ref)
    assert shown(alice, room) == [(False, True)]


def test_of_decisions_at_once_all_take_the_same() -> None:
    everyone = peers("alice", "bob", "carol", declarations=(*BUILT_INS, MODERATED))
    alice, bob, carol = everyone
    room = shared_room(*everyone)
    ref = alice.do("message.send", room_id=room, body="x")["ref_id"]
    alice.do("room.invite", room_id=room, entity=bob.id, role="admin")
    out = alice.published()
    for peer in (bob, carol):
        peer.hear(out)
    alice.do("moderation.pin", room_id=room, ref_id=ref)
    bob.do("moderation.unpin", room_id=room, ref_id=ref)
    alices, bobs = alice.published(), bob.published()
    alice.hear(bobs)
    bob.hear(alices)
    carol.hear([*bobs, *alices])
    assert shown(alice, room) == shown(bob, room) == shown(carol, room)


def test_an_equivocating_moderator_decides_nothing() -> None:
    alice, bob, eve = peers("alice", "bob", "eve", declarations=(*BUILT_INS, MODERATED))
    room = shared_room(alice, bob, eve)
    ref = alice.do("message.send", room_id=room, body="x")["ref_id"]
    alice.do("room.invite", room_id=room, entity=eve.id, role="admin")
    out = alice.published()
    bob.hear(out)
    eve.hear(out)
    liar = Peer("eve", eve.nonce, declarations=(*BUILT_INS, MODERATED))
    liar.meet(alice, bob)
    liar.catch_up(alice, room)
    eve.do("moderation.pin", room_id=room, ref_id=ref)
    liar.do("moderation.redact", room_id=room, ref_id=ref)
    both = [*eve.published(), *liar.published()]
    for peer in (alice, bob):
        peer.hear(both)
        assert shown(peer, room) == [(False, False)]
