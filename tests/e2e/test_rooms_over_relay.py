"""Rooms between two daemons that reach each other over a relay alone, which dies and comes back."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.daemon_rooms import Commands, shared_room
from support.daemons import Daemon, pair, wait_for
from support.namespaces import Machine, needs_root, two_machines
from support.paired_machines import start
from support.relays import Relay, make_certificate, relay
from support.typed_commands import Typing

pytestmark = [needs_root, pytest.mark.timeout(400)]

RELAY_PORT = 7000
WAIT_SECONDS = 120


@dataclass(frozen=True)
class Scene:
    """Ann and Bob on two machines; nobody is let through to Bob's bus, and nobody can call Ann."""

    ann: Daemon
    bob: Daemon
    relay: Relay
    left: Machine
    right: Machine
    bus_port: int


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with two_machines() as (left, right):
        ann, bob = Daemon(tmp_path / "ann", prefix=left.prefix), Daemon(tmp_path / "bob", prefix=right.prefix)
        tls = make_certificate(tmp_path, right.address)
        endpoint = f"tls/{right.address}:{RELAY_PORT}"
        for daemon in (ann, bob):
            (daemon.home / "config").mkdir(mode=0o700, parents=True)
            settings = {"messaging": {"relays": [endpoint], "relay_authority": str(tls[0])}}
            (daemon.home / "config" / "config.json").write_text(json.dumps(settings))
        try:
            ann.up()
            start(bob, right)
            port = int(bob.json("status")["bus"].rpartition(":")[2])
            with right.shielded(port), relay(endpoint, right.prefix, tls) as router:
                pair(ann, bob)
                yield Scene(ann, bob, router, left, right, port)
        finally:
            for daemon in (ann, bob):
                daemon.down()


def shown(who: Commands, room: str) -> list[tuple[str, str]]:
    """Return what a room says, under which ids."""
    return [(one["ref_id"], one["body"]) for one in who.json("read", room)]


def until_both_show(ann: Commands, bob: Commands, room: str, bodies: list[str]) -> None:
    def same() -> bool:
        ours = shown(ann, room)
        return sorted(body for _, body in ours) == sorted(bodies) and ours == shown(bob, room)

    wait_for(same, WAIT_SECONDS, f"{len(bodies)} messages, the same ones for both")


def told(who: Commands, room: str) -> list[str]:
    """Return the ids of the messages of which ``watch`` has told so far, its own ones too."""
    events = who.json("watch", room, "--since", "0", "--wait", "0")["events"]
    return [event["ref_id"] for event in events if event["kind"] == "message.new"]


def links(machine: Machine, port: int) -> int:
    """Return how many connections go from a machine to a port."""
    command = [*machine.prefix, "ss", "-Hnt", "state", "established", f"( dport = :{port} )"]
    return len(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines())


def test_a_relay_that_is_killed_and_comes_back_loses_nothing_and_shows_nothing_twice(scene: Scene) -> None:
    ann, bob = Typing(scene.ann), Typing(scene.bob)
    room = shared_room(ann, bob)
    said = ["over the relay"]
    ann.json("send", room, said[0])
    until_both_show(ann, bob, room, said)
    assert (links(scene.left, RELAY_PORT), links(scene.left, scene.bus_port)) == (1, 0)

    scene.relay.kill()
    acknowledged = set()
    for number in range(2):
        for who in (ann, bob):
            said.append(f"{who.daemon.home.name} alone {number}")
            acknowledged.add(who.json("send", room, said[-1])["ref_id"])
    assert len(shown(ann, room)) == len(shown(bob, room)) == 3
    scene.relay.up()
    until_both_show(ann, bob, room, said)

    # It is also enough that the relay comes after a daemon that was started without it.
    scene.relay.kill()
    scene.bob.kill()
    said.append("while neither is there")
    acknowledged.add(ann.json("send", room, said[-1])["ref_id"])
    start(scene.bob, scene.right)
    said.append("before the relay is there")
    acknowledged.add(bob.json("send", room, said[-1])["ref_id"])
    scene.relay.up()
    until_both_show(ann, bob, room, said)
    for who in (ann, bob):
        ids = [ref for ref, _ in shown(who, room)]
        assert acknowledged <= set(ids)
        assert sorted(told(who, room)) == sorted(ids), "each was told once"
    assert links(scene.left, scene.bus_port) == 0
