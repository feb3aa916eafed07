"""What is purged is gone from every store, does not return, and leaves equal members equal; without a network."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from sublet.messaging.accepting.arrival import Arrival
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.delivery.receipts import receipts_of
from sublet.messaging.extensions import EXTENSIONS, media
from sublet.messaging.purging.purges import NAMED_FILES, PURGED_EVENT, REFUSED_EVENT
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.envelope import seal
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.yjs.encode import Transaction
from sublet.protocol.times import rfc3339_of_ms
from support.reconciled import reconcile
from support.rooms import NOW_MS, Peer, shared_room

ALL = (*BUILT_INS, *EXTENSIONS)
SECRET = "the horse is called Xenophon, and nobody may know"


def three(tmp_path: Path | None = None) -> tuple[Peer, Peer, Peer, str]:
    alice, bob, carol = (
        Peer(name, 1000 + number, path=tmp_path / f"{name}.db" if tmp_path else None, declarations=ALL)
        for number, name in enumerate(("alice", "bob", "carol"))
    )
    for peer in (alice, bob, carol):
        peer.meet(*(other for other in (alice, bob, carol) if other is not peer))
    return alice, bob, carol, shared_room(alice, bob, carol)


def hear(peer: Peer, *others: Peer) -> None:
    """Let others hear what a peer has published, and do what is due."""
    out = peer.published()
    for other in others:
        other.hear(out)
        other.engine.commit()


def send(peer: Peer, room: str, body: str = SECRET, **more: Any) -> str:
    return str(peer.do("message.send", room_id=room, body=body, **more)["ref_id"])


def purge(peer: Peer, room: str, ref: str, **more: Any) -> Any:
    return peer.do("purge.message", room_id=room, ref_id=ref, **more)


def shown(peer: Peer, room: str, ref: str) -> dict[str, Any]:
    found: dict[str, Any] = peer.do("timeline.get_ref", room_id=room, ref_id=ref)
    return found


def root(peer: Peer, room: str) -> tuple[int, int]:
    node = peer.store.tree.root(room)
    return node.count, node.digest


def assert_gone(peer: Peer, room: str, ref: str, *texts: str) -> None:
    found = shown(peer, room, ref)
    assert (found["body"], found["content"], found["purged"]["what"]) == (None, None, "message"), peer.name
    dump = "\n".join(repr(row) for row in all_rows(peer))
    for text in texts or (SECRET,):
        assert text not in dump, (peer.name, text)


def all_rows(peer: Peer) -> list[object]:
    db = peer.store._db
    while peer.engine.purges.erase_some():
        pass
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return [row for table in tables for row in db.execute(f'SELECT * FROM "{table}"').fetchall()]


def meet_all(room: str, *members: Peer) -> None:
    """Let all members reconcile until nothing differs."""
    for _ in range(4):
        for one in members:
            for other in members:
                if one is not other:
                    reconcile(one, other, room)
                    one.engine.commit()
    assert len({root(peer, room) for peer in members}) == 1


def test_what_its_author_purges_is_gone_everywhere_and_from_who_was_away() -> None:
    alice, bob, carol, room = three()
    ref = send(bob, room)
    hear(bob, alice, carol)
    assert purge(bob, room, ref) == {"changed": True, "kept_files": []}
    hear(bob, alice)
    assert_gone(alice, room, ref)
    assert_gone(bob, room, ref)
    assert shown(carol, room, ref)["body"] == SECRET
    reconcile(carol, alice, room)
    carol.engine.commit()
    assert_gone(carol, room, ref)
    meet_all(room, alice, bob, carol)
    assert [event.data["by"] for event in carol.engine.events.since(0) if event.kind == PURGED_EVENT] == [bob.id]
    assert purge(bob, room, ref) == {"changed": False, "kept_files": []}


def test_an_owner_purges_the_message_of_another_and_nobody_else_does() -> None:
    alice, bob, carol, room = three()
    ref = send(bob, room)
    hear(bob, alice, carol)
    with pytest.raises(SubletError, match="only its author or an owner"):
        purge(carol, room, ref)
    purge(alice, room, ref)
    hear(alice, bob, carol)
    for peer in (alice, bob, carol):
        assert_gone(peer, room, ref)
        assert shown(peer, room, ref)["purged"]["by"] == alice.id


def tombstone(peer: Peer, room: str, ref: str, what: str = "message", value: object = None, more: int = 0) -> Arrival:
    """Return what a member signs who asks nobody whether they may."""
    name = doc_id("purge", room_id=room, ref_id=ref)
    transaction = Transaction(peer.client + 0, 0)
    at = rfc3339_of_ms(NOW_MS) if value is None else value
    transaction.set_key("purge", what, None, at)  # type: ignore[arg-type]  # hostile values too
    for number in range(more):
        transaction.set_key("purge", "files", None, rfc3339_of_ms(NOW_MS + number))
    return Arrival(seal(peer.entity.key, peer.id, name, NOW_MS, transaction.encode()).raw)


def take(peer: Peer, *arrivals: Arrival) -> None:
    peer.engine.intake.take(list(arrivals))
    peer.engine.commit()


def test_a_tombstone_of_who_may_not_takes_nothing_and_is_told_once() -> None:
    alice, bob, carol, room = three()
    refs = [send(bob, room, f"{SECRET} {number}") for number in range(3)]
    hear(bob, alice, carol)
    for ref in refs:
        take(alice, tombstone(carol, room, ref))
    assert [shown(alice, room, ref)["body"] for ref in refs] == [f"{SECRET} {number}" for number in range(3)]
    told = [event.data for event in alice.engine.events.since(0) if event.kind == REFUSED_EVENT]
    assert told == [{"room_id": room, "ref_id": refs[0], "by": carol.id}]


def test_a_member_who_is_removed_after_a_forged_tombstone_has_purged_nothing() -> None:
    alice, bob, carol, room = three()
    ref = send(bob, room)
    hear(bob, alice, carol)
    take(alice, tombstone(carol, room, ref))
    alice.do("room.kick", room_id=room, entity=carol.id)  # which has seen the tombstone
    assert shown(alice, room, ref)["body"] == SECRET


@pytest.mark.parametrize(
    ("what", "value", "more"),
    [("message", "soon", 0), ("message", {"a": 1}, 0), ("everything", None, 0), ("message", None, 9)],
)
def test_a_tombstone_of_another_form_is_refused(what: str, value: object, more: int) -> None:
    alice, bob, _, room = three()
    ref = send(bob, room)
    hear(bob, alice)
    before = root(alice, room)
    take(alice, tombstone(bob, room, ref, what, value, more))
    assert shown(alice, room, ref)["body"] == SECRET
    assert root(alice, room) == before
    assert alice.refused() == {"wrong_shape": 1}


def test_what_comes_later_than_its_tombstone_is_not_kept() -> None:
    alice, bob, carol, room = three()
    ref = send(bob, room)
    sent = bob.published()
    purge(bob, room, ref)
    hear(bob, alice)
    alice.hear(sent)
    alice.engine.commit()
    assert_gone(alice, room, ref)
    alice.hear(sent)  # once more, with the content beside it
    alice.engine.commit()
    assert_gone(alice, room, ref)
    carol.hear(sent)
    meet_all(room, alice, bob, carol)
    assert_gone(carol, room, ref)


def test_all_versions_of_an_edited_message_go_and_do_not_return() -> None:
    alice, bob, carol, room = three()
    ref = send(bob, room, "first Xenophon one")
    bob.do("mutable.update", room_id=room, ref_id=ref, body="second Xenophon two")
    bob.do("mutable.update", room_id=room, ref_id=ref, body="third Xenophon three")
    sent = bob.published()
    for peer in (alice, carol):
        peer.hear(sent)
        peer.engine.commit()
    assert shown(carol, room, ref)["body"] == "third Xenophon three"
    alice.do("room.list")
    purge(alice, room, ref)
    hear(alice, bob)
    before = alice.store.tree.root(room).clocks
    for peer in (alice, bob):
        assert_gone(peer, room, ref, "Xenophon")
        peer.hear(sent)  # what somebody who was away has still
        peer.engine.commit()
        assert_gone(peer, room, ref, "Xenophon")
    assert alice.store.tree.root(room).clocks >= before
    for one, other in ((alice, carol), (bob, carol)):  # who has not heard of it yet
        reconcile(one, other, room)
        one.engine.commit()
        assert_gone(one, room, ref, "Xenophon")
    meet_all(room, alice, bob, carol)
    assert_gone(carol, room, ref, "Xenophon")
    with pytest.raises(SubletError, match="purged"):
        bob.do("mutable.update", room_id=room, ref_id=ref, body="Xenophon again")


def test_an_edit_that_did_not_know_of_the_tombstone_goes_as_well() -> None:
    alice, bob, carol, room = three()
    ref = send(bob, room)
    hear(bob, alice, carol)
    purge(alice, room, ref)
    bob.do("mutable.update", room_id=room, ref_id=ref, body="Xenophon it is")
    edited = bob.published()
    hear(alice, bob, carol)
    for peer in (alice, carol):
        peer.hear(edited)
        peer.engine.commit()
    meet_all(room, alice, bob, carol)
    for peer in (alice, bob, carol):
        assert_gone(peer, room, ref, "Xenophon")


def test_a_root_says_no_less_than_before_and_nobody_is_said_to_have_gone_back() -> None:
    alice, bob, carol, room = three()
    ref = send(bob, room, "Xenophon")
    for number in range(5):
        bob.do("mutable.update", room_id=room, ref_id=ref, body=f"Xenophon {number}")
    hear(bob, alice, carol)
    meet_all(room, alice, bob, carol)
    purge(bob, room, ref)
    hear(bob, alice, carol)
    for peer in (alice, bob, carol):
        peer.clock.now_ms += 1_000
    meet_all(room, alice, bob, carol)
    assert not [kind for peer in (alice, bob, carol) for kind in peer.kinds() if kind == "room.rolled_back"]


def test_a_purge_of_somebody_who_was_removed_meanwhile_gives_back_what_members_have() -> None:
    alice, bob, carol, room = three()
    ref = send(bob, room)
    edited = send(bob, room, "Xenophon")
    bob.do("mutable.update", room_id=room, ref_id=edited, body="Xenophon again")
    hear(bob, alice, carol)
    purge(bob, room, edited)
    late = bob.published()
    alice.do("room.kick", room_id=room, entity=bob.id)  # has not seen the tombstone
    kick = alice.published()
    carol.hear(late)
    carol.engine.commit()
    assert_gone(carol, room, edited, "Xenophon again")
    carol.hear(kick)
    carol.engine.commit()
    assert "purged" not in shown(carol, room, edited)
    meet_all(room, alice, carol)
    assert shown(alice, room, edited)["body"] == shown(carol, room, edited)["body"] == "Xenophon again"
    assert shown(carol, room, ref)["body"] == SECRET


def test_an_owner_who_is_made_a_member_later_has_purged_what_they_purged() -> None:
    alice, bob, carol, room = three()
    alice.do("room.invite", room_id=room, entity=bob.id, role="owner")
    hear(alice, bob, carol)
    ref = send(carol, room)
    hear(carol, alice, bob)
    purge(bob, room, ref)
    hear(bob, alice, carol)
    assert_gone(alice, room, ref)
    bob.do("room.invite", room_id=room, entity=bob.id, role="member")
    hear(bob, alice, carol)
    for peer in (alice, bob, carol):
        assert peer.engine.rooms.state(room).role(bob.id) == "member"
        assert_gone(peer, room, ref)
    with pytest.raises(SubletError, match="only its author or an owner"):
        purge(bob, room, send_by(alice, room, bob))
    meet_all(room, alice, bob, carol)


def send_by(author: Peer, room: str, *others: Peer) -> str:
    ref = send(author, room, "another one")
    hear(author, *others)
    return ref


def test_nobody_takes_away_what_another_wrote_by_naming_it() -> None:
    alice, bob, carol, room = three()
    ref = send(bob, room)
    hear(bob, alice, carol)
    content = shown(carol, room, ref)["content_id"]
    name = carol.engine.shards.for_new_ref(room)
    mine = carol.engine.writing.append(carol.id, name, {"content_type": "immutable", "content_id": content})["ref_id"]
    carol.engine.commit()
    purge(carol, room, mine)
    hear(carol, alice, bob)
    for peer in (alice, bob, carol):
        assert shown(peer, room, ref)["body"] == SECRET
        assert shown(peer, room, mine)["purged"]


def test_who_answers_and_quotes_what_is_gone_sees_that_it_is() -> None:
    alice, bob, carol, room = three()
    other = alice.do("room.create", name="other", invite=[bob.id])["room_id"]
    bob.engine.here.want(other)
    hear(alice, bob, carol)
    ref = send(bob, room)
    answer = send(bob, room, "so it is", ext={"reply_to": ref})
    quote = send(bob, other, "see there", ext={"reply_to": {"ref_id": ref, "room_id": room}})
    hear(bob, alice, carol)
    assert SECRET in repr(shown(alice, other, quote))
    purge(bob, room, ref)
    hear(bob, alice, carol)
    assert SECRET not in repr(shown(alice, other, quote))
    assert SECRET not in repr(shown(alice, room, answer))
    assert_gone(alice, room, ref)
    assert shown(alice, room, answer)["body"] == "so it is"


def test_what_was_begun_to_be_written_goes_with_what_was_sent() -> None:
    alice, bob, carol, room = three()
    bob.do("drafts.save", room_id=room, body=SECRET[:-3])
    bob.do("drafts.save", room_id=room, body=SECRET)
    ref = send(bob, room)
    hear(bob, alice, carol)
    purge(bob, room, ref)
    assert_gone(bob, room, ref, SECRET[:-3])
    bob.do("drafts.save", room_id=room, body="a new one")
    assert bob.do("drafts.load", room_id=room)["body"] == "a new one"


def test_a_message_that_is_found_by_its_words_is_found_no_more() -> None:
    alice, bob, carol, room = three()
    ref = send(bob, room)
    hear(bob, alice, carol)
    with alice.store.transaction():
        alice.store.search.put(1, ref, SECRET, "0")
    assert alice.store.search.find(["Xenophon"], [room], 5, None)
    purge(bob, room, ref)
    hear(bob, alice, carol)
    assert not alice.store.search.find(["Xenophon"], [room], 5, None)
    while alice.store.search.tidy():
        pass
    assert_gone(alice, room, ref, SECRET, "xenophon")


def test_tombstones_of_one_daemon_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("quotas.quotas", "builtins.purge"):
        monkeypatch.setattr(f"sublet.messaging.{place}.MAX_TOMBSTONES_OF_DAEMON", 3)
    alice, bob, _, room = three()
    refs = [send(bob, room, f"{SECRET} {number}") for number in range(5)]
    hear(bob, alice)
    for ref in refs[:3]:
        purge(bob, room, ref)
    with pytest.raises(SubletError, match="all that others take"):
        purge(bob, room, refs[3])
    hear(bob, alice)
    take(alice, tombstone(bob, room, refs[3]))
    assert shown(alice, room, refs[3])["body"] == f"{SECRET} 3"
    assert alice.refused() == {"quota": 1}
    purge(alice, room, refs[4])
    assert_gone(alice, room, refs[4], f"{SECRET} 4")


def test_what_older_messages_came_with_is_known_by_reading_them_once() -> None:
    """As with messages of before it was noted which of them name a file."""
    alice, bob, carol, room = three()
    digest = upload(bob, room)
    first = send(bob, room, "one", ext={"media": digest})
    other = send(bob, room, "two", ext={"media": digest})
    hear(bob, alice, carol)
    for peer in (alice, bob, carol):
        with peer.store.transaction():
            for entry in peer.store.scan_index(NAMED_FILES, f"{room}/{digest.removeprefix('sha256:')}", 9):
                peer.store.drop_index(NAMED_FILES, entry.key, entry.rank)
            peer.store.drop_index(NAMED_FILES, room, "")
    assert purge(bob, room, first, files=True) == {"changed": True, "kept_files": [digest.removeprefix("sha256:")]}
    hear(bob, alice, carol)
    assert alice.do("media.list", room_id=room)
    assert shown(alice, room, first)["body"] == "one"
    assert "ext.media" not in shown(alice, room, first)
    purge(bob, room, other)
    hear(bob, alice, carol)
    for peer in (alice, bob, carol):
        assert peer.do("media.list", room_id=room) == []
    meet_all(room, alice, bob, carol)


def upload(peer: Peer, room: str) -> str:
    context = OperationContext(peer.engine.operating, peer.id)
    digest = str(media._keep(context, room, SECRET.encode(), "text/plain", "plan.txt")["blob_hash"])
    peer.engine.commit()
    return digest


def test_a_file_that_is_named_again_by_somebody_who_did_not_know_comes_back() -> None:
    alice, bob, carol, room = three()
    digest = upload(bob, room)
    ref = send(bob, room, "one", ext={"media": digest})
    hear(bob, alice, carol)
    again = send(carol, room, "see there", ext={"media": digest})
    purge(bob, room, ref)
    assert bob.do("media.list", room_id=room) == []
    hear(bob, alice)
    hear(carol, alice, bob)
    meet_all(room, alice, bob, carol)
    for peer in (alice, bob, carol):
        assert [one["blob_hash"] for one in peer.do("media.list", room_id=room)] == [digest]
        assert shown(peer, room, again)["ext.media"]["blob_hash"] == digest


def test_a_store_of_before_loses_it_again(tmp_path: Path) -> None:
    alice, bob, carol, room = three(tmp_path)
    ref = send(bob, room)
    hear(bob, alice, carol)
    carol.store.close()
    shutil.copy(tmp_path / "carol.db", tmp_path / "copy.db")
    carol.nonce += 100
    carol.entity = carol.entity.with_another_client()
    carol.open()
    purge(bob, room, ref)
    hear(bob, alice, carol)
    assert_gone(carol, room, ref)
    carol.store.close()
    shutil.copy(tmp_path / "copy.db", tmp_path / "carol.db")
    carol.entity = carol.entity.with_another_client()
    carol.open()
    assert shown(carol, room, ref)["body"] == SECRET
    meet_all(room, alice, bob, carol)
    assert_gone(carol, room, ref)


def test_receipts_of_what_was_purged_say_so() -> None:
    alice, bob, carol, room = three()
    ref = send(bob, room)
    hear(bob, alice, carol)
    assert not receipts_of(bob.engine, bob.id, room, ref, 1e9).purged
    purge(alice, room, ref)
    hear(alice, bob)
    assert receipts_of(bob.engine, bob.id, room, ref, 1e9).purged
