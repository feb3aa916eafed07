"""A window grows while its client uses it up, shares what there is with others, and never counts too little."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from sublet.workspace.ssh.receive_window import GROW_SECONDS, LEAST_WINDOW, MOST_WINDOW, ReceiveWindow, WindowRoom

PLENTY = 64 << 20


@dataclass
class Client:
    """A client that sends on a channel as much as it may; ``now`` is the clock of all."""

    room: WindowRoom
    now: float = 0.0
    may_send: int = LEAST_WINDOW
    closing: bool = False
    _init_recv_window: int = LEAST_WINDOW
    _recv_window: int = LEAST_WINDOW
    window: ReceiveWindow = field(init=False)

    def __post_init__(self) -> None:
        self.window = ReceiveWindow(cast(Any, self), self.room, lambda: self.now)

    def is_closing(self) -> bool:
        """Tell whether the channel is being closed."""
        return self.closing

    def send_packet(self, kind: int, size: bytes) -> None:
        """Take leave to send more."""
        assert kind == 93
        self.may_send += int.from_bytes(size, "big")

    def send(self, size: int, kept: int = 0) -> int:
        """Send so much, all of which but ``kept`` is worked off at once; return what was sent."""
        size = min(size, self.may_send)
        self.may_send -= size
        self._recv_window -= size
        self.window.delivered(size)
        self.window.open_for(kept)
        return size

    def use_up(self, times: int, seconds: float = 0.0) -> None:
        """Use up so many windows, each in so many seconds."""
        for _ in range(times):
            self.now += seconds
            for left in range(self.window.size, 0, -65_536):
                assert self.send(min(left, 65_536)) > 0


def test_it_grows_while_it_is_used_up() -> None:
    client = Client(WindowRoom(PLENTY))
    assert client.window.size == LEAST_WINDOW
    client.use_up(8)
    assert client.window.size == MOST_WINDOW
    assert client.may_send > MOST_WINDOW * 3 // 4
    assert client.room.held == MOST_WINDOW - LEAST_WINDOW


def test_one_on_which_little_is_sent_stays_small() -> None:
    client = Client(WindowRoom(PLENTY))
    client.use_up(8, GROW_SECONDS * 2)
    assert client.window.size == LEAST_WINDOW
    assert client.room.held == client.room.windows == 0


def test_others_that_grow_get_their_share() -> None:
    room = WindowRoom(4 << 20)
    clients = [Client(room) for _ in range(8)]
    for client in clients[:2]:
        client.use_up(8)
    assert [client.window.size for client in clients[:2]] == [MOST_WINDOW] * 2
    for _ in range(8):
        for client in clients:
            client.use_up(1)
    assert [client.window.size for client in clients] == [LEAST_WINDOW + (512 << 10)] * 8
    for client in clients[2:]:
        client.window.close()
        client.window.close()
    clients[0].use_up(8)
    assert clients[0].window.size == MOST_WINDOW


def test_a_closed_one_takes_nothing() -> None:
    client = Client(WindowRoom(PLENTY))
    client.use_up(3)
    client.window.close()
    before = client.may_send
    client.send(before // 2)
    assert client.may_send < before
    assert client.room.held == client.room.windows == 0


@pytest.mark.parametrize("seed", range(20))
def test_what_waits_and_may_come_is_never_more_than_counted(seed: int) -> None:
    chance = random.Random(seed)
    room = WindowRoom(3 << 20)
    clients = [Client(room) for _ in range(5)]
    kept = [0] * len(clients)
    for _ in range(3_000):
        number = chance.randrange(len(clients))
        client = clients[number]
        client.now += chance.choice((0.0, 0.01, GROW_SECONDS * 2))
        arriving = min(chance.randrange(1 << 18), client.may_send)
        kept[number] = chance.randrange(kept[number] + arriving + 1)
        client.send(arriving, kept[number])
        assert client.may_send == client._recv_window
        assert client.may_send + kept[number] <= client.window.size <= MOST_WINDOW
        assert sum(one.window.size - LEAST_WINDOW for one in clients) == room.held <= room.limit
    for client in clients:
        client.window.close()
    assert room.held == room.windows == 0
