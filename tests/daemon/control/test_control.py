"""The control API over its real socket, with the real client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from sublet.daemon.api.assignments import LIST_ASSIGNMENTS, AssignmentView
from sublet.daemon.api.audit_models import AuditReport
from sublet.daemon.api.base import Request
from sublet.daemon.api.daemon import RELOAD, SHOW_STATUS, ReloadReport
from sublet.daemon.api.delegation_fields import ListNewest, OneDelegation, OneWithPatch
from sublet.daemon.api.delegation_views import ChangeSet
from sublet.daemon.api.delegations import (
    AUDIT_DELEGATION,
    CANCEL_DELEGATION,
    CREATE_DELEGATION,
    EXTEND_DELEGATION,
    GET_DELEGATION,
    LIST_DELEGATIONS,
    SAY_MORE,
    WAIT_FOR_END,
    CreateDelegation,
    ExtendDelegation,
    SayMore,
    WaitForEnd,
)
from sublet.daemon.api.events import FOLLOW_EVENTS, READ_EVENTS, EventPage, FollowEvents, ReadEvents
from sublet.daemon.api.operation import MAX_BODY_BYTES, Nothing, Operation
from sublet.daemon.api.pruning import PRUNE, PruneReport, PruneRequest
from sublet.daemon.api.results import (
    APPLY_RESULT,
    DISCARD_RESULT,
    EXPORT_RESULT,
    REVIEW_RESULT,
    UNDO_RESULT,
    Applied,
    ApplyResult,
    Discarded,
    ResultPatch,
    Review,
    Undone,
)
from sublet.daemon.config.paths import Home, resolve_home
from sublet.daemon.control.client import ControlClient
from sublet.daemon.control.server import ControlServer
from sublet.daemon.net.unix_socket import bind_private
from sublet.daemon.operations.answers import OWNER
from sublet.policy.decision import Subject
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.events import Event, EventKind
from sublet.protocol.lifecycle import AssignmentState
from support.daemon_double import DELEGATION, STATUS, DaemonDouble

pytestmark = pytest.mark.anyio

REQUEST = CreateDelegation(workspace_dir="/w", peer="bob", prompt="p\u2028q")
CHANGES = ChangeSet(added=1)
REVIEW = Review(delegation_id="dlg_1", workspace_dir="/w", change_set=CHANGES, patch="+")
PATCH = ResultPatch(delegation_id="dlg_1", base64="eA==")
APPLY = ApplyResult(delegation_id="dlg_1", partial=True, allow_mass_deletion=True)
APPLIED = Applied(delegation_id="dlg_1", applied=["a"], change_set=CHANGES)
DISCARDED = Discarded(delegation_id="dlg_1", change_set=CHANGES)
UNDONE = Undone(delegation_id="dlg_1", undone=["a"], change_set=CHANGES)
PRUNING = PruneRequest(older_than_seconds=86_400, dry_run=True)
WORK = AssignmentView(
    delegation_id="dlg_1",
    state=AssignmentState.ACTIVE,
    peer="ann",
    agent="shell",
    description="d",
    access_mode="ro",
    created_at="t",
    updated_at="t",
)
RELOADED = ReloadReport(agents=["shell"], policy_file="/p", agent_file="/a")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = resolve_home({"SUBLET_HOME": str(tmp_path)})
    home.make()
    return home


@asynccontextmanager
async def serving(double: DaemonDouble, home: Home) -> AsyncIterator[ControlClient]:
    server = ControlServer(home, double.table, identify=lambda _: None)
    await server.start()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(server.serve())
        # a task that is cancelled before its first step never closes anything
        await asyncio.sleep(0)
        try:
            async with ControlClient(home) as client:
                yield client
        finally:
            task.cancel()


def raw(home: Home) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.AsyncHTTPTransport(uds=home.control_socket), base_url="http://sublet", trust_env=False
    )


ONE = OneDelegation(delegation_id="dlg_1")
PATCHED = OneWithPatch(delegation_id="dlg_1", patch=True)
PAGE_OF = ReadEvents(
    cursor=3, delegation_id="dlg_1", session_id="ses_1", kind=EventKind.TOOL_CALL, timeout=1.5, limit=9
)
OPERATIONS: list[tuple[Operation[Any, Any], Request, object]] = [
    (CREATE_DELEGATION, REQUEST, DELEGATION),
    (GET_DELEGATION, ONE, DELEGATION),
    (WAIT_FOR_END, WaitForEnd(delegation_id="dlg_1", timeout=45), DELEGATION),
    (LIST_DELEGATIONS, ListNewest(limit=7, active=True), [DELEGATION, DELEGATION]),
    (AUDIT_DELEGATION, PATCHED, AuditReport(patch="+")),
    (CANCEL_DELEGATION, ONE, DELEGATION),
    (EXTEND_DELEGATION, ExtendDelegation(delegation_id="dlg_1", seconds=60), DELEGATION),
    (SAY_MORE, SayMore(delegation_id="dlg_1", prompt="more", follow_up_id="f1"), DELEGATION),
    (REVIEW_RESULT, PATCHED, REVIEW),
    (EXPORT_RESULT, ONE, PATCH),
    (APPLY_RESULT, APPLY, APPLIED),
    (APPLY_RESULT, ApplyResult(delegation_id="dlg_1", branch="b"), APPLIED),
    (DISCARD_RESULT, ONE, DISCARDED),
    (UNDO_RESULT, ONE, UNDONE),
    (PRUNE, PRUNING, PruneReport(events=1)),
    (READ_EVENTS, PAGE_OF, EventPage(events=[], cursor=3)),
    (LIST_ASSIGNMENTS, ListNewest(limit=3, active=True), [WORK]),
]


async def test_every_operation_on_leases_arrives_and_comes_back_as_it_was(home: Home) -> None:
    double = DaemonDouble({operation.name: answer for operation, _, answer in OPERATIONS})
    async with serving(double, home) as client:
        for operation, request, answer in OPERATIONS:
            assert await client.call(operation, request) == answer
    assert double.asked == [(operation.name, (request, OWNER), {}) for operation, request, _ in OPERATIONS]
    assert not Path(home.control_socket).exists()


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "a?b", "a b", "-x", "a\n", "\u00fc", "x" * 65])
async def test_no_name_becomes_another_path(home: Home, name: str) -> None:
    double = DaemonDouble()
    async with serving(double, home) as client:
        one = OneDelegation(delegation_id=name)
        for call in (client.call(GET_DELEGATION, one), client.call(CANCEL_DELEGATION, one)):
            with pytest.raises(SubletError) as refused:
                await call
            assert refused.value.code is LocalCode.INVALID_ARGUMENT
    assert double.asked == []


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (SubletError(LocalCode.NOT_FOUND, "m", "h"), 404),
        (SubletError(LocalCode.POLICY_DENIED, "m", "h"), 403),
        (SubletError(ErrorCode.WORKSPACE_TOO_LARGE, "m ü", "h"), 422),
        (SubletError(ErrorCode.DECLINED, "m", from_peer=True, retry_after_seconds=30), 422),
    ],
)
async def test_failures_arrive_as_they_are(home: Home, error: SubletError, status: int) -> None:
    double = DaemonDouble({SHOW_STATUS.name: error})
    async with serving(double, home) as client:
        with pytest.raises(SubletError) as raised:
            await client.call(SHOW_STATUS, Nothing())
        async with raw(home) as http:
            answer = await http.get("/v1/status")
    assert raised.value.as_json() == error.as_json()
    assert answer.status_code == status
    assert answer.json() == {"error": error.as_json()}


async def test_what_breaks_inside_is_not_told(home: Home) -> None:
    async with serving(DaemonDouble({SHOW_STATUS.name: RuntimeError("the secret is 42")}), home) as client:
        with pytest.raises(SubletError) as raised:
            await client.call(SHOW_STATUS, Nothing())
    assert raised.value.code is LocalCode.INTERNAL
    assert "42" not in str(raised.value)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/delegations", '{"workspace_dir": "/w", "peer": "b", "prompt": "p", "extra": 1}'),
        ("POST", "/v1/delegations", '{"workspace_dir": "/w", "peer": "b"}'),
        ("POST", "/v1/delegations", "[]"),
        ("POST", "/v1/delegations", "{"),
        ("POST", "/v1/delegations?x=1", '{"workspace_dir": "/w", "peer": "b", "prompt": "p"}'),
        ("POST", "/v1/shutdown", '{"now": true}'),
        ("POST", "/v1/tokens", '{"name": "' + "x" * MAX_BODY_BYTES + '"}'),
        ("GET", "/v1/status?verbose=1", None),
        ("GET", "/v1/delegations?limit=0", None),
        ("GET", "/v1/delegations?limit=100000", None),
        ("GET", "/v1/delegations?limit=1&limit=2", None),
        ("GET", "/v1/delegations/dlg_1/wait?timeout=3600", None),
        ("GET", "/v1/delegations/dlg_1/wait?timeout=nan", None),
        ("GET", "/v1/events/page?cursor=-1", None),
        ("GET", "/v1/events?cursor=x", None),
    ],
)
async def test_odd_arguments_are_named_and_go_no_further(home: Home, method: str, path: str, body: str | None) -> None:
    double = DaemonDouble()
    async with serving(double, home), raw(home) as http:
        answer = await http.request(method, path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["error"]["code"] == "INVALID_ARGUMENT"
    assert double.asked == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Host": ""}, 403),
        ({"Origin": "http://sublet"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Content-Type": "text/plain"}, 422),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 422),
    ],
)
async def test_what_a_browser_would_send_is_refused(home: Home, headers: dict[str, str], status: int) -> None:
    double = DaemonDouble()
    async with serving(double, home), raw(home) as http:
        answer = await http.post("/v1/shutdown", content="{}", headers={"Content-Type": "application/json"} | headers)
    assert answer.status_code == status
    assert double.asked == []


async def test_unknown_operations_are_told_as_json(home: Home) -> None:
    async with serving(DaemonDouble(), home), raw(home) as http:
        assert (await http.get("/v2/status")).json()["error"]["code"] == "NOT_FOUND"
        assert (await http.delete("/v1/status")).status_code == 405


class News:
    """Events that the test releases one by one."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.news = asyncio.Event()

    async def since(self, request: FollowEvents, _: Subject, *, timeout: float) -> list[Event]:
        if timeout and not self.events[request.cursor :]:
            self.news.clear()
            await self.news.wait()
        return self.events[request.cursor :]

    def add(self, text: str) -> None:
        event = Event(
            seq=len(self.events) + 1, at="t", kind=EventKind.DELEGATION_OUTPUT, delegation_id="d", data={"text": text}
        )
        self.events.append(event)
        self.news.set()


