"""Whoever reaches a relay: strangers, clients that are registered and want more, and those who were revoked."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import zenoh

from sublet.messaging.links.declared import MAX_ANNOUNCED
from sublet.messaging.relay import hub as hub_module
from sublet.messaging.relay import senders as senders_module
from sublet.messaging.relay.authority import Authority, requested_key
from sublet.messaging.relay.buckets import Rate
from sublet.messaging.relay.forwarder import QUEUE
from sublet.protocol.relay.errors import RelayCode, RelayRefusal
from sublet.protocol.relay.requests import RequestAction
from support.relay_accounts import Client, make_registry
from support.relay_hub import RunningHub, running_hub, until

INDEX = "index/2026-11/updates"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningHub]:
    with running_hub(tmp_path / "relay") as made:
        yield made


def refused(running: RunningHub, client: Client | None, files: tuple[Path, Path] | None = None) -> bool:
    try:
        session = running.dial(client, files=files)
    except zenoh.ZError:
        return True
    session.close()  # type: ignore[no-untyped-call]
    return False


def test_a_stranger_without_a_certificate_of_the_relay_gets_no_link(running: RunningHub, tmp_path: Path) -> None:
    alice = running.link(Client("alice"))
    assert refused(running, None)
    other, eve = tmp_path / "other", Client("eve")
    other.mkdir()
    made = Authority.make(other, "relay.test").admit(requested_key(eve.csr()), alice.client.slot, timedelta(hours=1))
    (other / "eve.pem").write_text(made.pem)
    (other / "eve.key").write_bytes(eve.key_pem())
    assert refused(running, None, (other / "eve.pem", other / "eve.key")), "a certificate of another authority"
    stolen = running.directory / f"{alice.client.slot}.pem"
    assert refused(running, None, (stolen, other / "eve.key")), "a certificate without its key"
    server = running.directory / "server.pem", running.directory / "server.key"
    assert refused(running, None, server), "a certificate of a server"
    with socket.create_connection(("127.0.0.1", running.port), timeout=10) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert not plain.recv(100).startswith(b"HTTP")
    assert running.hub.linked() == 1


@pytest.mark.parametrize("mode", ["client", "peer", "router"])
def test_a_client_hears_and_says_nothing_beyond_its_own_slot(running: RunningHub, mode: str) -> None:
    alice, bob = running.link(Client("alice")), running.link(Client("bob"))
    room = running.room(alice, [bob])
    eve = running.link(Client("eve"), mode)
    for pattern in ("**", "up/**", "down/**", f"down/{bob.client.slot}/**", f"up/{alice.client.slot}/**", "@/**"):
        eve.hear(pattern)
        eve.serve(pattern, b"of eve")
    alice.put(f"ezagent/{room}/{INDEX}", b"secret")
    until(lambda: any(payload == b"secret" for _, payload in bob.heard), "the message")
    key = f"ezagent/{room}/{INDEX}"
    eve.put(key, b"as alice", alice.client.slot)
    eve.put(key, b"as no member")
    eve.session.put(f"down/{bob.client.slot}/{key}", b"past the hub")
    shown = f"ezagent/{room}/ephemeral/presence/{alice.client.entity}"
    eve.announce(shown, alice.client.slot)
    assert eve.ask(key, slot=alice.client.slot, seconds=1) == []
    assert eve.ask("relay/attend", b'{"contacts":[],"rooms":[]}', slot=alice.client.slot, seconds=1) == []
    for pattern in ("**", "@/**", f"up/{alice.client.slot}/**"):
        asked = eve.session.get(pattern, timeout=1, allowed_destination=zenoh.Locality.REMOTE)
        assert [str(one.ok.key_expr) for one in asked if one.ok is not None] == []
    assert bob.ask(f"ezagent/{room}/config/state", seconds=2) == []
    alice.put(key, b"last")
    until(lambda: any(payload == b"last" for _, payload in bob.heard), "the last message")
    assert eve.heard == []
    assert {at for at, _ in eve.tokens} <= {f"up/{alice.client.slot}/{shown.replace('/@', '/+@')}"}, "her own alone"
    assert {payload for _, payload in bob.heard} == {b"secret", b"last"}
    assert bob.tokens == []


def test_a_registration_that_is_sent_again_gets_nothing(running: RunningHub) -> None:
    alice = Client("alice")
    raw = alice.request()
    running.registry.answer(RequestAction.REGISTER, raw)
    for action in RequestAction:
        with pytest.raises(RelayRefusal) as refusal:
            running.registry.answer(action, raw)
        assert refusal.value.code is RelayCode.INVALID_SIGNATURE
    assert running.registry.slots.taken() == 1


def test_who_is_revoked_is_cut_at_once_and_neither_hears_nor_is_heard(
    running: RunningHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "KICK_AGAIN_SECONDS", 0.0)
    alice, bob, eve = (running.link(Client(name)) for name in ("alice", "bob", "eve"))
    room = running.room(alice, [bob, eve])
    key = f"ezagent/{room}/{INDEX}"
    alice.put(key, b"before")
    until(lambda: any(payload == b"before" for _, payload in eve.heard), "the first message")
    running.registry.revoke("eve")
    assert running.hub.counts.kicked == 1
    eve.heard.clear()
    for number in range(50):
        alice.put(key, str(number).encode())
        eve.put(key, b"of eve")
    until(lambda: any(payload == b"49" for _, payload in bob.heard), "the others go on")
    until(lambda: eve.client.node not in running.hub.attending, "eve to be forgotten")
    kicked = running.hub.counts.kicked

    def cut_again() -> bool:
        running.hub.tick()
        return running.hub.counts.kicked > kicked

    until(cut_again, "her coming back, and being cut again")
    assert eve.ask("relay/attend", b'{"contacts":[],"rooms":[]}', seconds=1) == []
    assert eve.heard == []
    assert not any(payload == b"of eve" for _, payload in [*alice.heard, *bob.heard])


def test_a_certificate_that_has_ended_lets_nobody_in(tmp_path: Path) -> None:
    with running_hub(tmp_path, life=timedelta(seconds=3)) as running:
        alice = running.link(Client("alice"))
        assert running.hub.linked() == 1
        until(lambda: running.hub.linked() == 0, "the cut at the end of the certificate")
        assert refused(running, alice.client)


def test_one_clients_flood_is_its_own_loss_and_ends_its_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(senders_module, "FLOOD_SECONDS", 0.5)
    with running_hub(tmp_path, rate=Rate(300, 600)) as running:
        alice, bob, eve = (running.link(Client(name)) for name in ("alice", "bob", "eve"))
        room = running.room(alice, [bob, eve])
        key = f"ezagent/{room}/{INDEX}"
        sent = 0
        ends = time.monotonic() + 60
        while running.hub.counts.kicked == 0 and time.monotonic() < ends:
            eve.put(key, bytes(1_000))
            sent += 1
            if sent % 500 == 0:
                alice.put(key, b"honest")
        alice.put(key, b"last")
        until(lambda: any(payload == b"last" for _, payload in bob.heard), "an honest message")
        assert running.hub.counts.kicked >= 1
        flood = sum(payload == bytes(1_000) for _, payload in bob.heard)
        assert flood < sent
        assert running.senders.dropped > 0
        assert running.hub.forwarder.waiting()[1] <= QUEUE.size


def test_a_member_cannot_say_who_is_in_a_room_of_somebody_else(running: RunningHub) -> None:
    alice, bob, eve = (running.link(Client(name)) for name in ("alice", "bob", "eve"))
    room = running.room(alice, [bob])
    for statement in (
        eve.client.states(room, [eve.client, bob.client], 9, creator=alice.client, managers=[eve.client]),
        eve.client.states(room, [eve.client], 9),
        bob.client.states(room, [bob.client, eve.client], 9, creator=alice.client),
    ):
        assert "error" in eve.control("room", statement.encode())
        assert "error" in bob.control("room", statement.encode())
    eve.attend([room], [alice.client, bob.client])
    alice.put(f"ezagent/{room}/{INDEX}", b"ours")
    until(lambda: any(payload == b"ours" for _, payload in bob.heard), "the message")
    assert eve.heard == []


def test_nobody_is_brought_to_hear_what_it_has_not_asked_for(running: RunningHub) -> None:
    bob, eve = running.link(Client("bob")), running.link(Client("eve"))
    room = eve.client.room()
    bob.serve(bob.own(), b"here")
    bob.attend([], [])
    eve.control("room", eve.client.states(room, [eve.client, bob.client]).encode())
    eve.attend([room], [bob.client])
    eve.put(f"ezagent/{room}/{INDEX}", b"spam")
    for key in (
        f"ezagent/{room}/config/state",
        f"ezagent/{bob.client.entity}/inbox/updates",
        "ezagent/blob/" + "0" * 64,
    ):
        assert eve.ask(key, b"spam") == []
    assert bob.heard == []


def test_tokens_of_one_client_are_bounded(running: RunningHub) -> None:
    tokens = running.hub.tokens
    assert all(tokens.came("s00000", str(number)) for number in range(MAX_ANNOUNCED))
    assert not tokens.came("s00000", "one more")
    assert tokens.came("s00000", "0")
    assert tokens.came("s00001", "0")
    assert tokens.went("s00000", "0")
    assert not tokens.went("s00000", "0")
    assert tokens.came("s00000", "one more")


def test_names_taken_in_bulk_leave_no_slot_for_longer_than_a_certificate_lasts(tmp_path: Path) -> None:
    now = 1_000_000.0
    registry = make_registry(tmp_path, slots=2)
    registry._clock = lambda: now
    for name in ("one", "two"):
        registry.answer(RequestAction.REGISTER, Client(name).request(at=now))
    with pytest.raises(RelayRefusal) as refusal:
        registry.answer(RequestAction.REGISTER, Client("three").request(at=now))
    assert refusal.value.code is RelayCode.QUOTA_EXCEEDED
    now = time.time() + 2 * 3_600
    registry.answer(RequestAction.REGISTER, Client("three").request(at=now))
