"""What the relay knows of an MCP session, without any descriptor, clock or process: bytes in, bytes out.

Imported on the path from spawn to first reply, so it imports nothing but the C scanner of ``json``: the package itself
costs 8 ms.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MAX_LINE = 4 * 1024 * 1024
"""Bytes of one JSON-RPC message, either way."""
MAX_IN_FLIGHT = 1024
MAX_SUBSCRIPTIONS = 256
MAX_REMEMBERED = 256 * 1024
"""Bytes of a request that is kept for sending again; a larger one that is interrupted is answered with an error."""
KEPT_END = 256
"""Bytes kept of each end of a line that is too long."""
INTERNAL_ERROR = -32603
INVALID_REQUEST = -32600

SAFE_METHODS = frozenset(
    {
        "initialize",
        "ping",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/subscribe",
        "resources/templates/list",
        "resources/unsubscribe",
        "server/discover",
        "tools/list",
    }
)
"""Requests that a second daemon may answer although a first one may have answered already."""
SAFE_TOOLS = frozenset({"delegate_cancel", "delegate_output", "directory"})
"""Tools of which the same is true; cancelling twice is no error (AWCP 6.6)."""
INTERRUPTED = (
    "The Sublet daemon stopped while this call was under way, so its effect is unknown. Look with directory or "
    "delegate_output, or call again with the same idempotency_key."
)


class _Options:
    """What the C scanner reads its options from; these are the ones ``json.loads`` uses."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


_scan: Callable[[str, int], tuple[object, int]]
try:
    from _json import encode_basestring_ascii as _quote
    from _json import make_scanner

    _scan = make_scanner(_Options)  # type: ignore[arg-type] # the stub wants a scanner to make a scanner from
except (ImportError, AttributeError):  # another interpreter, or a later one that wants more options
    from json import JSONDecoder
    from json import dumps as _quote

    _scan = JSONDecoder().raw_decode


def parse(line: bytes) -> dict[str, object] | None:
    """Return the JSON object in ``line``, or None where it is anything else; the daemon says what is wrong with it."""
    try:
        text = line.decode().strip()
        value, end = _scan(text, 0)
    except (ValueError, StopIteration, RecursionError, SystemError):
        # SystemError is how CPython 3.11 says "no JSON" while the json package, which has the exception, is not loaded.
        return None
    return value if isinstance(value, dict) and end == len(text) else None


def error_line(request_id: object, code: int, message: str) -> bytes:
    """Return a JSON-RPC error as a line; an id of None becomes ``null``."""
    shown = "null" if request_id is None else _quote(request_id) if isinstance(request_id, str) else str(request_id)
    return f'{{"jsonrpc":"2.0","id":{shown},"error":{{"code":{code},"message":{_quote(message)}}}}}\n'.encode()


def is_id(value: object) -> bool:
    """Tell whether ``value`` is what a JSON-RPC id may be."""
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def id_at_end(head: bytes, tail: bytes) -> object:
    """Return the id of a message too large to parse, from where the SDKs put it; None if it is not there."""
    start, end = head.replace(b" ", b""), tail.replace(b" ", b"").rstrip()
    mark = b'"jsonrpc":"2.0","id":'
    if start.startswith(b"{" + mark):
        candidate = start[len(mark) + 1 :].partition(b",")[0]
    else:
        candidate = end.rpartition(b"," + mark)[2].removesuffix(b"}")
    found = parse(b'{"id":' + candidate + b"}")
    return found["id"] if found is not None and is_id(found.get("id")) else None


