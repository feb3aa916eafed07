"""A scripted stand-in for the Anthropic Messages endpoint, on loopback, so that real agents run offline.

A script is a list of steps. The step to play is found from the conversation itself (how many tool results it holds),
so that retries and several conversations at once need no state here.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

JsonObject = dict[str, Any]

MAX_BODY_BYTES = 32 << 20
WAITING = "WaitForMcpServers"
"""What Claude Code offers while a server of MCP has not started yet; a model that misses a tool calls it."""
MAX_WAITS = 3


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the agent sent back for one tool call: ``text`` is what a model would have read."""

    tool: str
    arguments: JsonObject
    text: str
    is_error: bool

    def json(self) -> JsonObject:
        """Return the result of a tool with structured content, which hosts show to the model as one JSON string."""
        parsed = json.loads(self.text)
        assert isinstance(parsed, dict)
        return parsed


Results = Sequence[ToolResult]


@dataclass(frozen=True, slots=True)
class Call:
    """Call the tool whose name ends with ``tool``; arguments may be made from the results so far, oldest first."""

    tool: str
    arguments: Mapping[str, Any] | Callable[[Results], Mapping[str, Any]]

    def is_offered(self, offered: Sequence[str]) -> bool:
        """Tell whether the tool is among these."""
        return any(name.endswith(self.tool) for name in offered)

    def block(self, offered: Sequence[str], results: Results) -> JsonObject:
        """Return the content block; raises ``LookupError`` when no such tool is offered."""
        name = next((name for name in offered if name.endswith(self.tool)), None)
        if name is None:
            raise LookupError(f"no tool ends with {self.tool!r}; offered: {', '.join(offered)}")
        arguments = self.arguments(results) if callable(self.arguments) else self.arguments
        return {"type": "tool_use", "id": f"toolu_{len(results) + 1:04}", "name": name, "input": dict(arguments)}


@dataclass(frozen=True, slots=True)
class Say:
    """End the turn with a text, which may be made from the results so far."""

    text: str | Callable[[Results], str]

    def block(self, offered: Sequence[str], results: Results) -> JsonObject:
        """Return the content block."""
        return {"type": "text", "text": self.text(results) if callable(self.text) else self.text}


@dataclass(frozen=True, slots=True)
class Choose:
    """Do what the results so far lead to."""

    step: Callable[[Results], Call | Say]

    def block(self, offered: Sequence[str], results: Results) -> JsonObject:
        """Return the content block."""
        return self.step(results).block(offered, results)


Step = Call | Say | Choose


@dataclass(frozen=True, slots=True)
class Script:
    """Steps of one conversation: the one whose first user message contains ``when``."""

    steps: Sequence[Step]
    when: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """One request for a turn, as it came; ``schemas`` are those of the tools' arguments, by the tools' names."""

    model: str
    streamed: bool
    tools: Sequence[str]
    messages: Sequence[JsonObject]
    results: Results
    schemas: Mapping[str, JsonObject]


