"""Replicas see the same, whatever was lost, doubled or came late; and what yrs shows of the same log."""

from __future__ import annotations

from operator import itemgetter
from random import Random
from typing import Any

import pytest
from pycrdt import Array, Doc

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.declaration import Declaration
from sublet.messaging.documents import sequence
from sublet.messaging.documents.sequence import Node, YataList
from sublet.messaging.ports.outbox import Outgoing
from sublet.messaging.schema.datatypes import Annotation, AnnotationPlace, Origin
from sublet.messaging.syncing.answers import state
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.bundle import decode_bundle
from sublet.protocol.ezagent.envelope import unpack
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.yjs.update import ItemId
from support.rooms import Peer, peers, shared_room

MARKS = Declaration(
    id="marks",
    version="1",
    dependencies=("timeline",),
    origin=Origin.STANDARD,
    annotations=(
        Annotation(
            AnnotationPlace.ON_REF, "marks", "map of key:entity", "annotation_key contains signer_id", nested=True
        ),
    ),
)


def synchronise(peer: Peer, other: Peer, room: str) -> None:
    """Let a peer ask another for everything that it lacks."""
    for name in [doc_id("config", room_id=room), doc_id("index", room_id=room, shard_id="2026-11")]:
        row = peer.store.find_document(name)
        have = {client: clock for client, (clock, _) in peer.store.clients(row.number).items()} if row else {}
        answer = state(other.engine, name, have)
        if answer is not None:
            peer.engine.intake.take_bundle(room, decode_bundle(answer))


def visible(peer: Peer, room: str) -> Any:
    return peer.do("timeline.list", room_id=room, limit=200)


@pytest.mark.parametrize("seed", range(25))
def test_replicas_converge_whatever_the_network_does(seed: int) -> None:
    random = Random(seed)
    everyone = peers("alice", "bob", "carol", declarations=(*BUILT_INS, MARKS))
    room = shared_room(*everyone)
    net: list[tuple[Peer, Outgoing]] = []
    known: list[str] = []
    for _ in range(25):
        peer = random.choice(everyone)
        match random.randrange(5):
            case 0 | 1:
                known.append(peer.do("message.send", room_id=room, body=str(random.random()))["ref_id"])
            case 2 if known:
                change = random.choice(["annotation.add", "annotation.remove"])
                arguments: dict[str, Any] = {"room_id": room, "ref_id": random.choice(known), "name": "marks"}
                arguments["key"] = f"{random.choice('ab')}:{peer.id}"
                if change == "annotation.add":
                    arguments["value"] = random.randrange(9)
                try_to(peer, change, **arguments)
            case 3 if known:
                try_to(peer, "message.delete", room_id=room, ref_id=random.choice(known))
            case _:
                other = random.choice(everyone)
                if other is not peer:
                    synchronise(peer, other, room)
        for item in peer.published():
            for other in everyone:
                if other is not peer and random.random() > 0.25:
                    net += [(other, item)] * random.choice([1, 1, 2])
        random.shuffle(net)
        for _ in range(random.randrange(4)):
            if net:
                other, item = net.pop()
                other.hear([item])
    for other, item in net:
        other.hear([item])
    for _ in range(2):
        for one in everyone:
            for other in everyone:
                if one is not other:
                    synchronise(one, other, room)
    first = visible(everyone[0], room)
    assert all(visible(peer, room) == first for peer in everyone)
    assert all(peer.refused() == {} for peer in everyone)
    assert_yrs_agrees(everyone[random.randrange(3)], room, first["refs"])


def try_to(peer: Peer, operation: str, **arguments: Any) -> None:
    """Run an operation that may not be possible where the message has not come yet, or is another's."""
    try:
        peer.do(operation, **arguments)
    except SubletError:
        peer.engine.commit()


def assert_yrs_agrees(peer: Peer, room: str, refs: list[dict[str, Any]]) -> None:
    """Check the fields against yrs, which is given the same log; refs stand by an order of their own."""
    doc: Doc[Any] = Doc(skip_gc=True)
    array: Array[Any] = doc.get("timeline", type=Array)
    for seq in range(1, peer.store.last_seq() + 1):
        envelope = unpack(peer.store.envelope(seq))
        if "/index/" in envelope.doc_id:
            doc.apply_update(envelope.payload)
    shown = [
        {
            "ref_id": item["ref_id"],
            "status": item["status"],
            "marks": {key: value for key, value in item["ext.marks"].items() if value is not None},
        }
        for item in array.to_py() or []
    ]
    ours = [{"ref_id": ref["ref_id"], "status": ref["status"], "marks": ref["ext.marks"]} for ref in refs]
    assert sorted(ours, key=itemgetter("ref_id")) == sorted(shown, key=itemgetter("ref_id"))


@pytest.mark.parametrize("seed", range(300))
def test_no_choice_of_neighbours_makes_replicas_order_elements_differently(seed: int) -> None:
    random, made, clocks = Random(seed), list[tuple[ItemId, ItemId | None]](), dict[int, int]()
    for _ in range(10):
        client = random.randrange(1, 4)
        clocks[client] = clock = clocks.get(client, -1) + 1
        made.append(((client, clock), random.choice([None, *(id for id, _ in made)])))
    orders = set[tuple[ItemId, ...]]()
    for _ in range(6):
        chain, waiting = YataList(), made.copy()
        while waiting:
            id, origin = random.choice(
                [
                    (id, origin)
                    for id, origin in waiting
                    if (origin is None or origin in chain.nodes) and (id[1] == 0 or (id[0], id[1] - 1) in chain.nodes)
                ]
            )
            waiting.remove((id, origin))
            chain.integrate(Node(id, 1, origin, None, str(id), "", 0))
        orders.add(tuple(node.id for node in chain))
    assert len(orders) == 1


@pytest.mark.parametrize("seed", range(100))
def test_a_place_is_found_by_the_index_as_by_the_walk(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random, made, clocks = Random(seed), list[tuple[ItemId, ItemId | None]](), dict[int, int]()
    for _ in range(random.randint(5, 200)):
        client = random.randint(1, random.choice((2, 6, 30)))
        clocks[client] = clock = clocks.get(client, -1) + 1
        near = [None, *(id for id, _ in made[-3:])]
        origin = random.choice(near if random.random() < 0.5 else [None, *(id for id, _ in made)])
        made.append(((client, clock), origin))
    orders = []
    for steps in (1 << 30, 0, 3, 20):
        monkeypatch.setattr(sequence, "STEPS", steps)
        chain = YataList()
        for id, origin in made:
            chain.integrate(Node(id, 1, origin, None, str(id), "", 0))
        orders.append([node.id for node in chain])
        assert orders[-1] == [node.id for node in chain.backwards()][::-1]
    assert orders[1:] == orders[:1] * 3
