"""HTTP between nodes: strangers say nothing, listed nodes their share, and whoever is called gets no more."""

from __future__ import annotations

import asyncio
import json
import ssl
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import httpcore
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID
from nacl.signing import SigningKey

from attacks.kit.caller import caller
from sublet.federation.ports import KnownNode
from sublet.federation.settings import PeerSettings
from sublet.node_http import calling, dialling, face, gate
from sublet.node_http.certificates import NodeCertificates, make_certificate
from sublet.node_http.dialling import Dialler, may_be_called
from sublet.node_http.listed import Place
from sublet.node_http.routes import EVENT_PATH, HEALTH_PATH, SERVER_PATH
from sublet.protocol.federation.addresses import node_name
from sublet.protocol.federation.envelope import MAX_ENVELOPE_BYTES, Envelope, seal
from sublet.protocol.federation.events import AgentRegistered, FederationEvent
from sublet.protocol.federation.request_proof import prove
from sublet.protocol.ids import fingerprint, node_id
from support.federation_world import World, request, until
from support.http_nodes import HttpNode, acquaint, know_each_other, serving

pytestmark = pytest.mark.anyio

ANN = SigningKey(b"ann".ljust(32, b"\0"))
EVE = SigningKey(b"a stranger".ljust(32, b"\0"))
NOWHERE = "http://127.0.0.1:9"
"""Nobody listens there."""


def print_of(key: SigningKey) -> str:
    return fingerprint(bytes(key.verify_key))


@asynccontextmanager
async def listening(tmp_path: Path, *, tls: bool = False) -> AsyncIterator[HttpNode]:
    """Serve Bob, in whose file Ann is listed."""
    bob = HttpNode(World(), "bob", tmp_path / "b", tls=tls)
    async with serving(bob):
        bob.list("ann.local", NOWHERE, print_of(ANN))
        yield bob


@pytest.fixture
async def bob(tmp_path: Path) -> AsyncIterator[HttpNode]:
    async with listening(tmp_path) as node:
        yield node


def place_of(node: HttpNode) -> tuple[str, int]:
    host, _, port = node.http.address.partition("://")[2].rpartition(":")
    return host, int(port)


def signed(
    bob: HttpNode, method: str, path: str, body: bytes = b"", *, key: SigningKey = ANN, **said: Any
) -> dict[str, str]:
    """Return the header of a request; ``said`` is signed instead of what is true."""
    what: dict[str, Any] = {"recipient": bob.fingerprint, "body": body, "now": time.time()} | said
    return {"Authorization": prove(key, method, path, **what)}


async def ask(
    bob: HttpNode, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None, size: int = -1
) -> tuple[int, Any]:
    """Return what is answered to a request, of which ``body`` comes and ``size`` bytes are announced."""
    given = {"Host": "bob"} | ({"Content-Length": str(size if size >= 0 else len(body))} if body or size >= 0 else {})
    lines = "".join(f"{name}: {value}\r\n" for name, value in (given | (headers or {})).items())
    with anyio.fail_after(8):
        async with caller(place_of(bob)) as stranger:
            await stranger.say(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body)
            status, said = await stranger.answer()
    try:
        return status, json.loads(said)
    except ValueError:
        return status, said


def registered(agent: str = "a", name: str = "ann.local") -> AgentRegistered:
    when = "2026-02-08T10:30:00Z"
    return AgentRegistered(agent_id=agent, node_id=name, runtime_type="claude", capabilities=[], timestamp=when)


def envelope(
    bob: HttpNode, *events: FederationEvent, key: SigningKey = ANN, name: str = "ann.local", **to: str
) -> bytes:
    """Return an envelope as its signer likes it."""
    public = bytes(key.verify_key)
    return seal(
        Envelope(
            event_id=to.get("event_id", "$1"),
            room_id=to.get("room", f"!agent-broadcast:{name}"),
            sender=f"@{to.get('sender', 'node')}:{name}",
            events=events or (registered(name=name),),
            origin=node_name(name),
            at_ms=int(time.time() * 1000),
            node=to.get("node", node_id(public)),
            recipient=to.get("recipient", bob.fingerprint),
        ),
        key,
    )


