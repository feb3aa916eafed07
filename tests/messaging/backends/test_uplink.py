"""The uplink of the network over a real relay: what is published, asked and announced goes by our slot alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sublet.messaging.backends.zenoh_config import Endpoints, Uplink
from sublet.messaging.backends.zenoh_network import ZenohNetwork
from sublet.messaging.ports.network import ANYBODY, PeerQuery, Priority, Qos, Sample
from sublet.protocol.relay.attendance import Attendance
from support.asked import answers as answers_of
from support.relay_accounts import Client
from support.relay_hub import RunningHub, running_hub, until

DATA = Qos(Priority.DATA, droppable=False)
SECONDS = 20.0


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


def uplink_of(running: RunningHub, client: Client) -> Uplink:
    at = running.directory
    return Uplink(
        f"tls/127.0.0.1:{running.port}",
        client.slot,
        client.node,
        at / f"{client.slot}.pem",
        at / f"{client.slot}.key",
        at / "authority.pem",
    )


def linked(stack: ExitStack, running: RunningHub, client: Client) -> ZenohNetwork:
    network = ZenohNetwork(Endpoints())
    stack.callback(network.close)
    network.use_relay(uplink_of(running, running.admit(client)))
    until(lambda: network.relay_epoch() > 0, "the link")
    return network


def attend(network: ZenohNetwork, room: str, contacts: list[Client]) -> None:
    wants = Attendance(frozenset(one.node for one in contacts), frozenset({room}))
    assert network.ask_relay("relay/attend", wants.encode(), SECONDS) == b'{"ok":true}'


def test_two_networks_meet_over_a_relay(tmp_path: Path, stack: ExitStack) -> None:
    running = stack.enter_context(running_hub(tmp_path))
    alice, bob = Client("alice"), Client("bob")
    room = alice.room()
    key, token = f"ezagent/{room}/config/updates", f"ezagent/{room}/ephemeral/presence/{alice.entity}"
    one, other = linked(stack, running, alice), linked(stack, running, bob)
    heard: list[Sample] = []
    there: list[bool] = []
    other.subscribe(key, heard.append)
    other.follow(token, there.append)

    def answer(query: PeerQuery) -> None:
        threading.Thread(target=query.reply, args=(b"of bob",)).start()

    other.serve(f"ezagent/{bob.entity}/inbox/updates", answer)
    statement = alice.states(room, [alice, bob])
    assert one.ask_relay("relay/room", statement.encode(), SECONDS) == b'{"ok":1}'
    attend(one, room, [bob])
    attend(other, room, [alice])
    one.publish(key, b"of our own", b"", DATA, to=(alice.node,))
    one.publish(key, b"payload", b"attached", DATA, to=(alice.node, bob.node))
    until(lambda: heard, "what was published")
    assert heard == [Sample(key, b"payload", b"attached")], "a relay is not told what is for nobody that it reaches"
    end = one.announce(token)
    until(lambda: there == [True], "the token")
    end()
    until(lambda: there == [True, False], "its end")
    assert one.linked() == {ANYBODY}
    assert answers_of(one, f"ezagent/{bob.entity}/inbox/updates", b"?", SECONDS) == [b"of bob"]
    assert answers_of(one, f"ezagent/{alice.entity}/inbox/updates", b"?", SECONDS) == []


def test_a_relay_can_be_chosen_changed_and_left(tmp_path: Path, stack: ExitStack) -> None:
    running = stack.enter_context(running_hub(tmp_path))
    network = linked(stack, running, Client("alice"))
    first = network.relay_epoch()
    changed: list[int] = []
    network.on_change(lambda: changed.append(1))
    network.use_relay(uplink_of(running, running.admit(Client("bob"))))
    until(lambda: network.relay_epoch() > 0, "the other link")
    assert network.relay_epoch() != first
    assert changed
    epoch, met = network.relay_epoch(), network.met()
    changed.clear()
    network.known_at_relay()
    assert changed, "what was asked over it before had no answers"
    assert met.keys() == network.met().keys() == {ANYBODY}
    assert network.met()[ANYBODY] > met[ANYBODY], "so those behind it are asked as if they had come again"
    assert network.relay_epoch() == epoch, "and it is the same link"
    assert network.ask_relay("relay/nothing", b"", SECONDS) is not None
    network.use_relay(None)
    assert network.relay_epoch() == 0
    assert network.linked() == set()
    assert network.ask_relay("relay/nothing", b"", 1.0) is None
    until(lambda: running.hub.linked() == 0, "the end of both links")


def test_a_relay_that_is_not_there_or_is_another_is_tried_again(
    tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sublet.messaging.backends import zenoh_config, zenoh_network

    monkeypatch.setattr(zenoh_config, "UPLINK_OPEN_MS", 300)
    monkeypatch.setattr(zenoh_network, "UPLINK_RETRY_SECONDS", 0.1)
    running = stack.enter_context(running_hub(tmp_path / "one"))
    other = stack.enter_context(running_hub(tmp_path / "other"))
    client = running.admit(Client("alice"))
    wrong = uplink_of(running, client)
    network = ZenohNetwork(Endpoints())
    stack.callback(network.close)
    network.use_relay(
        Uplink(wrong.endpoint, wrong.slot, "", wrong.certificate, wrong.key, other.directory / "authority.pem")
    )
    for _ in range(20):
        assert network.relay_epoch() == 0
        threading.Event().wait(0.05)
    network.use_relay(uplink_of(running, client))
    until(lambda: network.relay_epoch() > 0, "the link to the right one")