async def test_events_stream_in_order_and_resume(home: Home) -> None:
    news = News()
    texts = ["a", "b\nc", "d\u2028e\x85f", "data: x\n\nevent: error"]
    for text in texts[:2]:
        news.add(text)
    async with serving(DaemonDouble({FOLLOW_EVENTS.name: news.since}), home) as client:
        stream = client.follow(FOLLOW_EVENTS, FollowEvents())
        seen = [await anext(stream), await anext(stream)]
        for text in texts[2:]:
            news.add(text)
            seen.append(await anext(stream))
        assert seen == news.events
        async with raw(home) as http, http.stream("GET", "/v1/events", headers={"Last-Event-ID": "3"}) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            lines = answer.aiter_lines()
            assert await anext(lines) == "id: 4"
    # the stop of the server has ended both streams
    with pytest.raises(SubletError) as ended:
        await anext(stream)
    assert ended.value.code in (LocalCode.UNAVAILABLE, LocalCode.DAEMON_UNAVAILABLE)


async def test_a_quiet_stream_shows_that_it_is_alive(home: Home) -> None:
    double = DaemonDouble({FOLLOW_EVENTS.name: []})
    async with serving(double, home), raw(home) as http, http.stream("GET", "/v1/events") as answer:
        lines = answer.aiter_lines()
        assert await anext(lines) == ": alive"


