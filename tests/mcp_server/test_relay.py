"""The relay as a process: how it starts, how it ends, and what it does when either side misbehaves."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import anyio
import anyio.to_thread
import psutil
import pytest
from mcp import Client

from sublet.daemon.api.delegation_views import DelegationView
from sublet.daemon.config.paths import Home
from sublet.mcp_server.relay import Starter
from sublet.mcp_server.relay_session import MAX_LINE
from support.fake_daemon_api import FakeDaemonApi
from support.mcp_face import (
    BARE,
    ENVELOPE,
    INITIALIZE,
    INITIALIZED,
    SCRIPT,
    RawHost,
    call,
    environment,
    raw_host,
    served,
    server_of,
)

pytestmark = pytest.mark.anyio

LIST = {"jsonrpc": "2.0", "id": 9, "method": "tools/list"}
WORK = {"workspace_dir": "/srv/projects/app", "peer": "bob", "prompt": "Run the tests."}
COMMANDS = pytest.mark.parametrize("command", [SCRIPT, BARE], ids=["script", "bare"])
PARENT = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"


def with_starter(command: Sequence[str], **constants: float) -> list[str]:
    """Return a relay that starts the daemon by ``command``, with some of its constants changed."""
    code = (
        "import json, sys\n"
        "from sublet.mcp_server import relay\n"
        f"vars(relay).update(json.loads({json.dumps(constants)!r}))\n"
        "sys.exit(relay.Relay(relay.resolve_home(), sys.argv[1:]).run())"
    )
    return [sys.executable, "-c", code, *command]


async def ended(host: RawHost) -> int:
    """Wait for the relay's end; the test's own time limit is the bound."""
    return await host.process.wait()


@COMMANDS
async def test_both_ways_to_run_it_serve_a_session(api: FakeDaemonApi, home: Home, command: list[str]) -> None:
    async with served(api, home), raw_host(home, command) as host:
        assert (await host.hello())["result"]["serverInfo"]["name"] == "sublet"
        answer = await host.call(2, "delegate", **WORK)
        assert answer["result"]["structuredContent"]["delegation_id"] in api.delegations
        assert api.callers[0].name == "raw"


async def test_a_probe_and_then_a_handshake_on_one_pipe(api: FakeDaemonApi, home: Home) -> None:
    probe = {"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": {"_meta": ENVELOPE}}
    async with served(api, home), raw_host(home) as host:
        await host.send(probe, INITIALIZE, INITIALIZED, LIST)
        assert (await host.receive())["result"]["supportedVersions"] == ["2026-07-28"]
        assert (await host.receive())["result"]["protocolVersion"] == "2025-11-25"
        assert (await host.receive())["result"]["tools"]


async def test_malformed_lines_are_answered_and_the_session_goes_on(api: FakeDaemonApi, home: Home) -> None:
    async with served(api, home), raw_host(home) as host:
        await host.hello()
        for line, request_id, code in [
            (b"{nonsense\n", None, -32700),
            (b"\xff\xfe\n", None, -32700),
            (b"[" * 50_000 + b"\n", None, -32700),
            (b"[]\n", None, -32600),
            (b'{"jsonrpc": "2.0", "id": "\\ud83d", "method": "ping"}\n', None, -32600),
            (b'"text"\n', None, -32600),
            (b'{"id": 5, "method": "tools/list"}\n', 5, -32600),
            (b'{"jsonrpc": "2.0", "id": 6.5, "method": "ping"}\n', None, -32600),
            (b'{"jsonrpc": "2.0", "id": 7, "method": 7}\n', 7, -32600),
            (b'{"jsonrpc":"2.0","id":8,"method":"x","params":"' + b"x" * MAX_LINE + b'"}\n', 8, -32600),
            (b'{"method":"x","params":"' + b"x" * MAX_LINE + b'","jsonrpc":"2.0","id":"9"}\n', "9", -32600),
        ]:
            await host.send(line)
            answer = await host.receive()
            assert (answer["id"], answer["error"]["code"]) == (request_id, code), line[:60]
        await host.send(b"\n  \n", LIST)
        assert (await host.receive())["result"]["tools"]


async def test_a_large_prompt_passes(api: FakeDaemonApi, home: Home) -> None:
    async with served(api, home), raw_host(home) as host:
        await host.hello()
        prompt = "\u00fc" * 200_000
        answer = await host.call(2, "delegate", **{**WORK, "prompt": prompt})
        assert "error" not in answer
        assert api.requests[0].prompt == prompt


async def test_a_host_that_does_not_read_costs_no_memory(api: FakeDaemonApi, home: Home) -> None:
    count = 500
    async with served(api, home), raw_host(home, BARE) as host, anyio.create_task_group() as group:
        await host.hello()

        async def flood() -> None:
            for number in range(count):
                await host.send({**LIST, "id": f"n{number}"})

        group.start_soon(flood)
        got = {(await host.receive())["id"] for _ in range(count)}
        assert got == {f"n{number}" for number in range(count)}
        assert psutil.Process(host.pid).memory_info().rss < 16 << 20


async def in_parent(host: RawHost) -> None:
    """Kill the relay's parent, while its stdin stays open here."""
    os.kill(host.pid, signal.SIGKILL)


