"""C37: agents that answer each other end, with the chain shown and nothing written; people never have to."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.operations import run_operation
from sublet.messaging.delivery.depths import DEFAULT_TURNS, FORGOTTEN_SECONDS, limit_of
from sublet.messaging.delivery.loops import LoopLimits, Loops
from sublet.messaging.extensions.reply_to import REPLY_TO
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.identity import EntityKind
from support.rooms import Peer, shared_room

WITH = (*BUILT_INS, REPLY_TO)
LIMITS = LoopLimits(max_hops=6, per_minute=1_000)


class Speaker(Peer):
    """A peer whose messages are counted."""

    limits = LIMITS

    def open(self) -> None:
        super().open()
        self.loops = Loops(self.limits)

    def say(self, room: str, reply_to: str | None = None, **ext: Any) -> str:
        given: dict[str, Any] = {"room_id": room, "body": "hello"}
        if reply_to is not None:
            ext["reply_to"] = reply_to
        if ext:
            given["ext"] = ext
        sent = run_operation(
            self.engine.registry.operations,
            self.engine.operating,
            self.id,
            "message.send",
            self.loops.admit(self.engine, self.id, given),
        )
        self.engine.commit()
        ref: str = sent["ref_id"]
        return ref

    def hops(self, ref: str) -> int:
        found = self.engine.reading.ref(ref)
        assert found is not None
        hops: int = found.get("ext.hops", 0)
        return hops


def speakers(*names: str) -> list[Speaker]:
    """Return peers of whom those called "person" are people."""
    made = [
        Speaker(name, 1000 + number, declarations=WITH, kind=EntityKind.HUMAN if "person" in name else EntityKind.AGENT)
        for number, name in enumerate(names)
    ]
    for one in made:
        one.meet(*(other for other in made if other is not one))
    return made


def tell(speaker: Speaker, *others: Speaker) -> None:
    out = speaker.published()
    for other in others:
        other.hear(out)


@pytest.mark.parametrize("count", [2, 3])
def test_a_ring_of_agents_that_answer_each_other_is_refused_with_its_chain(count: int) -> None:
    person, *agents = speakers("person", "a", "b", "c")[: count + 1]
    room = shared_room(person, *agents)
    ref = person.say(room)
    tell(person, *agents)
    for turn in range(LIMITS.max_hops + 1):
        speaker = agents[turn % count]
        ref = speaker.say(room, reply_to=ref)
        assert speaker.hops(ref) == turn
        tell(speaker, person, *(other for other in agents if other is not speaker))
    speaker, before = agents[(LIMITS.max_hops + 1) % count], agents[LIMITS.max_hops % count]
    writes = speaker.store.last_seq()
    with pytest.raises(SubletError) as refused:
        speaker.say(room, reply_to=ref)
    assert refused.value.code is LocalCode.LOOP_REFUSED
    assert f"{before.id} → {speaker.id}" in refused.value.message
    assert speaker.published() == []
    assert speaker.store.last_seq() == writes
    # A person is not counted, and who answers a person begins anew.
    answer = person.say(room, reply_to=ref)
    tell(person, *agents)
    assert speaker.hops(speaker.say(room, reply_to=answer)) == 0


def test_two_agents_alone_end_even_where_they_answer_nothing_by_name() -> None:
    a, b = speakers("a", "b")
    room = shared_room(a, b)
    for turn in range(LIMITS.max_hops + 1):
        speaker, other = ((a, b), (b, a))[turn % 2]
        assert speaker.hops(speaker.say(room)) == turn
        tell(speaker, other)
    with pytest.raises(SubletError, match="answered each other 6 times"):
        (a, b)[(LIMITS.max_hops + 1) % 2].say(room)
    for peer in (a, b):
        peer.clock.now_ms += int(FORGOTTEN_SECONDS * 1_000) + 1
    assert a.hops(a.say(room)) == 0


def test_who_goes_on_alone_answers_nobody() -> None:
    a, b = speakers("a", "b")
    room = shared_room(a, b)
    assert {a.hops(a.say(room)) for _ in range(3 * LIMITS.max_hops)} == {0}
    tell(a, b)
    assert {b.hops(b.say(room)) for _ in range(3 * LIMITS.max_hops)} == {1}


def test_a_peer_that_does_not_count_is_counted_for() -> None:
    a, b = speakers("a", "b")
    room = shared_room(a, b)

    def provoked() -> str:
        ref: str = b.do("message.send", room_id=room, body="again", ext={"hops": -1})["ref_id"]
        tell(b, a)
        return ref

    hops = 0
    while hops + 2 <= LIMITS.max_hops:  # what was provoked, and its answer
        before, hops = hops, a.hops(a.say(room, reply_to=provoked()))
        assert hops > before
        tell(a, b)
    ref = provoked()
    with pytest.raises(SubletError, match="answered each other"):
        a.say(room, reply_to=ref)


def test_nobody_chooses_their_own_hops_and_wrong_ones_count_as_none() -> None:
    person, a, b = speakers("person", "a", "b")
    room = shared_room(person, a, b)
    ref = b.do("message.send", room_id=room, body="x", ext={"hops": 4})["ref_id"]
    wrong = [
        b.do("message.send", room_id=room, body="x", ext={"hops": hops})["ref_id"] for hops in (True, -3, "9", 1e9)
    ]
    tell(b, person, a)
    assert a.hops(a.say(room, reply_to=ref, hops=0)) == 5
    assert [a.hops(a.say(room, reply_to=one)) for one in wrong] == [1] * 4
    assert person.hops(person.say(room, reply_to=ref, hops=3)) == 0


def test_what_has_gone_too_far_wakes_no_agent_and_is_kept() -> None:
    person, a, b = speakers("person", "a", "b")
    room = shared_room(person, a, b)
    far = b.do("message.send", room_id=room, body="far", ext={"hops": LIMITS.max_hops + 1})["ref_id"]
    near = b.do("message.send", room_id=room, body="near", ext={"hops": LIMITS.max_hops})["ref_id"]
    tell(b, person, a)

    def woken(speaker: Speaker) -> list[Any]:
        hears = speaker.loops.hears(speaker.engine, speaker.id)
        events = speaker.engine.events.since(0)
        return [row.data["ref_id"] for row in events if row.kind == "message.new" and hears(row)]

    assert woken(a) == [near]
    assert woken(person) == [far, near]
    assert a.bodies(room) == ["far", "near"]


def test_an_agent_sends_another_one_only_so_much_in_a_minute() -> None:
    person, a, b, c = speakers("person", "a", "b", "c")
    both, other = shared_room(a, b, person), shared_room(a, c)
    for speaker in (person, a):
        speaker.loops = Loops(LoopLimits(max_hops=6, per_minute=5))
    for _ in range(5):
        a.say(both)
    with pytest.raises(SubletError, match="5 messages to @b") as refused:
        a.say(both)
    assert refused.value.code is LocalCode.UNAVAILABLE
    assert "60 s" in refused.value.hint
    a.say(other)
    for _ in range(20):
        person.say(person.do("room.create", name="mine", invite=[b.id])["room_id"])
    a.clock.now_ms += 60_000
    a.say(both)


def test_who_replies_to_their_own_answers_nobody() -> None:
    person, a, b = speakers("person", "a", "b")
    room = shared_room(person, a, b)
    first = b.say(room, reply_to=b.say(room))
    tell(b, person, a)
    ref = a.say(room, reply_to=first)
    for _ in range(2 * LIMITS.max_hops):
        ref = a.say(room, reply_to=ref)
        assert a.hops(ref) == 1


def turns(room: str, first: Speaker, second: Speaker, others: tuple[Speaker, ...], count: int) -> None:
    for turn in range(count):
        speaker, other = ((first, second), (second, first))[turn % 2]
        speaker.say(room)
        tell(speaker, other, *others)


@pytest.mark.parametrize("limit", [None, 5])
def test_two_agents_who_name_nothing_that_they_answer_end_in_a_room_of_three(limit: int | None) -> None:
    person, a, b = speakers("person", "a", "b")
    room = shared_room(person, a, b)
    most = limit or DEFAULT_TURNS
    if limit is not None:
        person.do("room.update_config", room_id=room, changes={"timeline.max_agent_turns": limit})
        tell(person, a, b)
    person.say(room)
    tell(person, a, b)
    turns(room, a, b, (person,), most + 1)
    speaker = (a, b)[(most + 1) % 2]
    writes = speaker.store.last_seq()
    with pytest.raises(SubletError, match=f"taken {most} turns") as refused:
        speaker.say(room)
    assert refused.value.code is LocalCode.LOOP_REFUSED
    assert "max_agent_turns" in refused.value.hint
    assert (speaker.published(), speaker.store.last_seq()) == ([], writes)
    person.say(room)  # begins anew
    tell(person, a, b)
    speaker.say(room)


def test_the_end_is_told_in_the_room_once_on_every_daemon() -> None:
    person, a, b = speakers("person", "a", "b")
    room = shared_room(person, a, b)
    person.do("room.update_config", room_id=room, changes={"timeline.max_agent_turns": 3})
    tell(person, a, b)
    for one in (person, a, b):
        one.engine.events.listeners.append(partial(one.loops.told, one.engine))
    for _ in range(2):
        turns(room, a, b, (person,), 4)
        b.say(room)  # goes on by itself, which is no turn
        tell(b, a, person)
        person.say(room)
        tell(person, a, b)
    for one in (person, a, b):
        assert one.kinds().count("room.agents_ended") == 2


def test_an_agent_is_not_woken_by_others_that_go_on_without_end() -> None:
    person, a, b = speakers("person", "a", "b")
    c = Speaker("c", 2000, declarations=WITH)
    c.meet(person, a, b)
    for one in (person, a, b):
        one.meet(c)
    room = shared_room(person, a, b, c)
    person.do("room.update_config", room_id=room, changes={"timeline.max_agent_turns": 3})
    tell(person, a, b, c)
    a.loops = b.loops = Loops(LoopLimits(1_000, 1_000))
    for one in (a, b):  # they keep to no bound
        one.loops._check_turns = lambda *given: None  # type: ignore[method-assign]
    wakes, hears = c.loops.hears(c.engine, c.id), c.loops.hears(c.engine, person.id)
    turns(room, a, b, (person, c), 4)
    newest = c.engine.events.since(0)[-1]
    assert wakes(newest)
    a.say(room)
    tell(a, b, person, c)
    newest = [row for row in c.engine.events.since(0) if row.kind == "message.new"][-1]
    assert not wakes(newest)
    assert hears(newest)  # people are not limited


def test_ten_minutes_of_silence_end_a_conversation_of_agents_too() -> None:
    person, a, b = speakers("person", "a", "b")
    room = shared_room(person, a, b)
    turns(room, a, b, (person,), DEFAULT_TURNS + 1)
    with pytest.raises(SubletError, match="turns"):
        (a, b)[(DEFAULT_TURNS + 1) % 2].say(room)
    for peer in (a, b):
        peer.clock.now_ms += int(FORGOTTEN_SECONDS * 1_000) + 1
    (a, b)[(DEFAULT_TURNS + 1) % 2].say(room)


@pytest.mark.parametrize("value", [0, -1, 1_001, True, "5", 1.5, None])
def test_a_bound_that_is_none_is_refused_and_what_others_wrote_changes_nothing(value: Any) -> None:
    (person,) = speakers("person")
    room = shared_room(person)
    with pytest.raises(SubletError):
        person.do("room.update_config", room_id=room, changes={"timeline.max_agent_turns": value})
    person.engine.rooms.state(room).fields[("timeline",)] = {"max_agent_turns": value}
    assert limit_of(person.engine.rooms, room) == DEFAULT_TURNS