async def test_a_refused_stream_is_an_http_error(home: Home) -> None:
    double = DaemonDouble({FOLLOW_EVENTS.name: SubletError(LocalCode.POLICY_DENIED, "no")})
    async with serving(double, home) as client:
        with pytest.raises(SubletError, match="no") as refused:
            await anext(client.follow(FOLLOW_EVENTS, FollowEvents()))
    assert refused.value.code is LocalCode.POLICY_DENIED


async def test_a_stop_ends_long_polls_at_once(home: Home) -> None:
    asked = asyncio.Event()

    async def forever(*_: object, **__: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    double = DaemonDouble({WAIT_FOR_END.name: forever})
    server = ControlServer(home, double.table, identify=lambda _: None)
    await server.start()
    async with asyncio.TaskGroup() as group, ControlClient(home) as client:
        serving = group.create_task(server.serve())
        waiting = group.create_task(_outcome(client))
        await asked.wait()
        serving.cancel()
        assert await waiting is LocalCode.UNAVAILABLE


async def test_a_stop_lets_short_work_finish(home: Home) -> None:
    asked, finish = asyncio.Event(), asyncio.Event()

    async def slow(*_: object) -> object:
        asked.set()
        await finish.wait()
        return RELOADED

    double = DaemonDouble({RELOAD.name: slow})
    server = ControlServer(home, double.table, identify=lambda _: None)
    await server.start()
    async with ControlClient(home) as client, asyncio.TaskGroup() as group:
        async with anyio.create_task_group() as serving:
            serving.start_soon(server.serve)
            answer = group.create_task(client.call(RELOAD, Nothing()))
            await asked.wait()
            serving.cancel_scope.cancel()
            asyncio.get_running_loop().call_later(0.05, finish.set)
        assert finish.is_set(), "the server left while a request was under way"
        assert await answer == RELOADED
    assert not Path(home.control_socket).exists()


async def _outcome(client: ControlClient) -> ErrorCode | LocalCode:
    try:
        await client.call(WAIT_FOR_END, WaitForEnd(delegation_id="dlg_1", timeout=45))
    except SubletError as error:
        return error.code
    raise AssertionError("the wait came to an end")


async def test_without_a_daemon_the_hint_says_how_to_start_it(home: Home) -> None:
    stale = bind_private(home.control_socket)
    stale.close()
    for _ in range(2):
        async with ControlClient(home) as client:
            with pytest.raises(SubletError) as refused:
                await client.call(SHOW_STATUS, Nothing())
            with pytest.raises(SubletError):
                await anext(client.follow(FOLLOW_EVENTS, FollowEvents()))
        assert refused.value.code is LocalCode.DAEMON_UNAVAILABLE
        assert "sublet up" in refused.value.hint
        Path(home.control_socket).unlink(missing_ok=True)


async def test_a_socket_in_a_directory_of_others_is_not_spoken_to(home: Home) -> None:
    os.chmod(home.runtime_dir, 0o755)
    async with serving(DaemonDouble({SHOW_STATUS.name: STATUS}), home) as client:
        with pytest.raises(SubletError, match="others may enter"):
            await client.call(SHOW_STATUS, Nothing())


async def test_the_socket_is_private_and_replaces_a_stale_one(home: Home) -> None:
    bind_private(home.control_socket).close()
    made = bind_private(home.control_socket)
    assert Path(home.control_socket).stat().st_mode & 0o777 == 0o600
    made.close()
    os.unlink(home.control_socket)
    Path(home.control_socket).write_text("mine")
    with pytest.raises(SubletError, match="not a socket"):
        bind_private(home.control_socket)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
async def test_another_user_is_refused_even_where_the_socket_lets_him_in(home: Home, tmp_path: Path) -> None:
    # the modes are opened on purpose: what is left is the check of the uid
    for path in (home.runtime_dir, str(tmp_path)):
        os.chmod(path, 0o755)
    for parent in tmp_path.parents[:3]:  # with one more where the tests run beside each other
        os.chmod(parent, parent.stat().st_mode | 0o011)
    code = (
        "import os, socket, sys\n"
        "uid = int(sys.argv[2])\n"
        "os.setuid(uid) if uid else None\n"
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
        "try:\n"
        "    s.sendall(b'GET /v1/status HTTP/1.1\\r\\nHost: sublet\\r\\nConnection: close\\r\\n\\r\\n')\n"
        "    print(s.recv(15).decode())\n"
        "except (BrokenPipeError, ConnectionResetError):\n"
        "    print('')\n"
    )
    double = DaemonDouble({SHOW_STATUS.name: STATUS})
    async with serving(double, home):
        os.chmod(home.control_socket, 0o666)
        said = {}
        for uid in (0, 54321):
            done = await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-I", "-S", "-c", code, home.control_socket, str(uid)],
                capture_output=True,
                text=True,
                check=True,
            )
            said[uid] = done.stdout.strip()
    assert said == {0: "HTTP/1.1 200 OK", 54321: ""}
    assert len(double.asked) == 1


