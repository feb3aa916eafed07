"""What members bring about with times: the order of refs, other clocks, refs that wait, agents that take turns."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, cast

from attacks.kit.odd_fields import GOOD_TIME, NO_CONTENT, OddMember
from attacks.probe import CostProbe, KeptProbe, Probe
from messaging.backends.test_ranking_messages import older
from sublet.messaging.accepting.arrival import Arrival
from sublet.messaging.delivery.depths import Depths
from sublet.messaging.delivery.loops import LoopLimits, Loops
from sublet.messaging.documents.ranked import RankedList
from sublet.messaging.documents.sequence import Node
from sublet.messaging.intake.awaited import AwaitedRefs
from sublet.messaging.trust.clocks import PeerClocks
from sublet.protocol.ezagent.ids import own_ref_id
from sublet.protocol.ezagent.order import AFTER, Place, parse_after
from sublet.protocol.ezagent.ref_shape import LAST_MS, fits, mended, misfit, moment_ms
from support.rooms import NOW_MS, Peer, peers, shared_room

SHARD = "2026-11"
ROOM, ANN = "r", "@ann:a"


def shuffled(number: int) -> list[Node]:
    choice = random.Random(number)
    return [Node((1, clock), 1, None, None, f"{clock}", "", 0, choice.randrange(1 << 50)) for clock in range(number)]


def backwards(number: int) -> list[Node]:
    return [Node((1, clock), 1, None, None, f"{clock}", "", 0, number - clock) for clock in range(number)]


def rank(nodes: list[Node]) -> RankedList:
    made = RankedList(SHARD)
    for node in nodes:
        node.previous = node.next = None
        made.integrate(node)
    assert len(list(made.below(None))) == len(list(made.above(None))) == len(nodes)
    return made


def look_up(nodes: list[Node]) -> None:
    made = rank(nodes)
    assert len(list(made.backwards())) == len(list(made)) == len(nodes)
    for node in nodes[:64]:
        place = Place(node.rank, *node.id, SHARD)
        next(made.below(place), None)
        next(made.above(place), None)


def overlapping(number: int) -> tuple[Peer, str]:
    """Return a room whose messages go to and fro between shards."""
    alice, eve = peers("alice", "eve")
    room = shared_room(alice, eve)
    evil = OddMember(eve, room)
    sent = [evil.ref({}, f"20{27 + turn % 9}-01", NOW_MS + turn) for turn in range(number // 64)]
    alice.engine.intake.take(sent)
    return alice, room


def walk(given: tuple[Peer, str]) -> None:
    alice, room = given
    with alice.store.transaction():
        alice.engine.order.rank_anew("ezagent/nowhere")
    there = list(alice.engine.order.backwards(room))
    back = list(alice.engine.order.forwards(room))
    assert [node for _, node in there] == [node for _, node in reversed(back)]


def chained(number: int) -> tuple[Peer, list[Arrival]]:
    """Return refs each of which names one of another shard that comes later."""
    alice, eve = peers("alice", "eve")
    room = shared_room(alice, eve)
    evil = OddMember(eve, room)
    first = [
        evil.ref({AFTER: f"2026-12/{eve.client}/{one * 9}"}, "2026-11", NOW_MS + one) for one in range(number // 256)
    ]
    then = [evil.ref({"ext.other": 1}, "2026-12", NOW_MS + one) for one in range(number // 256)]
    return alice, [*first, *then]


def take(given: tuple[Peer, list[Arrival]]) -> None:
    alice, arrivals = given
    alice.engine.intake.take(arrivals)


def fields(number: int) -> dict[str, object]:
    return {
        "ref_id": own_ref_id(NOW_MS, ROOM, ANN, 1),
        "author": ANN,
        "content_type": "immutable",
        "content_id": NO_CONTENT,
        "created_at": GOOD_TIME,
        "status": "active",
        "ext.x": [{"a": [index]} for index in range(number // 8)],
    }


def check(given: dict[str, object]) -> None:
    assert misfit(given) is None
    assert mended({**given, "body": b"x"}, str(given["ref_id"]), ANN)["author"] == ANN


def tell_time(text: str) -> None:
    assert moment_ms(text) is None
    assert parse_after(text) is None


def older_store(number: int) -> Peer:
    import tempfile
    from pathlib import Path

    (alice,) = peers("alice")
    alice.store.close()
    alice.path = Path(tempfile.mkdtemp()) / "a.db"
    alice.open()
    room = shared_room(alice)
    for _ in range(number // 64):
        alice.do("message.send", room_id=room, body="x")
    alice.store.close()
    older(alice.path)
    return alice


def bring_up(alice: Peer) -> None:
    alice.open()
    alice.store.close()


def talk(number: int) -> tuple[Peer, str]:
    alice, bob = peers("alice", "bob")
    room = shared_room(alice, bob)
    for _ in range(number // 64):
        alice.do("message.send", room_id=room, body="x")
    return alice, room


def count_turns(given: tuple[Peer, str]) -> None:
    alice, room = given
    depths = Depths()
    Loops(LoopLimits(6, 1_000)).told(alice.engine, alice.engine.events.since(0))
    for _ in range(8):
        depths.turns(alice.engine, room, None, alice.clock())


@contextmanager
def awaited() -> Iterator[object]:
    """A member names what never was in each of its refs."""
    kept = AwaitedRefs()
    for number in range(40_000):
        kept.keep(f"shard-{number % 50}", (number % 7, number), Arrival(number.to_bytes(8, "big") * 128))
    yield kept
    kept.drop()


@contextmanager
def clocks() -> Iterator[object]:
    """Daemons without end ask by other clocks."""
    (alice,) = peers("alice")
    room = shared_room(alice)
    kept = PeerClocks(alice.store, alice.engine.events, alice.clock, alice.engine.keyring.home)
    for number in range(10_000):
        asked_in = room if number % 16 == 0 else None
        kept.by_its_own(f"@x:node-{number}", asked_in, NOW_MS + LAST_MS // 2)
        with suppress(ValueError):
            kept.asked(f"@x:node-{number}", None, NOW_MS)
    yield kept
    kept._clocks.clear()


@contextmanager
def rooms_of_agents() -> Iterator[object]:
    """Agents talk in rooms without end."""
    alice, bob = peers("alice", "bob")
    depths = Depths()
    for _ in range(40):
        room = shared_room(alice, bob)
        alice.do("message.send", room_id=room, body="x")
        depths.turns(alice.engine, room, bob.id, alice.clock())
        next(alice.engine.order.backwards(room))
    yield depths
    alice.engine.order.forget()
    cast("Any", depths)._talks.clear()


@contextmanager
def different_fields() -> Iterator[object]:
    """Look at many fields that come once, each as long as one may be."""
    for number in range(8_192):
        fits("status", f"{number:064}")
        fits(f"ext.{number:0128}", None)
        moment_ms(f"2026-11-29T10:00:00.{number % 1_000:03}Z")
    yield fits


PROBES: Sequence[Probe] = (
    CostProbe(
        name="clock: refs of random times",
        covers=("messaging.documents.ranked:RankedList.integrate",),
        make=shuffled,
        run=rank,
        size=4_096,
    ),
    CostProbe(
        name="clock: refs each before all others",
        covers=(
            "messaging.documents.ranked:RankedList.below",
            "messaging.documents.ranked:RankedList.above",
            "messaging.documents.sequence:Chain.__iter__",
            "messaging.documents.sequence:Chain.backwards",
        ),
        make=backwards,
        run=look_up,
        size=4_096,
    ),
    CostProbe(
        name="clock: refs that go to and fro between shards",
        covers=(
            "messaging.opening.room_order:RoomOrder.backwards",
            "messaging.opening.room_order:RoomOrder.forwards",
            "messaging.opening.room_order:RoomOrder.rank_anew",
        ),
        make=overlapping,
        run=walk,
        size=16_384,
    ),
    CostProbe(
        name="clock: refs that wait for another shard",
        covers=(
            "messaging.intake.intake:Intake._awaits",
            "messaging.intake.awaited:AwaitedRefs.release",
            "messaging.opening.room_order:RoomOrder.is_here",
        ),
        make=chained,
        run=take,
        size=16_384,
    ),
    CostProbe(
        name="clock: the fields of a ref",
        covers=("protocol.ezagent.ref_shape:misfit", "protocol.ezagent.ref_shape:mended"),
        make=fields,
        run=check,
        size=16_384,
    ),
    CostProbe(
        name="clock: texts that are no times",
        covers=("protocol.ezagent.ref_shape:moment_ms", "protocol.ezagent.order:parse_after"),
        make=lambda number: "2026-11-29T10:00:0" + "0" * number,
        run=tell_time,
        size=65_536,
    ),
    KeptProbe(
        name="clock: fields of refs that are all different",
        covers=(
            "protocol.ezagent.ref_shape:_is_time",
            "protocol.ezagent.ref_shape:_is_word",
            "protocol.ezagent.ref_shape:_is_extension",
        ),
        attack=different_fields,
        bound=4 << 20,
    ),
    CostProbe(
        name="clock: an older store is ordered",
        covers=("messaging.backends.ranking_messages:rank_messages",),
        make=older_store,
        run=bring_up,
        size=16_384,
    ),
    CostProbe(
        name="clock: turns of agents are counted",
        covers=("messaging.delivery.depths:Depths.turns", "messaging.delivery.loops:Loops.told"),
        make=talk,
        run=count_turns,
        size=16_384,
    ),
    KeptProbe(
        name="clock: refs that name what never was",
        covers=("messaging.intake.awaited:AwaitedRefs.keep",),
        attack=awaited,
        bound=16 << 20,
        left=1 << 20,
    ),
    KeptProbe(
        name="clock: daemons with other clocks",
        covers=(
            "messaging.trust.clocks:PeerClocks.by_its_own",
            "messaging.trust.clocks:PeerClocks.__init__",
            "messaging.trust.clocks:PeerClocks._of",
            "messaging.trust.clocks:PeerClocks._tell",
        ),
        attack=clocks,
        bound=8 << 20,
        left=4 << 20,
    ),
    KeptProbe(
        name="clock: rooms in which agents talk",
        covers=(
            "messaging.delivery.depths:Depths.__init__",
            "messaging.delivery.depths:Depths._up_to_now",
            "messaging.opening.room_order:RoomOrder._of",
        ),
        attack=rooms_of_agents,
        bound=32 << 20,
        left=8 << 20,
    ),
)
