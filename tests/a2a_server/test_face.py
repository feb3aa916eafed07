"""The face as a server: binding, TLS, pairing, stopping, and what a restart finds."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import signal
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from a2a.types import CancelTaskRequest, GetTaskRequest, Task, TaskState

from sublet.a2a_client.answers import AnswerReader
from sublet.a2a_server import handler, pairing
from sublet.a2a_server.face import STOP_SECONDS, A2AFace
from sublet.a2a_wire.names import PAIR_PATH
from sublet.daemon.peering.identity import load_tls
from sublet.daemon.ports.given_to_a2a import PairRequest
from sublet.daemon.ports.peer_link import PeerAddress
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.messages import Accept, Done, Error
from support.a2a_world import Node, World, a_start, an_invite, seconds_since, served, text, world

pytestmark = pytest.mark.anyio

ASKED = PairRequest("good", "node-a", "key", None, None, "alice", "nonce", "proof")


async def start_and_leave(bob: World) -> Task:
    """Start a delegation whose work does not end, and hear no more of it."""
    bob.executor.gate.clear()
    async with bob.rpc(bob.alice) as rpc:
        task = (await rpc.send_message(bob.request(bob.alice, an_invite()))).task
        start = bob.request(bob.alice, a_start(task.context_id), task)
        start.configuration.return_immediately = True
        await rpc.send_message(start)
        await bob.executor.running.wait()
    return task


@pytest.fixture
async def again(tmp_path: Path) -> AsyncIterator[tuple[World, Task, Task]]:
    """A face that was stopped with one task at work and one waiting, and started again."""
    async with world(tmp_path) as bob:
        working = await start_and_leave(bob)
        async with bob.rpc(bob.alice) as rpc:
            waiting = (await rpc.send_message(bob.request(bob.alice, an_invite()))).task
    async with served(bob.context) as (context, face):
        yield replace(bob, face=face, context=context), working, waiting


async def test_a_restart_fails_what_was_at_work_with_a_signed_error(again: tuple[World, Task, Task]) -> None:
    """Trap: after a restart the SDK shows such a task as working for ever."""
    bob, working, _ = again
    async with bob.rpc(bob.alice) as rpc:
        task = await rpc.get_task(GetTaskRequest(id=working.id))
    assert task.status.state == TaskState.TASK_STATE_FAILED
    end = AnswerReader(working.context_id, bob.me.public, bob.alice.fingerprint).end(task)
    assert isinstance(end, Error)
    assert end.code == ErrorCode.TASK_FAILED
    assert "restarted" in end.message
    assert end.sublet.signature is not None
    assert bob.executor.closed == [working.context_id]


async def test_a_restart_keeps_what_waits_for_start(again: tuple[World, Task, Task]) -> None:
    bob, _, waiting = again
    bob.executor.gate.set()
    async with bob.rpc(bob.alice) as rpc:
        task = (await rpc.send_message(bob.request(bob.alice, a_start(waiting.context_id), waiting))).task
    assert task.status.state == TaskState.TASK_STATE_COMPLETED


async def test_cancel_of_a_task_that_this_process_never_held(again: tuple[World, Task, Task]) -> None:
    """Trap: the SDK writes CANCELED and calls nobody."""
    bob, _, waiting = again
    async with bob.rpc(bob.alice) as rpc:
        task = await rpc.cancel_task(CancelTaskRequest(id=waiting.id))
    assert task.status.state == TaskState.TASK_STATE_CANCELED
    assert bob.executor.cancelled == [waiting.context_id]


async def test_an_invited_task_leaves_memory_and_start_revives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trap: by default the SDK keeps every unanswered INVITE in memory for ever."""
    monkeypatch.setattr(handler, "PARKED_SECONDS", 0.05)
    async with world(tmp_path) as bob, bob.rpc(bob.alice) as rpc:
        task = (await rpc.send_message(bob.request(bob.alice, an_invite()))).task
        assert bob.face._handler is not None
        registry = bob.face._handler._active_task_registry
        while await registry.get(task.id) is not None:
            await asyncio.sleep(0.01)
        done = (await rpc.send_message(bob.request(bob.alice, a_start(task.context_id), task))).task
    assert done.status.state == TaskState.TASK_STATE_COMPLETED


async def test_stops_in_time_with_open_streams(tmp_path: Path) -> None:
    async with world(tmp_path) as bob, bob.rpc(bob.alice) as rpc:
        bob.executor.gate.clear()
        task = (await rpc.send_message(bob.request(bob.alice, an_invite()))).task
        streams = [rpc.send_message_streaming(bob.request(bob.alice, a_start(task.context_id), task))]
        await anext(aiter(streams[0]))
        bob.messages.gate.clear()
        streams.append(rpc.send_message_streaming(text("hello")))
        await anext(aiter(streams[1]))
        began = time.monotonic()
        await bob.face.aclose()
        took = seconds_since(began)
        rest = [[event async for event in events] for events in streams]
    assert took < STOP_SECONDS
    assert all(
        event.status_update.status.state != TaskState.TASK_STATE_COMPLETED for events in rest for event in events
    )
    assert bob.executor.closed == [task.context_id]
    assert bob.messages.closed == 1


