"""A sealed room between two processes over Zenoh, with a third client on the bus that hears, asks and answers all."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import zenoh

from sublet.protocol.ezagent.sealing.envelope import is_sealed
from sublet.protocol.ezagent.sealing.files import sealed_size
from support.ports import free_port
from support.room_processes import RoomProcess, room_process, until_same

PLANTED = "the planted words"
SECONDS = 60
FILE = f"{PLANTED} in a file ".encode() * 40_000
"""Told in several pieces."""
FILE_NAME = "planted-name.txt"


class Tap:
    """A client of the bus that is nobody: keeps what it hears, what it is asked, and what it is answered."""

    def __init__(self, session: zenoh.Session) -> None:
        self._session = session
        self.seen: list[bytes] = []
        self.sealed = 0
        self._declared: list[object] = [
            session.declare_subscriber("ezagent/**", self._heard),
            session.declare_queryable("ezagent/**", self._asked),
        ]

    def follow(self, key: str) -> None:
        """Hear and be asked for a key with an entity in it, which no wildcard matches."""
        self._declared += [
            self._session.declare_subscriber(key, self._heard),
            self._session.declare_queryable(key, self._asked),
        ]

    def ask(self, key: str) -> None:
        """Ask for a key as anybody may, and keep what is answered."""
        for reply in self._session.get(key, timeout=2.0, payload=b"\0"):
            if reply.ok is not None:
                self.seen += [str(reply.ok.key_expr).encode(), reply.ok.payload.to_bytes()]

    def shows(self, words: str) -> bool:
        """Tell whether some words were seen."""
        return any(words.encode() in raw for raw in self.seen)

    def _heard(self, sample: zenoh.Sample) -> None:
        payload = sample.payload.to_bytes()
        self.sealed += is_sealed(payload)
        attachment = sample.attachment.to_bytes() if sample.attachment is not None else b""
        self.seen += [str(sample.key_expr).encode(), payload, attachment]

    def _asked(self, query: zenoh.Query) -> None:
        payload = query.payload.to_bytes() if query.payload is not None else b""
        self.seen += [str(query.key_expr).encode(), payload]
        query.drop()  # type: ignore[no-untyped-call]


@contextmanager
def tap(*ports: int) -> Iterator[Tap]:
    config = zenoh.Config()
    for name, value in {
        "mode": "peer",
        "listen/endpoints": [],
        "connect/endpoints": [f"tcp/127.0.0.1:{port}" for port in ports],
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
    }.items():
        config.insert_json5(name, json.dumps(value))
    session = zenoh.open(config)
    try:
        yield Tap(session)
    finally:
        session.close()  # type: ignore[no-untyped-call]


def talk(alice: RoomProcess, bob: RoomProcess, room: str) -> None:
    """Let both say things of all kinds in a room, and wait until both have them."""
    alice.ask("message.send", room_id=room, body=f"{PLANTED} of alice")
    bob.ask("message.send", room_id=room, body=f"{PLANTED} of bob")
    until_same(room, 2, alice, bob)
    alice.ask("room.update_config", room_id=room, changes={"name": f"{PLANTED} as a name"})
    deadline = time.monotonic() + SECONDS
    while bob.ask("room.get", room_id=room)["name"] != f"{PLANTED} as a name":
        assert time.monotonic() < deadline
        time.sleep(0.2)


def files(alice: RoomProcess, bob: RoomProcess, room: str) -> str:
    """Let one send a file and the other get it; return its address."""
    data = base64.b64encode(FILE).decode()
    kept = alice.ask("upload", room_id=room, data=data, media_type="text/plain", filename=FILE_NAME)
    alice.ask("message.send", room_id=room, body="see the file", ext={"media": kept["blob_hash"]})
    until_same(room, 3, alice, bob)
    deadline = time.monotonic() + SECONDS
    while not bob.ask("media.list", room_id=room):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert base64.b64decode(bob.ask("file", room_id=room, blob_hash=kept["blob_hash"])) == FILE
    return str(kept["blob_hash"])


def shared(alice: RoomProcess, bob: RoomProcess, tapped: Tap) -> str:
    room: str = alice.ask("room.create", name="r", invite=[bob.id])["room_id"]
    bob.until("room.member.joined", entity=bob.id)
    for peer in (alice, bob):
        tapped.follow(f"ezagent/{room}/ephemeral/presence/{peer.id}")
        tapped.follow(f"ezagent/{room}/ephemeral/awareness/{peer.id}")
        tapped.follow(f"ezagent/{peer.id}/inbox/updates")
        tapped.follow(f"ezagent/{peer.id}/inbox")
    return room


def test_a_third_client_of_the_bus_reads_nothing_of_a_sealed_room(tmp_path: Path) -> None:
    one, other = free_port(), free_port()
    for name in ("alice", "bob"):
        (tmp_path / name).mkdir()
    with (
        room_process("alice", tmp_path / "alice", one, extensions=True) as alice,
        room_process("bob", tmp_path / "bob", other, one, extensions=True) as bob,
        tap(one, other) as tapped,
    ):
        room = shared(alice, bob, tapped)
        alice.ask("room.update_config", room_id=room, changes={"encryption": "members"})
        deadline = time.monotonic() + SECONDS
        while bob.ask("room.get", room_id=room)["config"]["encryption"] != "members":
            assert time.monotonic() < deadline
            time.sleep(0.2)
        talk(alice, bob, room)
        address = files(alice, bob, room)
        for part in ("config/state", "index/*/state", "content/*", "ext/*/state", "delivery", "root"):
            tapped.ask(f"ezagent/{room}/{part}")
        tapped.ask(f"ezagent/blob/{address.removeprefix('sha256:')}")
        alice.end()
        bob.end()
        assert tapped.sealed > 0
        for words in (PLANTED, FILE_NAME, hashlib.sha256(FILE).hexdigest()):
            assert not tapped.shows(words)
        for name in ("alice", "bob"):
            kept = tmp_path / name / "blobs" / address.removeprefix("sha256:")
            assert kept.stat().st_size == sealed_size(len(FILE)) > len(FILE), name
            assert PLANTED.encode() not in kept.read_bytes()


def test_the_same_words_in_a_room_that_is_not_sealed_are_read(tmp_path: Path) -> None:
    one, other = free_port(), free_port()
    with (
        room_process("alice", tmp_path, one, extensions=True) as alice,
        room_process("bob", tmp_path, other, one, extensions=True) as bob,
        tap(one, other) as tapped,
    ):
        room = shared(alice, bob, tapped)
        talk(alice, bob, room)
        files(alice, bob, room)
        assert tapped.sealed == 0
        assert tapped.shows(PLANTED)
        assert tapped.shows(FILE_NAME)
