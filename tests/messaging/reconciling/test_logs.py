"""Logs of documents that differ: told in bounded parts, until all is there."""

from __future__ import annotations

import pytest

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.extensions import EXTENSIONS
from sublet.messaging.reconciling import logs
from sublet.messaging.reconciling.logs import go_on_at
from sublet.protocol.ezagent.bundle import Bundle, RecordKind
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.reconciliation import LogAsked, LogsAsked
from support.reconciled import reconcile
from support.rooms import peers, shared_room


def test_an_answer_ends_after_its_bound_and_is_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_TOLD_BYTES", 3_000)
    alice, bob = peers("alice", "bob", declarations=(*BUILT_INS, *EXTENSIONS))
    room = shared_room(alice, bob)
    for number in range(20):
        ref = alice.do("message.send", room_id=room, body=str(number))["ref_id"]
        alice.do("mutable.update", room_id=room, ref_id=ref, body=f"edited {number}")
    alice.published()
    reconcile(bob, alice, room)
    assert bob.store.tree.root(room).same(alice.store.tree.root(room))
    assert bob.bodies(room) == [f"edited {number}" for number in range(20)]


@pytest.mark.parametrize("raw", [b"", b"\0", b"\0\1", b"\xff\xff", b"\0\0\0"])
def test_an_answer_goes_on_only_with_what_was_asked_for(raw: bytes) -> None:
    asked = LogsAsked(bytes(8), (LogAsked(bytes(16)),))
    with pytest.raises(Refused):
        go_on_at(Bundle(((RecordKind.GO_ON, raw),)), asked)
    assert go_on_at(Bundle(((RecordKind.GO_ON, b"\0\0"),)), asked) == 0
    assert go_on_at(Bundle(()), asked) == 1