async def test_nonsense_on_the_socket_harms_nobody(home: Home) -> None:
    async with serving(DaemonDouble({SHOW_STATUS.name: STATUS}), home) as client:
        for words in (
            b"\0\1\2\r\n\r\n",
            b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000,
            b"GET /v1/status HTTP/1.0\r\n\r\n",
        ):
            reader, writer = await asyncio.open_unix_connection(home.control_socket)
            writer.write(words)
            answer = await reader.read()
            assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 403", b"HTTP/1.1 431"))
            writer.close()
        assert await client.call(SHOW_STATUS, Nothing()) == STATUS


async def test_the_client_does_not_load_the_server() -> None:
    code = "import json, sys, sublet.daemon.control.client; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"starlette", "uvicorn", "asyncssh", "nacl", "structlog"} & set(json.loads(done.stdout))


@pytest.mark.parametrize(
    "first_words",
    [b"", b"GET /v1/sta", b"POST /v1/prune HTTP/1.1\r\nHost: sublet\r\nContent-Length: 9000\r\n\r\n{"],
)
async def test_a_thousand_half_requests_keep_nobody_out(home: Home, first_words: bytes) -> None:
    async with serving(DaemonDouble({SHOW_STATUS.name: STATUS}), home) as client:
        before = len(os.listdir("/proc/self/fd"))
        opened = []
        try:
            for _ in range(1_000):
                _, writer = await asyncio.open_unix_connection(home.control_socket)
                writer.write(first_words)
                opened.append(writer)
            assert await client.call(SHOW_STATUS, Nothing()) == STATUS
        finally:
            for writer in opened:
                writer.transport.abort()
        with anyio.fail_after(20):
            while len(os.listdir("/proc/self/fd")) > before:
                await asyncio.sleep(0.02)


async def test_nobody_waits_for_the_rest_of_half_requests_at_the_stop(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    half = b"POST /v1/prune HTTP/1.1\r\nHost: sublet\r\nContent-Type: application/json\r\nContent-Length: 9000\r\n\r\n{"
    readers = []
    async with serving(DaemonDouble({SHOW_STATUS.name: STATUS}), home) as client:
        for _ in range(20):
            reader, writer = await asyncio.open_unix_connection(home.control_socket)
            writer.write(half)
            readers.append((reader, writer))
        assert await client.call(SHOW_STATUS, Nothing()) == STATUS
    for reader, writer in readers:
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
