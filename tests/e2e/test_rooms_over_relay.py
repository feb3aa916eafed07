"""Rooms between two daemons that reach a relay and nothing else, which dies, comes back, and cuts who was revoked."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.daemon_rooms import Commands, shared_room
from support.daemons import Daemon, wait_for
from support.namespaces import Machine, needs_root, three_machines
from support.relays import Relay, relay
from support.typed_commands import Typing

pytestmark = [needs_root, pytest.mark.timeout(400)]

RELAY_PORT = 7000
WAIT_SECONDS = 120
FAR = "10.203.2.1"


@dataclass(frozen=True)
class Scene:
    """Ann and Bob on two machines that have no way to each other, and a relay on a third one that both reach."""

    ann: Daemon
    bob: Daemon
    relay: Relay
    left: Machine
    right: Machine


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with three_machines() as (left, middle, right):
        hosts = middle.address, FAR
        ann, bob = Daemon(tmp_path / "ann", prefix=left.prefix), Daemon(tmp_path / "bob", prefix=right.prefix)
        try:
            with relay(tmp_path / "relay", f"tls/0.0.0.0:{RELAY_PORT}", hosts, middle.prefix) as router:
                for daemon, host in ((ann, middle.address), (bob, FAR)):
                    daemon.up("--relay", f"tls/{host}:{RELAY_PORT}", "--relay-ca", str(router.authority))
                yield Scene(ann, bob, router, left, right)
        finally:
            for daemon in (ann, bob):
                daemon.down()


def registered(scene: Scene) -> tuple[Typing, Typing]:
    """Give both a name, and pair them by it."""
    ann, bob = Typing(scene.ann), Typing(scene.bob)
    told = {who: typing.json("register", who) for who, typing in (("ann", ann), ("bob", bob))}
    assert told["ann"]["entity_id"] == "@ann:relay.test"
    ann.json("peers", "add", "@bob:relay.test", "--name", "bob", "--fingerprint", told["bob"]["fingerprint"])
    bob.json("peers", "add", "@ann:relay.test", "--name", "ann", "--fingerprint", told["ann"]["fingerprint"])
    return ann, bob


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


def links(machine: Machine) -> list[str]:
    """Return where the connections go that leave a machine."""
    command = [*machine.prefix, "ss", "-Hnt", "state", "established"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted({line.split()[3] for line in found if "127.0.0.1" not in line})


def figures(scene: Scene) -> dict[str, float]:
    """Return what the relay tells its own machine of itself."""
    port = scene.relay.told["registration"].rpartition(":")[2]
    command = [*scene.relay.prefix, "curl", "-sSk", f"https://127.0.0.1:{port}/metrics"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return {name: float(value) for name, _, value in (line.partition(" ") for line in lines)}


def test_two_daemons_talk_over_a_relay_alone_which_is_killed_and_comes_back(scene: Scene) -> None:
    ann, bob = registered(scene)
    room = shared_room(ann, bob)
    said = ["over the relay"]
    ann.json("send", room, said[0])
    until_both_show(ann, bob, room, said)
    said.append("and back")
    bob.json("send", room, said[1])
    until_both_show(ann, bob, room, said)
    assert links(scene.left) == [f"10.203.1.1:{RELAY_PORT}"]
    assert links(scene.right) == [f"{FAR}:{RELAY_PORT}"]
    both = {ann.json("whoami")["entity_id"], bob.json("whoami")["entity_id"]}
    for who in (ann, bob):
        wait_for(lambda who=who: both <= {one["entity"] for one in who.json("presence", room)}, 60, "both are there")

    scene.relay.kill()
    acknowledged = set()
    for number in range(2):
        for who in (ann, bob):
            said.append(f"{who.daemon.home.name} alone {number}")
            acknowledged.add(who.json("send", room, said[-1])["ref_id"])
    assert len(shown(ann, room)) == len(shown(bob, room)) == 4
    scene.relay.up()
    until_both_show(ann, bob, room, said)

    # It is also enough that the relay comes after a daemon that was started without it.
    scene.relay.kill()
    scene.bob.kill()
    said.append("while neither is there")
    acknowledged.add(ann.json("send", room, said[-1])["ref_id"])
    scene.bob.up("--relay", f"tls/{FAR}:{RELAY_PORT}", "--relay-ca", str(scene.relay.authority))
    said.append("before the relay is there")
    acknowledged.add(bob.json("send", room, said[-1])["ref_id"])
    scene.relay.up()
    until_both_show(ann, bob, room, said)
    for who in (ann, bob):
        ids = [ref for ref, _ in shown(who, room)]
        assert acknowledged <= set(ids)
        assert sorted(told(who, room)) == sorted(ids), "each was told once"


def test_who_is_revoked_is_cut_and_hears_nothing_more(scene: Scene) -> None:
    ann, bob = registered(scene)
    room = shared_room(ann, bob)
    ann.json("send", room, "before")
    until_both_show(ann, bob, room, ["before"])
    assert ann.refused("peers", "add", "@bob:relay.test", "--name", "eve", "--fingerprint", "SHA256:" + "A" * 43) == (
        "KEY_CHANGED"
    )
    scene.relay.run("revoke", "bob", "--dir", str(scene.relay.directory))
    wait_for(lambda: figures(scene)["sublet_relay_kicked_total"] >= 1, 20, "the cut")
    ann.json("send", room, "after")
    assert [one["revoked"] for one in scene.relay.run("names", "--dir", str(scene.relay.directory))] == [False, True]
    assert bob.refused("register", "bob") == "POLICY_DENIED"
    assert ann.refused("register", "bob") == "CONFLICT"
    assert [body for _, body in shown(bob, room)] == ["before"]
    assert [body for _, body in shown(ann, room)] == ["before", "after"]


def test_settings_change_while_daemons_are_linked_and_the_relay_stops_in_order(scene: Scene) -> None:
    ann, bob = Typing(scene.ann), Typing(scene.bob)
    scene.relay.set(registration="closed")
    wait_for(lambda: ann.refused("register", "ann") == "POLICY_DENIED", 20, "closed registration")
    scene.relay.set(registration="open")
    wait_for(lambda: scene.ann.run("register", "ann", check=None).returncode == 0, 20, "open registration")
    assert bob.json("register", "bob")["entity_id"] == "@bob:relay.test"
    port = scene.relay.told["registration"].rpartition(":")[2]
    curl = [*scene.left.prefix, "curl", "-sS", "--cacert", str(scene.relay.authority)]
    url = f"https://10.203.1.1:{port}"
    healthy = json.loads(subprocess.run([*curl, f"{url}/healthz"], capture_output=True, check=True).stdout)
    assert healthy == {"status": "ok", "level": 0, "tiers": [1]}
    assert json.loads(subprocess.run([*curl, f"{url}/readyz"], capture_output=True, check=True).stdout) == {
        "ready": True
    }
    assert subprocess.run([*curl, f"{url}/metrics"], capture_output=True, check=True).stdout == b"Not Found"
    assert scene.relay.stop() == 0
