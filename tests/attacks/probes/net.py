"""What a caller, a peer's answer, an agent's output or a model's reply costs, and what of it is kept."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import pkgutil
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import h11
from acp.schema import ToolCallUpdate

import sublet
from attacks.kit.caller import address_of, answering, caller, many
from attacks.kit.odd_peer import ODD_ANSWERS
from attacks.probe import CostProbe, FailureProbe, KeptProbe, Probe
from sublet.a2a_server import hosts, json_rpc
from sublet.a2a_wire import assertion
from sublet.daemon.config.paths import resolve_home
from sublet.daemon.net.http_connection import _Head
from sublet.mcp_server import toml_entry
from sublet.mcp_server.connection import _message
from sublet.mcp_server.relay_session import Lines
from sublet.policy.globs import covers, matcher, path_matcher
from sublet.policy.guardrail.extract import candidates
from sublet.policy.guardrail.patterns import LinearPattern
from sublet.policy.guardrail.relaxed import TooManySteps
from sublet.policy.tool_names import tool_plain, tool_skeletons
from sublet.protocol import canonical, gateway
from sublet.protocol.bounded_json import parse_json
from sublet.protocol.errors import SubletError
from sublet.protocol.lines import LineCutter
from sublet.protocol.patterns import MADE, Pattern
from sublet.protocol.text import clean, clean_line, clean_name, escape_text
from sublet.protocol.unique_json import unique_json
from sublet.supervisor.acp.tool_calls import tool_call
from sublet.supervisor.chat.arguments import read_arguments
from sublet.supervisor.chat.reply import read_whole
from sublet.supervisor.chat.sse import MalformedReply
from sublet.supervisor.output import Capture
from sublet.supervisor.router.syntax import is_direct_hub, mentions, words
from sublet.supervisor.tool_server.names import wire_name
from support.a2a_world import world
from support.at_once import events_of
from support.fake_daemon_api import FakeDaemonApi
from support.mcp_face import served as mcp_served

_LOADED = False
Siege: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Any]]


def _quiet(call: Callable[[Any], object]) -> Callable[[Any], object]:
    """Return ``call`` with the refusals that the product documents swallowed."""

    def run(given: Any) -> None:
        with contextlib.suppress(ValueError, SubletError, TooManySteps, h11.RemoteProtocolError):
            call(given)

    return run


def _cost(
    name: str, covers: str | list[str], make: Callable[[int], Any], run: Callable[[Any], object], size: int = 8_192
) -> CostProbe:
    places = [covers] if isinstance(covers, str) else covers
    return CostProbe(name=f"net: {name}", covers=places, make=make, run=_quiet(run), size=size)


def _each(run: Callable[[Any], object]) -> Callable[[Any], object]:
    """Return what does ``run`` with each of several inputs."""
    quiet = _quiet(run)
    return lambda given: [quiet(one) for one in given]


# HTTP


def _head(data: bytes) -> None:
    connection = _Head(16 << 10)
    for at in range(0, len(data), 1024):
        connection.receive_data(data[at : at + 1024])
        while connection.next_event() not in (h11.NEED_DATA, h11.PAUSED):
            pass


HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"
HTTP = [
    _cost(f"head: {what}", "daemon.net.http_connection:_Head.next_event", make, _head)
    for what, make in (
        ("many lines", lambda n: HEAD + b"a:\r\n" * (n // 4)),
        ("a long line", lambda n: HEAD + b"a: " + b" \t" * (n // 2)),
        ("a folded line", lambda n: HEAD + b"a: b\r\n" + b" x\r\n" * (n // 4)),
        ("a chunked body", lambda n: HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * (n // 6)),
        ("a body on a GET", lambda n: b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % n + b"x" * n),
        ("many lengths", lambda n: HEAD + b"Content-Length: " + b"1, " * (n // 3) + b"1\r\n\r\n"),
        ("blank lines", lambda n: b"\r\n" * (n // 2)),
    )
]

# JSON

TEXTS: list[tuple[str, Callable[[int], bytes]]] = [
    ("quotes", lambda n: b'"' * n),
    ("escapes", lambda n: b'"' + b'\\"' * (n // 2) + b'"'),
    ("backslashes", lambda n: b"\\" * n),
    ("open brackets", lambda n: b"[" * n),
    ("open objects", lambda n: b'{"":' * (n // 4)),
    ("small objects", lambda n: b"[" + b'{"":0},' * (n // 7) + b"0]"),
    ("small strings", lambda n: b"[" + b'"",' * (n // 3) + b"0]"),
    ("digits", lambda n: b"9" * n),
    ("numbers", lambda n: b"[" + b"1e9," * (n // 4) + b"0]"),
    ("names twice", lambda n: b"{" + b'"a":1,' * (n // 6) + b'"a":1}'),
    ("half pairs", lambda n: b'"' + b"\\ud800" * (n // 6) + b'"'),
    ("UTF-16", lambda n: ("[" * (n // 2)).encode("utf-16")),
]


def _canonical(data: bytes) -> None:
    value = canonical.narrow(parse_json(data))
    canonical.canonical_json(value)


def _texts(n: int) -> list[bytes]:
    return [make(n) for _, make in TEXTS]


JSON = [
    _cost(f"hostile JSON to {who}", places, _texts, _each(run))
    for who, places, run in (
        ("the parser", ["protocol.bounded_json:parse_json", "protocol.bounded_json:check_json"], parse_json),
        ("configuration", ["protocol.unique_json:unique_json"], unique_json),
        ("A2A", ["a2a_server.json_rpc:complaint"], lambda data: json_rpc.complaint(data, "1.0")),
        ("A2A by REST", ["a2a_server.json_rpc:rest_complaint"], json_rpc.rest_complaint),
        ("MCP", ["mcp_server.connection:_message", "mcp_server.relay_session:parse"], _message),
        ("gateways", ["protocol.gateway:decode_gateway"], gateway.decode_gateway),
        ("signatures", ["protocol.canonical:narrow", "protocol.canonical:canonical_json"], _canonical),
        ("a model's client", ["supervisor.chat.reply:read_whole", "supervisor.chat.reply:_object"], read_whole),
        ("a tool call", ["supervisor.chat.arguments:read_arguments"], lambda data: read_arguments(data.decode())),
    )
]

# Lines and events


def _fed(make: Callable[[], Any], step: int) -> Callable[[bytes], object]:
    """Return what feeds a decoder of its own piece by piece."""

    def run(data: bytes) -> None:
        decoder = make()
        for at in range(0, len(data), step):
            decoder.feed(data[at : at + step])
        if isinstance(decoder, EventReader):
            decoder.end()

    return _each(run)


def _host_file(text: str) -> None:
    with contextlib.suppress(tomllib.TOMLDecodeError):
        toml_entry.put_table(text, ("a", "b"), {})
        toml_entry.drop_table(text, ("a", "b"))


HOST_FILES = [
    _cost(
        f"a host's file of {what}",
        ["mcp_server.toml_entry:_with_comments", "mcp_server.toml_entry:put_table"],
        make,
        _host_file,
        2_048,  # some hundred lines
    )
    for what, make in (
        ("comments", lambda n: "[a.b]\n" + "# c\n" * (n // 4) + "[z]\n"),
        ("empty lines", lambda n: "[a.b]\n" + "\n" * n + "[z]\n"),
        ("tables", lambda n: "".join(f'[a."{i}"]\n' for i in range(n // 11)) + "[a.b]\nx = 1\n"),
    )
]


class EventReader:
    """Keeps what it is fed, and reads all of it as the events of one stream."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []

    def feed(self, chunk: bytes) -> None:
        self._chunks.append(chunk)

    def end(self) -> None:
        with contextlib.suppress(MalformedReply):
            events_of(self._chunks)


