"""The outgoing side: broken streams, lost answers, peers that are not who they were."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from a2a.types import GetTaskRequest, TaskState

from sublet.a2a_client import peer_http, stream
from sublet.a2a_client.client import A2APeerLink
from sublet.daemon.ports.peer_link import BusAddress, NotConnected, PeerAddress, RemoteTask, Silence, Update
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.messages import AWCP_URI, Accept, Done, Error, Progress
from support.a2a_world import Node, World, a_progress, a_start, an_invite, served, until
from support.cut_proxy import CutProxy, cut_proxy

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "FIRST_RETRY_SECONDS", 0.01)


@pytest.fixture
async def proxy(bob: World) -> AsyncIterator[CutProxy]:
    async with cut_proxy(bob.url) as proxy:
        yield proxy


def through(bob: World, proxy: CutProxy) -> PeerAddress:
    return replace(bob.peer(), a2a_url=proxy.url)


async def invited(link: A2APeerLink, peer: PeerAddress) -> RemoteTask:
    task, answer = await link.invite(peer, an_invite())
    assert isinstance(answer, Accept)
    return task


async def follow(link: A2APeerLink, peer: PeerAddress, task: RemoteTask) -> list[Update]:
    return [update async for update in link.run(peer, task, a_start(task.context_id))]


async def code_of(link: A2APeerLink, peer: PeerAddress) -> str:
    with pytest.raises(SubletError) as caught:
        await link.invite(peer, an_invite())
    assert caught.value.hint
    return str(caught.value.code)


async def test_a_broken_stream_is_resumed(bob: World, link: A2APeerLink, proxy: CutProxy) -> None:
    bob.executor.gate.clear()
    bob.executor.updates = [a_progress("one\n")]
    peer = through(bob, proxy)
    task = await invited(link, peer)
    async with asyncio.TaskGroup() as group:
        following = group.create_task(follow(link, peer, task))
        for _ in range(3):
            await bob.executor.running.wait()
            before = proxy.connections
            proxy.cut()
            await until(lambda before=before: proxy.connections > before)
        bob.executor.gate.set()
    updates = following.result()
    assert [type(update) for update in updates].count(Done) == 1
    assert isinstance(updates[-1], Done)
    assert len(bob.executor.started) == 1
    assert [update.text for update in updates if isinstance(update, Progress)] == ["one\n"]


async def test_a_late_done_is_found_by_reading_the_task(bob: World, link: A2APeerLink, proxy: CutProxy) -> None:
    bob.executor.gate.clear()
    peer = through(bob, proxy)
    task = await invited(link, peer)
    async with asyncio.TaskGroup() as group:
        following = group.create_task(follow(link, peer, task))
        await bob.executor.running.wait()
        proxy.refusing = True
        proxy.cut()
        bob.executor.gate.set()
        async with bob.rpc(bob.alice) as rpc:
            while (await rpc.get_task(GetTaskRequest(id=task.task_id))).status.state != TaskState.TASK_STATE_COMPLETED:
                await asyncio.sleep(0.01)
        assert not following.done()
        proxy.refusing = False
    broken, mended, done = following.result()
    assert isinstance(broken, Silence)
    assert "can't be reached" in broken.reason
    assert mended == Silence("")
    assert isinstance(done, Done)


async def test_a_start_that_never_arrives_is_given_up(
    bob: World, link: A2APeerLink, proxy: CutProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "START_SECONDS", 0.1)
    peer = through(bob, proxy)
    task = await invited(link, peer)
    proxy.refusing = True
    proxy.cut()
    with pytest.raises(SubletError) as caught:
        await follow(link, peer, task)
    assert caught.value.code is LocalCode.PEER_UNREACHABLE
    assert bob.executor.started == []


async def test_a_start_that_never_arrived_is_sent_again(bob: World, link: A2APeerLink, proxy: CutProxy) -> None:
    peer = through(bob, proxy)
    task = await invited(link, peer)
    proxy.refusing = True
    proxy.cut()
    async with asyncio.TaskGroup() as group:
        following = group.create_task(follow(link, peer, task))
        await asyncio.sleep(0.1)
        assert bob.executor.started == []
        proxy.refusing = False
    assert isinstance(following.result()[-1], Done)
    assert len(bob.executor.started) == 1


async def test_what_was_missed_is_told_after_the_break(bob: World, link: A2APeerLink, proxy: CutProxy) -> None:
    """The peer's wish to be dialled must not be lost with a connection."""
    bob.executor.gate.clear()
    bob.executor.end_gate.clear()
    bob.executor.late_updates = [a_progress("", phase="need_reverse", stream="note")]
    peer = through(bob, proxy)
    task = await invited(link, peer)
    async with bob.rpc(bob.alice) as rpc, asyncio.TaskGroup() as group:
        following = group.create_task(follow(link, peer, task))
        await bob.executor.running.wait()
        proxy.refusing = True
        proxy.cut()
        bob.executor.gate.set()
        while AWCP_URI not in (await rpc.get_task(GetTaskRequest(id=task.task_id))).metadata:
            await asyncio.sleep(0.01)
        proxy.refusing = False
        before = proxy.connections
        await until(lambda: proxy.connections > before)
        bob.executor.end_gate.set()
    phases = [update.phase for update in following.result() if isinstance(update, Progress)]
    assert phases == ["need_reverse"]


