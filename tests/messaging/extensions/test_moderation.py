"""EXT-07: who may moderate, and what each reader is shown."""

from __future__ import annotations

import pytest

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.extensions.moderation import MODERATED
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.content import verify_content
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.keys import doc_id
from support.rooms import entity_key, peers, shared_room


def test_moderators_redact_pin_and_ban_over_what_stays_as_it_was() -> None:
    alice, bob = peers("alice", "bob", declarations=(*BUILT_INS, MODERATED))
    room = shared_room(alice, bob)
    ref = bob.do("message.send", room_id=room, body="rude")["ref_id"]
    alice.hear(bob.published())
    for action in ("pin", "redact"):
        alice.do("moderation.act", room_id=room, action=action, target_ref=ref, reason="rude")
    alice.do("moderation.act", room_id=room, action="ban_user", target_user=bob.id)
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
    alice.do("moderation.act", room_id=room, action="unpin", target_ref=ref)
    alice.do("moderation.act", room_id=room, action="unban_user", target_user=bob.id)
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
        bob.do("moderation.act", room_id=room, action="redact", target_ref=ref)
    forged = {"action_id": "x", "action": "redact", "target_ref": ref, "by": bob.id}
    bob.engine.writing.append(bob.id, doc_id("ext", room_id=room, ext_id="moderation"), forged)
    bob.engine.commit()
    alice.hear(bob.published())
    for peer in (alice, bob):
        (seen,) = peer.do("timeline.list", room_id=room)["refs"]
        assert seen["body"] == "fine"
        assert "redacted" not in seen
    with pytest.raises(SubletError, match="no such decision"):
        alice.do("moderation.act", room_id=room, action="hide", target_ref=ref)


def test_a_decision_is_signed_as_a_whole() -> None:
    (alice,) = peers("alice", declarations=(*BUILT_INS, MODERATED))
    room = shared_room(alice)
    alice.do("moderation.act", room_id=room, action="ban_user", target_user="@bob:example.com", reason="spam")
    document = alice.engine.document(doc_id("ext", room_id=room, ext_id="moderation"))
    (action,) = alice.engine.reading.elements(document)
    signed = {"type": "moderation.action", **{name: value for name, value in action.items() if name != "shard_id"}}
    keys = (entity_key("alice").verify_key,)
    verify_content(signed, keys)
    with pytest.raises(Refused):
        verify_content({**signed, "target_user": "@carol:example.com"}, keys)
