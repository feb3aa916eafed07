"""What the core of a room's keys decides, case by case."""

from __future__ import annotations

from dataclasses import replace

import pytest
from nacl.public import PrivateKey
from nacl.signing import SigningKey

from sublet.protocol.ezagent.sealing import choosing, core
from sublet.protocol.ezagent.sealing.core import ASK_MS, WITHHELD_MS
from sublet.protocol.ezagent.sealing.events import Complaint, DeviceRenewed, TimePassed
from sublet.protocol.ezagent.sealing.state import History, OwnDevice, Phase
from sublet.protocol.ezagent.sealing.statements import EpochName, Kind, commit, make_statement
from sublet.protocol.ezagent.sealing.wire import NO_ID
from support.sealed_rooms import Peer, room_of, said_by, settle

PLANTED = b"the planted words"
SECONDS_UNTIL_WITHHELD = WITHHELD_MS // 1_000 + 5


def read_by(writer: Peer, reader: Peer) -> bytes | None:
    sealed = writer.writes(PLANTED)
    assert sealed is not None
    assert PLANTED not in sealed.raw
    return reader.reads(sealed)


def test_a_room_begins_with_an_epoch_of_who_has_opened_it() -> None:
    alice, bob = room_of("@alice:a", "@bob:b")
    assert [one.kind for one in alice.said] == [Kind.OPENED]
    assert bob.said == []
    assert read_by(alice, bob) == read_by(bob, alice) == PLANTED


def test_nothing_is_written_before_there_is_an_epoch_and_nothing_by_who_is_outside() -> None:
    alice, bob = Peer(1, "@alice:a"), Peer(2, "@bob:b")
    assert alice.phase() is Phase.OUTSIDE
    alice.roster([alice, bob])
    assert alice.phase() is Phase.DUE
    assert alice.writes(b"") is None
    alice.roster([bob])
    assert alice.phase() is Phase.OUTSIDE
    settle([alice])
    assert alice.said == []


def test_whoever_is_away_is_waited_for_no_longer_than_its_turns() -> None:
    alice, bob, carol = (Peer(seed, name) for seed, name in enumerate(("@alice:a", "@bob:b", "@carol:c"), 1))
    for peer in (alice, bob, carol):
        peer.roster([alice, bob, carol])
    settle([carol], seconds=5)
    assert carol.phase() is Phase.READY
    settle([alice, bob, carol], seconds=5)
    assert len({peer.state.current for peer in (alice, bob, carol)}) == 1


def test_from_the_step_that_removes_somebody_nothing_is_sealed_under_a_key_of_theirs() -> None:
    alice, bob, carol = room_of("@alice:a", "@bob:b", "@carol:c")
    for peer in (alice, bob):
        peer.roster([alice, bob], by_us=peer is alice)
        assert peer.phase() is Phase.DUE
        assert peer.writes(b"") is None
    settle([alice, bob], [alice, bob, carol], seconds=5)
    sealed = bob.writes(PLANTED)
    assert sealed is not None
    assert alice.reads(sealed) == PLANTED
    assert carol.reads(sealed) is None


def test_two_epochs_that_begin_at_the_same_time_come_to_one() -> None:
    alice, bob, carol = room_of("@alice:a", "@bob:b", "@carol:c")
    for peer in (alice, bob):
        peer.roster([alice, bob], by_us=True)
        peer.looks()
    assert alice.state.current != bob.state.current
    of_alice, of_bob = alice.writes(b"1"), bob.writes(b"2")
    settle([alice, bob], seconds=3)
    assert (
        alice.state.current
        == bob.state.current
        == max(alice.state.keys, key=lambda id: (alice.state.epochs[id].name.number, id))
    )
    assert of_alice is not None
    assert of_bob is not None
    assert (bob.reads(of_alice), alice.reads(of_bob)) == (b"1", b"2")
    assert carol.phase() is Phase.READY, "which has not heard of it"