async def test_a_task_that_works_already_is_not_started_again(bob: World, link: A2APeerLink) -> None:
    bob.executor.gate.clear()
    task = await invited(link, bob.peer())
    async with asyncio.TaskGroup() as group:
        group.create_task(follow(link, bob.peer(), task))
        await bob.executor.running.wait()
        again = group.create_task(follow(link, bob.peer(), task))
        await until(lambda: bool(bob.executor.renewed))
        bob.executor.gate.set()
    assert isinstance(again.result()[-1], Done)
    assert len(bob.executor.started) == 1


async def test_a_lost_answer_to_invite_is_asked_for_again(bob: World, link: A2APeerLink, proxy: CutProxy) -> None:
    bob.executor.invite_gate.clear()
    peer = through(bob, proxy)
    async with asyncio.TaskGroup() as group:
        inviting = group.create_task(link.invite(peer, an_invite()))
        await until(lambda: bob.executor.invited)
        proxy.cut()
        bob.executor.invite_gate.set()
    _, answer = inviting.result()
    assert isinstance(answer, Accept)
    assert len(bob.executor.invited) == 1


async def test_an_unreachable_peer(bob: World, link: A2APeerLink, proxy: CutProxy) -> None:
    nobody = replace(bob.peer(), a2a_url="http://127.0.0.1:1")
    with pytest.raises(NotConnected):
        await link.invite(nobody, an_invite())
    with pytest.raises(SubletError) as caught:
        await link.cancel(nobody, RemoteTask("t", "c"))
    assert caught.value.code == LocalCode.PEER_UNREACHABLE
    with pytest.raises(SubletError) as caught:
        await link.agents(nobody)
    assert caught.value.code == LocalCode.PEER_UNREACHABLE
    proxy.refusing = True
    assert await code_of(link, through(bob, proxy)) == LocalCode.PEER_UNREACHABLE


async def test_the_bus_of_a_peer_that_was_started_again_is_found_at_once(
    bob: World, link: A2APeerLink, tmp_path: Path
) -> None:
    there = replace(bob.context, state_dir=tmp_path / "again")
    there.state_dir.mkdir()
    async with served(replace(there, bus=BusAddress(7001))) as (_, face):
        peer = replace(bob.peer(), a2a_url=face.address)
        assert await link.bus(peer) == BusAddress(7001, version=there.version)
    port = urlsplit(peer.a2a_url).port
    assert port is not None
    async with served(replace(there, port=port, bus=BusAddress(7002))) as (_, face):
        assert face.address == peer.a2a_url
        assert await link.bus(peer) == BusAddress(7002, version=there.version)