@dataclass
class ModelStub:
    """The endpoint; a context manager that serves while it is open.

    Args:
        scripts: what to play; the first one that fits a conversation is taken.
    """

    scripts: Sequence[Script]
    requests: list[Request] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    _server: ThreadingHTTPServer | None = None
    _thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Base URL for ``ANTHROPIC_BASE_URL``."""
        assert self._server is not None, "the stub is not open"
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def results(self) -> Results:
        """Tool results of the longest conversation so far, oldest first."""
        return max((request.results for request in self.requests), key=len, default=[])

    def __enter__(self) -> Self:
        stub = self

        class Handler(_Handler):
            def answer(self, body: JsonObject) -> JsonObject:
                return stub.answer(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        # The default poll of half a second would be the length of every shutdown.
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="model-stub")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server is not None
        assert self._thread is not None
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, body: JsonObject) -> JsonObject:
        """Return the assistant message that the script has for this request."""
        messages = body.get("messages", [])
        tools = [str(tool["name"]) for tool in body.get("tools", [])]
        if not tools:  # side requests, such as for a title, offer none
            return _message(body, {"type": "text", "text": "ok"})
        found = list(_results(messages))
        results = [result for result in found if result.tool != WAITING]
        schemas = {str(tool["name"]): tool.get("input_schema", {}) for tool in body["tools"]}
        self.requests.append(
            Request(str(body.get("model")), bool(body.get("stream")), tools, messages, results, schemas)
        )
        try:
            step = self._step(messages, results)
            waits = len(found) - len(results)
            misses = isinstance(step, Call) and not step.is_offered(tools)
            if misses and WAITING in tools and waits < MAX_WAITS:
                return _message(body, _wait(schemas[WAITING], waits))
            return _message(body, step.block(tools, results))
        except Exception as error:
            # Nobody sees a traceback of a server thread: it becomes the model's last word, and a fault to assert on.
            fault = f"{type(error).__name__}: {error}"
            self.faults.append(fault)
            return _message(body, {"type": "text", "text": f"MODEL STUB FAULT {fault}"})

    def _step(self, messages: Sequence[JsonObject], results: Results) -> Step:
        prompt = next((json.dumps(m["content"], ensure_ascii=False) for m in messages if m["role"] == "user"), "")
        script = next((script for script in self.scripts if script.when in prompt), None)
        if script is None:
            raise LookupError(f"no script fits the prompt {prompt[-300:]}")
        if len(results) >= len(script.steps):
            raise LookupError(f"the script has ended after {len(script.steps)} steps")
        return script.steps[len(results)]


def _wait(schema: JsonObject, number: int) -> JsonObject:
    """Return a call that waits for all servers that have not started yet."""
    wanted = {name: ["sublet"] for name in schema.get("required", [])}
    return {"type": "tool_use", "id": f"toolu_wait_{number + 1:04}", "name": WAITING, "input": wanted}


def _blocks(message: JsonObject) -> list[JsonObject]:
    content = message.get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _results(messages: Sequence[JsonObject]) -> Iterator[ToolResult]:
    calls: dict[str, JsonObject] = {}
    for message in messages:
        for block in _blocks(message):
            if block.get("type") == "tool_use":
                calls[block["id"]] = block
            elif block.get("type") == "tool_result":
                call = calls[block["tool_use_id"]]
                yield ToolResult(call["name"], call["input"], _text(block), bool(block.get("is_error", False)))


def _text(block: JsonObject) -> str:
    content = block.get("content", "")
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content)


def _message(body: JsonObject, block: JsonObject) -> JsonObject:
    return {
        "id": "msg_stub",
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": [block],
        "stop_reason": "tool_use" if block["type"] == "tool_use" else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _events(message: JsonObject) -> Iterator[JsonObject]:
    """Yield the stream that stands for ``message``, its one block in two pieces."""
    (block,) = message["content"]
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    if block["type"] == "text":
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        whole, kind, key = block["text"], "text_delta", "text"
    else:
        yield {"type": "content_block_start", "index": 0, "content_block": {**block, "input": {}}}
        whole, kind, key = json.dumps(block["input"]), "input_json_delta", "partial_json"
    middle = len(whole) // 2
    for piece in (whole[:middle], whole[middle:]):
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": kind, key: piece}}
    yield {"type": "content_block_stop", "index": 0}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": message["stop_reason"], "stop_sequence": None},
        "usage": message["usage"],
    }
    yield {"type": "message_stop"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, body: JsonObject) -> JsonObject:
        raise NotImplementedError

    def do_HEAD(self) -> None:
        self._send("application/json", b"")

    def do_GET(self) -> None:
        self._send("application/json", b"{}")

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        if length > MAX_BODY_BYTES:
            self.send_error(413)
            return
        body = json.loads(self.rfile.read(length) or b"{}")
        path = self.path.partition("?")[0]
        if path.endswith("/count_tokens"):
            self._send("application/json", b'{"input_tokens": 10}')
        elif not path.endswith("/messages"):
            self._send("application/json", b"{}")
        elif body.get("stream"):
            events = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in _events(self.answer(body)))
            self._send("text/event-stream", "".join(events).encode())
        else:
            self._send("application/json", json.dumps(self.answer(body)).encode())

    def _send(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: pytest's output belongs to the tests."""