async def close_stdin(host: RawHost) -> None:
    assert host.process.stdin is not None
    await host.process.stdin.aclose()


async def terminate(host: RawHost) -> None:
    host.process.send_signal(signal.SIGTERM)


async def interrupt(host: RawHost) -> None:
    host.process.send_signal(signal.SIGINT)


Ending = Callable[[RawHost], Any]
ENDINGS: dict[str, tuple[Ending, int]] = {
    "eof": (close_stdin, 0),
    "sigterm": (terminate, -signal.SIGTERM),
    "sigint": (interrupt, 130),
    "parent": (in_parent, -signal.SIGKILL),
}


async def gone(pid: int) -> None:
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        await anyio.sleep(0.01)


async def one_life(home: Home, way: str, *, waiting: bool) -> None:
    """Start a relay, use it, end it in one of the four ways and see that it is gone within a second."""
    end, status = ENDINGS[way]
    command = [sys.executable, "-c", PARENT, *BARE] if way == "parent" else BARE
    async with raw_host(home, command) as host:
        await host.hello()
        pid = psutil.Process(host.pid).children()[0].pid if way == "parent" else host.pid
        if waiting:
            found = (await host.call(2, "delegate", **WORK))["result"]["structuredContent"]["delegation_id"]
            await host.send(call(3, "delegate_output", delegation_id=found, cursor="1", wait_seconds=45))
        with anyio.fail_after(1):
            await end(host)
            assert await ended(host) == status
            await gone(pid)


@pytest.mark.parametrize("waiting", [False, True], ids=["idle", "waiting"])
@pytest.mark.parametrize("way", ENDINGS)
async def test_C26_the_relay_ends_with_its_host(api: FakeDaemonApi, home: Home, way: str, waiting: bool) -> None:
    async with served(api, home):
        await one_life(home, way, waiting=waiting)


async def test_C26_twenty_sessions_leave_nothing_behind(api: FakeDaemonApi, home: Home) -> None:
    def ours() -> list[str]:
        return [" ".join(p.cmdline()) for p in psutil.Process().children(recursive=True)]

    before = ours()
    async with served(api, home) as face:
        for cycle in range(20):
            await one_life(home, list(ENDINGS)[cycle % 4], waiting=False)
        assert ours() == before
        while face.sessions:
            await anyio.sleep(0.01)
        async with raw_host(home, BARE) as host:  # the daemon is none the worse
            await host.hello()


async def test_answers_under_way_at_eof_still_arrive(api: FakeDaemonApi, home: Home) -> None:
    async with served(api, home), raw_host(home) as host:
        await host.send(INITIALIZE, INITIALIZED, LIST)
        await close_stdin(host)
        assert (await host.answer(9))["result"]["tools"]
        assert await ended(host) == 0


async def test_a_closed_stdout_ends_it(api: FakeDaemonApi, home: Home) -> None:
    async with served(api, home):
        process = subprocess.Popen(BARE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(home))
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
        process.stdin.flush()
        assert await anyio.to_thread.run_sync(process.stdout.readline)
        process.stdout.close()
        assert await anyio.to_thread.run_sync(process.wait) == 0
        process.stdin.close()