STRANGERS: list[tuple[str, Callable[[HttpNode], dict[str, str]], int]] = [
    ("nothing", lambda bob: {}, 401),
    ("a key that is not listed", lambda bob: signed(bob, "POST", EVENT_PATH, key=EVE), 401),
    ("for another path", lambda bob: signed(bob, "POST", HEALTH_PATH), 401),
    ("for another method", lambda bob: signed(bob, "GET", EVENT_PATH), 401),
    ("for another node", lambda bob: signed(bob, "POST", EVENT_PATH, recipient=print_of(EVE)), 401),
    ("too old", lambda bob: signed(bob, "POST", EVENT_PATH, now=time.time() - 400), 401),
    ("from the future", lambda bob: signed(bob, "POST", EVENT_PATH, now=time.time() + 400), 401),
    ("a header that is none", lambda bob: {"Authorization": "Sublet-Node key=" + "x" * 4_000}, 401),
    ("a token of another kind", lambda bob: {"Authorization": "Bearer x"}, 401),
    ("chunks", lambda bob: signed(bob, "POST", EVENT_PATH) | {"Transfer-Encoding": "chunked"}, 411),
    ("a page of a browser", lambda bob: signed(bob, "POST", EVENT_PATH) | {"Origin": "http://bob"}, 403),
    ("a long head", lambda bob: {"a": "x" * 9_000}, 431),
]


@pytest.mark.parametrize(("headers", "status"), [one[1:] for one in STRANGERS], ids=[one[0] for one in STRANGERS])
async def test_a_stranger_is_refused_before_its_body_is_read(
    bob: HttpNode, headers: Callable[[HttpNode], dict[str, str]], status: int
) -> None:
    given = headers(bob)
    got, _ = await ask(bob, "POST", EVENT_PATH, headers=given, size=-1 if "Transfer-Encoding" in given else 500_000)
    assert got == status
    assert bob.http.listed.known() == []


async def test_a_signature_that_was_altered_opens_nothing_and_all_refusals_are_alike(bob: HttpNode) -> None:
    true = signed(bob, "GET", HEALTH_PATH)["Authorization"]
    start = true.index('sig="') + 5
    answers = [
        await ask(bob, "GET", HEALTH_PATH, headers={"Authorization": one})
        for one in (true[:start] + ("B" if true[start] == "A" else "A") + true[start + 1 :], "", true + ",")
    ]
    answers.append(await ask(bob, "GET", "/nothing"))
    answers.append(await ask(bob, "GET", HEALTH_PATH + "?a=b", headers={"Authorization": true}))
    assert [status for status, _ in answers] == [401] * 5
    assert len({json.dumps(said) for _, said in answers}) == 1
    assert (await ask(bob, "GET", HEALTH_PATH, headers={"Authorization": true}))[0] == 200


async def test_what_a_listed_node_sends_is_bounded(bob: HttpNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "MAX_BODY_SECONDS", 0.2)
    monkeypatch.setattr(gate, "MAX_REQUESTS_OF_NODE", 2)
    body = b"{}"
    head = signed(bob, "POST", EVENT_PATH, body)
    assert (await ask(bob, "POST", EVENT_PATH, headers=head, size=MAX_ENVELOPE_BYTES + 1))[0] == 413
    assert (await ask(bob, "POST", EVENT_PATH, b"{", headers=head, size=2))[0] == 408
    assert (await ask(bob, "POST", EVENT_PATH, b"[]", headers=head))[0] == 401  # not the body that was signed
    assert (await ask(bob, "POST", EVENT_PATH, body, headers=head))[0] == 400
    assert (await ask(bob, "GET", "/x", headers=signed(bob, "GET", "/x")))[0] == 404
    assert (await ask(bob, "POST", HEALTH_PATH, headers=signed(bob, "POST", HEALTH_PATH)))[0] == 405
    answers: list[int] = []

    async def slow() -> None:
        answers.append((await ask(bob, "POST", EVENT_PATH, b"{", headers=head, size=2))[0])

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(slow)
    assert sorted(answers) == [408, 408, 429, 429, 429]


async def test_a_flood_of_a_listed_node_is_taken_by_its_share(bob: HttpNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bob.federation._post._envelopes, "_burst", 3.0)
    head = signed(bob, "GET", SERVER_PATH)
    statuses = [(await ask(bob, "GET", SERVER_PATH, headers=head))[0] for _ in range(6)]
    assert statuses[:3] == [200, 200, 200]
    assert 429 in statuses[3:]