class Lines:
    """Splits a byte stream into lines of at most ``MAX_LINE`` bytes; of a longer one only its two ends are kept."""

    __slots__ = ("_buffer", "_head", "_tail")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: bytes | None = None
        self._tail = b""

    def feed(self, data: bytes) -> list[bytes | tuple[bytes, bytes]]:
        """Return the lines that ``data`` completes, each with its newline, or as (head, tail) where it is too long.

        Blank ones are left out.
        """
        found: list[bytes | tuple[bytes, bytes]] = []
        # One pass, however many lines there are; the last piece has no end yet.
        while b"\n\n" in data:
            data = data.replace(b"\n\n", b"\n")
        pieces = data.split(b"\n")
        for number, part in enumerate(pieces, 1):
            if not self._buffer and self._head is None and (not part or part.isspace()):
                continue  # a blank line says nothing
            if self._head is not None:
                self._tail = (self._tail + part)[-KEPT_END:]
            elif len(self._buffer) + len(part) > MAX_LINE:
                whole = bytes(self._buffer[:KEPT_END]) + part[:KEPT_END]
                self._head, self._tail = whole[:KEPT_END], (bytes(self._buffer[-KEPT_END:]) + part)[-KEPT_END:]
                self._buffer.clear()
            else:
                self._buffer += part
            if number == len(pieces):
                break
            if self._head is not None:
                found.append((self._head, self._tail))
                self._head = None
            else:
                found.append(bytes(self._buffer) + b"\n")
            self._buffer.clear()
        return found


class Frame:
    """One line for the daemon; ``id`` is None unless it is a request. ``sent`` once the daemon has it in full."""

    __slots__ = ("again", "id", "line", "method", "sent", "uri")

    def __init__(self, line: bytes, message: dict[str, object] | None) -> None:
        self.line = line
        self.sent = False
        self.method = ""
        self.id: object = None
        self.uri = ""
        self.again = False
        if message is None:
            return
        method = message.get("method")
        self.method = method if isinstance(method, str) else ""
        params = message.get("params")
        named = params if isinstance(params, dict) else {}
        if self.method and is_id(message.get("id")):
            self.id = message["id"]
            tool = named.get("name")
            safe = self.method in SAFE_METHODS or (self.method == "tools/call" and tool in SAFE_TOOLS)
            self.again = safe and len(line) <= MAX_REMEMBERED
        if self.method in ("resources/subscribe", "resources/unsubscribe"):
            self.uri = str(named.get("uri", ""))


