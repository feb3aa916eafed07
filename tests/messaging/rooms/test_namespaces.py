"""An entity's domain is a namespace: who is asked, told and counted is the daemon whose key vouches for the entity."""

from __future__ import annotations

import pytest

from sublet.messaging.passing import kept_passing
from sublet.messaging.passing.kept_passing import KeptPassing
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ids import node_id
from support.namespaces_of_entities import NAMESPACE, allow_namespaces, named_elsewhere
from support.rooms import daemon_key, peers

ALICE = f"@alice:{NAMESPACE}"
NODE = node_id(bytes(daemon_key("bob").verify_key))


class World:
    """Ann, in a room with an entity of a namespace, whose home is the daemon of Bob."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        allow_namespaces(monkeypatch)
        self.ann, self.bob = peers("ann", "bob")
        self.alice = named_elsewhere("alice", daemon_key("bob"))
        self.ann.engine.keyring.learn(self.alice.record.encode())
        self.room: RoomId = self.ann.do("room.create", name="r", invite=[ALICE])["room_id"]

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset({self.home(self.ann.id), NODE})

    def home(self, entity: EntityId) -> str:
        return self.ann.engine.keyring.home(entity)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_what_is_published_goes_to_the_daemon_that_vouches(world: World) -> None:
    audience = world.ann.engine.audience
    for kind in ("delivery", "root", "config"):
        assert audience.hears(doc_id(kind, room_id=world.room)) == world.nodes
        assert audience.answers(doc_id(kind, room_id=world.room), b"") == world.nodes
    assert audience.hears(f"{doc_id('profile', entity_id=ALICE)}/updates") == world.nodes


def test_the_daemon_that_vouches_is_asked_about_the_entity(world: World) -> None:
    audience = world.ann.engine.audience
    for name in (
        doc_id("challenge", entity_id=ALICE),
        f"{doc_id('inbox', entity_id=ALICE)}/updates",
        doc_id("ephemeral", room_id=world.room, ext_id="awareness", entity_id=ALICE),
    ):
        assert audience.answers(name, b"") == frozenset({NODE})


def test_a_record_that_comes_later_changes_who_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    allow_namespaces(monkeypatch)
    (ann,) = peers("ann")
    room = ann.do("room.create", name="r", invite=[ALICE])["room_id"]
    root = doc_id("root", room_id=room)
    assert ann.engine.audience.hears(root) == frozenset({ann.engine.keyring.home(ann.id), NAMESPACE})
    ann.engine.keyring.learn(named_elsewhere("alice", daemon_key("bob")).record.encode())
    assert ann.engine.audience.hears(root) == frozenset({ann.engine.keyring.home(ann.id), NODE})


def test_a_clock_that_differs_is_that_of_the_daemon(world: World) -> None:
    told: dict[str, int] = {}
    world.ann.engine.clocks.listeners.append(told.update)
    world.ann.engine.clocks.asked(ALICE, None, world.ann.clock() + 600_000)
    assert told == {NODE: 600_000}


def test_what_is_kept_counts_as_of_the_daemon(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = world.ann.engine.usage
    usage.charge(world.room, ALICE, 1_000)
    usage.charge(world.room, world.bob.id, 500)
    assert (usage.total(NODE), usage.total(NAMESPACE)) == (1_500, 0)
    monkeypatch.setattr(kept_passing, "MAX_PRESENT_OF_DAEMON", 1)
    kept = KeptPassing[str](world.home)
    kept.put((world.room, ALICE), "here", 4)
    assert not kept.has_room((world.room, world.bob.id), 4)


def test_two_daemons_of_a_namespace_are_told_apart(world: World) -> None:
    carla = named_elsewhere("carla", daemon_key("carol"))
    world.ann.engine.keyring.learn(carla.record.encode())
    assert world.home(carla.record.entity_id) == node_id(bytes(daemon_key("carol").verify_key))
    assert world.home(ALICE) == NODE
