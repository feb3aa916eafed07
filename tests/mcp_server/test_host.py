"""The socket of the MCP face: who may connect, how many, and what starting and stopping leave behind."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from sublet import unix_sockets
from sublet.daemon.config.paths import Home
from sublet.mcp_server import host, tool_calls
from sublet.policy.decision import Subject
from sublet.protocol.errors import LocalCode, SubletError
from support.fake_daemon_api import FakeDaemonApi
from support.mcp_face import BARE, INITIALIZE, INITIALIZED, face_context, raw_host, served

pytestmark = pytest.mark.anyio

LIST = {"jsonrpc": "2.0", "id": 9, "method": "tools/list"}


async def test_the_socket_is_private_replaces_a_stale_one_and_goes_away(api: FakeDaemonApi, home: Home) -> None:
    home.make()
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(home.mcp_socket)
    stale.close()
    async with served(api, home) as face:
        assert face.address == home.mcp_socket
        mode = os.stat(home.mcp_socket).st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600
    assert not os.path.exists(home.mcp_socket)


async def test_what_is_no_socket_is_not_removed(api: FakeDaemonApi, home: Home) -> None:
    home.make()
    Path(home.mcp_socket).write_text("precious")
    face = host.McpFace(face_context(api, home))
    with pytest.raises(SubletError) as caught:
        await face.start()
    assert caught.value.code == LocalCode.UNAVAILABLE
    assert Path(home.mcp_socket).read_text() == "precious"


async def test_another_user_is_refused(api: FakeDaemonApi, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(api, home) as face:
        with monkeypatch.context() as patch:
            patch.setattr(unix_sockets.UnixStream, "peer_uid", property(lambda self: os.getuid() + 1))
            reader = socket.socket(socket.AF_UNIX)
            reader.setblocking(False)
            reader.connect(face.address)
            await anyio.wait_readable(reader)
            assert reader.recv(1) == b""
            reader.close()
        async with raw_host(home) as good:
            assert "result" in await good.hello()


def test_the_kernel_names_the_user_at_the_other_end() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    stream = unix_sockets.UnixStream(ours)
    assert stream.peer_uid == os.getuid()
    stream.close()
    theirs.close()


async def test_too_many_hosts_are_told_so(api: FakeDaemonApi, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "MAX_SESSIONS", 1)
    async with served(api, home), raw_host(home, BARE) as first:
        await first.hello()
        async with raw_host(home, BARE) as second:
            await second.send(LIST)
            answer = await second.receive()
            assert answer["id"] == 9
            assert "1 MCP hosts are connected already" in answer["error"]["message"]
        await first.send(LIST)
        assert "result" in await first.answer(9)


async def test_too_many_calls_at_once_are_told_so(
    api: FakeDaemonApi, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_calls, "MAX_CALLS", 1)
    async with served(api, home), raw_host(home, BARE) as raw:
        await raw.hello()
        started = await raw.call(2, "delegate", workspace_dir="/srv", peer="bob", prompt="x")
        found = started["result"]["structuredContent"]["delegation_id"]
        wait = {"name": "delegate_output", "arguments": {"delegation_id": found, "cursor": "1", "wait_seconds": 45}}
        await raw.send({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": wait})
        refused = await raw.call(4, "directory")
        assert refused["result"]["isError"] is True
        assert "1 calls are under way" in refused["result"]["content"][0]["text"]
        await raw.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}})
        while (await raw.call(5, "directory"))["result"]["isError"]:
            await anyio.sleep(0.01)


async def test_a_session_that_fails_does_not_end_the_others(
    api: FakeDaemonApi, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("no handshake for you")

    async with served(api, home), raw_host(home, BARE) as good:
        await good.hello()
        with monkeypatch.context() as patch:
            patch.setattr("sublet.mcp_server.era.serve", broken)
            bad = socket.socket(socket.AF_UNIX)
            bad.setblocking(False)
            bad.connect(home.mcp_socket)
            bad.send(b"\n")  # one that says nothing has no session that could fail
            await anyio.wait_readable(bad)
            assert bad.recv(1) == b""
            bad.close()
        await good.send(LIST)
        assert "result" in await good.answer(9)


def test_the_face_is_loaded_without_the_sdk() -> None:
    code = "import sys, sublet.mcp_server.host; sys.exit('mcp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("gone", [False, True])
async def test_an_agent_of_ours_is_known_by_its_process_and_not_by_what_it_says(
    api: FakeDaemonApi, home: Home, tmp_path: Path, gone: bool
) -> None:
    """Whatever host an agent in a delegation starts, its calls are that agent's, with no directories of its own."""
    agent = Subject("agent", "coder", role="executor", run="dlg_1")
    pids: list[int] = []

    def identify(pid: int) -> Subject | None:
        pids.append(pid)
        if gone:
            raise ProcessLookupError(pid)
        return agent

    home.make()
    face = host.McpFace(replace(face_context(api, home), identify=identify))
    await face.start()
    async with anyio.create_task_group() as group:
        group.start_soon(face.serve)
        async with raw_host(home, BARE) as raw:
            await raw.send(INITIALIZE)
            if not gone:
                await raw.answer(1)
                await raw.send(INITIALIZED)
                await raw.call(2, "delegate", workspace_dir=str(tmp_path), peer="bob", prompt="go on")
                assert api.callers == [agent]
                assert pids == [raw.pid]
            else:
                with anyio.fail_after(10):
                    while not pids:
                        await anyio.sleep(0.01)
                assert api.callers == []
        group.cancel_scope.cancel()
