"""A relay: what a client with many rooms, tokens or messages makes it do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from attacks.probe import CostProbe, KeptProbe, Probe
from sublet.messaging.relay.forwarder import Forwarder, Work
from sublet.messaging.relay.membership import RoomTable, Routes, Sent
from sublet.messaging.relay.slots import Slots
from sublet.messaging.relay.tokens import ForwardedTokens
from sublet.protocol.relay.attendance import Attendance
from sublet.protocol.relay.room_statement import RoomHomes, RoomStatement
from support.relay_accounts import SALT, Client

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


PROBES: list[Probe] = [
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
        covers=["messaging.relay.forwarder:Forwarder._next", "messaging.relay.forwarder:Forwarder._run"],
        attack=_flooded,
        bound=80 << 20,
    ),
    KeptProbe(
        name="relay: tokens without end",
        covers=["messaging.relay.tokens:ForwardedTokens.show"],
        attack=_tokens,
    ),
]
