"""Who is let in: C28, tokens, assertions, Host and Origin, slow and large requests."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from a2a.client import A2AClientError
from a2a.types import ListTasksRequest, TaskState
from nacl.signing import SigningKey

from sublet.a2a_server import auth, limits
from sublet.a2a_server.auth import MAX_REQUESTS_PER_CALLER
from sublet.a2a_wire.assertion import ASSERTION_TYPE, private_key
from sublet.daemon.net import http_connection
from sublet.protocol.ids import fingerprint
from support.a2a_world import TOKEN, Node, World, text, until, world

pytestmark = pytest.mark.anyio

MESSAGE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "SendMessage",
    "params": {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}},
}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}


async def post(bob: World, token: str | None, body: Any = None, **headers: str) -> httpx.Response:
    authorization = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx.AsyncClient(base_url=bob.url, trust_env=False) as http:
        return await http.post("/", json=body or LIST, headers={"A2A-Version": "1.0", **authorization, **headers})


async def test_without_a_token_only_the_card_and_a_clear_error(bob: World) -> None:
    async with httpx.AsyncClient(base_url=bob.url) as http:
        assert (await http.get("/.well-known/agent-card.json")).status_code == 200
        for method, path in [("POST", "/"), ("GET", "/"), ("GET", "/healthz"), ("GET", "/nothing"), ("PUT", "/x")]:
            answer = await http.request(method, path)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert answer.json()["error"]["code"] == "AUTH_FAILED"
            assert "sublet token create" in answer.json()["error"]["hint"]
        assert (await http.post("/.well-known/agent-card.json")).status_code == 401
    assert (await post(bob, None, MESSAGE)).status_code == 401
    assert (await post(bob, "tok_wrong", MESSAGE)).status_code == 401
    assert (await post(bob, TOKEN, MESSAGE, Authorization=f"Basic {TOKEN}")).status_code == 401
    assert bob.messages.asked == []
    assert await bob.stored() == 0


async def test_a_token_lets_in(bob: World) -> None:
    assert (await post(bob, TOKEN)).json()["result"]["totalSize"] == 0
    async with httpx.AsyncClient(base_url=bob.url, headers={"Authorization": f"Bearer {TOKEN}"}) as http:
        assert (await http.get("/healthz")).json() == {"status": "ok"}


async def test_c28_foreign_host_and_origin_are_refused(bob: World) -> None:
    port = bob.url.rsplit(":", 1)[1]
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "127.0.0.1@evil.example", ""):
        assert (await post(bob, TOKEN, MESSAGE, Host=host)).status_code == 421
    for origin in ("https://evil.example", "null", f"http://localhost:{int(port) + 1}", "file://", f"http://[x:{port}"):
        assert (await post(bob, TOKEN, MESSAGE, Origin=origin)).status_code == 403
    assert bob.messages.asked == []
    async with httpx.AsyncClient(base_url=bob.url) as http:  # not even the card
        card = await http.get("/.well-known/agent-card.json", headers={"Host": "evil.example"})
    assert card.status_code == 421
    for host in (f"localhost:{port}", "LOCALHOST", f"127.0.0.1:{port}", f"[::1]:{port}"):
        assert (await post(bob, TOKEN, Host=host)).status_code == 200
    assert (await post(bob, TOKEN, Origin=f"http://127.0.0.1:{port}")).status_code == 200


async def test_the_public_url_is_a_name_of_ours(tmp_path: Path) -> None:
    async with world(tmp_path, public_url="https://bob.example/") as bob:
        assert bob.url == "https://bob.example"
        local = bob.face._socket
        assert local is not None
        local_url = f"http://127.0.0.1:{local.getsockname()[1]}"
        async with httpx.AsyncClient(base_url=local_url, headers={"Authorization": f"Bearer {TOKEN}"}) as http:
            ours = {"Host": "bob.example", "Origin": "https://bob.example"}
            assert (await http.get("/healthz", headers=ours)).status_code == 200
            card = (await http.get("/.well-known/agent-card.json")).json()
        assert card["url"] == "https://bob.example/"


async def test_a_peer_assertion_is_good_once(bob: World) -> None:
    assertion = bob.alice.assertion(bob.me.fingerprint)
    assert (await post(bob, assertion)).status_code == 200
    assert (await post(bob, assertion)).status_code == 401


async def test_assertions_that_are_not_alices(bob: World) -> None:
    now = int(time.time())
    good = {"iss": bob.alice.node_id, "aud": bob.me.fingerprint, "iat": now, "exp": now + 60, "jti": "j1"}
    header = {"typ": ASSERTION_TYPE, "kid": bob.alice.fingerprint}

    def made(key: SigningKey = bob.alice.key, header: dict[str, str] = header, **claims: object) -> str:
        return jwt.encode({**good, **claims}, private_key(key), algorithm="EdDSA", headers=header)

    assert (await post(bob, made())).status_code == 200
    refused = [
        made(key=bob.mallory.key, jti="j2"),
        made(aud=bob.mallory.fingerprint, jti="j3"),
        made(iat=now - 3600, exp=now - 3540, jti="j4"),
        made(iat=now + 3600, exp=now + 3660, jti="j5"),
        made(exp=now + 3600, jti="j6"),
        made(iat=float(now), jti="j7"),
        made(jti="j" * 100),
        made(header={**header, "typ": "JWT"}, jti="j8"),
        made(iss=Node("stranger").node_id, jti="j9"),
        jwt.encode({**good, "jti": "j10"}, "a-secret-of-enough-length-for-hs256", algorithm="HS256", headers=header),
        made(jti="j11")[:-4] + "AAAA",
        "a.b.c",
    ]
    for assertion in refused:
        assert (await post(bob, assertion, MESSAGE)).status_code == 401
    assert bob.messages.asked == []
    assert bob.changed_keys == []


async def test_another_key_for_a_known_node_is_loud(bob: World) -> None:
    other = SigningKey.generate()
    shown = fingerprint(bytes(other.verify_key))
    now = int(time.time())
    claims = {"iss": bob.alice.node_id, "aud": bob.me.fingerprint, "iat": now, "exp": now + 60, "jti": "k"}
    for _ in range(3):
        assertion = jwt.encode(
            claims, private_key(other), algorithm="EdDSA", headers={"typ": ASSERTION_TYPE, "kid": shown}
        )
        answer = await post(bob, assertion)
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "KEY_CHANGED"
    assert bob.changed_keys == [(bob.alice.node_id, shown)]  # once, however often it comes


async def test_reports_of_changed_keys_are_bounded(bob: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "MAX_REPORTED_KEYS", 3)
    now = int(time.time())
    claims = {"iss": bob.alice.node_id, "aud": bob.me.fingerprint, "iat": now, "exp": now + 60, "jti": "k"}
    async with httpx.AsyncClient(base_url=bob.url) as http:
        for number in range(6):
            kid = "SHA256:" + f"{number:043d}"
            token = jwt.encode(
                claims, private_key(bob.mallory.key), algorithm="EdDSA", headers={"typ": ASSERTION_TYPE, "kid": kid}
            )
            assert (await http.post("/", headers={"Authorization": f"Bearer {token}"})).status_code == 401
    assert len(bob.changed_keys) == 3


async def test_requests_per_caller_are_bounded(bob: World) -> None:
    bob.messages.gate.clear()
    async with bob.rpc(TOKEN) as rpc, asyncio.TaskGroup() as group:
        for _ in range(MAX_REQUESTS_PER_CALLER):
            group.create_task(rpc.send_message(text("wait")))
        await until(lambda: len(bob.messages.asked) == MAX_REQUESTS_PER_CALLER)
        assert (await post(bob, TOKEN)).status_code == 429
        async with bob.rpc(bob.alice) as other:  # others are served
            await other.list_tasks(ListTasksRequest())
        bob.messages.gate.set()


def connected(bob: World) -> socket.socket:
    host, port = bob.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=20)


@pytest.mark.parametrize(
    ("escaped", "status"), [("\\ud83d", 400), ("\\ude00\\ud83d", 400), ("\\ud83d\\ude00", 200), ("\\\\ud83d", 200)]
)
async def test_half_of_a_character_is_refused(bob: World, escaped: str, status: int) -> None:
    body = json.dumps({**LIST, "method": "GetTask", "params": {"id": "@"}}).replace("@", escaped)
    headers = {"Authorization": f"Bearer {TOKEN}", "A2A-Version": "1.0", "Content-Type": "application/json"}
    async with httpx.AsyncClient(base_url=bob.url, trust_env=False) as http:
        assert (await http.post("/", content=body, headers=headers)).status_code == status


async def test_a_slow_body_times_out(bob: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_BODY_SECONDS", 0.2)
    with connected(bob) as slow:
        head = f"POST / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 100\r\n\r\n{{"
        slow.sendall(head.encode())
        answer = await asyncio.to_thread(slow.recv, 4096)
    assert answer.startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("served_before", [0, 2])
async def test_headers_that_never_end_time_out(bob: World, monkeypatch: pytest.MonkeyPatch, served_before: int) -> None:
    """Also after good requests on the same connection, where uvicorn waits for ever once a byte has come."""
    monkeypatch.setattr(http_connection, "HEADER_SECONDS", 0.2)

    def read_to_the_end() -> None:
        with connected(bob) as slow:
            for _ in range(served_before):
                slow.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                answer = b""
                while not answer.endswith(b"}}"):
                    answer += slow.recv(4096)
            slow.sendall(b"POST / HTTP/1.1\r\nHost: ")
            assert slow.recv(4096) == b""

    await asyncio.to_thread(read_to_the_end)


async def test_a_connection_that_says_nothing_times_out(bob: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "HEADER_SECONDS", 0.2)
    with connected(bob) as silent:
        assert await asyncio.to_thread(silent.recv, 4096) == b""


async def test_the_rest_of_a_refused_request_can_not_be_trickled_for_ever(
    bob: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "HEADER_SECONDS", 0.3)

    def trickle() -> None:
        with connected(bob) as slow:
            slow.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")
            for _ in range(200):
                slow.sendall(b" ")
                time.sleep(0.05)

    with pytest.raises(OSError, match=r"reset|Broken pipe"):
        await asyncio.to_thread(trickle)


async def test_a_reader_that_does_not_read_is_cut_off(bob: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "STUCK_READER_SECONDS", 0.2)
    listener = bob.face._socket
    assert listener is not None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # inherited by its connections
    request = b"GET /.well-known/agent-card.json HTTP/1.1\r\nHost: localhost\r\n\r\n"

    def flood() -> None:
        with socket.socket() as stuck:
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stuck.settimeout(20)
            stuck.connect(listener.getsockname())
            while True:
                stuck.sendall(request * 50)

    with pytest.raises(OSError, match=r"reset|Broken pipe"):
        await asyncio.to_thread(flood)


async def test_a_stream_of_a_revoked_token_is_cut(tmp_path: Path) -> None:
    tokens = {TOKEN: "ci"}
    async with world(tmp_path, find_token=tokens.get) as bob, bob.rpc(TOKEN) as rpc:
        bob.messages.gate.clear()
        events = rpc.send_message_streaming(text("hello"))
        await anext(aiter(events))
        await bob.messages.running.wait()
        tokens.clear()
        bob.messages.gate.set()
        seen: list[int] = []

        async def read_on() -> None:
            while True:
                seen.append((await anext(aiter(events))).status_update.status.state)

        with pytest.raises(A2AClientError):
            await read_on()
    assert TaskState.TASK_STATE_COMPLETED not in seen
