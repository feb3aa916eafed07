"""Pairing, and the attacks on it (DESIGN 9)."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from nacl.signing import SigningKey

from sublet.daemon.peering.identity import load_tls
from sublet.daemon.peering.pair_link import parse_link
from sublet.daemon.peering.pair_proof import mac_key, prove_reply, prove_request
from sublet.daemon.peering.pairing import MAX_LINKS, MAX_WRONG_PROOFS, OwnAddress
from sublet.daemon.peering.peers import Peer, PeerStore
from sublet.daemon.ports.given_to_a2a import PairReply, PairRequest
from sublet.daemon.storage.event_log import Recorder
from sublet.protocol import ids
from sublet.protocol.encoding import b64
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import EventKind
from support.pairing import Side, side

pytestmark = pytest.mark.anyio


@pytest.fixture
async def bob(tmp_path: Path) -> AsyncIterator[Side]:
    """The executor, who makes the link."""
    async with side(tmp_path / "bob", 8001) as half:
        yield half


@pytest.fixture
async def ann(tmp_path: Path, bob: Side) -> AsyncIterator[Side]:
    """The delegator, who uses it."""
    async with side(tmp_path / "ann", 8002) as half:
        half.link.other = bob.pairing
        yield half


async def refused(half: Side, request: PairRequest, code: LocalCode = LocalCode.TOKEN_INVALID) -> None:
    with pytest.raises(SubletError) as error:
        await half.pairing.complete(request)
    assert error.value.code is code


async def test_pairing_pins_both_keys(ann: Side, bob: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "Ann's Laptop")
    made = await bob.pairing.create_link()
    assert made.fingerprint == bob.identity.fingerprint
    view = await ann.pairing.add(made.link, "bob")
    assert (view.name, view.node_id, view.a2a_url) == ("bob", bob.identity.node_id, "http://127.0.0.1:8001/")
    assert ann.peers.require("bob").public_key == bob.identity.public_key
    pinned = bob.peers.by_node_id(ann.identity.node_id)
    assert pinned is not None
    assert (pinned.name, pinned.public_key) == ("ann-s-laptop", ann.identity.public_key)
    assert pinned.address().a2a_url == "http://127.0.0.1:8002/"
    for half in (ann, bob):
        kinds = [event.kind for event in (await half.journal.events.events_after(0)).events]
        assert kinds == [*([EventKind.PAIR_LINK_MADE] if half is bob else []), EventKind.PEER_PAIRED]
        assert (await PeerStore.load(half.journal)).list() == half.peers.list()


async def test_the_secret_is_nowhere_in_the_store_or_a_repr(bob: Side) -> None:
    link = parse_link((await bob.pairing.create_link()).link)
    assert link.secret not in repr(link)
    files = b"".join(file.read_bytes() for file in bob.store.path.parent.glob("sublet.db*"))
    assert link.secret.encode() not in files
    assert link.token_id.encode() not in files


async def test_a_link_works_once(ann: Side, bob: Side) -> None:
    made = await bob.pairing.create_link()
    await ann.pairing.add(made.link, "bob")
    with pytest.raises(SubletError, match="used") as error:
        await ann.pairing.add(made.link, "bob")
    assert error.value.code is LocalCode.TOKEN_INVALID
    await refused(bob, ann.link.requests[0])


async def test_a_lost_answer_leaves_the_token_used_and_a_new_link_mends_it(ann: Side, bob: Side) -> None:
    def lose(reply: PairReply) -> PairReply:
        raise SubletError(LocalCode.PEER_UNREACHABLE, "the connection broke")

    made = await bob.pairing.create_link()
    ann.link.change_reply = lose
    with pytest.raises(SubletError, match="broke"):
        await ann.pairing.add(made.link, "bob")
    ann.link.change_reply = lambda reply: reply
    assert ann.peers.list() == []
    assert len(bob.peers.list()) == 1
    with pytest.raises(SubletError, match="used"):
        await ann.pairing.add(made.link, "bob")
    await ann.pairing.add((await bob.pairing.create_link()).link, "bob")
    assert len(bob.peers.list()) == 1


async def test_a_link_to_this_machine_that_leads_nowhere_tells_what_it_takes_from_another_one(
    ann: Side, bob: Side
) -> None:
    def lose(reply: PairReply) -> PairReply:
        raise SubletError(LocalCode.PEER_UNREACHABLE, "nobody answers", "Is it running?")

    ann.link.change_reply = lose
    with pytest.raises(SubletError, match="nobody answers") as error:
        await ann.pairing.add((await bob.pairing.create_link()).link, "bob")
    assert error.value.hint.startswith("Is it running? http://127.0.0.1:8001/ is this machine. To pair with another")


async def test_an_expired_link_is_refused_by_both_sides(ann: Side, bob: Side) -> None:
    made = await bob.pairing.create_link(60)
    bob.clock += 60
    with pytest.raises(SubletError) as error:
        await ann.pairing.add(made.link, "bob")
    assert error.value.code is LocalCode.TOKEN_INVALID
    assert len(ann.link.requests) == 1
    ann.clock += 60
    with pytest.raises(SubletError, match="expired at"):
        await ann.pairing.add(made.link, "bob")
    assert len(ann.link.requests) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"public_key": b64(bytes(SigningKey.generate().verify_key))},
        {"node_id": "node-aaaaaaaaaaaaaaaa"},
        {"a2a_url": "http://127.0.0.1:9/"},
        {"name_hint": "someone-else"},
        {"nonce": "n"},
        {"proof": ""},
        {"proof": "é"},
        {"signature": ""},
        {"signature": b64(bytes(64))},
        {"token_id": "unknown-id"},
        {"a2a_url": "file:///etc/passwd"},
        {"a2a_url": "http://192.0.2.1:80/"},
        {"tls_certificate": "no certificate"},
        {"name_hint": "x" * 3000},
        {"nonce": None},
        {"public_key": 7},
    ],
)
async def test_a_changed_request_is_refused_and_pins_nothing(ann: Side, bob: Side, change: dict[str, str]) -> None:
    ann.link.change_request = lambda request: replace(request, **change)
    with pytest.raises(SubletError) as error:
        await ann.pairing.add((await bob.pairing.create_link()).link, "bob")
    assert error.value.code is LocalCode.TOKEN_INVALID
    assert bob.peers.list() == ann.peers.list() == []


async def test_a_proof_for_another_daemon_or_channel_is_refused(ann: Side, bob: Side) -> None:
    link = parse_link((await bob.pairing.create_link()).link)
    bare = ann.pairing._request(link)
    for recipient, channel in ((ann.identity.fingerprint, ""), (bob.identity.fingerprint, ann.identity.fingerprint)):
        request = prove_request(bare, ann.identity.key, mac_key(link.secret), recipient=recipient, channel=channel)
        await refused(bob, request)


async def test_knowing_the_token_does_not_help_without_the_key(ann: Side, bob: Side) -> None:
    link = parse_link((await bob.pairing.create_link()).link)
    request = prove_request(
        ann.pairing._request(link),
        SigningKey.generate(),
        mac_key(link.secret),
        recipient=bob.identity.fingerprint,
        channel="",
    )
    await refused(bob, request)


async def test_wrong_proofs_void_the_link(ann: Side, bob: Side) -> None:
    made = await bob.pairing.create_link()
    link = parse_link(made.link)
    wrong = prove_request(
        ann.pairing._request(link), ann.identity.key, mac_key("guess"), recipient=link.fingerprint, channel=""
    )
    for _ in range(MAX_WRONG_PROOFS):
        await refused(bob, wrong)
    with pytest.raises(SubletError) as error:
        await ann.pairing.add(made.link, "bob")
    assert error.value.code is LocalCode.TOKEN_INVALID


async def test_some_wrong_proofs_do_no_harm(ann: Side, bob: Side) -> None:
    made = await bob.pairing.create_link()
    link = parse_link(made.link)
    for _ in range(MAX_WRONG_PROOFS - 1):
        await refused(bob, replace(ann.pairing._request(link), proof="x"))
    await ann.pairing.add(made.link, "bob")


async def test_an_impostor_with_another_key_is_noticed(ann: Side, bob: Side, tmp_path: Path) -> None:
    made = await bob.pairing.create_link()
    link = parse_link(made.link)
    mallory = SigningKey.generate()

    def pose(reply: PairReply) -> PairReply:
        """Even with the token, an impostor has no key with the fingerprint of the link."""
        public = bytes(mallory.verify_key)
        bare = replace(reply, node_id=ids.node_id(public), public_key=b64(public), proof="", signature="")
        return prove_reply(bare, ann.link.requests[-1], mallory, mac_key(link.secret), channel="")

    ann.link.change_reply = pose
    with pytest.raises(SubletError, match="posing") as error:
        await ann.pairing.add(made.link, "bob")
    assert error.value.code is LocalCode.KEY_CHANGED
    assert ann.peers.list() == []
    (event,) = (await ann.journal.events.events_after(0)).events
    assert event.kind is EventKind.PEER_KEY_CHANGED
    assert event.data["shown"] == ids.fingerprint(bytes(mallory.verify_key))


@pytest.mark.parametrize(
    "change",
    [{"proof": b64(bytes(32))}, {"signature": b64(bytes(64))}, {"node_id": "node-aaaaaaaaaaaaaaaa"}, {"a2a_url": "x"}],
)
async def test_a_changed_answer_is_refused(ann: Side, bob: Side, change: dict[str, str]) -> None:
    ann.link.change_reply = lambda reply: replace(reply, **change)
    with pytest.raises(SubletError, match="does not prove") as error:
        await ann.pairing.add((await bob.pairing.create_link()).link, "bob")
    assert error.value.code is LocalCode.TOKEN_INVALID
    assert ann.peers.list() == []


async def test_an_answer_to_another_request_is_refused(ann: Side, bob: Side) -> None:
    link = parse_link((await bob.pairing.create_link()).link)
    old = prove_request(
        ann.pairing._request(link), ann.identity.key, mac_key(link.secret), recipient=link.fingerprint, channel=""
    )
    reply = await bob.pairing.complete(old)
    made = await bob.pairing.create_link()
    ann.link.change_reply = lambda _: reply
    with pytest.raises(SubletError, match="does not prove"):
        await ann.pairing.add(made.link, "bob")


async def test_a_name_with_another_pinned_key_is_refused_loudly(ann: Side, bob: Side) -> None:
    other = bytes(SigningKey.generate().verify_key)
    await ann.peers.add(Peer("bob", other, None, None))
    made = await bob.pairing.create_link()
    with pytest.raises(SubletError, match="posing as bob") as error:
        await ann.pairing.add(made.link, "bob")
    assert error.value.code is LocalCode.KEY_CHANGED
    assert ann.link.requests == []
    assert ann.peers.require("bob").public_key == other
    with pytest.raises(SubletError, match="posing as bob"):
        await ann.peers.add(Peer("bob", bob.identity.public_key, None, None))
    kinds = [event.kind for event in (await ann.journal.events.events_after(0)).events]
    assert kinds == [EventKind.PEER_PAIRED, EventKind.PEER_KEY_CHANGED, EventKind.PEER_KEY_CHANGED]
    await ann.peers.remove("bob")
    await ann.pairing.add(made.link, "bob")


async def test_the_same_key_again_updates_name_and_address(ann: Side, bob: Side) -> None:
    await ann.pairing.add((await bob.pairing.create_link()).link, "bob")
    bob.address = OwnAddress("http://127.0.0.1:9001/", None)
    assert (await ann.pairing.add((await bob.pairing.create_link()).link, "robert")).was == "bob"
    assert (await ann.pairing.add((await bob.pairing.create_link()).link, "robert")).was is None
    assert [(peer.name, peer.a2a_url) for peer in ann.peers.list()] == [("robert", "http://127.0.0.1:9001/")]
    assert len(bob.peers.list()) == 1


async def test_hints_give_way_to_names_that_are_there(ann: Side, bob: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "../bob")
    await bob.peers.add(Peer("bob", bytes(SigningKey.generate().verify_key), None, None))
    await ann.pairing.add((await bob.pairing.create_link()).link, "bob")
    found = bob.peers.by_node_id(ann.identity.node_id)
    assert found is not None
    assert found.name == "bob-2"


async def test_own_links_odd_names_and_odd_times_are_refused(bob: Side) -> None:
    made = await bob.pairing.create_link()
    for link, name in ((made.link, "me"), (made.link, "../x"), (made.link, "-rf"), ("sublet+http://x", "bob")):
        with pytest.raises(SubletError) as error:
            await bob.pairing.add(link, name)
        assert error.value.code is LocalCode.INVALID_ARGUMENT
    for ttl in (0, -1, 10**9):
        with pytest.raises(SubletError, match="can't be valid"):
            await bob.pairing.create_link(ttl)


async def test_open_links_are_bounded_and_expired_ones_make_room(bob: Side) -> None:
    for _ in range(MAX_LINKS):
        await bob.pairing.create_link(60)
    with pytest.raises(SubletError, match="open already"):
        await bob.pairing.create_link(60)
    bob.clock += 60
    await bob.pairing.create_link(60)


async def test_with_tls_the_certificate_is_part_of_the_proof(ann: Side, bob: Side, tmp_path: Path) -> None:
    certificate = load_tls(tmp_path / "tls", ["192.0.2.9"])
    bob.address = OwnAddress("https://192.0.2.9:8642/", certificate.certificate_pem)
    made = await bob.pairing.create_link()
    link = parse_link(made.link)
    assert link.tls_fingerprint == certificate.fingerprint
    view = await ann.pairing.add(made.link, "bob")
    assert ann.peers.require("bob").tls_certificate == certificate.certificate_pem
    assert view.a2a_url == "https://192.0.2.9:8642/"
    # ann listens on loopback, so bob on another machine can't call her
    pinned = bob.peers.by_node_id(ann.identity.node_id)
    assert pinned is not None
    with pytest.raises(SubletError, match="told no address"):
        pinned.address()


async def test_a_removed_peer_is_gone(ann: Side, bob: Side) -> None:
    await ann.pairing.add((await bob.pairing.create_link()).link, "bob")
    assert ann.peers.find_known(bob.identity.node_id) is not None
    await ann.peers.remove("bob")
    assert ann.peers.find_known(bob.identity.node_id) is None
    assert (await PeerStore.load(ann.journal)).list() == []
    with pytest.raises(SubletError) as error:
        await ann.peers.remove("bob")
    assert error.value.code is LocalCode.PEER_UNKNOWN


async def test_of_two_uses_at_once_one_wins(ann: Side, bob: Side, tmp_path: Path) -> None:
    made = await bob.pairing.create_link()
    async with AsyncExitStack() as stack:
        eve = await stack.enter_async_context(side(tmp_path / "eve", 8003))
        eve.link.other = bob.pairing
        answers = await asyncio.gather(
            ann.pairing.add(made.link, "bob"), eve.pairing.add(made.link, "bob"), return_exceptions=True
        )
        assert sorted(isinstance(answer, SubletError) for answer in answers) == [False, True]
    assert len(bob.peers.list()) == 1


async def test_a_renamed_peer_keeps_its_key_and_is_found_by_the_new_name_alone(ann: Side, bob: Side) -> None:
    await ann.pairing.add((await bob.pairing.create_link()).link, "bob")
    view = await ann.pairing.rename("bob", "robert")
    assert (view.name, view.was, view.fingerprint) == ("robert", "bob", bob.identity.fingerprint)
    assert ann.peers.get("bob") is None
    known = ann.peers.find_known(bob.identity.node_id)
    assert known is not None
    assert known.name == "robert"
    assert (await PeerStore.load(ann.journal)).list() == ann.peers.list()
    [event] = [one for one in (await ann.journal.events.events_after(0)).events if one.kind == EventKind.PEER_RENAMED]
    assert (event.data["name"], event.data["was"]) == ("robert", "bob")
    # what was lent under the old name is found by the key
    assert ann.peers.address_of("bob", bob.identity.fingerprint, "2026-01-01T00:00:00Z") is not None
    assert (await ann.pairing.rename("robert", "robert")).was is None
    with pytest.raises(SubletError) as error:
        await ann.pairing.rename("bob", "bert")
    assert error.value.code is LocalCode.PEER_UNKNOWN


@pytest.mark.parametrize("named", ["bob", "robert"])
async def test_a_peer_that_something_names_keeps_its_name(ann: Side, bob: Side, named: str) -> None:
    await ann.pairing.add((await bob.pairing.create_link()).link, "bob")
    ann.spoken = lambda name: "the rule team" if name == named else None
    with pytest.raises(SubletError, match=r"bob keeps its name: .*the rule team names") as error:
        await ann.pairing.rename("bob", "robert")
    assert error.value.code is LocalCode.CONFLICT
    assert [peer.name for peer in ann.peers.list()] == ["bob"]


@pytest.mark.parametrize(
    ("agent", "conditions"), [("peer:bob", {}), ("mcp:x", {"peer": "bo*"}), ("mcp:x", {"peer": "rob*"})]
)
async def test_a_peer_of_which_a_grant_speaks_keeps_its_name(
    ann: Side, bob: Side, agent: str, conditions: dict[str, str]
) -> None:
    await ann.pairing.add((await bob.pairing.create_link()).link, "bob")

    def give(connection: sqlite3.Connection, _: Recorder) -> None:
        connection.execute(
            "INSERT INTO grants (id, agent, tool, conditions, scope, issued_by, issued_at, boot, issued_up, expires_at,"
            " max_uses, remaining) VALUES ('g', ?, 'read', ?, 's', 'you', 1, 'b', 1, 9e9, 1, 1)",
            (agent, json.dumps(conditions)),
        )

    await ann.journal.events.transact(give)
    with pytest.raises(SubletError, match="a grant"):
        await ann.pairing.rename("bob", "robert")

    def take_back(connection: sqlite3.Connection, _: Recorder) -> None:
        connection.execute("UPDATE grants SET revoked_at = 1")

    await ann.journal.events.transact(take_back)
    assert (await ann.pairing.rename("bob", "robert")).name == "robert"


async def test_no_peer_takes_the_name_that_another_has_or_had(ann: Side, bob: Side) -> None:
    await ann.peers.add(Peer("eve", bytes(SigningKey.generate().verify_key), None, None))
    await ann.peers.add(Peer("old", bytes(SigningKey.generate().verify_key), None, None))
    await ann.peers.remove("old")
    await ann.pairing.add((await bob.pairing.create_link()).link, "bob")
    for taken, why in (("eve", "another peer has that name"), ("old", "it was another key's")):
        with pytest.raises(SubletError, match=why):
            await ann.pairing.rename("bob", taken)
    await ann.pairing.rename("bob", "robert")
    # its own old name it may have back, and nobody else gets it by calling itself so
    await ann.pairing.rename("robert", "bob")
    assert [peer.name for peer in ann.peers.list()] == ["bob", "eve"]


async def test_a_removal_and_a_move_that_meet_a_renaming_win(ann: Side, bob: Side) -> None:
    await ann.pairing.add((await bob.pairing.create_link()).link, "bob")
    before = ann.peers.require("bob")
    await asyncio.gather(
        ann.pairing.rename("bob", "robert"), ann.peers.move(replace(before, a2a_url="http://127.0.0.1:9001/"))
    )
    moved = [(peer.name, peer.a2a_url) for peer in ann.peers.list()]
    assert moved == [("robert", "http://127.0.0.1:9001/")]
    assert (await PeerStore.load(ann.journal)).list() == ann.peers.list()
    await asyncio.gather(ann.pairing.rename("robert", "bert"), ann.peers.remove("robert"), return_exceptions=True)
    assert ann.peers.list() == []
    assert (await PeerStore.load(ann.journal)).list() == []


async def test_who_makes_a_link_is_told_who_used_it(ann: Side, bob: Side) -> None:
    used = await bob.pairing.create_link(600, by="human")
    late = await bob.pairing.create_link(60)
    unused = await bob.pairing.create_link(600)
    assert [(one.id, one.state, one.peer) for one in await bob.pairing.links()] == [
        (unused.id, "open", None),
        (late.id, "open", None),
        (used.id, "open", None),
    ]
    await ann.pairing.add(used.link, "bob")
    bob.clock += 61
    ann_there = bob.peers.by_node_id(ann.identity.node_id)
    assert ann_there is not None
    told = {one.id: one for one in await bob.pairing.links()}
    assert (told[used.id].state, told[used.id].made_by) == ("used", "human")
    assert (told[used.id].peer, told[used.id].fingerprint) == (ann_there.name, ann.identity.fingerprint)
    assert (told[late.id].state, told[unused.id].state) == ("over", "open")
    # by its key, whatever it is called later, and also when it is gone
    await bob.pairing.rename(ann_there.name, "annie")
    assert {one.peer for one in await bob.pairing.links() if one.state == "used"} == {"annie"}
    await bob.peers.remove("annie")
    [again] = [one for one in await bob.pairing.links() if one.state == "used"]
    assert (again.peer, again.fingerprint) == (None, ann.identity.fingerprint)
    # what tells of a link lets nobody pair
    link = parse_link(used.link)
    shown = "".join(one.model_dump_json() for one in await bob.pairing.links())
    events = "".join(one.model_dump_json() for one in (await bob.journal.events.events_after(0)).events)
    for secret in (link.token_id, link.secret):
        assert secret not in shown + events
    assert used.cursor < late.cursor
