"""MCP hosts on real daemons: the SDK's client over stdio through ``sublet mcp``, in both protocol eras."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import psutil
import pytest
from mcp import Client, MCPError
from mcp.client import ClientRequestContext, IncomingMessage
from mcp.client.subscriptions import ResourceUpdated
from mcp.types import ListRootsResult, ResourceUpdatedNotification, Root
from pydantic import FileUrl

from sublet.daemon.config.paths import Home, resolve_home
from support.daemons import Daemon, two_daemons
from support.leases import appear
from support.mcp_face import BARE, RawHost, call, raw_host, server_of
from support.tool_answers import facts, text_of

pytestmark = pytest.mark.anyio

WAITING = "echo begun; while [ ! -e go ]; do sleep 0.1; done; cat go > result; rm go; echo finished"
"""Works until a file named ``go`` appears in the directory."""
FOREVER = "echo begun; sleep 600"
PARENT = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"
GONE_SECONDS = 2.0
"""How long a relay may outlive its host (C26)."""


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Daemon]]:
    with two_daemons(tmp_path_factory.mktemp("mcp")) as both:
        yield both


@pytest.fixture
def lender(daemons: tuple[Daemon, Daemon]) -> Daemon:
    return daemons[0]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


@pytest.fixture(params=["auto", "legacy"])
def mode(request: pytest.FixtureRequest) -> str:
    """Both protocol eras: 2026 envelope, 2025 handshake."""
    era: str = request.param
    return era


def home_of(daemon: Daemon) -> Home:
    return resolve_home({"SUBLET_HOME": str(daemon.home)})


def host_of(daemon: Daemon, mode: str = "auto", *roots: Path, **options: Any) -> Client:
    """Return a client that starts a relay of its own to ``daemon``; with ``roots`` it has a workspace."""

    async def list_roots(context: ClientRequestContext) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=FileUrl(root.as_uri())) for root in roots])

    if roots:
        options["list_roots_callback"] = list_roots
    return Client(server_of(home_of(daemon)), mode=mode, **options)


async def delegate(host: Client, project: Path, prompt: str, **more: object) -> str:
    """Delegate to bob and return the id."""
    given = {"workspace_dir": str(project), "peer": "bob", "prompt": prompt, **more}
    return str(facts(await host.call_tool("delegate", given))["delegation_id"])


async def output(host: Client, delegation_id: str, **more: object) -> dict[str, Any]:
    return facts(await host.call_tool("delegate_output", {"delegation_id": delegation_id, **more}))


async def wait_running(host: Client, delegation_id: str) -> None:
    """Wait until the agent works."""
    with anyio.fail_after(30):
        while (await output(host, delegation_id))["state"] != "running":
            await anyio.sleep(0.05)


async def log_until(host: Client, delegation_id: str, enough: Callable[[dict[str, Any], str], bool]) -> str:
    """Poll the log, page by page, until ``enough`` of the last page and the whole text; return the text."""
    text, cursor = "", "0"
    while True:
        page = await output(host, delegation_id, cursor=cursor, wait_seconds=10)
        text += str(page.get("from_peer", {}).get("text", ""))
        cursor = page["next_cursor"]
        if enough(page, text):
            return text


async def test_a_host_steers_what_runs(lender: Daemon, project: Path, mode: str) -> None:
    (project / "data").write_text("x")
    async with host_of(lender, mode, project) as host:
        found = await delegate(host, project, "until [ -e go ]; do sleep 0.1; done; exit 3", ttl_seconds=60)
        await wait_running(host, found)
        longer = facts(await host.call_tool("delegate", {"delegation_id": found, "ttl_seconds": 100}))
        assert longer["extended_by_seconds"] == 100
        assert longer["remaining_seconds"] > 100
        more = {"delegation_id": found, "prompt": "cp data copy", "idempotency_key": "the copy"}
        for _ in range(2):
            said = facts(await host.call_tool("delegate", more))
            assert [one["state"] for one in said["follow_ups"]] == ["delivered"]
        (project / "go").write_text("")
        ended = await output(host, found, section="summary", wait_seconds=45)
        assert ended["state"] == "completed", ended
        assert [one["state"] for one in ended["follow_ups"]] == ["done"]
        assert ended["prompts"] == ["first prompt: failed with exit code 3", "follow-up 1: done"]
        late = await host.call_tool("delegate", {**more, "idempotency_key": "another"})
        assert late.is_error
        assert "is over" in text_of(late)
    assert (project / "copy").read_text() == "x"


async def test_two_hosts_follow_one_delegation(lender: Daemon, project: Path, mode: str) -> None:
    async with host_of(lender, mode, project) as first, host_of(lender, mode, project) as second:
        found = await delegate(first, project, WAITING, idempotency_key=f"two-{mode}")

        uri = f"sublet://delegations/{found}"
        assert uri in [str(listed.uri) for listed in (await second.list_resources()).resources]
        assert "begun" in await log_until(second, found, lambda page, text: "begun" in text)
        assert (await output(second, found))["state"] == "running"
        assert await delegate(second, project, WAITING, idempotency_key=f"two-{mode}") == found

        appear(project / "go", "go on\n")
        polled = await log_until(first, found, lambda page, text: page["finished"] and not page["more"])
        assert polled.split() == ["begun", "finished"]
        for host in (first, second):
            end = await output(host, found, section="summary")
            assert (end["state"], end["exit_code"]) == ("completed", 0)
            assert end["from_peer"]["files_added"] == ["result"]
            assert "finished" in end["from_peer"]["summary"]
        patch = await output(second, found, section="patch")
        assert "+go on" in patch["from_peer"]["text"]
    assert (project / "result").read_text() == "go on\n"


async def test_a_host_may_cancel_what_another_began(lender: Daemon, project: Path, mode: str) -> None:
    async with host_of(lender, mode, project) as first, host_of(lender, mode) as second:
        found = await delegate(first, project, FOREVER)
        await log_until(second, found, lambda page, text: "begun" in text)
        assert facts(await second.call_tool("delegate_cancel", {"delegation_id": found}))["state"] == "cancelled"
        assert (await output(first, found, section="summary"))["error_code"] == "CANCELLED"


@pytest.mark.filterwarnings("ignore:resources/:mcp.shared.exceptions.MCPDeprecationWarning")
async def test_subscribers_hear_of_the_end_of_it(lender: Daemon, project: Path, mode: str) -> None:
    news, receive = anyio.create_memory_object_stream[str](100)

    async def on_message(message: IncomingMessage) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            await news.send(str(message.params.uri))

    async with news, receive, AsyncExitStack() as stack:
        host = await stack.enter_async_context(host_of(lender, mode, project, message_handler=on_message))
        found = await delegate(host, project, WAITING)
        uri = f"sublet://delegations/{found}"
        await log_until(host, found, lambda page, text: "begun" in text)
        if mode == "legacy":
            await host.session.subscribe_resource(uri)
            heard: AsyncIterator[object] = aiter(receive)
            expected: object = uri
        else:
            heard = aiter(await stack.enter_async_context(host.listen(resource_subscriptions=[uri])))
            expected = ResourceUpdated(uri=uri)
        (project / "go").touch()
        while True:
            assert await anext(heard) == expected
            (content,) = (await host.read_resource(uri)).contents
            if "state: completed" in getattr(content, "text", ""):
                break


async def test_a_host_lends_only_below_its_roots_or_what_a_person_allowed(
    lender: Daemon, tmp_path: Path, mode: str
) -> None:
    inside, outside = tmp_path / "root" / "inside", tmp_path / "outside"
    inside.mkdir(parents=True)
    outside.mkdir()
    (tmp_path / "root" / "way-out").symlink_to(outside)

    async with host_of(lender, mode, tmp_path / "root") as host:
        await delegate(host, inside, "true")
        for refused in (outside, tmp_path / "root" / "way-out", tmp_path / "root" / ".." / "outside", tmp_path):
            given = {"workspace_dir": str(refused), "peer": "bob", "prompt": "true"}
            answer = await host.call_tool("delegate", given)
            assert answer.is_error, refused
            assert text_of(answer).startswith("POLICY_DENIED: ")
            assert "sublet allow" in text_of(answer)
        shown = facts(await host.call_tool("directory", {}))
        assert shown["host_roots"] == [str(tmp_path / "root")]

        lender.run("allow", str(outside))
        try:
            await delegate(host, outside, "true")
        finally:
            lender.run("allow", str(outside), "--remove")

    async with host_of(lender, mode) as rootless:
        answer = await rootless.call_tool("delegate", {"workspace_dir": str(inside), "peer": "bob", "prompt": "true"})
        assert answer.is_error
        assert "sublet allow" in text_of(answer)


async def test_a_host_applies_a_staged_result_only_where_it_may_lend(lender: Daemon, project: Path) -> None:
    async with host_of(lender, "auto", project) as host, host_of(lender, "legacy") as rootless:
        given = {"workspace_dir": str(project), "peer": "bob", "prompt": "echo new > new", "result_mode": "staged"}
        ended = facts(await host.call_tool("delegate", {**given, "background": False}))
        assert (ended["state"], ended["change_set"]["status"]) == ("completed", "pending")
        assert not (project / "new").exists()
        found = {"delegation_id": ended["delegation_id"]}
        for reader in (host, rootless):
            assert "+new" in facts(await reader.call_tool("delegate_review", found))["from_peer"]["text"]

        answer = await rootless.call_tool("delegate_review", {**found, "action": "apply"})
        assert answer.is_error
        assert text_of(answer).startswith("POLICY_DENIED: ")
        assert not (project / "new").exists()

        applied = facts(await host.call_tool("delegate_review", {**found, "action": "apply"}))
        assert (applied["change_set"]["status"], applied["from_peer"]["done"]) == ("applied", ["new"])
        assert (project / "new").read_text() == "new\n"
        facts(await host.call_tool("delegate_review", {**found, "action": "undo"}))
        assert not (project / "new").exists()


async def test_C25_a_job_may_take_longer_than_a_call(lender: Daemon, project: Path, mode: str) -> None:
    async with host_of(lender, mode, project) as host:
        given = {"workspace_dir": str(project), "peer": "bob", "prompt": FOREVER}
        # Without a progress token, and with less patience than the job needs.
        started = facts(await host.call_tool("delegate", given, read_timeout_seconds=60))
        found = started["delegation_id"]
        assert not started["finished"]
        await log_until(host, found, lambda page, text: "begun" in text)

        page = await output(host, found, section="summary", wait_seconds=1)
        assert page["still_running"] is True
        assert page["next_cursor"] == "0"
        too_long = await host.call_tool("delegate_output", {"delegation_id": found, "wait_seconds": 60})
        assert too_long.is_error
        with pytest.raises(MCPError):
            await host.call_tool(
                "delegate_output",
                {"delegation_id": found, "section": "summary", "wait_seconds": 45},
                read_timeout_seconds=1,
            )
        assert "begun" in (await output(host, found))["from_peer"]["text"], "nothing is lost on a client's time-out"
        await host.call_tool("delegate_cancel", {"delegation_id": found})


async def close_stdin(host: RawHost) -> None:
    assert host.process.stdin is not None
    await host.process.stdin.aclose()


async def send(host: RawHost, number: signal.Signals) -> None:
    host.process.send_signal(number)


WAYS = ("eof", "sigterm", "sigint", "parent")


@asynccontextmanager
async def relay(daemon: Daemon, way: str) -> AsyncIterator[tuple[RawHost, int]]:
    """Yield a session and its relay's process id; for ``parent``, a launcher stands between, as ``uvx`` does."""
    command = [sys.executable, "-c", PARENT, *BARE] if way == "parent" else BARE
    async with raw_host(home_of(daemon), command) as host:
        await host.hello()
        yield host, psutil.Process(host.pid).children()[0].pid if way == "parent" else host.pid


