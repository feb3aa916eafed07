"""The gate of the A2A face without a socket: who a caller is, what it is told, and what reaches what is behind."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

import anyio
import pytest
from nacl.signing import SigningKey
from starlette.types import Message, Receive, Scope, Send

from sublet.a2a_server import auth
from sublet.a2a_server.auth import (
    MAX_REPORTED_KEYS,
    MAX_REQUESTS_PER_CALLER,
    Authenticator,
    CallerGate,
    Credentials,
    Refused,
)
from sublet.a2a_server.caller import SCOPE_KEY, Caller
from sublet.a2a_server.hosts import AllowedHosts
from sublet.a2a_wire.assertion import make_assertion
from sublet.daemon.ports.given_to_a2a import KnownPeer
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.ids import fingerprint, node_id
from sublet.protocol.signing import Nonces

US = fingerprint(bytes(SigningKey.generate().verify_key))
ALICE, OTHER = SigningKey.generate(), SigningKey.generate()
HERE = "192.0.2.7"
SECRET = "tok_secret"


def public(key: SigningKey) -> bytes:
    return bytes(key.verify_key)


PEER = KnownPeer("alice", public(ALICE), fingerprint(public(ALICE)))
NODE = node_id(public(ALICE))


class Memory:
    """A replay memory, each caller's apart; ``full`` has no room for anybody."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, str]] = set()
        self.full = False

    def of(self, caller: str) -> Nonces:
        memory = self

        class Share:
            def first_seen(self, nonce: str, at: int) -> bool:
                if memory.full:
                    raise SubletError(LocalCode.UNAVAILABLE, "too many messages to remember")
                known = (caller, nonce) in memory.seen
                memory.seen.add((caller, nonce))
                return not known

        return Share()

    def first_seen(self, nonce: str, at: int) -> bool:
        return self.of("").first_seen(nonce, at)


class Known:
    """What a daemon knows of callers, which a test changes."""

    def __init__(self) -> None:
        self.peers: dict[str, KnownPeer] = {NODE: PEER}
        self.tokens = {SECRET: "laptop"}
        self.changed: list[tuple[str, str]] = []
        self.memory = Memory()

    def authenticator(self) -> Authenticator:
        return Authenticator(
            Credentials(US, self.peers.get, self.tokens.get, lambda *found: self.changed.append(found), self.memory)
        )


def assertion(key: SigningKey = ALICE, *, node: str = NODE, audience: str = US, kid: str | None = None) -> str:
    return make_assertion(key, node_id=node, fingerprint=kid or fingerprint(public(key)), audience=audience)


def refused(gate: Authenticator, header: str) -> Refused:
    with pytest.raises(Refused) as no:
        gate.identify(header, HERE)
    return no.value


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER "])
def test_a_token_is_a_caller_of_its_name(scheme: str) -> None:
    known = Known()
    caller = known.authenticator().identify(f"{scheme} {SECRET}", HERE)
    assert (caller.name, caller.peer, caller.source_host) == ("laptop", None, HERE)
    assert caller.subject.kind == "a2a"
    assert SECRET not in caller.owner
    assert caller.still_known()
    known.tokens.clear()
    assert not caller.still_known()


def test_a_later_token_of_the_same_name_is_another_owner() -> None:
    known = Known()
    known.tokens["tok_later"] = "laptop"
    gate = known.authenticator()
    first, later = (gate.identify(f"Bearer {secret}", HERE) for secret in (SECRET, "tok_later"))
    assert first.owner != later.owner


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", f"Basic {SECRET}", SECRET, "Bearer wrong", "Bearer " + "x" * 5_000]
)
def test_everybody_else_is_told_what_to_send(header: str) -> None:
    no = refused(Known().authenticator(), header)
    assert (no.status, no.error.code) == (401, ErrorCode.AUTH_FAILED)
    assert no.headers is not None
    assert no.headers["WWW-Authenticate"].startswith("Bearer")
    assert "sublet token create" in no.error.hint


def test_a_peer_comes_by_its_key_and_each_assertion_is_good_once() -> None:
    known = Known()
    gate, token = known.authenticator(), assertion()
    caller = gate.identify(f"Bearer {token}", HERE)
    assert (caller.name, caller.peer, caller.owner) == ("alice", PEER, f"peer:{NODE}")
    assert "used before" in str(refused(gate, f"Bearer {token}").error)
    assert caller.still_known()
    known.peers[NODE] = KnownPeer("alice", public(OTHER), fingerprint(public(OTHER)))
    assert not caller.still_known()


@pytest.mark.parametrize(
    "token",
    [
        assertion(OTHER, kid=PEER.fingerprint),
        assertion(audience="sha256:" + "0" * 43),
        assertion(node="node-" + "0" * 16),
    ],
    ids=["another key", "another daemon", "nobody paired"],
)
def test_what_alice_has_not_signed_for_us_is_refused(token: str) -> None:
    assert refused(Known().authenticator(), f"Bearer {token}").status == 401


