"""Random histories of a room: members and devices come, go and lie, words arrive late, keys are rotated and deleted.

Whatever happens, those who may read come to write under one key, or are told why not; nobody outside opens anything,
and whoever was removed opens nothing that was written by those who knew it.
"""

from __future__ import annotations

import itertools
import random
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.public import PrivateKey

from sublet.protocol.ezagent.sealing import choosing, shares
from sublet.protocol.ezagent.sealing.envelope import Sealed
from sublet.protocol.ezagent.sealing.events import Complaint, DeviceRenewed, StatementsCame
from sublet.protocol.ezagent.sealing.state import History, OwnDevice, Phase, phase_of
from sublet.protocol.ezagent.sealing.statements import EpochName, KeyStatement, Kind, commit, make_statement
from sublet.protocol.ezagent.sealing.wire import NO_ID
from support.budgets import examples
from support.sealed_rooms import ROOM, Peer, said_by, settle

PLANTED = b"the planted words"


class Story:
    """A room whose devices may be late, away or hostile; the roster is what the room's config would say.

    Args:
        seed: decides what happens.
        hostile: entity whose devices leave somebody out of the epochs that they begin.
    """

    def __init__(self, seed: int, hostile: str | None = None) -> None:
        self.chance = random.Random(seed)
        self.history = self.chance.choice(list(History))
        self.peers = [Peer(number, f"@{'abcdefgh'[number // 2]}:x") for number in range(1, 9)]
        self.members = self.peers[: self.chance.randint(2, 4)]
        self.hostile = hostile
        self.version = 0
        self.seen: dict[int, int] = {}
        """Version of the roster that each peer knows, by seed."""
        self.rosters = [list(self.members)]
        self.written: list[tuple[Sealed, frozenset[bytes]]] = []
        """What was written, and who might read by the roster that its writer knew."""
        for peer in self.members:
            self._learns(peer)
        settle(self.members, self.peers, seconds=12)

    def _learns(self, peer: Peer) -> None:
        self.seen[peer.seed] = self.version
        known = self.rosters[: self.version + 1]
        gone = (
            (number, before)
            for number, (earlier, later) in enumerate(itertools.pairwise(known))
            for before in earlier
            if before not in later
        )
        removals = frozenset(bytes([number, one.seed]) * 8 for number, one in gone)
        peer.roster(known[-1], by_us=self.chance.random() < 0.3, history=self.history, removals=removals)

    def changes(self) -> None:
        """Let somebody come or go, whom some hear of now."""
        leaves = [peer for peer in self.members if len(self.members) > 2]
        comes = [peer for peer in self.peers if peer not in self.members]
        if leaves and (not comes or self.chance.random() < 0.5):
            self.members.remove(self.chance.choice(leaves))
        elif comes:
            self.members.append(self.chance.choice(comes))
        self.rosters.append(list(self.members))
        self.version += 1
        for peer in self.chance.sample(self.peers, self.chance.randint(1, len(self.peers))):
            self._learns(peer)

    def writes(self) -> None:
        writer = self.chance.choice(self.peers)
        sealed = writer.writes(PLANTED)
        if sealed is not None:
            assert PLANTED not in sealed.raw
            roster = self.rosters[self.seen[writer.seed]]
            self.written.append((sealed, frozenset(peer.id for peer in roster)))

    def talks(self) -> None:
        """Let some time pass, in which some hear some of what was said."""
        for peer in self.chance.sample(self.peers, 4):
            peer.now_ms += self.chance.choice([100, 1_000, 5_000])
            peer.looks()
            said = said_by(self.peers)
            self.chance.shuffle(said)
            peer.hears(said[: self.chance.randint(0, len(said))])

    def lies(self) -> None:
        """Let a hostile member begin an epoch that somebody is left out of, or handed garbage for."""
        liars = [peer for peer in self.members if peer.entity == self.hostile and peer.phase() is Phase.READY]
        for peer in liars[:1]:
            last = choosing.last_opened(peer.state.epochs)
            assert last is not None
            key = self.chance.randbytes(32)
            name = EpochName(last.name.room, last.name.number + 1, last.name.id, peer.id, commit(key))
            known = {one.id: one.member.seal_key for one in self.rosters[self.seen[peer.seed]]}
            left_out = self.chance.sample(sorted(known), self.chance.randint(0, len(known) - 1))
            boxes = {device: seal_key for device, seal_key in known.items() if device not in left_out}
            said = make_statement(Kind.OPENED, name, peer.state.own.signing, key, boxes)
            garbage = make_statement(
                Kind.HANDED, name, peer.state.own.signing, bytes(32), {device: known[device] for device in left_out[:1]}
            )
            peer.said += [said, garbage] if left_out else [said]
            peer.hears(peer.said)

    def goes_on(self, steps: int) -> None:
        for _ in range(steps):
            self.chance.choice([self.changes, self.writes, self.writes, self.talks, self.talks, self.lies])()

    def ends(self) -> None:
        """Let everybody who is a member hear everything, and time pass."""
        for peer in self.peers:
            peer.now_ms = max(one.now_ms for one in self.peers)
        for peer in self.peers:
            self._learns(peer)
        settle(self.members, self.peers)