async def test_another_key_behind_the_address_is_loud(bob: World, link: A2APeerLink) -> None:
    changed = replace(bob.peer(), public_key=Node("x").public)
    assert await code_of(link, changed) == LocalCode.KEY_CHANGED
    assert bob.executor.invited == []


async def test_a_peer_that_does_not_know_us(bob: World) -> None:
    stranger = Node("stranger").link()
    with pytest.raises(SubletError) as caught:
        await stranger.invite(bob.peer(), an_invite())
    await stranger.aclose()
    assert caught.value.code == ErrorCode.AUTH_FAILED
    assert "Pair again" in caught.value.hint


async def test_plain_http_to_another_machine_is_not_used(bob: World, link: A2APeerLink) -> None:
    assert await code_of(link, replace(bob.peer(), a2a_url="http://192.0.2.1:8642")) == LocalCode.PEER_UNREACHABLE


async def test_a_refusal_before_a_task_exists_is_an_error_value(bob: World, link: A2APeerLink) -> None:
    await invited(link, bob.peer())
    bob.executor.owners.clear()
    task = await invited(link, bob.peer())
    bob.executor.owners.clear()
    (end,) = await follow(link, bob.peer(), task)
    assert isinstance(end, Error)
    assert end.code == ErrorCode.DECLINED
    assert end.message == "no such delegation of yours"


async def test_a_task_that_is_gone(bob: World, link: A2APeerLink) -> None:
    (end,) = await follow(link, bob.peer(), RemoteTask("tsk_gone", "dlg_gone"))
    assert isinstance(end, Error)
    assert end.code == ErrorCode.TASK_FAILED


@asynccontextmanager
async def canned(answer: bytes) -> AsyncIterator[str]:
    """A server that gives the same bytes to everybody."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def http(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


@pytest.mark.parametrize(
    "answer",
    [
        http(b"<html>hello</html>", "Content-Type: text/html"),
        http(b"[1, 2]"),
        http(b"[" * 100_000),
        http(b'{"name": 1, "skills": 2}'),
        http(b"", "Location: http://127.0.0.1:1/", status="302 Found"),
        http(gzip.compress(b"0" * 1_000_000), "Content-Encoding: gzip"),
        http(b'{"error": {"message": "down"}}', status="503 Service Unavailable"),
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"",
    ],
)
async def test_something_else_is_listening_there(bob: World, link: A2APeerLink, answer: bytes) -> None:
    async with canned(answer) as url:
        assert await code_of(link, replace(bob.peer(), a2a_url=url)) == LocalCode.PEER_UNREACHABLE


@pytest.mark.parametrize(
    "answer",
    [
        http(b'{"error": {"message": "WORDS of bob", "hint": "WORDS"}}', status="503 Service Unavailable"),
        http(b'{"error": {"message": "WORDS of bob"}}', status="401 Unauthorized"),
        b"HTTP/1.1 WORDS of bob\r\n\r\n",
    ],
)
async def test_what_a_peer_says_of_an_obstacle_stays_apart(bob: World, link: A2APeerLink, answer: bytes) -> None:
    async with canned(answer) as url:
        with pytest.raises(SubletError) as caught:
            await link.agents(replace(bob.peer(), a2a_url=url))
    # The message alone is shown as ours: as the reason why a peer is not usable, or why a delegation is degraded.
    assert "WORDS" not in caught.value.message
    assert "WORDS" in caught.value.hint
    assert caught.value.from_peer


async def test_an_unsigned_card_is_nobodys(bob: World, link: A2APeerLink) -> None:
    async with canned(http(b'{"name": "x"}')) as url:
        assert await code_of(link, replace(bob.peer(), a2a_url=url)) == LocalCode.KEY_CHANGED


async def test_an_answer_without_end_is_cut(bob: World, link: A2APeerLink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_http, "MAX_RESPONSE_BYTES", 1_000)
    async with canned(http(b" " * 100_000)) as url:
        assert await code_of(link, replace(bob.peer(), a2a_url=url)) == LocalCode.PEER_UNREACHABLE
