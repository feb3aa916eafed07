"""A relay: what a client with many rooms, tokens or messages makes it do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from attacks.kit.as_probe import throwing
from attacks.probe import CostProbe, FailureProbe, KeptProbe, Probe, Reason
from daemon.rooms import test_relay_service
from sublet.messaging.relay.buckets import MAX_BUCKETS, Buckets, Rate
from sublet.messaging.relay.forwarder import Forwarder, Work
from sublet.messaging.relay.membership import RoomTable, Routes, Sent
from sublet.messaging.relay.slots import Slots
from sublet.messaging.relay.tokens import ForwardedTokens
from sublet.protocol.relay.attendance import Attendance
from sublet.protocol.relay.errors import RelayRefusal
from sublet.protocol.relay.requests import RequestAction
from sublet.protocol.relay.room_statement import RoomHomes, RoomStatement
from support.noise import noise
from support.relay_accounts import SALT, Client, make_registry

EVE = Client("eve")


def _node(number: int) -> str:
    return "node-" + "".join("abcdefghijklmnop"[number >> 4 * place & 15] for place in range(16))


def _rooms(number: int) -> Routes:
    """Return routes of somebody whose rooms name so many daemons, none of which wants to hear."""
    rooms = [EVE.room(at) for at in range(number)]
    homes = RoomHomes(
        EVE.entity, SALT, frozenset({EVE.node, *map(_node, range(8))}), frozenset(), frozenset({EVE.node})
    )
    table = RoomTable(RoomStatement("relay.test", room, homes, 1, EVE.public) for room in rooms)
    return Routes(table, {EVE.node: Attendance(frozenset(), frozenset(rooms))})


def _ask(routes: Routes) -> None:
    routes.changed()
    for _ in range(3):
        routes.of(EVE.node, "ezagent/blob/" + "0" * 64, Sent.ASKED)


def _slots(number: int) -> None:
    """Let so many accounts come and go."""
    slots = Slots(number)
    for name in map(str, range(number)):
        slots.assign(name, 10, 0)
    for name in map(str, range(number)):
        slots.forget(name)


@contextmanager
def _flooded() -> Iterator[object]:
    forwarder = Forwarder()
    forwarder.soon(_fail)
    for number in range(20_000):
        payload = bytes(16 << 10)
        forwarder.add(f"s{number % 4:05d}", len(payload), Work(partial(len, payload)))  # type: ignore[arg-type]
    yield forwarder
    forwarder.close()


def _fail() -> None:
    raise RuntimeError("of one client")


@contextmanager
def _tokens() -> Iterator[object]:
    tokens = ForwardedTokens(lambda slot, key: lambda: None)
    for number in range(20_000):
        key = f"ezagent/{number}/ephemeral/presence/@human:x"
        if tokens.came("s00000", key):
            tokens.show("s00000", key, frozenset({"s00001"}))
    for key in tokens.of("s00000"):
        tokens.went("s00000", key)
        tokens.show("s00000", key, frozenset())
    yield tokens


@contextmanager
def _callers() -> Iterator[object]:
    """Let more addresses ask than are remembered."""
    buckets = Buckets(Rate(1.0, 10.0))
    for number in range(2 * MAX_BUCKETS):
        buckets.take(f"2001:db8::{number:x}")
    yield buckets


@contextmanager
def _names() -> Iterator[object]:
    """Let names be asked for that there is no slot for, and that are no names."""
    with TemporaryDirectory() as place:
        registry = make_registry(Path(place), slots=2)
        for number in range(40):
            with suppress(RelayRefusal):
                registry.answer(RequestAction.REGISTER, Client(f"n{number}").request())
            with suppress(RelayRefusal):
                registry.answer(RequestAction.REGISTER, noise(4_096))
        yield registry


async def _failing() -> None:
    """What one client sends fails, and what the others have sent is forwarded all the same."""
    forwarder, done = Forwarder(), asyncio.Event()
    loop = asyncio.get_running_loop()
    forwarder.add("s00000", 1, Work(_fail))
    forwarder.soon(_fail)

    def tell() -> None:
        loop.call_soon_threadsafe(done.set)

    forwarder.add("s00001", 1, Work(tell))
    with anyio.fail_after(30):
        await done.wait()
    await asyncio.to_thread(forwarder.close)


PROBES: list[Probe] = [
    KeptProbe(
        name="relay: addresses without end",
        covers=["messaging.relay.buckets:Buckets.__init__"],
        attack=_callers,
        left=32 << 20,
    ),
    KeptProbe(
        name="relay: names without a slot",
        covers=["messaging.relay.registry:Registry.__init__"],
        attack=_names,
    ),
    FailureProbe(
        name="relay: what one client sends can't be forwarded",
        covers=["messaging.relay.forwarder:Forwarder.__init__"],
        throw=_failing,
    ),
    FailureProbe(
        name="relay: a daemon whose relay says another key",
        covers=["daemon.rooms.relay_keeper:RelayKeeper.run"],
        throw=throwing(test_relay_service.test_two_daemons_meet_by_name_and_talk_over_a_relay),
    ),
    Reason(
        name="relay: the directory of whoever runs it",
        covers=[
            "app.relay:_Relay.look",
            "app.relay:_alone",
            "app.relay:run_relay",
            "messaging.relay.authority:Authority.load",
            "messaging.relay.authority:Authority.make",
            "messaging.relay.authority:Authority.renew_server",
            "messaging.relay.authority:_write_key",
            "messaging.relay.settings:write_settings",
            "messaging.relay.store:SqliteRelayStore.__init__",
        ],
        why="fixed names in the operator's own private directory, in a process that the operator runs for this alone",
    ),
    CostProbe(
        name="relay: a client with many rooms",
        covers=["messaging.relay.membership:Routes._companions"],
        make=lambda size: _rooms(size // 64),
        run=_ask,
    ),
    CostProbe(
        name="relay: names that come and go",
        covers=["messaging.relay.slots:Slots._wake", "messaging.relay.slots:Slots.assign"],
        make=lambda size: size // 64,
        run=_slots,
    ),
    KeptProbe(
        name="relay: a flood of messages",
        covers=[
            "messaging.relay.forwarder:Forwarder.__init__",
            "messaging.relay.forwarder:Forwarder._next",
            "messaging.relay.forwarder:Forwarder._run",
        ],
        attack=_flooded,
        bound=80 << 20,
    ),
    KeptProbe(
        name="relay: tokens without end",
        covers=["messaging.relay.tokens:ForwardedTokens.show"],
        attack=_tokens,
    ),
]