async def end(host: RawHost, way: str, pid: int) -> None:
    """End a relay in one of the four ways and see that it is gone in time."""
    with anyio.fail_after(GONE_SECONDS):
        match way:
            case "eof":
                await close_stdin(host)
            case "sigterm":
                await send(host, signal.SIGTERM)
            case "sigint":
                await send(host, signal.SIGINT)
            case _:
                os.kill(host.pid, signal.SIGKILL)
        await host.process.wait()
        while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            await anyio.sleep(0.01)


def processes() -> set[int]:
    """Return all processes below this one in its session; daemons have sessions of their own."""
    below, found = psutil.Process().children(recursive=True), set()
    for process in below:
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(process.pid) == os.getsid(0):
                found.add(process.pid)
    return found


async def test_C26_a_relay_ends_with_its_host_and_the_work_goes_on(lender: Daemon, project: Path) -> None:
    assert lender.pid is not None
    async with host_of(lender, "auto", project) as host:
        found = await delegate(host, project, WAITING)
        await log_until(host, found, lambda page, text: "begun" in text)
        before, below_daemon = processes(), psutil.Process(lender.pid).children(recursive=True)
        descriptors = psutil.Process(lender.pid).num_fds()

        for cycle in range(20):
            way = WAYS[cycle % len(WAYS)]
            async with relay(lender, way) as (other, pid):
                if cycle >= len(WAYS):  # with a call under way
                    given = {"delegation_id": found, "section": "summary", "wait_seconds": 45}
                    await other.send(call(3, "delegate_output", **given))
                await end(other, way, pid)

        assert processes() == before
        assert psutil.Process(lender.pid).children(recursive=True) == below_daemon
        while psutil.Process(lender.pid).num_fds() > descriptors:
            await anyio.sleep(0.05)
        (project / "go").touch()
        assert (await output(host, found, section="summary", wait_seconds=30))["state"] == "completed"
    assert lender.json("status")["pid"] == lender.pid