async def test_silent_strangers_give_way_to_a_listed_node(bob: HttpNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(face, "MAX_CONNECTIONS", 8)
    bob.set(enabled=False)
    bob.look()
    await until(lambda: not bob.http.address)
    bob.set()
    bob.look()
    await until(lambda: bob.http.address)
    opened = [await asyncio.open_connection(*place_of(bob)) for _ in range(40)]
    head = signed(bob, "GET", HEALTH_PATH)
    assert [(await ask(bob, "GET", HEALTH_PATH, headers=head))[0] for _ in range(5)] == [200] * 5
    for _, writer in opened:
        writer.transport.abort()


async def test_what_comes_again_or_is_not_the_callers_own_moves_nothing(bob: HttpNode) -> None:
    async def send(raw: bytes) -> tuple[int, Any]:
        return await ask(bob, "POST", EVENT_PATH, raw, headers=signed(bob, "POST", EVENT_PATH, raw))

    first = envelope(bob)
    status, receipt = await send(first)
    assert (status, receipt["accepted"], receipt["event_id"]) == (200, True, "$1")
    until_told = len(bob.node.told)
    assert [(await send(first))[0] for _ in range(3)] == [200] * 3
    assert len(bob.node.told) == until_told
    refused = [
        envelope(bob, key=EVE, event_id="$2"),  # signed by another key than the one that calls
        envelope(bob, key=EVE, event_id="$3", node=node_id(bytes(ANN.verify_key))),  # and saying otherwise
        envelope(bob, event_id="$4", recipient=print_of(EVE)),
        envelope(bob, registered(name="bob.local"), event_id="$5"),
        envelope(bob, name="bob.local", event_id="$6"),  # in the name of Bob
        envelope(bob, request(bob.node, "worker-1@bob.local"), event_id="$7"),
    ]
    answers = [await send(one) for one in refused]
    assert [said["accepted"] for _, said in answers] == [False] * len(refused)
    assert {status for status, _ in answers} <= {400, 403, 404}
    assert bob.node.addresses() == ["a@ann.local"] or bob.node.addresses() == []
    assert bob.node.ledger.rows == {}


def issued(
    key: ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey,
    issuer: str,
    signer: ed25519.Ed25519PrivateKey,
    *,
    days: int = 1,
) -> bytes:
    """Return a key and a certificate that says what it likes, in PEM."""
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=9))
        .not_valid_after(now + timedelta(days=days))
        .sign(signer, None)
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)


async def test_by_tls_nobody_but_a_listed_key_says_a_word(tmp_path: Path) -> None:
    ann = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(ANN))
    eve, other = ed25519.Ed25519PrivateKey.generate(), ec.generate_private_key(ec.SECP256R1())
    ann_id = node_id(bytes(ANN.verify_key))
    shown = {
        "nothing": (b"", 0),
        "Ann's own": (make_certificate(ann, datetime.now(UTC)), 200),
        "a stranger's": (make_certificate(eve, datetime.now(UTC)), 0),
        "Ann's name, another key": (issued(eve, ann_id, eve), 0),
        "signed by Ann, another key": (issued(eve, ann_id, ann), 401),
        "signed by Ann, another kind of key": (issued(other, ann_id, ann), 401),
        "Ann's own, of yesterday": (issued(ann, ann_id, ann, days=-2), 0),
    }
    async with listening(tmp_path, tls=True) as bob:
        bob.http.listed.learn(bytes(ANN.verify_key))
        certificates = bob.http._certificates
        assert certificates is not None
        await until(lambda: bytes(ANN.verify_key) in certificates._trusted)
        assert {name: await by_tls(bob, pem) for name, (pem, _) in shown.items()} == {
            name: status for name, (_, status) in shown.items()
        }
        # Without TLS nobody is understood there.
        async with caller(place_of(bob)) as plain:
            await plain.say(b"GET " + HEALTH_PATH.encode() + b" HTTP/1.1\r\nHost: bob\r\n\r\n")
            assert (await plain.answer())[0] == 0


