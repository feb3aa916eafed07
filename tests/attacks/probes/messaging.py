"""What a peer's bytes cost in rooms and on the bus, and how many of them are kept."""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nacl.signing import SigningKey

from attacks.kit.neighbour import HOST, shake
from attacks.kit.room_floods import LISTS, acknowledgement, present, saying, statements
from attacks.probe import CostProbe, FailureProbe, KeptProbe, Probe
from protocol.ezagent.configs import EVE, OWNER, ROOM, room
from sublet.messaging.accepting.arrival import Arrival
from sublet.messaging.delivery.heard import AcknowledgementQueue
from sublet.messaging.documents.held import HeldUpdates, Need
from sublet.messaging.documents.ordered import Ranges
from sublet.messaging.documents.sequence import Node, YataList, in_order
from sublet.messaging.intake.waiting import WaitingForKeys
from sublet.messaging.links import keys as link_keys
from sublet.messaging.links.keys import LinkKeys
from sublet.messaging.links.links import Links
from sublet.messaging.membership.invitations import read_offer, rooms_in
from sublet.messaging.membership.joining import MAX_ROOMS_OF_INVITATION
from sublet.messaging.parts import parts_of
from sublet.messaging.ports.network import Sample
from sublet.messaging.running.arrivals import Arrivals
from sublet.messaging.running.hand_over import HandOver
from sublet.messaging.syncing.replays import MAX_NONCES, SeenQuestions
from sublet.messaging.texts.text_body import TextBody
from sublet.messaging.texts.text_order import TextOrder
from sublet.protocol.ezagent import identity, ids, keys, shards, writer_rules
from sublet.protocol.ezagent.bundle import Bundle, RecordKind, decode_bundle, encode_bundle
from sublet.protocol.ezagent.envelope import seal, unpack
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.room.fold import evaluate
from sublet.protocol.ezagent.room.statements import Statement
from sublet.protocol.ezagent.yjs.decode import decode_update
from sublet.protocol.ezagent.yjs.encode import Transaction
from sublet.protocol.ezagent.yjs.update import STRING, Deletion, Item, ItemId, Update
from sublet.protocol.ezagent.yjs.vectors import decode_vector, encode_vector
from sublet.protocol.ezagent.yjs.writer import write_number
from sublet.protocol.ids import node_id
from support.rooms import Peer, entity_key, peers, shared_room

WRITERS = 8


def _swallowed(call: Callable[[Any], object]) -> Callable[[Any], object]:
    def run(given: Any) -> object:
        with contextlib.suppress(Refused, ValueError):
            return call(given)
        return None

    return run


def _part(clock: int, left: ItemId | None, right: ItemId | None) -> Item:
    return Item(clock, 1, STRING, left, right, None, None, "x")


