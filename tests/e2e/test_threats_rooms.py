"""Somebody on the bus of two real daemons with a link: as no member of any room, and as a member who means harm."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nacl.signing import SigningKey

from attacks.kit.neighbour import identity_key, neighbour
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.extensions import EXTENSIONS
from sublet.messaging.ports.network import PeerQuery, Priority, Qos
from sublet.messaging.syncing.answers import challenged, inbox
from sublet.messaging.syncing.doorkeeper import ask
from sublet.protocol.ezagent.bundle import Bundle, RecordKind, decode_bundle, encode_bundle
from sublet.protocol.ezagent.envelope import MAX_ENVELOPE_BYTES, seal
from sublet.protocol.ezagent.keys import Channel, channel_key, doc_id
from support.asked import answers
from support.daemon_rooms import WAIT_SECONDS, bodies, shared_room
from support.daemons import Daemon, two_daemons, wait_for
from support.rooms import Clock, Peer
from support.typed_commands import Typing

pytestmark = pytest.mark.timeout(300)
World = tuple[Typing, Typing, str]
DATA = Qos(Priority.DATA, droppable=False)
HOSTILE = "\x1b[2J\x1b]0;owned\x07\u202etxt.exe\u2066\x9b31m\r\nfake: line\x00\u200b"


class Mallory:
    """Holds a link to the bus of one daemon: the other one's key was stolen.

    Args:
        daemon: whose bus it is.
        other: whose key was stolen.
        lives_on: whose entity it says to be; by default one of no paired daemon.
    """

    def __init__(self, daemon: Daemon, other: Daemon, lives_on: Daemon | None = None) -> None:
        self.peer = Peer(
            "mallory",
            1,
            declarations=(*BUILT_INS, *EXTENSIONS),
            clock=Clock(time.time_ns() // 1_000_000),
            daemon=SigningKey(identity_key(lives_on.home).private_bytes_raw()) if lives_on is not None else None,
        )
        self.id = self.peer.id
        self.network = neighbour(daemon, other)
        record = encode_bundle([(RecordKind.IDENTITY, self.peer.entity.record.encode())])
        self.network.serve(doc_id("pubkey", entity_id=self.id), lambda query: query.reply(record))
        self.network.serve(doc_id("challenge", entity_id=self.id), self._show)

    def _show(self, query: PeerQuery) -> None:
        """Show that she holds her key, so that she can be invited."""
        shown = challenged(self.peer.engine, self.id, query.payload)
        assert shown is not None
        query.reply(shown)

    def publish(self, name: str, payload: bytes, attachment: bytes = b"") -> None:
        self.network.publish(channel_key(name, Channel.UPDATES), payload, attachment, DATA)

    def send(self) -> None:
        for item in self.peer.published():
            self.network.publish(item.key, item.payload, item.attachment, item.qos)

    def learn(self, room: str) -> None:
        """Take a room's config and this month's messages from whoever has them."""
        self.peer.engine.here.want(room)
        month = self.peer.engine.shards.current_month()
        for name in (doc_id("config", room_id=room), doc_id("index", room_id=room, shard_id=month)):
            key = channel_key(name, Channel.STATE)
            asked = ask(self.peer.engine, key, b"\0")
            if asked is None:
                continue
            for answer in answers(self.network, key, asked.payload, 5.0, self.network.called):
                self.peer.engine.intake.take_bundle(room, decode_bundle(asked.opened(answer)))

    def is_member(self, room: str) -> bool:
        self.learn(room)
        return self.peer.engine.here.is_member(self.id, room)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with two_daemons(tmp_path) as daemons:
        alice, bob = (Typing(daemon) for daemon in daemons)
        room = shared_room(alice, bob)
        alice.run("send", room, "hello")
        wait_for(lambda: bodies(bob, room) == ["hello"], WAIT_SECONDS, "the message")
        yield alice, bob, room


def kept(daemon: Daemon) -> dict[str, int]:
    """Return how many rows of each table a daemon keeps, but for events and what it has been told of heads."""
    with sqlite3.connect(f"file:{daemon.home}/state/messaging.db?mode=ro", uri=True) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}


def named(who: Typing, other: Typing) -> list[str]:
    """Return who is named as a forger, once a link has come: that lets members compare what they have."""
    neighbour(who.daemon, other.daemon).close()
    return [event["entity"] for event in kinds(who, "room.equivocation")]


def kinds(who: Typing, kind: str) -> list[dict[str, Any]]:
    found, cursor = [], 0
    while True:
        answer = who.json("watch", "--since", str(cursor), "--wait", "0")
        found += [event for event in answer["events"] if event["kind"] == kind]
        if not answer["events"]:
            return found
        cursor = answer["cursor"]


def test_a_stranger_on_the_bus_changes_nothing(world: World) -> None:
    alice, bob, room = world
    hers = alice.json("whoami")["entity_id"]
    eve = Mallory(alice.daemon, bob.daemon)
    try:
        eve.learn(room)
        assert eve.peer.engine.rooms.state(room).creator is None  # nobody tells her
        month = eve.peer.engine.shards.current_month()
        index = doc_id("index", room_id=room, shard_id=month)
        config = doc_id("config", room_id=room)
        before = kept(alice.daemon)
        names = [config, index, doc_id("ext", room_id=room, ext_id="moderation"), doc_id("profile", entity_id=hers)]
        for name in names:
            for payload in (b"", b"\0" * 64, b"garbage", b"\1" + b"\xff" * 300, bytes(MAX_ENVELOPE_BYTES + 1)):
                eve.publish(name, payload, attachment=payload[:1_000])
            for signer in (hers, eve.id, "@system:local", "@../../x:y", "@a';DROP TABLE log;--:b"):
                forged = seal(eve.peer.entity.key, signer, name, eve.peer.clock.now_ms, b"\1\1\7\0\0" + bytes(50))
                eve.publish(name, forged.raw)
            for key in (channel_key(name, Channel.STATE), name, f"ezagent/{room}/index/2026-11'--/state"):
                answers(eve.network, key, b"\xff" * 500, 0.3, eve.network.called)
        for number in range(1, 30):
            shard = doc_id("index", room_id=room, shard_id=f"{month}-{number:03}")
            eve.publish(shard, seal(eve.peer.entity.key, eve.id, shard, 0, b"\1\1\7\0\0" + bytes(50)).raw)
        mine = eve.peer.do("room.create", name=HOSTILE, invite=[hers])["room_id"]
        eve.peer.engine.intake.learn(_record_of(eve, hers))
        offer = inbox(eve.peer.engine, hers, ())
        assert offer is not None
        friend = bob.json("whoami")["entity_id"]
        lie = seal(eve.peer.entity.key, friend, doc_id("config", room_id=mine), 1, b"\0\0").raw
        told = Bundle((*decode_bundle(offer).records, (RecordKind.ENVELOPE, lie)))
        for payload in (offer, encode_bundle(told.records), b"garbage", b"\1\0" + b"\xff" * 100):
            answers(
                eve.network,
                channel_key(doc_id("inbox", entity_id=hers), Channel.UPDATES),
                payload,
                2.0,
                eve.network.called,
            )
        alice.run("send", room, "still here")
        wait_for(lambda: bodies(bob, room) == ["hello", "still here"], WAIT_SECONDS, "the message")
        assert [one["room_id"] for one in alice.json("room", "list")] == [room]
        after = kept(alice.daemon)
        for table in ("documents", "clients", "records", "contents", "forks", "strangers"):
            assert after[table] - before[table] == (1 if table == "contents" else 0), (table, before, after)
    finally:
        eve.network.close()


def _record_of(eve: Mallory, entity: str) -> bytes:
    (answer, *_) = answers(eve.network, doc_id("pubkey", entity_id=entity), b"", 5.0, eve.network.called)
    return decode_bundle(answer).of(RecordKind.IDENTITY)[0]


def test_a_member_who_means_harm_is_named_and_shown_without_effect(world: World) -> None:
    alice, bob, room = world
    eve = Mallory(alice.daemon, bob.daemon, lives_on=bob.daemon)
    twin = Mallory(bob.daemon, alice.daemon, lives_on=bob.daemon)
    try:
        alice.run("room", "invite", room, eve.id)
        for one in (eve, twin):
            wait_for(lambda one=one: one.is_member(room), WAIT_SECONDS, "the membership")
        eve.peer.do("message.send", room_id=room, body=HOSTILE)
        eve.send()
        wait_for(lambda: len(bodies(alice, room)) == len(bodies(bob, room)) == 2, WAIT_SECONDS, "her first message")
        twin.learn(room)
        # Nothing of hers reaches a terminal as more than text.
        for command in (["read", room], ["watch", "--since", "0"]):
            printed = alice.daemon.run(*command).stdout
            assert not set(printed) & set("\x1b\x07\x9b\x00\r\u202e\u2066\u200b"), command
        # She says one thing to Alice and another to Bob.
        twin.peer.do("message.send", room_id=room, body="to bob")
        eve.peer.do("message.send", room_id=room, body="to alice")
        eve.send()
        twin.send()
        for who, other in ((alice, bob), (bob, alice)):
            wait_for(lambda who=who, other=other: named(who, other) == [eve.id], WAIT_SECONDS, "her name")
            assert not {"to alice", "to bob"} & set(bodies(who, room))
        bob.run("send", room, "after all")
        wait_for(lambda: bodies(alice, room)[-1] == bodies(bob, room)[-1] == "after all", WAIT_SECONDS, "the message")
        # Removed, she writes on as if she did not know.
        alice.run("room", "kick", room, eve.id)
        late = eve.peer.do("message.send", room_id=room, body="back-dated")
        eve.send()
        bob.run("send", room, "the last word")
        wait_for(lambda: bodies(alice, room)[-1] == "the last word", WAIT_SECONDS, "the message")
        assert late["ref_id"] not in [one["ref_id"] for one in alice.json("read", room, "--limit", "200")]
        assert bodies(alice, room) == bodies(bob, room)
    finally:
        eve.network.close()
        twin.network.close()