def test_two_that_remove_two_at_the_same_time_begin_a_third_epoch() -> None:
    alice, bob, carol, dora = peers = room_of("@alice:a", "@bob:b", "@carol:c", "@dora:d")
    alice.roster([alice, bob, carol], by_us=True)
    bob.roster([alice, bob, dora], by_us=True)
    alice.looks()
    bob.looks()
    for peer in (alice, bob):
        peer.hears(said_by(peers))
        peer.roster([alice, bob])
        assert peer.phase() is Phase.DUE
    settle([alice, bob], peers, seconds=10)
    sealed = alice.writes(PLANTED)
    assert sealed is not None
    assert [peer.reads(sealed) for peer in peers] == [PLANTED, PLANTED, None, None]


@pytest.mark.parametrize(("history", "reads"), [(History.SHARED, PLANTED), (History.SINCE_JOINED, None)])
def test_a_new_member_reads_of_the_time_before_what_the_room_gives_it(history: History, reads: bytes | None) -> None:
    alice, bob = room_of("@alice:a", "@bob:b")
    before = alice.writes(PLANTED)
    assert before is not None
    carol = Peer(3, "@carol:c", now_ms=alice.now_ms)
    for peer in (alice, bob, carol):
        peer.roster([alice, bob, carol], by_us=peer is alice, history=history)
    settle([alice, bob, carol])
    assert read_by(alice, carol) == read_by(carol, bob) == PLANTED
    assert carol.reads(before) == reads


@pytest.mark.parametrize("history", list(History))
def test_another_device_of_a_member_reads_what_that_member_reads(history: History) -> None:
    alice, bob = room_of("@alice:a", "@bob:b")
    before = alice.writes(PLANTED)
    assert before is not None
    phone = Peer(3, "@bob:b", now_ms=alice.now_ms)
    for peer in (alice, bob, phone):
        peer.roster([alice, bob, phone], history=history)
    settle([alice, bob, phone])
    assert phone.reads(before) == PLANTED
    assert len(phone.state.keys) == 1
    assert len([one for one in said_by([alice, bob, phone]) if one.kind is Kind.HANDED]) == 1


def test_who_holds_a_key_hands_it_on_where_the_first_in_turn_is_away() -> None:
    alice, bob, carol = room_of("@alice:a", "@bob:b", "@carol:c")
    dora = Peer(4, "@dora:d", now_ms=alice.now_ms)
    for peer in (alice, bob, carol, dora):
        peer.roster([alice, bob, carol, dora])
    settle([carol, dora], seconds=choosing.MAX_TURNS + 2)
    assert read_by(carol, dora) == PLANTED


def omitting(hostile: Peer, victim: Peer, others: list[Peer], key: bytes) -> None:
    """Let a hostile member begin an epoch without a box for one of the others."""
    last = choosing.last_opened(hostile.state.epochs)
    assert last is not None
    name = EpochName(last.name.room, last.name.number + 1, last.name.id, hostile.id, commit(key))
    boxes = {peer.id: peer.member.seal_key for peer in others if peer is not victim}
    hostile.said.append(make_statement(Kind.OPENED, name, hostile.state.own.signing, key, boxes))
    hostile.hears(hostile.said)


def test_a_key_that_a_member_withholds_is_handed_over_by_another() -> None:
    alice, bob, mallory = peers = room_of("@alice:a", "@bob:b", "@mallory:m")
    omitting(mallory, alice, peers, b"\1" * 32)
    alice.hears(mallory.said)
    assert alice.phase() is Phase.LACKING
    assert alice.writes(b"") is None
    settle(peers, seconds=12)
    assert alice.phase() is Phase.READY
    assert read_by(bob, alice) == PLANTED
    assert alice.complaints() == set()