def _parts(number: int, shape: str) -> list[tuple[int, Item]]:
    """Return parts of a text that eight clients put at one place, none of which knew of the others."""
    found = []
    for client in range(1, WRITERS + 1):
        for clock in range(number // WRITERS):
            own = (client, clock - 1) if clock else None
            left, right = {"beginning": (None, None), "before": (None, own), "behind": (own, None)}[shape]
            found.append((client, _part(clock, left, right)))
    return found


def _place(parts: list[tuple[int, Item]]) -> TextOrder:
    order = TextOrder()
    for client, item in parts:
        order.place(client, [item])
    return order


def _place_in_vain(items: list[Item]) -> None:
    assert not TextOrder().place(1, items)


def _text(parts: list[tuple[int, Item]]) -> str:
    body = TextBody("body")
    for client, item in parts:
        body.place(client, [item])
        body.delete([Deletion(client, item.clock, 1 + item.clock % 2)])
    transaction = Transaction(99, 0)
    body.edit(transaction, 0, len(body.value), "z", {})
    return body.value


def _nodes(number: int) -> list[Node]:
    return [
        Node((client, clock), 1, None, None, f"{client}-{clock}", "", 0)
        for client in range(1, WRITERS + 1)
        for clock in range(number // WRITERS)
    ]


def _integrate(nodes: list[Node]) -> None:
    made = YataList()
    for node in nodes:
        made.integrate(Node(node.id, 1, None, None, node.entry_id, "", 0))


def _writes(number: int) -> list[tuple[ItemId, ItemId | None, ItemId | None, int]]:
    return [(node.id, None, None, place) for place, node in enumerate(_nodes(number))]


def _cuts(number: int) -> list[tuple[int, int]]:
    return [(2 * (place * 7919 % number), 2 * (place * 7919 % number) + 1) for place in range(number)]


def _add_ranges(cuts: list[tuple[int, int]]) -> None:
    ranges = Ranges()
    for start, end in cuts:
        ranges.add(start, end)
    list(ranges.left(0, 1 << 20))
    ranges.holds(5)


def _held(number: int) -> tuple[list[Update], int]:
    """Return updates that wait for all clocks of one that comes clock by clock."""
    items = [_part(clock, (1, clock), None) for clock in range(number)]
    return [Update(2, 0, number, items, [])], number


def _release(given: tuple[list[Update], int]) -> None:
    updates, number = given
    held, there = HeldUpdates(), 0

    def absent(item: ItemId) -> bool:
        return item[1] >= there

    def need(update: Update, begin: int) -> Need | None:
        for place in range(begin, len(update.items)):
            origin = update.items[place].origin
            if origin is not None and absent(origin):
                return Need(origin, place)
        return None

    for update in updates:
        first = need(update, 0)
        assert first is not None
        held.add(bytes(32), unpack(_envelope(b"x")), update, first)
    for there in range(1, number + 1):  # noqa: B007  # read by ``absent``
        held.take(absent, need)


def _envelope(payload: bytes) -> bytes:
    return seal(entity_key("eve"), "@eve:a", "ezagent/x/config", 1, payload).raw


def _update_of(number: int, item: bytes) -> bytes:
    out = bytearray()
    for value in (1, number, 1 << 40, 0):
        write_number(out, value)
    return bytes(out + item * number + b"\0")


def _deleting(number: int) -> bytes:
    out = bytearray(b"\0\1\7")
    write_number(out, number)
    for place in range(number):
        write_number(out, 2 * place)
        out.append(1)
    return bytes(out)


def _statements(number: int, kind: str) -> list[Statement]:
    """Return a config in which somebody comes and goes, or writes what nobody let them, while the rules change."""
    owner, _, _, eve = room("open")
    found = list(owner.known.values())
    members = owner.latest(("membership", "members"))
    policy = owner.latest(("membership", "policy"))
    assert members is not None
    assert policy is not None
    before: ItemId | None = None if kind == "comes" else policy.id
    for clock in range(number):
        if kind == "comes":
            seen = {"config": {str(eve.client): clock}}
            value: Any = {"role": "left", "seen": seen} if clock % 2 else "member"
            made = Statement((eve.client, clock), EVE, ("membership", "members", EVE), value, before, members.id, clock)
        elif clock % 2:
            made = Statement((eve.client, clock), EVE, ("name",), "x", None, None, 10**6 + clock)
            found.append(made)
            continue
        else:
            made = Statement(
                (owner.client, 10**6 + clock), OWNER, policy.path, "open", before, policy.container, 10**7 + clock
            )
        before = made.id
        found.append(made)
    return found


def _names(text: str) -> None:
    for check in (ids.is_entity_id, ids.is_room_id, shards_of, keys_of):
        with contextlib.suppress(ValueError, Refused):
            check(text)


def shards_of(text: str) -> object:
    return shards.is_shard(text)


def keys_of(text: str) -> object:
    return keys.parse_doc_id(f"ezagent/{text}/index/2026-11")


@contextlib.contextmanager
def _ids_named() -> Iterator[None]:
    """Name ever new ids, as long as they may be, well formed and not."""
    for number in range(20_000):
        entity = f"@{number:064}:{'x' * 253}"
        ids.is_entity_id(entity)
        ids.is_entity_id(entity.upper())
        ids.is_entity_id("x" * 4_000 + f"{number}")
        ids.is_room_id(f"{number:08x}-0000-7000-8000-000000000000")
        with contextlib.suppress(Refused):
            keys.parse_doc_id(f"ezagent/{number:08x}-0000-7000-8000-000000000000/ext/draft/{entity}")
    yield


@contextlib.contextmanager
def _identities_shown() -> Iterator[None]:
    """Show ever new records of identities, as long as those are that are kept, and trust ever new keys."""
    own, name = SigningKey(bytes(32)), "d" * 400
    for number in range(2 * identity.PROVEN_KEPT):
        daemon = SigningKey(number.to_bytes(32, "big"))
        entity = f"@a:{node_id(bytes(daemon.verify_key))}"
        signature = own.sign(identity.device_bytes(entity, name, bytes(32))).signature
        devices = (identity.Device(name, bytes(32), signature),) * 4
        identity.parse_record(
            identity.make_record("a", identity.EntityKind.AGENT, bytes(own.verify_key), daemon, 1, devices).encode()
        )
    for number in range(2 * link_keys.MAX_AUTHORITIES):
        link_keys._authority(bytes(SigningKey(number.to_bytes(32, "big")).verify_key))
    yield


def _rule(text: str) -> object:
    return writer_rules.parse_rule(text)


@contextlib.contextmanager
def _links() -> Iterator[tuple[Links, int, Path]]:
    """Run links that nobody is let into; yield them with their port and the directory of their keys and sockets."""
    with tempfile.TemporaryDirectory(prefix="bus") as directory:
        place, keys = Path(directory), LinkKeys(Path(directory) / "keys", Ed25519PrivateKey.generate())
        with socket.create_server((HOST, 0)) as listener:
            port = int(listener.getsockname()[1])
            links = Links(keys, place / "s", listener)
        try:
            yield links, port, place
        finally:
            links.close()


@contextlib.contextmanager
def _silent() -> Iterator[object]:
    """Let strangers open connections without end and say nothing."""
    with _links() as (links, port, _):
        made = [socket.create_connection((HOST, port)) for _ in range(200)]
        try:
            links.peers()
            yield links
        finally:
            for one in made:
                one.close()
            links.trust(())  # ends all handshakes
            links.peers()


@contextlib.contextmanager
def _flooded() -> Iterator[object]:
    """Let one signer send more than is kept of anybody, until the engine has taken it."""
    arrivals, waiting = Arrivals[str](), WaitingForKeys()
    raw = _envelope(bytes(100_000))
    for _ in range(2_000):
        arrivals.hear(Sample("k", raw, b""))
        waiting.keep("@eve:a", Arrival(raw + b"\0"))
    try:
        yield arrivals
    finally:
        while len(arrivals):
            arrivals.take(256)
        waiting.release("@eve:a")


@contextlib.contextmanager
def _acknowledging() -> Iterator[object]:
    """Let a member publish acknowledgements without end, in more than one name."""
    heard, (eve, mallory) = AcknowledgementQueue(), peers("eve", "mallory")
    for one in (eve, mallory):
        raw = acknowledgement(one, ROOM, 200_000).payload
        for _ in range(500):
            heard.add(ROOM, raw + b"")
    try:
        yield heard
    finally:
        while heard.take() is not None:
            pass
        heard.missed()


@contextlib.contextmanager
def _asking() -> Iterator[object]:
    """Let peers ask more than is remembered of them, until their questions are too old."""
    seen = SeenQuestions()
    for number in range(3 * MAX_NONCES):
        seen.is_first(f"peer{number % 40}", number.to_bytes(16, "big"), number, number)
    try:
        yield seen
    finally:
        seen.is_first("later", bytes(16), 10**9, 10**9)
        seen._expire_all(10**10)


@contextlib.contextmanager
def _present() -> Iterator[object]:
    """Let members say in passing what takes much memory when it is parsed, until they are removed."""
    alice, bob, room = present()
    kept = alice.engine.ephemeral._said
    alice.engine.intake.take([saying(bob, room, LISTS)])
    said = alice.engine.ephemeral.said(room, bob.id)
    assert said is not None
    keys = [(ROOM, f"@e{number}:node{number % 9}") for number in range(20_000)]
    for key in keys:
        if kept.has_room(key, len(LISTS)):
            kept.put(key, type(said)(bytes(bytearray(LISTS)), 1, 1), len(LISTS))
    try:
        yield alice
    finally:
        alice.engine.ephemeral.settle(ROOM)
        alice.engine.ephemeral.settle(room)


@contextlib.contextmanager
def _handed_over() -> Iterator[object]:
    """Let work for the event loop come in while that stands still, and be done then."""

    async def nothing() -> None:
        pass

    async def done() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(over.dispatch, group)
            while over._todo:
                await anyio.sleep(0)
            group.cancel_scope.cancel()

    async def flood() -> None:
        over.begin(nothing)
        for number in range(20_000):
            over.soon(bool, f"ezagent/{number}".ljust(1_000))

    over = HandOver()
    anyio.run(flood)
    try:
        yield over
    finally:
        anyio.run(done)


def _config(number: int) -> tuple[Peer, list[Arrival]]:
    """Return somebody who has a config of some length, and statements of a member that come one by one."""
    alice, bob = peers("alice", "bob")
    shared = shared_room(alice, bob)
    alice.engine.intake.take(list(statements(bob, shared, 100, nonce=5)))
    return alice, list(statements(bob, shared, number))


def _take_each(given: tuple[Peer, list[Arrival]]) -> None:
    alice, arrivals = given
    for one in arrivals:
        alice.engine.intake.take([one])


def _invited(number: int) -> Bundle:
    alice, bob = peers("alice", "bob")
    shared = shared_room(alice, bob)
    records = [(RecordKind.IDENTITY, alice.entity.record.encode())]
    records += [(RecordKind.IDENTITY, b"{%d}" % one) for one in range(number)]
    records += [(RecordKind.ENVELOPE, one.envelope) for one in statements(alice, shared, number)]
    return Bundle(tuple(records))


def _read_invitation(bundle: Bundle) -> None:
    (offered,) = rooms_in(bundle, MAX_ROOMS_OF_INVITATION).values()
    (room_id,) = rooms_in(bundle)
    read_offer(lambda: Peer("bob", 1_001).engine, room_id, offered.config, offered.signers)
    parts_of(bundle)


async def _broken_turn() -> None:
    """Throw a failure in the thread of the links, which goes on."""
    with _links() as (links, port, _):
        plain = links._accept
        thrown = threading.Event()

        def fail(listener: socket.socket) -> None:
            links._accept = plain  # type: ignore[method-assign]
            thrown.set()
            raise RuntimeError("thrown by a test")

        links._accept = fail  # type: ignore[method-assign]
        socket.create_connection((HOST, port)).close()
        assert thrown.wait(10)
        _check_links(links, port)


async def _broken_handshake() -> None:
    """Say what is no TLS, and break off in the middle."""
    with _links() as (links, port, _):
        for said in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", bytes(70_000)):
            with contextlib.suppress(OSError), socket.create_connection((HOST, port)) as one:
                one.sendall(said)
        _check_links(links, port)


async def _sockets_that_are_directories() -> None:
    """Put directories where the sockets of calls are; the links go on, and end."""
    with _links() as (links, port, place):
        stranger = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
        links.call({stranger: [(HOST, 1)]})
        for one in (place / "s").iterdir():
            one.unlink()
            one.mkdir()
        links.call({})
        _check_links(links, port)


async def _key_files_that_are_no_files() -> None:
    """Tear, remove and block the file of the links' key; whoever is not trusted any more is cut all the same."""
    with _links() as (links, port, place):
        known, other = (Ed25519PrivateKey.generate().public_key().public_bytes_raw() for _ in range(2))
        file = place / "keys" / "bus.pem"
        file.write_bytes(file.read_bytes()[:99])
        links.trust([known])
        file.unlink()
        links.trust([known, other])
        cut = threading.Event()
        plain = links._cut_strangers

        def cutting() -> None:
            plain()
            cut.set()

        links._cut_strangers = cutting  # type: ignore[method-assign]
        file.unlink()
        file.mkdir()
        with pytest.raises(OSError, match="directory"):
            links.trust(())
        assert cut.is_set()
        assert links._keys.trusted == frozenset()
        _check_links(links, port)


def _check_links(links: Links, port: int) -> None:
    """Assert that the thread of the links serves, and has let nobody in."""
    assert shake(port, None, b"x").told == b""
    assert links.peers() == []


PROBES: list[Probe] = [
    *(
        CostProbe(
            name=f"rooms: parts of a text at one {shape}",
            covers=[
                "messaging.texts.text_order:TextOrder.place",
                "messaging.documents.ordered:Ordered.insert",
            ],
            make=lambda number, shape=shape: _parts(number, shape),  # type: ignore[misc]
            run=_place,
            size=2_048,
        )
        for shape in ("beginning", "before", "behind")
    ),
    CostProbe(
        name="rooms: parts of a text behind which one stands nowhere",
        covers=["messaging.texts.text_order:TextOrder._take_out"],
        make=lambda number: [*(_part(clock, None, None) for clock in range(number)), _part(number, (9, 9), None)],
        run=_place_in_vain,
        size=1_024,
    ),
    CostProbe(
        name="rooms: a text with what was deleted of it",
        covers=["messaging.texts.text_body:TextBody.edit", "messaging.documents.ordered:Ranges.left"],
        make=lambda number: _parts(number, "before"),
        run=_text,
        size=2_048,
    ),
    CostProbe(
        name="rooms: elements at one place",
        covers=["messaging.documents.sequence:YataList._walk", "messaging.documents.sequence:YataList.integrate"],
        make=_nodes,
        run=_integrate,
        size=2_048,
    ),
    CostProbe(
        name="rooms: writes of one key",
        covers=["messaging.documents.sequence:in_order"],
        make=_writes,
        run=in_order,
        size=2_048,
    ),
    CostProbe(
        name="rooms: ranges that are deleted",
        covers=["messaging.documents.ordered:Ranges.add"],
        make=_cuts,
        run=_add_ranges,
        size=4_096,
    ),
    CostProbe(
        name="rooms: a gap that closes clock by clock",
        covers=["messaging.documents.held:HeldUpdates.take", "messaging.documents.held:HeldUpdates.add"],
        make=_held,
        run=_release,
        size=1_024,
    ),
    CostProbe(
        name="rooms: an update of many items",
        covers=["protocol.ezagent.yjs.decode:decode_update", "protocol.ezagent.yjs.reader:Reader.number"],
        make=lambda number: _update_of(number, b"\x04\1\4body\1x"),
        run=_swallowed(decode_update),
        size=4_096,
    ),
    CostProbe(
        name="rooms: numbers that go on",
        covers=["protocol.ezagent.yjs.reader:Reader._signed"],
        make=lambda number: _update_of(number, b"\x08\1\4body\1\x7d\xbf\xff\x7f"),
        run=_swallowed(decode_update),
        size=4_096,
    ),
    CostProbe(
        name="rooms: an update that deletes many ranges",
        covers=["protocol.ezagent.yjs.decode:_deletions"],
        make=_deleting,
        run=_swallowed(decode_update),
        size=4_096,
    ),
    CostProbe(
        name="rooms: a state vector",
        covers=["protocol.ezagent.yjs.vectors:decode_vector"],
        make=lambda number: encode_vector(dict.fromkeys(range(1, number), 1)),
        run=_swallowed(decode_vector),
        size=4_096,
    ),
    CostProbe(
        name="rooms: a bundle of many records",
        covers=["protocol.ezagent.bundle:decode_bundle"],
        make=lambda number: encode_bundle([(RecordKind.ENVELOPE, b"x")] * number),
        run=_swallowed(decode_bundle),
        size=1_024,
    ),
    CostProbe(
        name="rooms: an envelope",
        covers=["protocol.ezagent.envelope:unpack"],
        make=lambda number: _envelope(bytes(number)),
        run=_swallowed(unpack),
        most=1 << 20,
    ),
    CostProbe(
        name="rooms: somebody who comes and goes",
        covers=["protocol.ezagent.room.ancestry:Ancestry.__init__", "protocol.ezagent.room.fold:evaluate"],
        make=lambda number: _statements(number, "comes"),
        run=lambda statements: evaluate(ROOM, statements),
        size=1_024,
    ),
    CostProbe(
        name="rooms: what nobody let somebody write",
        covers=["protocol.ezagent.room.fold:_Fold.take_all", "protocol.ezagent.room.fold:_order"],
        make=lambda number: _statements(number, "writes"),
        run=lambda statements: evaluate(ROOM, statements),
        size=512,
    ),
    CostProbe(
        name="rooms: names and ids",
        covers=[
            "protocol.ezagent.ids:is_entity_id",
            "protocol.ezagent.ids:is_room_id",
            "protocol.ezagent.shards:is_shard",
            "protocol.ezagent.keys:parse_doc_id",
        ],
        make=lambda number: "@" + "a" * number + ":",
        run=_names,
    ),
    CostProbe(
        name="rooms: a writer rule",
        covers=["protocol.ezagent.writer_rules:parse_rule"],
        make=lambda number: "signer.power_level >= " + " AND" * number,
        run=_swallowed(_rule),
    ),
    KeptProbe(
        name="bus: silent connections",
        covers=["messaging.links.links:Links._accept", "messaging.links.links:Links._turn"],
        attack=_silent,
        bound=16 << 20,
    ),
    KeptProbe(
        name="rooms: ids of which it is remembered what they are",
        covers=[
            "protocol.ezagent.ids:_is_entity",
            "protocol.ezagent.ids:_is_room",
            "protocol.ezagent.keys:_parsed",
        ],
        attack=_ids_named,
        bound=8 << 20,
        left=8 << 20,
    ),
    KeptProbe(
        name="rooms: identities of which it is remembered that they were proven",
        covers=["protocol.ezagent.identity:_proven", "messaging.links.keys:_authority"],
        attack=_identities_shown,
        bound=8 << 20,
        left=8 << 20,
    ),
    KeptProbe(
        name="rooms: more than is kept of a signer",
        covers=["messaging.running.arrivals:Arrivals.hear", "messaging.intake.waiting:WaitingForKeys.keep"],
        attack=_flooded,
    ),
    KeptProbe(
        name="rooms: acknowledgements that wait",
        covers=[
            "messaging.delivery.heard:AcknowledgementQueue.add",
            "messaging.delivery.heard:AcknowledgementQueue.take",
            "messaging.running.fair_queue:FairQueue.add",
            "messaging.running.fair_queue:FairQueue.take",
            "messaging.running.fair_queue:claimed_sender",
        ],
        attack=_acknowledging,
        bound=10 << 20,
    ),
    KeptProbe(
        name="rooms: questions that are remembered",
        covers=[
            "messaging.syncing.replays:SeenQuestions.is_first",
            "messaging.syncing.replays:SeenQuestions._make_room",
        ],
        attack=_asking,
        bound=12 << 20,
    ),
    KeptProbe(
        name="rooms: what is said in passing",
        covers=[
            "messaging.passing.kept_passing:KeptPassing.put",
            "messaging.passing.kept_passing:KeptPassing.has_room",
            "messaging.passing.ephemeral:Ephemeral.take",
            "messaging.passing.ephemeral:Ephemeral.settle",
        ],
        attack=_present,
        bound=16 << 20,
        left=3 << 20,
    ),
    KeptProbe(
        name="rooms: work that waits for the event loop",
        covers=["messaging.running.hand_over:HandOver.soon", "messaging.running.hand_over:HandOver.dispatch"],
        attack=_handed_over,
        bound=8 << 20,
    ),
    CostProbe(
        name="rooms: a config that grows one by one",
        covers=[
            "messaging.accepting.config_gathering:ConfigGathering.keep",
            "messaging.accepting.config_gathering:ConfigGathering.due",
            "messaging.intake.intake:Intake.take",
            "messaging.accepting.config_changes:ConfigChanges.changed",
            "messaging.rooms.states:RoomStates.state",
        ],
        make=_config,
        run=_take_each,
        size=384,
    ),
    CostProbe(
        name="rooms: an invitation",
        covers=[
            "messaging.membership.invitations:rooms_in",
            "messaging.membership.invitations:read_offer",
            "messaging.parts:parts_of",
        ],
        make=_invited,
        run=_read_invitation,
        size=128,
    ),
    FailureProbe(
        name="bus: a failure in the thread of the links",
        covers=["messaging.links.links:Links._run"],
        throw=_broken_turn,
    ),
    FailureProbe(
        name="bus: handshakes that break off",
        covers=["messaging.links.links:Links._guarded", "messaging.links.links:Links._shaken"],
        throw=_broken_handshake,
    ),
    FailureProbe(
        name="bus: directories in place of the sockets of calls",
        covers=["messaging.links.links:Links._drop_caller", "messaging.links.sockets:remove_directory"],
        throw=_sockets_that_are_directories,
    ),
    FailureProbe(
        name="bus: directories in place of the files of keys",
        covers=["messaging.links.keys:LinkKeys._renew"],
        throw=_key_files_that_are_no_files,
    ),
]
