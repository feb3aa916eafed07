"""Whoever waits for events: told of what is theirs as soon as it is durable, and forgotten when they give up."""

from __future__ import annotations

import asyncio

import pytest

from sublet.messaging.watching.watchers import Seen, Watchers
from support.rooms import Peer, peers, shared_room

pytestmark = pytest.mark.anyio


class Waiting:
    """Watchers of an engine, told as the service tells them."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.watchers = Watchers(lambda waiter, seen: waiter.set_result(seen))
        peer.engine.events.listeners.append(lambda rows: self.watchers.told(peer.engine, rows))

    def wait(self, room: str | None = None) -> asyncio.Future[Seen]:
        """Wait for what comes from now on."""
        waiter: asyncio.Future[Seen] = asyncio.get_running_loop().create_future()
        cursor = self.peer.engine.events.cursor
        assert self.watchers.look(self.peer.engine, self.peer.id, cursor, room, waiter) == ([], cursor)
        return waiter


async def test_each_is_told_once_of_what_is_theirs() -> None:
    alice, bob = peers("alice", "bob")
    first, second = shared_room(alice, bob), shared_room(alice, bob)
    waiting = Waiting(bob)
    of_first, of_all, given_up = waiting.wait(first), waiting.wait(), waiting.wait()
    assert waiting.watchers.drop(given_up) == bob.engine.events.cursor

    ref = alice.do("message.send", room_id=second, body="hello")["ref_id"]
    bob.hear(alice.published())
    found, cursor = of_all.result()
    assert [row.data["ref_id"] for row in found] == [ref]
    assert cursor == bob.engine.events.cursor
    assert not of_first.done()
    assert not given_up.done()

    alice.do("message.send", room_id=first, body="hello again")
    bob.hear(alice.published())
    assert [row.room_id for row in of_first.result()[0]] == [first]
    assert waiting.watchers.drop(of_first) == 0, "who was told waits no longer"


async def test_who_looks_finds_what_came_before_without_waiting() -> None:
    alice, bob = peers("alice", "bob")
    room = shared_room(alice, bob)
    waiting = Waiting(bob)
    alice.do("message.send", room_id=room, body="hello")
    bob.hear(alice.published())
    waiter: asyncio.Future[Seen] = asyncio.get_running_loop().create_future()
    found, _ = waiting.watchers.look(bob.engine, bob.id, 0, room, waiter)
    assert "message.new" in [row.kind for row in found]
    alice.do("message.send", room_id=room, body="hello again")
    bob.hear(alice.published())
    assert not waiter.done()
