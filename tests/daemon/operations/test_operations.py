"""Operations in use: stated once, served once, called inside the daemon and over a real control socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx
import pytest
from pydantic import Field, ValidationError

from sublet import turns
from sublet.daemon.api.base import Request, View
from sublet.daemon.api.operation import Asks, AsksInside, Nothing, Operation, Segment, Streaming
from sublet.daemon.config.paths import Home, resolve_home
from sublet.daemon.control.client import ControlClient
from sublet.daemon.control.server import ControlServer
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.operations.answers import OWNER
from sublet.daemon.operations.calling import Calls, read_answer, write_request
from sublet.daemon.operations.routes import written
from sublet.daemon.operations.table import OperationTable, serves
from sublet.policy.decision import Action, Subject
from sublet.protocol.errors import LocalCode, SubletError
from support.decisions import KeptDecisions, gatekeeper

pytestmark = pytest.mark.anyio

HOST = Subject("mcp", "claude")
ThingId = Annotated[
    str, Segment(lambda text: text.startswith("t:") and "/" not in text, "id of a thing", "See things.")
]


class Change(Request):
    thing_id: ThingId
    name: Annotated[str, Field(max_length=20)]
    twice: bool = False
    note: str | None = None

    @property
    def size_bytes(self) -> int:
        return len(self.name)


class Find(Request):
    name: str
    limit: Annotated[int, Field(ge=1)] = 10
    ratio: float | None = None


class Thing(View):
    name: str


class Told(View):
    text: str


CHANGE = Operation(
    "things.change",
    "POST",
    "/v1/things/{thing_id}",
    Change,
    Thing,
    asks=Asks(Action.PEER_MANAGE, "{thing_id}", ("size_bytes",)),
    summary="Change a thing.",
    status=201,
    max_bytes=1000,
)
FIND = Operation(
    "things.find",
    "GET",
    "/v1/things",
    Find,
    list[Thing],
    asks=Asks(Action.PEER_MANAGE, "{name}"),
    summary="Find things.",
)
REMOVE = Operation(
    "things.remove",
    "DELETE",
    "/v1/things/{name}/all",
    Find,
    list[str],
    asks=AsksInside("the thing says whose it is", (Action.PEER_MANAGE,)),
    summary="Remove things.",
)
FORGETS = Operation(
    "things.forget",
    "POST",
    "/v1/forget",
    Nothing,
    Thing,
    asks=AsksInside("it forgets to", (Action.PEER_MANAGE,)),
    summary="Ask nobody.",
)
FOLLOW: Streaming[Find, Thing | Told] = Streaming(
    "things.follow",
    "POST",
    "/v1/follow",
    Find,
    {"thing": Thing, "told": Told},
    asks=Asks(Action.PEER_MANAGE, "{name}"),
    summary="Follow things.",
)


class Things:
    """Serves them, and keeps what it was asked."""

    def __init__(self, gate: Gatekeeper) -> None:
        self._gate = gate
        self.asked: list[tuple[Request, Subject]] = []

    @serves(CHANGE)
    async def change(self, request: Change, caller: Subject) -> Thing:
        self.asked.append((request, caller))
        return Thing(name=request.name)

    @serves(FIND)
    async def find(self, request: Find, caller: Subject) -> list[Thing]:
        self.asked.append((request, caller))
        return [Thing(name=request.name)] * request.limit

    @serves(REMOVE)
    async def remove(self, request: Find, caller: Subject) -> list[str]:
        await self._gate.ask(caller, Action.PEER_MANAGE, request.name)
        self.asked.append((request, caller))
        return [request.name]

    @serves(FORGETS)
    async def forget(self, request: Nothing, caller: Subject) -> Thing:
        return Thing(name="done")

    @serves(FOLLOW)
    async def follow(self, request: Find, caller: Subject) -> AsyncGenerator[Thing | Told, None]:
        self.asked.append((request, caller))
        yield Thing(name=request.name)
        yield Told(text="a\u2028b\n\nevent: error")
        if request.limit == 1:
            raise SubletError(LocalCode.CONFLICT, "no more")


class Journal:
    @property
    def events(self) -> Journal:
        return self

    async def append_event(self, *_: object, **__: object) -> None:
        """Forget it."""


@pytest.fixture
def things() -> Things:
    return Things(gatekeeper(Journal(), log=KeptDecisions()))  # type: ignore[arg-type]


@asynccontextmanager
async def served(things: Things, base: Path) -> AsyncIterator[tuple[ControlClient, Home]]:
    home = resolve_home({"SUBLET_HOME": str(base)})
    home.make()
    server = ControlServer(home, OperationTable(things), identify=lambda _: None)
    await server.start()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(server.serve())
        await asyncio.sleep(0)
        try:
            yield ControlClient(home), home
        finally:
            task.cancel()


def raw(home: Home) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.AsyncHTTPTransport(uds=home.control_socket), base_url="http://sublet", trust_env=False
    )


async def both(things: Things, base: Path) -> AsyncIterator[Calls]:
    yield OperationTable(things).called_by(OWNER)
    async with served(things, base) as (client, _):
        yield client


async def test_a_call_is_the_same_inside_the_daemon_and_over_the_socket(things: Things, tmp_path: Path) -> None:
    change = Change(thing_id="t:1 ü%2f", name="a\u2028b", twice=True)
    find = Find(name="ü & more", limit=2, ratio=0.5)
    async for calls in both(things, tmp_path):
        things.asked.clear()
        assert await calls.call(CHANGE, change) == Thing(name="a\u2028b")
        assert await calls.call(FIND, find) == [Thing(name="ü & more")] * 2
        assert await calls.call(REMOVE, Find(name="one")) == ["one"]
        async with aclosing(calls.stream(FOLLOW, find)) as events:
            assert [one async for one in events] == [Thing(name="ü & more"), Told(text="a\u2028b\n\nevent: error")]
        assert things.asked == [(change, OWNER), (find, OWNER), (Find(name="one"), OWNER), (find, OWNER)]


async def test_policy_is_asked_before_the_method_however_it_is_called(things: Things) -> None:
    table, change, find = OperationTable(things), Change(thing_id="t:1", name="n"), Find(name="n")
    for attempt in (
        table.call(CHANGE, change, HOST),
        table.called_by(HOST).call(FIND, find),
        things.change(change, HOST),
        things.remove(find, HOST),
        anext(table.stream(FOLLOW, find, HOST)),
        anext(things.follow(find, HOST)),
    ):
        with pytest.raises(SubletError) as refused:
            await attempt
        assert refused.value.code is LocalCode.POLICY_DENIED
    assert things.asked == []


async def test_policy_is_told_what_the_request_is_about() -> None:
    log = KeptDecisions()
    things = Things(gatekeeper(Journal(), log=log))  # type: ignore[arg-type]
    await things.change(Change(thing_id="t:1", name="four"), OWNER)
    await things.find(Find(name=""), OWNER)
    with pytest.raises(SubletError):
        await things.find(Find(name=""), Subject("mcp", "host"))
    decisions = [fields for kind, fields in log.entries if kind == "decision"]
    assert [(one["action"], one["resource"]) for one in decisions] == [("peer.manage", "t:1"), ("peer.manage", "*")]
    assert decisions[0]["attributes"] == {"size_bytes": 4}
    assert ("outcome", {"of": 1, "outcome": "done"}) in log.entries


async def test_an_operation_that_asks_inside_and_forgets_to_fails(things: Things) -> None:
    with pytest.raises(RuntimeError, match="asked nobody"):
        await OperationTable(things).call(FORGETS, Nothing(), OWNER)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/things/t:1", b'{"name": "n", "thing_id": "t:2"}'),
        ("POST", "/v1/things/t:1", b'{"name": "n", "extra": 1}'),
        ("POST", "/v1/things/t:1", b'{"name": "%s"}' % (b"x" * 21)),
        ("POST", "/v1/things/t:1", b'{"name": "%s"}' % (b"x" * 1000)),
        ("POST", "/v1/things/t:1", b'["name"]'),
        ("POST", "/v1/things/t:1", b'{"name": '),
        ("POST", "/v1/things/t:1", b'{"name": "\\ud800"}'),
        ("POST", "/v1/things/t:1?name=n", b'{"name": "n"}'),
        ("POST", "/v1/things/t:1", b""),
        ("GET", "/v1/things?name=n&name=m", b""),
        ("GET", "/v1/things?name=n&extra=1", b""),
        ("GET", "/v1/things?name=n&limit=0", b""),
        ("DELETE", "/v1/things/a/all?name=b", b""),
        ("POST", "/v1/follow", b"{}"),
    ],
)
async def test_odd_requests_are_named_and_go_no_further(
    things: Things, tmp_path: Path, method: str, path: str, body: bytes
) -> None:
    async with served(things, tmp_path) as (_, home), raw(home) as http:
        answer = await http.request(method, path, content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "INVALID_ARGUMENT"), answer.text
    assert things.asked == []


async def test_a_refused_stream_is_an_http_error_and_one_that_breaks_says_why(things: Things, tmp_path: Path) -> None:
    async with served(things, tmp_path) as (client, home):
        async with raw(home) as http:
            assert (await http.post("/v1/follow", json={"name": 1})).status_code == 422
        events = client.stream(FOLLOW, Find(name="n", limit=1))
        assert [await anext(events), await anext(events)][0] == Thing(name="n")
        with pytest.raises(SubletError, match="no more") as ended:
            await anext(events)
        assert ended.value.code is LocalCode.CONFLICT


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "a?b", "a b", "-x", "a\n", "ü", "x" * 65])
def test_no_field_of_a_path_becomes_another_path(name: str) -> None:
    with pytest.raises(SubletError) as refused:
        write_request(REMOVE, Find(name=name))
    assert refused.value.code is LocalCode.INVALID_ARGUMENT
    with pytest.raises(SubletError, match="no id of a thing"):
        write_request(CHANGE, Change(thing_id=name, name="n"))


def test_a_request_leaves_out_what_it_does_not_need() -> None:
    """So an older daemon, which refuses names that it does not know, takes it."""
    assert write_request(CHANGE, Change(thing_id="t:1", name="n")).body == b'{"name":"n"}'
    assert write_request(CHANGE, Change(thing_id="t:1", name="n", twice=True)).body == b'{"name":"n","twice":true}'
    assert write_request(FIND, Find(name="n")).query == {"name": "n"}


def test_text_that_is_not_utf8_is_refused_before_anything_is_sent() -> None:
    for operation in (FIND, FOLLOW):
        written: Any = operation
        with pytest.raises(SubletError, match="not UTF-8") as refused:
            write_request(written, Find(name="\udcff"))
        assert refused.value.code is LocalCode.INVALID_ARGUMENT


@pytest.mark.parametrize("raw", [b"", b"{}", b"[", b'[{"name": 1}]', b'{"name": "n"}'])
def test_an_answer_of_another_version_is_not_taken_for_one(raw: bytes) -> None:
    with pytest.raises(SubletError) as odd:
        read_answer(FIND, raw)
    assert odd.value.code is LocalCode.INTERNAL


def test_an_operation_can_name_only_what_its_request_has() -> None:
    with pytest.raises(TypeError, match="Find has no thing_id"):
        Operation("x", "GET", "/v1/{thing_id}", Find, Thing, asks=Asks(Action.PEER_MANAGE), summary="")
    for asks in (Asks(Action.PEER_MANAGE, "{other}"), Asks(Action.PEER_MANAGE, "*", ("size_bytes",))):
        with pytest.raises(TypeError, match="Find has no"):
            Operation("x", "GET", "/v1/x", Find, Thing, asks=asks, summary="")


def test_nothing_is_served_twice(things: Things) -> None:
    with pytest.raises(ValueError, match=r"things\.change is served twice"):
        OperationTable(things, things)


def test_requests_do_not_change_after_policy_has_seen_them() -> None:
    with pytest.raises(ValidationError):
        Find(name="n").name = "m"


async def test_others_have_the_loop_between_the_views_of_a_long_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_SECONDS", 0)
    answering = asyncio.ensure_future(written([Thing(name=str(number)) for number in range(100)], 200))
    passes = 0
    while not answering.done():
        passes += 1
        await asyncio.sleep(0)
    assert passes >= 100
    assert json.loads(bytes((await answering).body)) == [{"name": str(number)} for number in range(100)]