def test_where_everybody_withholds_a_key_that_is_told_and_another_epoch_begins() -> None:
    alice, mallory = room_of("@alice:a", "@mallory:m")
    omitting(mallory, alice, [alice, mallory], b"\1" * 32)
    settle([alice], seconds=1)
    alice.hears(mallory.said)
    settle([alice], seconds=ASK_MS // 1_000 + 2)
    assert [one.kind for one in alice.said][-1] is Kind.WANTED
    assert alice.complaints() == set()
    settle([alice], seconds=SECONDS_UNTIL_WITHHELD)
    assert alice.complaints() == {Complaint.WITHHELD}
    assert [tell.device for tell in alice.told] == [mallory.id]
    assert alice.phase() is Phase.READY
    assert read_by(alice, mallory) is None
    mallory.hears(alice.said)
    assert read_by(alice, mallory) == PLANTED


def test_a_box_that_holds_another_key_is_told_and_asked_for_again() -> None:
    alice, bob, mallory = peers = room_of("@alice:a", "@bob:b", "@mallory:m")
    key = b"\2" * 32
    last = choosing.last_opened(mallory.state.epochs)
    assert last is not None
    name = EpochName(last.name.room, 2, last.name.id, mallory.id, commit(key))
    good = make_statement(Kind.OPENED, name, mallory.state.own.signing, key, {p.id: p.member.seal_key for p in peers})
    wrong = make_statement(Kind.OPENED, name, mallory.state.own.signing, b"\3" * 32, {alice.id: alice.member.seal_key})
    boxes = tuple(wrong.boxes[0] if device == alice.id else (device, box) for device, box in good.boxes)
    bare = replace(good, boxes=boxes)
    signed = mallory.state.own.signing.sign(b"sublet/room-key/1\n" + bare.signed()).signature
    mallory.said.append(replace(bare, signature=signed))
    settle(peers, seconds=40)
    assert alice.complaints() == {Complaint.UNOPENABLE}
    assert read_by(bob, alice) == PLANTED
    assert alice.state.current == name.id
    kinds = [(one.kind, one.signer) for one in said_by([alice, bob]) if one.epoch.id == name.id]
    assert sorted(kinds) == sorted([(Kind.WANTED, alice.id), (Kind.HANDED, bob.id), (Kind.HANDED, alice.id)])


def test_what_a_stranger_says_changes_nothing_that_is_written_under() -> None:
    alice, bob = room_of("@alice:a", "@bob:b")
    stranger = Peer(9, "@mallory:m")
    current = alice.state.epochs[alice.state.current or b""].name
    key = b"\4" * 32
    handed = make_statement(
        Kind.HANDED, current, stranger.state.own.signing, key, {stranger.id: stranger.member.seal_key}
    )
    opened = make_statement(
        Kind.OPENED,
        EpochName(current.room, 2, current.id, stranger.id, commit(key)),
        stranger.state.own.signing,
        key,
        {alice.id: alice.member.seal_key},
    )
    alice.hears([handed, opened])
    assert alice.state.current == current.id
    assert alice.phase() is Phase.READY
    del bob


def test_an_epoch_that_goes_on_from_nothing_is_not_written_under() -> None:
    alice, bob = room_of("@alice:a", "@bob:b")
    key = b"\5" * 32
    for number, after in ((9, b"\1" * 16), (9, alice.state.current or b"")):
        name = EpochName(alice.state.room, number, after, bob.id, commit(key))
        boxes = {alice.id: alice.member.seal_key, bob.id: bob.member.seal_key}
        alice.hears([make_statement(Kind.OPENED, name, bob.state.own.signing, key, boxes)])
        assert alice.state.epochs[alice.state.current or b""].name.number == 1


def test_statements_of_another_room_are_left_out() -> None:
    alice, bob = room_of("@alice:a", "@bob:b")
    name = EpochName("01957a3b-0000-7000-8000-000000000006", 1, NO_ID, bob.id, commit(b"\6" * 32))
    before = alice.state
    alice.hears(
        [make_statement(Kind.OPENED, name, bob.state.own.signing, b"\6" * 32, {alice.id: alice.member.seal_key})]
    )
    assert alice.state == before


def test_one_device_opens_so_many_epochs_and_then_others_have_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "MAX_EPOCHS_OF_DEVICE", 2)
    alice, bob, carol = room_of("@alice:a", "@bob:b", "@carol:c")
    alice.roster([alice, bob], by_us=True)
    settle([alice], seconds=2)
    assert alice.phase() is Phase.READY
    alice.roster([bob, alice, Peer(7, "@dora:d")])
    alice.roster([alice, carol], by_us=True)
    settle([alice], seconds=30)
    assert alice.phase() is Phase.DUE
    assert alice.writes(b"") is None