def agree(peers: list[Peer]) -> bool:
    return len({peer.state.current for peer in peers}) == 1 and all(peer.phase() is Phase.READY for peer in peers)


@settings(max_examples=examples(60))
@given(st.integers(0, 1 << 32), st.integers(1, 30))
def test_honest_members_come_to_one_key_and_nobody_is_accused(seed: int, steps: int) -> None:
    story = Story(seed)
    story.goes_on(steps)
    story.ends()
    assert agree(story.members), [peer.phase() for peer in story.members]
    for writer in story.members:
        sealed = writer.writes(PLANTED)
        assert sealed is not None
        assert [peer for peer in story.peers if peer.reads(sealed) == PLANTED] == [
            peer for peer in story.peers if peer in story.members
        ]
    assert all(not peer.complaints() for peer in story.peers)


@settings(max_examples=examples(60))
@given(st.integers(0, 1 << 32), st.integers(1, 30))
def test_who_was_removed_opens_nothing_that_was_written_by_who_knew_it(seed: int, steps: int) -> None:
    story = Story(seed)
    story.goes_on(steps)
    gone = story.chance.choice(story.members)
    stays = [peer for peer in story.members if peer is not gone] or [story.peers[0]]
    story.members = stays
    story.rosters.append(list(stays))
    story.version += 1
    after: list[Sealed] = []
    for peer in story.chance.sample(stays, len(stays)):  # one after the other learns of it, and all go on writing
        story._learns(peer)
        for _ in range(3):
            story.talks()
            after += [
                sealed
                for one in stays
                if story.seen.get(one.seed) == story.version and (sealed := one.writes(PLANTED)) is not None
            ]
    settle(stays, story.peers)
    after += [sealed for one in stays if (sealed := one.writes(PLANTED)) is not None]
    assert after
    gone.hears(said_by(story.peers))
    assert all(gone.reads(sealed) is None for sealed in after)
    assert all(one.reads(after[-1]) == PLANTED for one in stays)


@settings(max_examples=examples(60))
@given(st.integers(0, 1 << 32), st.integers(4, 30))
def test_a_hostile_member_holds_nobody_up_that_is_not_told(seed: int, steps: int) -> None:
    story = Story(seed, hostile="@a:x")
    story.goes_on(steps)
    story.ends()
    honest = [peer for peer in story.members if peer.entity != "@a:x"]
    if not honest:
        return
    for peer in honest:
        assert peer.phase() is Phase.READY or Complaint.WITHHELD in peer.complaints()
    current = {peer.state.current for peer in honest if peer.phase() is Phase.READY}
    assert len(current) <= 1
    accused = {tell.device for peer in honest for tell in peer.told}
    assert accused <= {peer.id for peer in story.peers if peer.entity == "@a:x"}


@settings(max_examples=examples(40))
@given(st.integers(0, 1 << 32), st.integers(1, 20))
def test_whoever_steals_a_device_reads_nothing_of_before_its_keys_were_rotated_and_deleted(
    seed: int, steps: int
) -> None:
    story = Story(seed)
    story.goes_on(steps)
    story.ends()
    victim = story.chance.choice(story.members)
    recorded = [sealed for sealed, _ in story.written]
    of_before = {sealed.header.epoch for sealed in recorded}
    # The device gets another sealing key, the room another epoch, and the old keys are deleted.
    renewed = OwnDevice(victim.state.own.signing, (PrivateKey(story.chance.randbytes(32)),))
    victim.do(DeviceRenewed(renewed))
    other = next((peer for peer in story.peers if peer not in story.members), None)
    story.members = [peer for peer in story.members if peer is not other]
    leaver = next(peer for peer in story.members if peer is not victim)
    story.members.remove(leaver)
    story.rosters.append(list(story.members))
    story.version += 1
    story.ends()
    last = choosing.last_opened(victim.state.epochs)
    assert last is not None
    victim.forgets(last.name.number)
    # The thief has all that the device has, and all that ever was said or sealed.
    thief = Peer(victim.seed, victim.entity)
    thief.state = victim.state
    thief.heard.clear()
    thief.hears(said_by(story.peers))
    for sealed in recorded:
        assert thief.reads(sealed) is None or sealed.header.epoch == last.name.id
    assert last.name.id not in of_before
    after = victim.writes(PLANTED)
    assert after is not None
    assert thief.reads(after) == PLANTED