@pytest.fixture
def absent(tmp_path: Path) -> Iterator[Daemon]:
    """A home whose daemon does not run yet; whoever starts it, it is stopped afterwards."""
    daemon = Daemon(tmp_path / "absent")
    daemon.home.mkdir()
    yield daemon
    daemon.run("down", check=None)


async def test_the_daemon_starts_by_itself_once_and_stays(absent: Daemon) -> None:
    """Several hosts that come at once get one daemon, which outlives them."""

    async def look() -> None:
        async with host_of(absent) as host:
            shown = facts(await host.call_tool("directory", {}))
            assert "sublet pair" in shown["next_step"]

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(look)
    pid = absent.json("status")["pid"]
    assert psutil.Process(pid).cwd() == "/", "it must not keep anybody's project busy"
    await look()
    assert absent.json("status")["pid"] == pid


async def test_a_daemon_that_stops_stays_down_until_a_host_asks(absent: Daemon) -> None:
    async with host_of(absent) as host:
        await host.call_tool("directory", {})
        first = absent.json("status")["pid"]
        await anyio.to_thread.run_sync(lambda: absent.run("down"))
        assert absent.run("status", check=None).returncode != 0
        await host.call_tool("directory", {})
    assert absent.json("status")["pid"] != first


@pytest.mark.parametrize(("mode", "how"), [("auto", "killed"), ("legacy", "stopped")])
async def test_a_session_survives_a_restart_of_the_daemon(tmp_path: Path, project: Path, mode: str, how: str) -> None:
    with two_daemons(tmp_path) as (lender, _):
        async with host_of(lender, mode, project) as host:
            done = await delegate(host, project, "echo written > file; echo said")
            while not (await output(host, done, section="summary", wait_seconds=30))["finished"]:
                pass
            interrupted = await delegate(host, project, FOREVER)
            await log_until(host, interrupted, lambda page, text: "begun" in text)

            def restart() -> None:
                if how == "killed":
                    lender.kill()
                else:
                    lender.run("down")
                lender.up()

            await anyio.to_thread.run_sync(restart)
            known = await output(host, done, section="summary")
            assert (known["state"], known["from_peer"]["files_added"]) == ("completed", ["file"])
            gone = await output(host, interrupted, section="summary")
            if how == "killed":
                assert gone["state"] == "running", "what a killed daemon had under way goes on"
                await host.call_tool("delegate_cancel", {"delegation_id": interrupted})
            else:
                assert gone["state"] == "cancelled"
                assert "stopped" in json.dumps(gone)
            again = await delegate(host, project, "cat file")
            while not (ended := await output(host, again, section="summary", wait_seconds=30))["finished"]:
                pass
            assert ended["from_peer"]["summary"] == "written"