@pytest.mark.parametrize("closing", ["<&- 2>&1", "<&- >&-", "<&- 2>&-"])
async def test_closed_descriptors_are_an_end_and_no_traceback(home: Home, closing: str) -> None:
    result = await anyio.run_process(["sh", "-c", f'exec "$@" {closing}', "sh", *SCRIPT], env=environment(home))
    assert result.returncode == 0
    assert result.stdout == b""


@asynccontextmanager
async def restartable(api: FakeDaemonApi, home: Home) -> AsyncIterator[Callable[[], Any]]:
    """Serve ``api``; calling what this yields restarts the daemon."""
    async with anyio.create_task_group() as group:
        again = anyio.Event()
        up = anyio.Event()

        async def lives() -> None:
            nonlocal again, up
            while True:
                async with served(api, home):
                    up.set()
                    await again.wait()
                again, up = anyio.Event(), anyio.Event()

        async def restart() -> None:
            before = up
            again.set()
            while up is before:
                await anyio.sleep(0.01)
            await up.wait()

        group.start_soon(lives)
        await up.wait()
        yield restart
        group.cancel_scope.cancel()


async def test_a_daemon_restart_goes_unnoticed_by_a_waiting_host(api: FakeDaemonApi, home: Home, mode: str) -> None:
    async with restartable(api, home) as restart, Client(server_of(home), mode=mode) as client:
        started = await client.call_tool("delegate", WORK)
        found: str = started.structured_content["delegation_id"]
        waited: list[Any] = []

        async def wait() -> None:
            given = {"delegation_id": found, "section": "summary", "wait_seconds": 45}
            waited.append(await client.call_tool("delegate_output", given))

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            await restart()
            await restart()
            await client.list_tools()
            await api.finish(found)
        assert waited[0].structured_content["state"] == "completed"