async def by_tls(bob: HttpNode, pem: bytes) -> int:
    """Return the status of an answer to whoever shows a certificate; 0 where the handshake is ended."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if pem:
        with tempfile.NamedTemporaryFile() as file:
            file.write(pem)
            file.flush()
            context.load_cert_chain(file.name)
    try:
        reader, writer = await asyncio.open_connection(*place_of(bob), ssl=context)
        try:
            writer.write(b"GET " + HEALTH_PATH.encode() + b" HTTP/1.1\r\nHost: bob\r\nConnection: close\r\n\r\n")
            answer = await reader.read()
        finally:
            writer.transport.abort()
    except OSError:
        return 0
    return int(answer.split(b" ", 2)[1]) if answer else 0


async def test_another_nodes_name_is_not_had_by_a_listed_key(tmp_path: Path) -> None:
    world = World()
    ann, bob, eve = (HttpNode(world, name, tmp_path / name, tls=False) for name in ("ann", "bob", "eve"))
    async with serving(ann, bob, eve):
        acquaint(ann, bob)
        await know_each_other(ann, bob)
        bob.list("eve.local", eve.http.address, eve.fingerprint)
        eve.list("bob.local", bob.http.address, bob.fingerprint)
        as_ann = Envelope(
            "$1",
            "!agent-broadcast:ann.local",
            "@node:ann.local",
            (registered("stolen"),),
            node_name("ann.local"),
            int(time.time() * 1000),
            eve.node.own.node_id,
            bob.fingerprint,
        )
        raw = await eve.http.caller.ask(known(bob), "event", seal(as_ann, eve.node.own.key))
        assert raw is not None
        assert json.loads(raw)["reason"] == "name"
        assert "stolen@ann.local" not in bob.node.addresses()


def known(node: HttpNode) -> KnownNode:
    return node.node.known()


@asynccontextmanager
async def answering(words: bytes, pause: float = 0.0) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Serve whatever on loopback; yield its URL and what was said to it."""
    heard: list[bytes] = []
    writers: list[asyncio.StreamWriter] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            while True:
                heard.append(await reader.readuntil(b"\r\n\r\n"))
                for at in range(0, len(words), 1 << 16):
                    writer.write(words[at : at + (1 << 16)])
                    await writer.drain()
                await asyncio.sleep(pause)
                if b"Connection: close" in words:
                    return
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heard
    finally:
        # A server that is closed drops, and leaves open, who was accepted in the same turn of the loop; so first nobody
        # else is accepted, and whoever was gets the turns that it takes to be served.
        for listening in server.sockets:
            asyncio.get_running_loop().remove_reader(listening.fileno())
        for _ in range(10):
            await asyncio.sleep(0)
        server.close()
        await server.wait_closed()
        for one in writers:
            one.transport.abort()
            with suppress(OSError):
                await one.wait_closed()


def http(status: str, body: bytes, *more: str) -> bytes:
    lines = "".join(f"{one}\r\n" for one in (*more, f"Content-Length: {len(body)}"))
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body


async def called(bob: HttpNode, url: str) -> tuple[bytes | None, str]:
    """Have Bob ask whoever is at a URL who it is; return the answer, and why there is none."""
    bob.list("ann.local", url, print_of(ANN))
    ann = KnownNode(node_id(bytes(ANN.verify_key)), bytes(ANN.verify_key), print_of(ANN), "ann.local", paired=False)
    answer = await bob.http.caller.ask(ann, "server", b"")
    return answer, bob.http.why_not(bob.node.settings.peers[0])


ODD = [
    ("a page of the web", http("200 OK", b"<html>"), "none of a node"),
    ("JSON without an end", http("200 OK", b'{"accepted": [' * 100), "none of a node"),
    ("too much", http("200 OK", b'{"accepted": "' + b"x" * 5_000 + b'"}'), "larger than"),
    ("packed", http("200 OK", b'{"accepted": true}', "Content-Encoding: gzip"), "packed"),
    ("no HTTP", b"SSH-2.0-x\r\n\r\n", "cut"),
    ("a head without an end", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 40_000, "cut"),
    ("nothing", b"", "nothing came"),
]