STREAMS: list[tuple[str, Callable[[int], bytes]]] = [
    ("blank lines", lambda n: b"\n" * n),
    ("lines of spaces", lambda n: b" \n" * (n // 2)),
    ("one long line", lambda n: b"x" * n),
    ("CR and LF", lambda n: b"\r\n\r" * (n // 3)),
    ("small events", lambda n: b"data:\n\n" * (n // 7)),
]
LINES = [
    _cost(f"streams to {who} by {step} bytes", place, lambda n: [make(n) for _, make in STREAMS], _fed(decoder, step))
    for step in (7, 4096)
    for who, place, decoder in (
        ("the line cutter", "protocol.lines:LineCutter.feed", lambda: LineCutter(1 << 20)),
        ("the MCP relay", "mcp_server.relay_session:Lines.feed", Lines),
        ("the reader of events", "supervisor.chat.sse:event_data", EventReader),
        ("captured output", "supervisor.output:Capture.feed", lambda: Capture("stdout", lambda _: None)),
    )
]

# Text

WORDS: list[tuple[str, Callable[[int], str]]] = [
    ("underscores", lambda n: "mcp__" + "_" * n + "!"),
    ("dots", lambda n: "." * n),
    ("ats", lambda n: "@" * n),
    ("a mention", lambda n: "@a" + "," * n),
    ("escapes", lambda n: "\x1b[" * (n // 2)),
    ("escapes without end", lambda n: "\x1b]" + "0" * n),
    ("digits behind an escape", lambda n: "\x1b[" + "0;" * (n // 2)),
    ("other scripts", lambda n: "é\u202e\u0301" * (n // 3)),
    ("halves of pairs", lambda n: "\ud800a" * (n // 2)),
    ("spaces", lambda n: "/hub" + " \t" * (n // 2) + "x"),
    ("fences", lambda n: "```" * (n // 3)),
    ("two fences in turn", lambda n: "```a\n~~~" * (n // 8)),
    ("brackets", lambda n: "[{" * (n // 2)),
    ("values begun", lambda n: '["a",' * (n // 5)),
    ("quotes", lambda n: "{'a':'" * (n // 6)),
    ("colons", lambda n: "a:b/c" * (n // 5)),
]


def _named(name: str) -> None:
    tool_call(ToolCallUpdate(tool_call_id="x", title=name, field_meta={"x": {"toolName": name}}), [])


_HOSTS = hosts.AllowedHosts("127.0.0.1", None)
_STARS = "*a*b*[!c]*d*e"


def _claimed(text: str) -> None:
    with contextlib.suppress(assertion.AssertionRejected):
        assertion.read_claim(text)


def _ruled(text: str) -> None:
    matcher(_STARS)(text)
    path_matcher(f"/**/{_STARS}/**/x")(f"/{text}/a")
    covers(_STARS, "*a*")


TEXT = [
    _cost(f"hostile text as {who}", places, lambda n: [make(n) for _, make in WORDS], _each(run), 2_048)
    for who, places, run in (
        ("cleaned text", ["protocol.text:clean", "protocol.text:_visible"], clean),
        ("a cleaned line", "protocol.text:clean_line", clean_line),
        ("a cleaned name", "protocol.text:clean_name", clean_name),
        ("a patch", ["protocol.text:escape_text", "protocol.text:_escaped_line"], escape_text),
        ("an ACP tool's name", ["supervisor.acp.tool_calls:tool_call", "supervisor.acp.tool_calls:_own_name"], _named),
        ("a tool's name on the wire", "supervisor.tool_server.names:wire_name", lambda text: wire_name(text, None)),
        ("a tool's forms", ["policy.tool_names:tool_plain", "policy.tool_names:_tool"], lambda t: tool_plain(t[:2000])),
        ("a tool's skeletons", "policy.tool_names:tool_skeletons", lambda text: tool_skeletons(text[:2000])),
        ("a request", ["supervisor.router.syntax:parse", "supervisor.router.syntax:is_direct_hub"], is_direct_hub),
        ("mentions", "supervisor.router.syntax:mentions", mentions),
        ("words", "supervisor.router.syntax:words", words),
        (
            "a reply",
            [
                "policy.guardrail.extract:candidates",
                "policy.guardrail.extract:_segments",
                "policy.guardrail.extract:_run",
                "policy.guardrail.extract:_scattered",
                "policy.guardrail.relaxed:read",
                "policy.guardrail.relaxed:strict_read",
                "policy.guardrail.relaxed:_Reader._string",
                "policy.guardrail.relaxed:_Reader._array",
                "policy.guardrail.relaxed:_Reader._object",
            ],
            candidates,
        ),
        ("a schema's pattern", "policy.guardrail.patterns:_translated", lambda text: LinearPattern(text[:400])),
        ("a peer's assertion", ["a2a_wire.assertion:read_claim"], _claimed),
        ("a Host header", ["a2a_server.hosts:AllowedHosts.allows_host"], lambda text: _HOSTS.allows_host(text, "::1")),
        ("a name under a rule", ["policy.globs:matcher", "policy.globs:path_matcher"], _ruled),
    )
]
# Every pattern of the engine

HOSTILE: list[Callable[[int], str]] = [
    lambda n: "a" * n,
    lambda n: "_" * n + "!",
    lambda n: "a." * (n // 2) + "!",
    lambda n: "/a" * (n // 2) + "\n",
    lambda n: "\x1b[0;" * (n // 4),
    lambda n: "[" * n,
    lambda n: " " * n + "x",
    lambda n: '"\\' * (n // 2),
]


def _all_patterns() -> list[Pattern[Any]]:
    global _LOADED
    if not _LOADED:
        for module in pkgutil.walk_packages(sublet.__path__, "sublet."):
            if not module.name.endswith(("__main__", "tool_server.relay")):
                importlib.import_module(module.name)
        _LOADED = True
    return MADE


def _matched(text: str) -> None:
    """Match one text against every pattern that a module of ours makes, in every way."""
    for pattern in _all_patterns():
        given: Any = text if isinstance(pattern.source, str) else text.encode("latin-1", "replace")
        pattern.match(given)
        pattern.fullmatch(given)
        pattern.search(given)
        pattern.sub(given[:0], given)
        pattern.split(given)
        for _ in pattern.finditer(given):
            pass


PATTERNS = [
    CostProbe(
        name=f"net: every pattern, hostile text {number}",
        covers=[
            "protocol.patterns:Pattern.match",
            "protocol.patterns:Pattern.fullmatch",
            "protocol.patterns:Pattern.search",
            "protocol.patterns:Pattern.sub",
            "protocol.patterns:Pattern.split",
            "protocol.patterns:Pattern.finditer",
            "protocol.patterns:Pattern._all",
        ],
        make=make,
        run=_matched,
        size=512,
    )
    for number, make in enumerate(HOSTILE)
]


# What is kept


@contextlib.contextmanager
def _besieged(part: Callable[[Path], AbstractAsyncContextManager[Any]], siege: Siege) -> Iterator[object]:
    """Run a part of the product, and hold a siege of it while the block lasts."""
    held: list[object] = []

    async def hold(begun: asyncio.Event, leave: asyncio.Event) -> None:
        async with part(Path(base)) as there:
            held.append(there)
            async with siege(there):
                await asyncio.sleep(0.2)
                begun.set()
                await leave.wait()
            await asyncio.sleep(0.2)

    with tempfile.TemporaryDirectory(prefix="net") as base, asyncio.Runner() as runner:
        begun, leave = asyncio.Event(), asyncio.Event()
        holding = runner.get_loop().create_task(hold(begun, leave))
        runner.run(begun.wait())
        try:
            yield held.pop()
        finally:
            leave.set()
            runner.run(_ended(holding))


async def _ended(task: asyncio.Task[None]) -> None:
    await task


def _mcp(base: Path) -> AbstractAsyncContextManager[Any]:
    return mcp_served(FakeDaemonApi(), resolve_home({"SUBLET_HOME": str(base / "h")}))


HALF_BODY = b"POST /sublet/v1/pair HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16000\r\n\r\n" + b"x" * 15_000
KEPT = [
    KeptProbe(
        name="net: half requests to A2A",
        covers=[
            "daemon.net.slots:Slots.take",
            "daemon.net.http_connection:DeadlineProtocol.connection_made",
            "a2a_server.limits:_read",
            "daemon.net.acceptor:Acceptor.serve",
        ],
        attack=lambda: _besieged(world, lambda face: many(address_of(face.url), 400, HALF_BODY)),
    ),
    KeptProbe(
        name="net: lines without an end to the MCP socket",
        covers=["mcp_server.host:McpFace._attend", "mcp_server.connection:serve_connection"],
        attack=lambda: _besieged(_mcp, lambda face: many(face.address, 12, b"x" * 1_000_000)),
    ),
]


# What fails


async def _odd_answers() -> None:
    """Ask a peer that answers everything that no peer should; each ends as a refusal."""
    with tempfile.TemporaryDirectory(prefix="net") as base:
        async with world(Path(base)) as bob:
            link = bob.alice.link()
            for words in ODD_ANSWERS.values():
                async with answering(words) as url:
                    with contextlib.suppress(SubletError):
                        await link.agents(replace(bob.peer(), a2a_url=url))
                        raise AssertionError("an odd answer was taken")
            await link.aclose()


async def _nonsense_on_the_mcp_socket() -> None:
    """Say what is no protocol; the next connection is served."""
    with tempfile.TemporaryDirectory(prefix="net") as base:
        async with _mcp(Path(base)) as face:
            for words in (b"\0" * 99, b"[[[[\n", b"{}\n", b'"\xff"\n', b"\n" * 9_999, b"x" * 5_000_000 + b"\n"):
                async with caller(face.address) as one:
                    await one.say(words)
            async with caller(face.address) as one:
                await one.say(b'{"jsonrpc":"2.0","id":7,"method":"nothing"}\n')
                assert json.loads(await one.reader.readline())["id"] == 7


FAILURES = [
    FailureProbe(
        name="net: odd answers of a peer",
        covers=[
            "a2a_client.session:translated",
            "a2a_client.session:PeerSession.card",
            "a2a_client.peer_http:_Bounded.handle_async_request",
            "a2a_client.peer_http:_BoundedStream.__aiter__",
        ],
        throw=_odd_answers,
    ),
    FailureProbe(
        name="net: nonsense on the MCP socket",
        covers=["mcp_server.host:McpFace.serve", "mcp_server.host:McpFace._serve"],
        throw=_nonsense_on_the_mcp_socket,
    ),
]

PROBES: tuple[Probe, ...] = (*HTTP, *JSON, *LINES, *HOST_FILES, *TEXT, *PATTERNS, *KEPT, *FAILURES)