@settings(max_examples=examples(40))
@given(st.integers(0, 1 << 32), st.integers(1, 25))
def test_who_never_was_a_member_opens_nothing(seed: int, steps: int) -> None:
    story = Story(seed)
    story.goes_on(steps)
    story.ends()
    eve = Peer(90, "@eve:x")
    eve.hears(said_by(story.peers))
    eve.roster([*story.members, eve])  # which only she believes
    settle([eve], seconds=80)
    assert all(eve.reads(sealed) is None for sealed, _ in story.written)
    assert eve.state.keys.keys() == {eve.state.current} - {None}


@settings(max_examples=examples(40))
@given(st.integers(0, 1 << 32), st.integers(1, 25))
def test_a_new_member_of_a_room_without_history_opens_nothing_of_before(seed: int, steps: int) -> None:
    story = Story(seed)
    story.history = History.SINCE_JOINED
    story.ends()
    story.goes_on(steps)
    story.ends()
    comes = next((peer for peer in story.peers if not any(peer in roster for roster in story.rosters)), None)
    entities = {peer.entity for roster in story.rosters for peer in roster}
    if comes is None or comes.entity in entities:
        return
    written = [sealed for peer in story.members if (sealed := peer.writes(PLANTED)) is not None]
    story.members.append(comes)
    story.rosters.append(list(story.members))
    story.version += 1
    story.ends()
    assert agree(story.members)
    assert all(comes.reads(sealed) is None for sealed in [*written, *(sealed for sealed, _ in story.written)])


def _anything(chance: random.Random, peers: list[Peer]) -> list[KeyStatement]:
    """Return what some say without sense: epochs that fork, many statements of one, boxes with and without the key."""
    names = [EpochName(ROOM, 1, NO_ID, peers[0].id, commit(bytes(32)))]
    keys = [bytes(32)]
    said: list[KeyStatement] = []
    for _ in range(chance.randint(1, 40)):
        at = chance.randrange(len(names))
        signer = chance.choice(peers)
        kind = chance.choice(list(Kind))
        if kind is Kind.OPENED:
            keys.append(chance.randbytes(32))
            before = names[at]
            names.append(EpochName(ROOM, before.number + 1, before.id, signer.id, commit(keys[-1])))
            at = len(names) - 1
        some = chance.sample(peers, chance.randint(1, len(peers)))
        boxes = {} if kind is Kind.WANTED else {peer.id: peer.member.seal_key for peer in some}
        removals = frozenset(bytes([one]) * 16 for one in range(chance.randint(0, 3)))
        learned = removals if kind is Kind.OPENED else frozenset()
        key = chance.choice([keys[at], bytes(32)])
        said.append(make_statement(kind, names[at], signer.state.own.signing, key, boxes, learned))
    opener = peers[0].state.own.signing
    said.append(
        make_statement(Kind.OPENED, names[0], opener, keys[0], {peer.id: peer.member.seal_key for peer in peers})
    )
    return said


@settings(max_examples=examples(150))
@given(st.integers(0, 1 << 32), st.sampled_from([100, 250, 1_000]), st.sampled_from([150, 400, 4_000]))
def test_in_whatever_order_and_how_often_statements_come_the_outcome_is_the_same(
    seed: int, one: int, all_: int
) -> None:
    chance = random.Random(seed)
    peers = [Peer(number, f"@{'abcd'[number % 4]}:x") for number in range(1, 5)]
    said = _anything(chance, peers)
    outcomes = []
    with patch.multiple(shares, MAX_SHARE=one, MAX_SHARES=all_):
        for _ in range(4):
            reader = Peer(1, "@b:x")
            reader.roster(peers)
            order = said + chance.sample(said, chance.randint(0, len(said)))
            chance.shuffle(order)
            while order:
                count = chance.randint(1, len(order))
                reader.do(StatementsCame(tuple(order[:count])))
                order = order[count:]
            state = reader.state
            outcomes.append((state.shares, state.epochs, state.keys, state.current, phase_of(state)))
    assert all(outcome == outcomes[0] for outcome in outcomes)
    kept = [share.entries for share in outcomes[0][0].by_signer.values()]
    assert max(kept) <= one
    assert sum(kept) <= all_
