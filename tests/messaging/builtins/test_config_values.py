"""D40: fields of a room's config take what something reads, and hints are commands that work."""

from __future__ import annotations

import shlex

import pytest

from sublet.messaging.extensions.watch import WATCH
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.yjs.update import Value
from support.rooms import Peer, peers, shared_room

NO_EFFECT: tuple[tuple[str, Value], ...] = (
    ("encryption", "end_to_end"),
    ("relays", ["a"]),
    ("avatar_hash", "sha256:00"),
    ("name", ""),
    ("name", 5),
    ("membership.policy", "closed"),
    ("timeline", {"window_size": "weekly"}),
    ("timeline", {"max_refs": 5}),
    ("timeline", 5),
    ("timeline.max_refs_per_window", 0),
    ("timeline.max_agent_turns", 0),
    ("timeline.max_agent_turns", 1_001),
    ("timeline.max_agent_turns", True),
    ("timeline.max_refs_per_window", True),
    ("timeline.max_refs_per_window", 1 << 40),
    ("timeline.window_size", "daily"),
    ("enabled_extensions", "watch"),
    ("enabled_extensions", ["nosuch"]),
    ("power_levels.events_default", 101),
    ("power_levels.events_default", "high"),
    ("ext.nosuch.field", 1),
    ("ext.watch", {}),
    ("created_by", "@x:y"),
)


@pytest.mark.parametrize(("name", "value"), NO_EFFECT)
def test_what_would_change_nothing_is_refused(name: str, value: Value) -> None:
    (alice,) = peers("alice")
    room = shared_room(alice)
    before = alice.do("room.get", room_id=room)
    with pytest.raises(SubletError):
        alice.do("room.update_config", room_id=room, changes={"name": "other", name: value})
    assert alice.do("room.get", room_id=room) == before


def test_a_field_of_the_timeline_is_changed_by_itself() -> None:
    (alice,) = peers("alice")
    room = shared_room(alice)
    alice.do("room.update_config", room_id=room, changes={"timeline.max_refs_per_window": 5})
    assert alice.do("room.get", room_id=room)["config"]["timeline"] == {
        "window_size": "monthly",
        "max_refs_per_window": 5,
    }


def test_who_meets_the_limit_of_a_month_goes_on_by_the_hint() -> None:
    """D45: the hint is a command that works."""
    (alice,) = peers("alice")
    room = shared_room(alice)
    alice.do("room.update_config", room_id=room, changes={"timeline.max_refs_per_window": 2})
    send(alice, room, 2)
    with pytest.raises(SubletError, match="as many messages") as refused:
        send(alice, room, 1)
    *_, config, named, flag, change = shlex.split(refused.value.hint)
    assert (config, named, flag) == ("config", room, "--set")
    field, _, value = change.partition("=")
    alice.do("room.update_config", room_id=room, changes={field: int(value)})
    send(alice, room, 2)
    assert len(alice.bodies(room)) == 4


def test_what_another_daemon_has_switched_on_stays_when_something_else_is_switched() -> None:
    alice, bob = peers("alice", "bob")
    room = shared_room(alice, bob)
    enabled = alice.do("room.get", room_id=room)["config"]["enabled_extensions"]
    alice.engine.writing.set_field(
        alice.id, f"ezagent/{room}/config", None, ("enabled_extensions",), [*enabled, "of-others"]
    )
    alice.engine.commit()
    alice.do("room.update_config", room_id=room, changes={"enabled_extensions": ["of-others"]})
    assert alice.do("room.get", room_id=room)["config"]["enabled_extensions"] == ["of-others"]
    assert WATCH not in alice.engine.rooms.state(room).enabled_extensions


def send(peer: Peer, room: str, count: int) -> None:
    for number in range(count):
        peer.do("message.send", room_id=room, body=f"{number}")