async def test_signals_stay_with_the_daemon(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    async with world(tmp_path) as bob:
        async with httpx.AsyncClient() as http:
            await http.get(bob.url)
        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


async def test_a_port_that_is_taken(tmp_path: Path) -> None:
    async with world(tmp_path) as bob:
        taken = int(bob.url.rsplit(":", 1)[1])
        with pytest.raises(SubletError) as caught:
            await A2AFace(replace(bob.context, port=taken)).start()
    assert caught.value.code == LocalCode.UNAVAILABLE


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
async def test_beyond_this_machine_only_with_tls(tmp_path: Path, host: str) -> None:
    async with world(tmp_path) as bob:
        with pytest.raises(SubletError) as caught:
            await A2AFace(replace(bob.context, host=host)).start()
    assert caught.value.code == LocalCode.INVALID_ARGUMENT


async def test_a_wildcard_is_reached_by_a_real_address(tmp_path: Path) -> None:
    tls = load_tls(tmp_path / "keys", ["localhost"])
    async with world(tmp_path, host="0.0.0.0", tls=(tls.certificate, tls.key)) as bob:
        assert bob.url.startswith("https://")
        assert "0.0.0.0" not in bob.url
        link = bob.alice.link()
        assert await link.agents(PeerAddress("bob", bob.url, bob.me.public, tls.certificate_pem))
        await link.aclose()


async def test_tls_with_the_pinned_certificate_only(tmp_path: Path) -> None:
    tls = load_tls(tmp_path / "keys", ["bob.example"])
    other = load_tls(tmp_path / "others", ["bob.example"])
    async with world(tmp_path, tls=(tls.certificate, tls.key)) as bob:
        link = bob.alice.link()
        peer = PeerAddress("bob", bob.url, bob.me.public, tls.certificate_pem)
        task, answer = await link.invite(peer, an_invite())
        assert isinstance(answer, Accept)
        *_, done = [update async for update in link.run(peer, task, a_start(task.context_id))]
        assert isinstance(done, Done)
        with pytest.raises(SubletError) as caught:
            await link.invite(replace(peer, tls_certificate=other.certificate_pem), an_invite())
        assert caught.value.code == LocalCode.KEY_CHANGED
        with pytest.raises(SubletError) as caught:  # not certified by anybody public either
            await link.invite(replace(peer, tls_certificate=None), an_invite())
        assert caught.value.code == LocalCode.KEY_CHANGED

        reply = await link.pair(bob.url, ASKED, tls_fingerprint=tls.fingerprint)
        assert reply.node_id == "node-x"
        sent = len(bob.pairing.requests)
        with pytest.raises(SubletError) as caught:
            await link.pair(bob.url, ASKED, tls_fingerprint=other.fingerprint)
        assert caught.value.code == LocalCode.KEY_CHANGED
        assert len(bob.pairing.requests) == sent  # nothing was sent to the wrong certificate
        await link.aclose()


async def test_pairing(bob: World) -> None:
    link = Node("x").link()
    assert (await link.pair(bob.url + "/", ASKED, tls_fingerprint=None)).proof == "proof"
    assert bob.pairing.requests == [ASKED]
    with pytest.raises(SubletError) as caught:
        await link.pair(bob.url, replace(ASKED, token_id="used"), tls_fingerprint=None)
    assert caught.value.code == LocalCode.TOKEN_INVALID
    with pytest.raises(SubletError) as caught:
        await link.pair("http://127.0.0.1:1", ASKED, tls_fingerprint=None)
    assert caught.value.code == LocalCode.PEER_UNREACHABLE
    await link.aclose()


async def test_pairing_requests_are_bounded(bob: World) -> None:
    good = dataclasses.asdict(ASKED)
    async with httpx.AsyncClient(base_url=bob.url) as http:
        assert (await http.post(PAIR_PATH, content=b"x" * 20_000)).status_code == 413
        assert (await http.post(PAIR_PATH, json=good, headers={"Host": "evil.example"})).status_code == 421
        assert (await http.post(PAIR_PATH, json=good, headers={"Origin": "http://evil"})).status_code == 403
        for body in ("{}", "[]", "nonsense", json.dumps({**good, "node_id": 7})):
            assert (await http.post(PAIR_PATH, content=body)).status_code == 400
        codes = [(await http.post(PAIR_PATH, json=good)).status_code for _ in range(10)]
    assert codes == [200] * 6 + [429] * 4
    assert len(bob.pairing.requests) == 6


def test_attempts_are_forgotten_in_time_and_number() -> None:
    now = 0.0
    attempts = pairing.Attempts(clock=lambda: now)
    assert [attempts.allow("a") for _ in range(11)] == [True] * 10 + [False]
    now = 61.0
    assert attempts.allow("a")
    for number in range(pairing.MAX_SOURCES * 2):
        attempts.allow(str(number))
    assert len(attempts._tries) == pairing.MAX_SOURCES


async def test_files_are_private(bob: World) -> None:
    for path in bob.database.parent.iterdir():
        assert path.stat().st_mode & 0o077 == 0


async def test_small_answers_do_not_wait_for_acknowledgements(bob: World) -> None:
    """asyncio leaves Nagle's algorithm on for sockets that do not say they are TCP."""
    listener = bob.face._socket
    assert listener is not None
    assert listener.proto == socket.IPPROTO_TCP