def test_another_key_is_reported_once_and_reports_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Known()
    gate = known.authenticator()
    for _ in range(2):
        no = refused(gate, f"Bearer {assertion(OTHER)}")
        assert (no.status, no.error.code) == (401, LocalCode.KEY_CHANGED)
    assert known.changed == [(NODE, fingerprint(public(OTHER)))]
    refused(gate, f"Bearer {assertion(OTHER, kid='no fingerprint')}")
    assert len(known.changed) == 1, "what is no fingerprint is not written anywhere"
    monkeypatch.setattr(auth, "MAX_REPORTED_KEYS", 3)
    for _ in range(5):
        refused(gate, f"Bearer {assertion(SigningKey.generate())}")
    assert len(known.changed) == 3 < MAX_REPORTED_KEYS


def test_nobody_is_let_in_where_nothing_can_be_remembered() -> None:
    known = Known()
    known.memory.full = True
    no = refused(known.authenticator(), f"Bearer {assertion()}")
    assert (no.status, no.headers) == (503, {"Retry-After": "60"})


# The gate in front of an application


class Behind:
    """An application that notes who came, and answers in two pieces, between which the test may do something."""

    def __init__(self) -> None:
        self.callers: list[Caller | None] = []
        self.between: Callable[[], object] = bool
        self.goes_on = anyio.Event()
        self.goes_on.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.callers.append(cast("Caller | None", scope.get(SCOPE_KEY)))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await self.goes_on.wait()
        self.between()
        await send({"type": "http.response.body", "body": b"rest"})


def scope(path: str = "/", method: str = "POST", **headers: str) -> dict[str, Any]:
    given = {"host": "127.0.0.1:8642", **headers}
    return {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [(name.encode(), value.encode()) for name, value in given.items() if value != "-"],
        "server": ("127.0.0.1", 8642),
        "client": (HERE, 1),
        "state": {},
    }


async def served(gate: CallerGate, request: Mapping[str, Any]) -> tuple[int, bytes]:
    """Return status and body of an answer; the status of what is never begun is 0."""
    told: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        told.append(message)

    await gate(dict(request), receive, send)
    status = next((one["status"] for one in told if one["type"] == "http.response.start"), 0)
    return status, b"".join(one.get("body", b"") for one in told)


def gate_of(known: Known, behind: Behind) -> CallerGate:
    hosts = AllowedHosts("127.0.0.1", None)
    return CallerGate(behind, hosts, known.authenticator(), {"/card": frozenset({"GET"})})


@pytest.mark.anyio
async def test_the_gate_hands_on_the_caller_and_nobody_else() -> None:
    known, behind = Known(), Behind()
    gate = gate_of(known, behind)
    assert await served(gate, scope(authorization=f"Bearer {SECRET}")) == (200, b"rest")
    assert behind.callers[0] is not None
    assert behind.callers[0].name == "laptop"
    status, body = await served(gate, scope())
    assert (status, json.loads(body)["error"]["code"]) == (401, "AUTH_FAILED")
    assert len(behind.callers) == 1
    assert (await served(gate, scope("/card", "GET")))[0] == 200
    assert (await served(gate, scope("/card", "POST")))[0] == 401
    assert behind.callers[1:] == [None]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("headers", "status"),
    [({"host": "evil.example"}, 421), ({"host": "-"}, 421), ({"origin": "https://evil.example"}, 403)],
)
async def test_names_come_before_the_caller_and_before_what_is_open(headers: dict[str, str], status: int) -> None:
    known, behind = Known(), Behind()
    for request in (scope(authorization=f"Bearer {SECRET}", **headers), scope("/card", "GET", **headers)):
        assert (await served(gate_of(known, behind), request))[0] == status
    assert behind.callers == []


@pytest.mark.anyio
async def test_a_second_host_is_refused() -> None:
    request = scope(authorization=f"Bearer {SECRET}")
    request["headers"].append((b"host", b"127.0.0.1"))
    assert (await served(gate_of(Known(), Behind()), request))[0] == 421


@pytest.mark.anyio
async def test_an_answer_ends_where_its_caller_has_lost_its_access() -> None:
    known, behind = Known(), Behind()
    behind.between = known.tokens.clear
    assert await served(gate_of(known, behind), scope(authorization=f"Bearer {SECRET}")) == (200, b"")


@pytest.mark.anyio
async def test_requests_of_one_caller_are_bounded_and_those_of_others_are_not() -> None:
    known, behind = Known(), Behind()
    known.tokens["tok_other"] = "other"
    behind.goes_on = anyio.Event()
    gate = gate_of(known, behind)
    async with anyio.create_task_group() as group:
        for _ in range(MAX_REQUESTS_PER_CALLER):
            group.start_soon(served, gate, scope(authorization=f"Bearer {SECRET}"))
        with anyio.fail_after(10):
            while len(behind.callers) < MAX_REQUESTS_PER_CALLER:
                await anyio.sleep(0)
        assert (await served(gate, scope(authorization=f"Bearer {SECRET}")))[0] == 429
        behind.goes_on.set()
        assert (await served(gate, scope(authorization="Bearer tok_other")))[0] == 200
    assert (await served(gate, scope(authorization=f"Bearer {SECRET}")))[0] == 200, "what is over is given back"


@pytest.mark.anyio
async def test_what_is_no_request_of_http_is_not_answered() -> None:
    behind = Behind()
    assert await served(gate_of(Known(), behind), {"type": "websocket"}) == (0, b"")
    assert behind.callers == []