def test_nothing_is_known_of_more_epochs_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "MAX_EPOCHS", 3)
    alice, bob = room_of("@alice:a", "@bob:b")
    for number in range(2, 9):
        name = EpochName(alice.state.room, number, bytes([number]) * 16, bob.id, commit(bytes([number]) * 32))
        alice.hears([make_statement(Kind.WANTED, name, bob.state.own.signing)])
    assert len(alice.state.epochs) == 3


def test_keys_that_are_forgotten_do_not_come_back_and_the_one_in_use_stays() -> None:
    alice, bob, carol = peers = room_of("@alice:a", "@bob:b", "@carol:c")
    before = alice.writes(PLANTED)
    assert before is not None
    for peer in (alice, bob):
        peer.roster([alice, bob], by_us=peer is alice)
    settle([alice, bob], seconds=5)
    bob.forgets(9)
    assert bob.reads(before) is None
    assert read_by(alice, bob) == PLANTED
    bob.heard.clear()
    bob.hears(said_by(peers))
    assert bob.reads(before) is None
    del carol


def test_a_device_with_another_sealing_key_is_handed_what_it_could_not_open() -> None:
    alice, bob = room_of("@alice:a", "@bob:b")
    new = OwnDevice(bob.state.own.signing, (PrivateKey(b"\x21" * 32),))
    late = Peer(2, "@bob:b", now_ms=alice.now_ms)
    late.do(DeviceRenewed(new))
    for peer in (alice, late):
        peer.roster([alice, late])
    settle([alice, late], seconds=30)
    assert Complaint.UNOPENABLE in late.complaints()
    assert read_by(alice, late) == PLANTED


def test_events_without_news_change_nothing() -> None:
    alice, bob = room_of("@alice:a", "@bob:b")
    before = alice.state
    alice.roster([alice, bob])
    alice.heard.clear()
    alice.wake_ms = None
    alice.hears(said_by([alice, bob]))
    assert alice.state is before
    assert alice.wake_ms is None
    outside = Peer(5, "@eve:e")
    assert core.step(outside.state, TimePassed(b"\1" * 32), 0) == (outside.state, ())


def test_secrets_do_not_show_where_a_state_is_printed() -> None:
    alice, _ = room_of("@alice:a", "@bob:b")
    key = next(iter(alice.state.keys.values()))
    assert repr(key) not in repr(alice.state)
    assert key.hex() not in repr(alice.state)
    assert repr(bytes(SigningKey(b"\1" * 32))) not in repr(alice.state)


def test_of_many_removals_some_are_told_with_each_epoch_until_all_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "MAX_REMOVALS", 4)
    alice, bob = room_of("@alice:a", "@bob:b")
    removals = frozenset(bytes([number]) * 16 for number in range(10))
    for peer in (alice, bob):
        peer.roster([alice, bob], by_us=peer is alice, removals=removals)
    settle([alice, bob], seconds=40)
    assert alice.phase() is bob.phase() is Phase.READY
    assert alice.state.epochs[alice.state.current or b""].name.number == 4
    assert read_by(alice, bob) == PLANTED


def test_whoever_tells_that_it_has_handed_a_key_to_a_stranger_makes_nobody_begin_another() -> None:
    alice, bob = room_of("@alice:a", "@bob:b")
    stranger = Peer(9, "@eve:e")
    name = alice.state.epochs[alice.state.current or b""].name
    box = {stranger.id: stranger.member.seal_key}
    alice.hears([make_statement(Kind.HANDED, name, bob.state.own.signing, b"\6" * 32, box)])
    assert alice.state.current == name.id


def test_an_epoch_whose_opener_has_not_heard_of_a_removal_is_left() -> None:
    alice, bob, carol = room_of("@alice:a", "@bob:b", "@carol:c")
    dora = Peer(4, "@dora:d")
    alice.roster([alice, bob, carol], removals=frozenset({b"\1" * 16}))  # of somebody who never had a key
    assert alice.phase() is Phase.DUE
    bob.roster([alice, bob, carol, dora])  # who has not heard that dora is gone again
    settle([alice], [alice, bob, carol, dora], seconds=10)
    settle([bob, dora], [alice, bob, carol, dora], seconds=30)
    sealed = alice.writes(PLANTED)
    assert sealed is not None
    assert bob.reads(sealed) == PLANTED
    assert dora.reads(sealed) is None