async def test_a_call_that_may_have_had_its_effect_is_answered_with_an_error(
    api: FakeDaemonApi, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = anyio.Event()

    async def hang(*_: object) -> DelegationView:
        begun.set()
        await anyio.sleep_forever()
        raise AssertionError

    async with restartable(api, home) as restart, raw_host(home) as host:
        await host.hello()
        with monkeypatch.context() as patch:
            patch.setattr(api, "create_delegation", hang)
            await host.send(call(2, "delegate", **WORK))
            await begun.wait()
            await restart()
        answer = await host.answer(2)
        assert answer["error"]["code"] == -32603
        assert "idempotency_key" in answer["error"]["message"]
        assert "result" in await host.call(3, "delegate", **WORK)


@pytest.mark.filterwarnings("ignore:resources/:mcp.shared.exceptions.MCPDeprecationWarning")
async def test_subscriptions_outlive_a_restart(api: FakeDaemonApi, home: Home) -> None:
    async with restartable(api, home) as restart, raw_host(home) as host:
        await host.hello()
        found = (await host.call(2, "delegate", **WORK))["result"]["structuredContent"]["delegation_id"]
        uri = f"sublet://delegations/{found}"
        await host.send({"jsonrpc": "2.0", "id": 3, "method": "resources/subscribe", "params": {"uri": uri}})
        await host.answer(3)
        await restart()
        await host.call(4, "directory")
        await api.finish(found)
        while (message := await host.receive()).get("method") != "notifications/resources/updated":
            assert message.get("id") is None
        assert message["params"]["uri"] == uri


async def test_it_starts_the_daemon_when_there_is_none_and_loses_nothing(api: FakeDaemonApi, home: Home) -> None:
    Path(home.root, "starts").touch()
    starter = ["sh", "-c", 'echo start >> "$SUBLET_HOME/starts"; echo this is no protocol; exit 3']
    async with raw_host(home, with_starter(starter)) as host:
        await host.send(INITIALIZE, INITIALIZED, LIST)
        while not Path(home.root, "starts").read_text():
            await anyio.sleep(0.01)
        async with served(api, home):
            assert (await host.receive())["id"] == 1
            assert (await host.receive())["result"]["tools"]
        # That the daemon went away is no reason to start another one; that the host wants something is.
        assert Path(home.root, "starts").read_text() == "start\n"
        await host.send({**LIST, "id": 10})
        while Path(home.root, "starts").read_text() != "start\nstart\n":
            await anyio.sleep(0.01)
        async with served(api, home):
            assert (await host.receive())["id"] == 10
        await close_stdin(host)
        assert await ended(host) == 0
        assert psutil.Process().children(recursive=True) == []


async def test_a_start_that_fails_says_why_and_the_next_call_tries_again(api: FakeDaemonApi, home: Home) -> None:
    starter = ["sh", "-c", "echo 'UNAVAILABLE: disk is full' >&2; exit 4"]
    async with raw_host(home, with_starter(starter)) as host:
        await host.send(INITIALIZE)
        answer = await host.receive()
        assert answer["id"] == 1
        assert answer["error"]["code"] == -32603
        assert answer["error"]["message"].startswith("DAEMON_UNAVAILABLE: ")
        assert "disk is full" in answer["error"]["message"]
        assert "sublet doctor" in answer["error"]["message"]
        async with served(api, home):
            assert "result" in await host.hello()
        await close_stdin(host)
        assert await ended(host) == 0
        said = host.errors()
        assert "sublet mcp: DAEMON_UNAVAILABLE: " in said
        assert "Traceback" not in said


def test_what_a_start_says_between_two_looks_is_heard() -> None:
    starter = Starter(["true"])
    starter._process.wait()
    words = io.BytesIO()

    def poll() -> int:
        """End with a word, which it says just before."""
        if not words.getvalue():
            words.write(b"disk is full")
            words.seek(0)
        return 4

    with patch.object(starter, "_process", SimpleNamespace(stderr=words, poll=poll, returncode=4)):
        assert starter.failure() == "disk is full"
    starter.close()


@pytest.mark.parametrize(
    "starter", [["sh", "-c", "exit 0"], ["sleep", "600"], ["/nonexistent/sublet"]], ids=["silent", "hangs", "missing"]
)
async def test_a_start_without_a_daemon_is_given_up_in_time(home: Home, starter: list[str]) -> None:
    async with raw_host(home, with_starter(starter, START_SECONDS=0.3)) as host:
        await host.send(LIST)
        assert "DAEMON_UNAVAILABLE" in (await host.receive())["error"]["message"]
        assert psutil.Process(host.pid).children() == []


async def test_what_a_gone_daemon_owes_is_answered_in_time(api: FakeDaemonApi, home: Home) -> None:
    async with raw_host(home, with_starter(["false"], RESUME_SECONDS=0.3)) as host:
        async with served(api, home):
            await host.hello()
            found = (await host.call(2, "delegate", **WORK))["result"]["structuredContent"]["delegation_id"]
            await host.send(call(3, "delegate_output", delegation_id=found, cursor="1", wait_seconds=45))
            await host.send({"jsonrpc": "2.0", "id": 4, "method": "ping"})
            await host.answer(4)
        answer = await host.answer(3)
        assert "did not come up in time" in answer["error"]["message"]


async def test_a_socket_directory_that_others_can_enter_is_refused(home: Home) -> None:
    home.make()
    os.chmod(home.runtime_dir, 0o755)
    async with raw_host(home) as host:
        await host.send(INITIALIZE)
        assert await ended(host) == 1
        said = host.errors()
        assert "chmod 700" in said
        assert "Traceback" not in said


def test_the_fast_path_imports_next_to_nothing(home: Home) -> None:
    code = (
        "import sys; before = set(sys.modules); sys.argv = ['sublet', 'mcp']\n"
        "from sublet.cli import entry\n"
        "entry.main()\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(home), stdin=subprocess.DEVNULL, capture_output=True, check=True
    )
    modules = set(done.stdout.decode().split())
    assert modules <= {
        "__future__",
        "_json",
        "_socket",
        "select",
        "sublet",
        "sublet.cli",
        "sublet.cli.entry",
        "sublet.cli.standard_streams",
        "sublet.daemon",
        "sublet.daemon.config",
        "sublet.daemon.config.paths",
        "sublet.mcp_server",
        "sublet.mcp_server.relay",
        "sublet.mcp_server.relay_session",
    }
