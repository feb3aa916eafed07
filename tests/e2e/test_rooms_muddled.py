"""What three processes publish gets lost, overtaken and doubled by a fourth, and lines are cut: all show the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.cut_proxy import Cable, cable
from support.muddler import muddling
from support.ports import free_port
from support.room_processes import RoomProcess, room_process, until_same

pytestmark = pytest.mark.timeout(240)

NAMES = ("alice", "bob", "carol")
TURNS = 90
CUTS = 0.05
SEED = 20_261_128


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


def a_turn(peer: RoomProcess, room: str, chance: random.Random, own: list[str]) -> str | None:
    """Let a peer write, edit, take back or react to what it happens to see; return what it acknowledged."""
    what = chance.random()
    if what < 0.6 or not own:
        own.append(peer.ask("message.send", room_id=room, body=f"{chance.random()}")["ref_id"])
        return own[-1]
    if what < 0.7:
        peer.ask("mutable.update", room_id=room, ref_id=chance.choice(own), body=f"edited {chance.random()}")
    elif what < 0.75 and len(own) > 1:
        peer.ask("message.delete", room_id=room, ref_id=own.pop(chance.randrange(len(own))))
    else:
        seen = peer.ask("timeline.list", room_id=room, limit=20)["refs"]
        peer.tell("reactions.add", room_id=room, ref_id=chance.choice(seen)["ref_id"], emoji=chance.choice("👍🎉🚀"))
        peer.line()  # a refusal too: it may be deleted
    return None


def test_replicas_show_the_same_whatever_gets_lost_overtaken_or_doubled_on_the_way(
    tmp_path: Path, stack: ExitStack
) -> None:
    between, *ports = (free_port() for _ in range(4))
    muddle = stack.enter_context(muddling(between, SEED))
    peers: list[RoomProcess] = []
    lines: list[Cable] = []
    for number, name in enumerate(NAMES):
        # A peer carries nothing between two others, so each is joined with all before it.
        lines += [stack.enter_context(cable(port)) for port in (between, *ports[:number])]
        called = [line.port for line in lines[-number - 1 :]]
        made = room_process(name, tmp_path, ports[number], *called, extensions=True, astray=True)
        peers.append(stack.enter_context(made))
    room = peers[0].ask("room.create", name="Work", invite=[peer.id for peer in peers[1:]])["room_id"]
    for peer in peers[1:]:
        peer.until("room.member.joined", entity=peer.id)

    chance = random.Random(SEED)
    own: dict[str, list[str]] = {peer.id: [] for peer in peers}
    acknowledged = set()
    for _ in range(TURNS):
        peer = chance.choice(peers)
        acknowledged.add(a_turn(peer, room, chance, own[peer.id]))
        if chance.random() < CUTS:
            chance.choice(lines).cut()
    acknowledged.discard(None)
    for line in (lines[2], lines[4]):
        line.cut()  # so that nobody has to wait for the time when all is asked for anyway
    until_same(room, len(acknowledged), *peers)
    before = [peer.shown(room) for peer in peers]
    assert {ref["ref_id"] for ref in before[0]} == acknowledged
    rooms = [peer.ask("room.get", room_id=room) for peer in peers]
    assert all((one["config"], one["members"]) == (rooms[0]["config"], rooms[0]["members"]) for one in rooms)

    done = muddle("empty")  # what was kept back comes last of all, and changes nothing
    assert done.lost
    assert done.overtaken
    assert done.published > done.heard - done.lost
    for peer in peers:
        counts = peer.ask("counts")
        assert counts["duplicate"]
        assert peer.ask("sync", room_id=room) == {}
    assert [peer.shown(room) for peer in peers] == before