@pytest.mark.parametrize(("words", "why"), [one[1:] for one in ODD], ids=[one[0] for one in ODD])
async def test_whoever_is_called_gets_no_more_by_odd_answers(
    bob: HttpNode, monkeypatch: pytest.MonkeyPatch, words: bytes, why: str
) -> None:
    monkeypatch.setattr(calling, "ASK_SECONDS", 1.0)
    async with answering(words, pause=3.0 if not words else 0.0) as (url, _):
        answer, told = await called(bob, url)
    assert answer is None
    assert why in told


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"])
async def test_redirects_are_not_followed(bob: HttpNode, status: str) -> None:
    async with (
        answering(http("200 OK", b'{"accepted": true}')) as (elsewhere, led),
        answering(http(status, b"", f"Location: {elsewhere}/")) as (url, heard),
    ):
        answer, why = await called(bob, url)
        assert answer is None
        assert "redirects" in why
        assert heard
        assert led == []


@pytest.mark.parametrize(
    ("host", "address", "may"),
    [
        ("kitchen.local", "192.168.1.7", True),
        ("kitchen.local", "100.64.0.9", True),
        ("kitchen.local", "2001:db8::7", True),
        ("192.168.1.7", "192.168.1.7", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("localhost", "127.0.0.1", True),
        ("localhost", "192.168.1.7", False),
        ("kitchen.local", "127.0.0.1", False),
        ("kitchen.local", "::1", False),
        ("kitchen.local", "::ffff:127.0.0.1", False),
        ("kitchen.local", "169.254.169.254", False),
        ("169.254.169.254", "169.254.169.254", False),
        ("kitchen.local", "fe80::1%eth0", False),
        ("kitchen.local", "0.0.0.0", False),
        ("kitchen.local", "224.0.0.1", False),
        ("kitchen.local", "255.255.255.255", False),
        ("kitchen.local", "what", False),
    ],
)
def test_a_name_leads_to_no_program_of_this_machine(host: str, address: str, may: bool) -> None:
    assert may_be_called(host, address) is may


async def test_a_name_whose_address_changes_is_looked_up_once_and_called_there(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [["192.0.2.1"], ["127.0.0.1"], ["192.0.2.1", "127.0.0.1"], []]
    connected: list[str] = []

    async def look_up(self: object, host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        return [(0, 0, 0, "", (address, port)) for address in answers.pop(0)]

    async def connect(self: object, host: str, port: int, *_: object) -> httpcore.AsyncNetworkStream:
        connected.append(host)
        raise httpcore.ConnectError("nobody")

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", look_up)
    monkeypatch.setattr(httpcore.AnyIOBackend, "connect_tcp", connect)
    dialler = Dialler(Place("kitchen.local", 7676, True, ""), lambda: pytest.fail("no TLS"), lambda _: None)
    for refusal in (httpcore.ConnectError, dialling.WrongNode, dialling.WrongNode, httpcore.ConnectError):
        with pytest.raises(refusal) as refused:
            await dialler.connect_tcp("kitchen.local", 7676)
        assert type(refused.value) is refusal
    assert connected == ["192.0.2.1"]


async def test_a_host_is_called_at_the_first_address_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    connected: list[str] = []

    async def look_up(self: object, host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        return [(0, 0, 0, "", (address, port)) for address in ("::1", "127.0.0.1", "127.0.0.1")]

    async def connect(self: object, host: str, port: int, *_: object) -> httpcore.AsyncNetworkStream:
        connected.append(host)
        if host == "::1":
            raise httpcore.ConnectError("nobody")
        return httpcore.AsyncMockStream([])

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", look_up)
    monkeypatch.setattr(httpcore.AnyIOBackend, "connect_tcp", connect)
    dialler = Dialler(Place("localhost", 7676, True, ""), lambda: pytest.fail("no TLS"), lambda _: None)
    await dialler.connect_tcp("localhost", 7676)
    assert connected == ["::1", "127.0.0.1"]


async def test_a_name_leads_to_no_other_address_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look_up(self: object, host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        return [(0, 0, 0, "", ("192.0.2.1", port))]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", look_up)
    assert dialling.is_ours("127.0.0.1")
    assert not dialling.is_ours("192.0.2.1")
    monkeypatch.setattr(dialling, "is_ours", lambda address: address == "192.0.2.1")
    dialler = Dialler(Place("kitchen.local", 7676, True, ""), lambda: pytest.fail("no TLS"), lambda _: None)
    with pytest.raises(dialling.WrongNode):
        await dialler.connect_tcp("kitchen.local", 7676)


async def test_who_is_taken_out_while_its_body_comes_is_refused(bob: HttpNode) -> None:
    body = b"{}"
    lines = "".join(f"{name}: {value}\r\n" for name, value in signed(bob, "POST", EVENT_PATH, body).items())
    async with caller(place_of(bob)) as ann:
        await ann.say(f"POST {EVENT_PATH} HTTP/1.1\r\nHost: bob\r\nContent-Length: 2\r\n{lines}\r\n{{".encode())
        await anyio.sleep(0.05)
        bob.peers = []
        bob.set()
        await ann.say(b"}")
        with anyio.fail_after(8):
            assert (await ann.answer())[0] == 401


async def test_one_node_that_can_not_be_called_for_any_reason_ends_nothing(
    bob: HttpNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def fails(place: Place, what: str, payload: bytes) -> bytes | None:
        asked.append(place.host)
        raise RuntimeError("what nobody has thought of")

    monkeypatch.setattr(bob.http.caller, "_ask", fails)
    bob.list("cat.local", NOWHERE, print_of(EVE))
    await until(lambda: asked)
    await anyio.sleep(0.01)
    assert (await ask(bob, "GET", HEALTH_PATH, headers=signed(bob, "GET", HEALTH_PATH)))[0] == 200


def test_who_is_listed_is_found_once_for_what_the_file_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bob = HttpNode(World(), "bob", tmp_path)
    bob.list("ann.local", NOWHERE, print_of(ANN))
    looked: list[str] = []

    def looks(one: PeerSettings) -> str:
        looked.append(one.node_id)
        return ""

    monkeypatch.setattr(PeerSettings, "why_no_http", property(looks))
    assert [bob.http.listed.admits(bytes(key.verify_key)) for key in (ANN, EVE, ANN, EVE)] == [True, False, True, False]
    assert len(looked) <= 1
    bob.peers = []
    bob.set()
    assert not bob.http.listed.admits(bytes(ANN.verify_key))


def test_a_node_is_found_by_its_id_without_a_walk_over_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bob = HttpNode(World(), "bob", tmp_path)
    bob.list("ann.local", NOWHERE, print_of(ANN))
    bob.http.listed.learn(bytes(ANN.verify_key))
    (ann,) = bob.http.listed.known()
    monkeypatch.setattr(bob.http.listed, "known", lambda: pytest.fail("a walk"))
    assert bob.http.listed.pinned(ann.id) == ann
    assert bob.http.listed.pinned("node-" + "a" * 16) is None
    bob.list("ann.local", NOWHERE, print_of(EVE))
    assert bob.http.listed.pinned(ann.id) is None
    assert bob.http.listed.learn(bytes(EVE.verify_key))
    assert bob.http.listed.pinned(ann.id) is None


def test_certificates_that_can_not_be_made_leave_those_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = NodeCertificates(tmp_path, EVE)
    before = certificates.server, certificates.client, certificates._pem

    def fails(key: bytes) -> str:
        return "no certificate"

    monkeypatch.setattr("sublet.node_http.certificates._authority", fails)
    with pytest.raises(ssl.SSLError):
        certificates.trust([bytes(ANN.verify_key)], datetime.now(UTC) + timedelta(days=20))
    assert (certificates.server, certificates.client, certificates._pem) == before


def test_a_late_thread_does_not_let_in_who_was_taken_out_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = NodeCertificates(tmp_path, EVE)
    begun, real = threading.Event(), certificates._context

    def slowly(side: int, pem: bytes) -> ssl.SSLContext:
        if not begun.is_set():
            begun.set()
            time.sleep(0.2)
        return real(side, pem)

    monkeypatch.setattr(certificates, "_context", slowly)
    first = threading.Thread(target=certificates.trust, args=([bytes(ANN.verify_key)], datetime.now(UTC)))
    second = threading.Thread(target=certificates.trust, args=([bytes(EVE.verify_key)], datetime.now(UTC)))
    first.start()
    assert begun.wait(5)
    second.start()
    for one in (first, second):
        one.join(10)
    assert certificates._trusted == {bytes(EVE.verify_key)}
