"""Rooms between daemons of two machines: joined by TLS with pinned keys, over a cable that is pulled; no stranger."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nacl.signing import SigningKey

from support.daemon_rooms import WAIT_SECONDS, Commands, bodies, shared_room, until_known
from support.daemons import wait_for
from support.namespaces import needs_root
from support.paired_machines import PairedMachines, paired_machines
from support.typed_commands import Typing

pytestmark = [needs_root, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PairedMachines]:
    with paired_machines(tmp_path_factory.mktemp("lan")) as both:
        yield both


def until(who: Commands, room: str, wanted: list[str]) -> None:
    wait_for(lambda: sorted(bodies(who, room)) == sorted(wanted), WAIT_SECONDS, f"{wanted}")


def bus(who: Commands) -> Any:
    return who.json("status")["bus"]


def test_two_machines_talk_encrypted_and_go_on_after_the_cable_was_out(scene: PairedMachines) -> None:
    ann, bob = Typing(scene.ann), Typing(scene.bob)
    assert bus(bob).startswith(f"tls/{scene.right.address}:")
    assert bus(ann).startswith("tls/127.0.0.1:")
    room = shared_room(ann, bob)
    ann.json("send", room, "hello")
    until(bob, room, ["hello"])
    bob.json("send", room, "hello to you")
    until(ann, room, ["hello", "hello to you"])
    with scene.right.unplugged():
        ann.json("send", room, "can you hear me?")
        bob.json("send", room, "anybody?")
    both = ["hello", "hello to you", "can you hear me?", "anybody?"]
    for who in (ann, bob):
        until(who, room, both)
    assert bodies(ann, room) == bodies(bob, room)


def test_c39_a_daemon_starts_and_is_written_with_while_there_is_no_network_at_all(scene: PairedMachines) -> None:
    ann, bob = Typing(scene.ann), Typing(scene.bob)
    his = bob.json("whoami")["entity_id"]
    scene.ann.run("down")
    scene.ann.wait_gone()
    # Nor is there anybody who could tell where the relay is.
    config = scene.ann.home / "config" / "config.json"
    config.parent.mkdir(mode=0o700, exist_ok=True)
    config.write_text(json.dumps({"messaging": {"relays": ["tls/relay.invalid:7447"]}}))
    with scene.left.unplugged():
        scene.ann.up()
        room = ann.json("room", "create", "alone")["room_id"]
        ann.json("room", "invite", room, his)
        assert ann.json("send", room, "before a restart")["receipt"] == "queued"
        scene.ann.run("down")
        scene.ann.wait_gone()
        scene.ann.up()
        assert ann.json("send", room, "after it")["receipt"] == "queued"
        said = ["before a restart", "after it"]
        assert bodies(ann, room) == said
    until_known(bob, room)
    until(bob, room, said)
    bob.json("send", room, "there you are")
    until(ann, room, [*said, "there you are"])


def test_who_is_not_paired_does_not_get_in(scene: PairedMachines, tmp_path: Path) -> None:
    stranger = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from sublet.daemon.peering.identity import load_identity\n"
        "from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey\n"
        "from sublet.messaging.backends.zenoh_network import Endpoints, ZenohNetwork\n"
        "from sublet.messaging.links.keys import LinkKeys\n"
        "from sublet.messaging.links.links import Links\n"
        "home, address, key = Path(sys.argv[1]), sys.argv[2], bytes.fromhex(sys.argv[3])\n"
        "home.mkdir()\n"
        "own = bytes(load_identity(home / 'keys').key)\n"
        "links = Links(LinkKeys(home / 'bus', Ed25519PrivateKey.from_private_bytes(own)), home / 's', None)\n"
        "links.trust([key])\n"
        "host, _, port = address.partition('/')[2].rpartition(':')\n"
        "network = ZenohNetwork(Endpoints((), tuple(links.call({key: [(host, int(port))]}).values())))\n"
        "until = time.monotonic() + 4\n"
        "while not network.peers() and time.monotonic() < until:\n"
        "    time.sleep(0.05)\n"
        "print(network.peers())\n"
        "network.close()\n"
        "links.close()\n"
    )
    assert _peers_of(scene, stranger, tmp_path / "mallory") == "0"


def _peers_of(scene: PairedMachines, code: str, home: Path) -> str:
    """Return to how many daemons somebody gets a link who knows Bob's key and address, but is no peer."""
    seed = (scene.bob.home / "state" / "keys" / "identity.key").read_bytes()
    key = bytes(SigningKey(seed).verify_key).hex()
    command = [*scene.left.prefix, sys.executable, "-c", code, str(home), bus(scene.bob), key]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()
