"""D41: what belongs to an extension that a room has switched off is refused with the reason, and leaves nothing."""

from __future__ import annotations

from typing import Any

import pytest

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.extensions import EXTENSIONS
from sublet.protocol.errors import LocalCode, SubletError
from support.rooms import Peer, peers, shared_room


def off(*names: str) -> tuple[Peer, str, str]:
    """Return a peer with a message in a room that has switched some extensions off."""
    (alice,) = peers("alice", declarations=(*BUILT_INS, *EXTENSIONS))
    room = shared_room(alice)
    ref = alice.do("message.send", room_id=room, body="hello")["ref_id"]
    enabled = [one.id for one in EXTENSIONS if one.id not in names and not {*names} & {*one.dependencies}]
    alice.do("room.update_config", room_id=room, changes={"enabled_extensions": enabled})
    return alice, room, ref


@pytest.mark.parametrize(
    ("extension", "operation", "more"),
    [
        ("moderation", "moderation.pin", {}),
        ("moderation", "moderation.redact", {}),
        ("reactions", "reactions.add", {"emoji": "+1"}),
        ("watch", "watch.set", {"reason": "x"}),
        ("read-receipts", "receipts.update", {}),
        ("mutable", "mutable.update", {"body": "x"}),
        ("collab", "collab.update_acl", {"mode": "room_members"}),
        ("presence", "presence.set", {"typing": True}),
        ("drafts", "drafts.save", {"body": "x"}),
    ],
)
def test_an_operation_is_refused(extension: str, operation: str, more: dict[str, Any]) -> None:
    alice, room, ref = off(extension)
    assert operation in alice.engine.registry.operations
    given = {"room_id": room, **({} if extension in ("drafts", "presence") else {"ref_id": ref}), **more}
    seq = alice.store.last_seq()
    with pytest.raises(SubletError, match=f"{extension} is switched off") as refused:
        alice.do(operation, **given)
    assert refused.value.code is LocalCode.CONFLICT
    assert refused.value.hint.endswith(f"sublet room config {room} --enable {extension}")
    assert alice.store.last_seq() == seq


def test_a_reply_is_refused_and_a_plain_message_is_not() -> None:
    alice, room, ref = off("reply-to")
    with pytest.raises(SubletError, match="reply-to is switched off"):
        alice.do("message.send", room_id=room, body="yes", ext={"reply_to": {"ref_id": ref}})
    alice.do("message.send", room_id=room, body="yes")
    assert alice.bodies(room) == ["hello", "yes"]


def test_an_annotation_is_refused() -> None:
    alice, room, ref = off("watch")
    with pytest.raises(SubletError, match="watch is switched off"):
        alice.do("annotation.add", room_id=room, ref_id=ref, name="watch", key=alice.id, value={"reason": "x"})


@pytest.mark.parametrize(
    ("enabled", "why"),
    [
        (["cross-room-ref"], "cross-room-ref needs reply-to"),
        (["collab"], "collab needs mutable"),
        (["reactions", "nosuch"], "no extension here is called nosuch"),
        (["media", "media"], "named twice"),
    ],
)
def test_extensions_that_nobody_knows_or_that_lack_what_they_need_are_refused(enabled: list[str], why: str) -> None:
    alice, room, _ = off()
    with pytest.raises(SubletError, match=why) as refused:
        alice.do("room.update_config", room_id=room, changes={"enabled_extensions": enabled})
    assert refused.value.code is LocalCode.INVALID_ARGUMENT
    with pytest.raises(SubletError, match=why):
        alice.do("room.create", name="Other", extensions=enabled)