class RelaySession:
    """Which requests are under way and what a new daemon must be told.

    ``outbox`` are lines for the host, ``queue`` frames for the daemon. ``wants_daemon`` is set when the host asked for
    something that only a daemon can answer.
    """

    def __init__(self) -> None:
        self.outbox = bytearray()
        self.queue: list[Frame] = []
        self.queued_bytes = 0
        self.in_flight: dict[object, Frame] = {}
        self.wants_daemon = False
        self._asked: set[object] = set()
        self._muted: set[object] = set()
        self._hello: Frame | None = None
        self._version: object = None
        self._initialized: Frame | None = None
        self._subscriptions: dict[str, Frame] = {}
        self._greeting: object = None

    def next_frame(self) -> Frame | None:
        """Return what is to be written next; while a repeated ``initialize`` waits for its answer, nothing else is."""
        if not self.queue or (self._greeting is not None and self.queue[0] is not self._hello):
            return None
        return self.queue[0]

    def from_host(self, line: bytes | tuple[bytes, bytes]) -> None:
        """Take one line from the host."""
        if isinstance(line, tuple):
            text = f"The message is larger than {MAX_LINE} bytes and was not delivered. Send less at once."
            self.outbox += error_line(id_at_end(*line), INVALID_REQUEST, text)
            return
        if not line.strip():
            return
        message = parse(line)
        frame = Frame(line, message)
        if message is not None and "method" not in message and "id" in message:
            # An answer to a request of a daemon that is gone must not reach its successor, which counts from 1 again.
            if message["id"] not in self._asked:
                return
            self._asked.discard(message["id"])
        if frame.method == "notifications/initialized":
            self._initialized = frame
        elif frame.method == "notifications/cancelled" and message is not None:
            params = message.get("params")
            target = params.get("requestId") if isinstance(params, dict) else None
            if is_id(target):
                self.in_flight.pop(target, None)
        if frame.id is not None:
            if len(self.in_flight) >= MAX_IN_FLIGHT:
                text = f"More than {MAX_IN_FLIGHT} requests are under way. Wait for some to be answered."
                self.outbox += error_line(frame.id, INTERNAL_ERROR, text)
                return
            self.in_flight[frame.id] = frame
            self.wants_daemon = True
        self._enqueue(frame)

    def from_daemon(self, line: bytes) -> None:
        """Take one line from the daemon.

        Raises:
            ValueError: the daemon refuses to take up the session, or speaks no JSON-RPC.
        """
        message = parse(line)
        if message is None:
            raise ValueError("the daemon sent a line that is no JSON object")
        found = message.get("id")
        if "method" in message:
            if is_id(found) and len(self._asked) < MAX_IN_FLIGHT:
                self._asked.add(found)
            self.outbox += line
            return
        result = message.get("result")
        if is_id(found) and found == self._greeting:
            self._greeted(result)
            return
        if is_id(found) and found in self._muted:
            self._muted.discard(found)
            return
        frame = self.in_flight.pop(found, None) if is_id(found) else None
        if frame is not None and isinstance(result, dict):
            self._remember(frame, result)
        self.outbox += line

    def connected(self) -> None:
        """Begin with a new daemon: repeat the handshake if there was one."""
        self.wants_daemon = False
        if self._hello is not None:
            self._greeting = self._hello.id
            self.queue.insert(0, self._hello)
            self.queued_bytes += len(self._hello.line)

    def lost(self) -> None:
        """The daemon is gone: requeue what may be sent again, answer the rest."""
        self._greeting = None
        self._asked.clear()
        self._muted.clear()
        again: list[Frame] = []
        under_way = [frame for frame in self.in_flight.values() if frame.sent]
        for frame in under_way:
            if frame.again:
                frame.sent = False
                again.append(frame)
                continue
            del self.in_flight[frame.id]
            self.outbox += error_line(frame.id, INTERNAL_ERROR, INTERRUPTED)
        # What is marked as sent and still queued only repeats the old session; the next greeting queues it anew.
        self.queue = again + [frame for frame in self.queue if not frame.sent]
        self.queued_bytes = sum(len(frame.line) for frame in self.queue)
        # Only what nobody has read yet is a reason to start another daemon; what merely went unanswered may wait for
        # the one that is perhaps being restarted.
        self.wants_daemon = any(frame.id is not None and frame not in again for frame in self.queue)

    def give_up(self, why: str) -> None:
        """Answer everything that waits for a daemon with ``why``."""
        for frame in self.queue:
            if frame.id is not None and self.in_flight.pop(frame.id, None) is not None:
                self.outbox += error_line(frame.id, INTERNAL_ERROR, why)
        self.queue.clear()
        self.queued_bytes = 0
        self.wants_daemon = False

    def delivered(self) -> None:
        """The first frame of the queue has been written in full."""
        frame = self.queue.pop(0)
        frame.sent = True
        self.queued_bytes -= len(frame.line)
        if frame.id is not None and not frame.again:
            frame.line = b""  # never sent again, so not kept

    def _enqueue(self, frame: Frame) -> None:
        self.queue.append(frame)
        self.queued_bytes += len(frame.line)

    def _remember(self, frame: Frame, result: dict[str, object]) -> None:
        if frame.method == "initialize":
            self._hello, self._version = frame, result.get("protocolVersion")
        elif frame.method == "resources/subscribe" and len(self._subscriptions) < MAX_SUBSCRIPTIONS:
            self._subscriptions[frame.uri] = frame
        elif frame.method == "resources/unsubscribe":
            self._subscriptions.pop(frame.uri, None)

    def _greeted(self, result: object) -> None:
        self._greeting = None
        if not isinstance(result, dict) or result.get("protocolVersion") != self._version:
            raise ValueError("the new daemon does not take up the session of the old one")
        first = [] if self._initialized is None else [self._initialized]
        for frame in self._subscriptions.values():
            self._muted.add(frame.id)
            first.append(frame)
        self.queue = first + [frame for frame in self.queue if frame is not self._initialized]
        self.queued_bytes = sum(len(frame.line) for frame in self.queue)
