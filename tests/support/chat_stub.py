"""A scripted OpenAI-compatible chat endpoint as a process of its own: ``python chat_stub.py SCRIPT LOG``.

It prints its port. ``SCRIPT`` is JSON: a list of steps, each an object with any of ``say`` (text), ``calls`` (list of
``[name, arguments]``; arguments that are text are sent as they are), ``status`` with ``headers`` and ``message``,
``usage`` (two numbers, or null for none), ``finish``, and ``how``: ``stream`` (default), ``whole``, ``hang`` before or
``stall`` within the answer, ``die`` within it, ``garbage`` without end, or ``wait`` for a file named by ``path``. The
step is chosen by the number of requests so far, the last one again and again. Every request is appended to ``LOG``.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HANG_SECONDS = 600


class Stub(ThreadingHTTPServer):
    """The endpoint."""

    daemon_threads = True

    def __init__(self, script: list[dict[str, Any]], log: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script = script
        self.log = log
        self.count = 0
        self.lock = threading.Lock()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Stub

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        """Answer by the next step."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            step = self.server.script[min(self.server.count, len(self.server.script) - 1)]
            self.server.count += 1
            record = {"path": self.path, "authorization": self.headers.get("Authorization", ""), "body": body}
            with self.server.log.open("a") as log:
                log.write(json.dumps(record) + "\n")
        self.close_connection = True
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._answer(step)

    def _answer(self, step: dict[str, Any]) -> None:
        how = step.get("how", "stream")
        if "status" in step:
            self._whole(step["status"], {"error": {"message": step.get("message", "no")}}, step.get("headers", {}))
        elif how == "hang":
            time.sleep(HANG_SECONDS)
        elif how == "whole":
            self._whole(200, _whole(step), {})
        else:
            self._stream(step, how)

    def _whole(self, status: int, body: object, headers: dict[str, str]) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        # Said, or a client would use the connection again and count its end as a failure.
        self.send_header("Connection", "close")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw)

    def _stream(self, step: dict[str, Any], how: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Connection", "close")
        self.end_headers()
        if how == "garbage":
            while True:
                self.wfile.write(b"noise without an end of line " * 1000)
        pieces = _pieces(step)
        for number, piece in enumerate(pieces):
            if number == 1 and how == "die":
                return
            if number == 1 and how == "stall":
                time.sleep(HANG_SECONDS)
            if number == 1 and how == "wait":
                while not Path(step["path"]).exists():
                    time.sleep(0.02)
            self.wfile.write(f"data: {json.dumps(piece)}\n\n".encode())
            self.wfile.flush()
        self.wfile.write(b"data: [DONE]\n\n")


def _calls(step: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "index": number,
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)},
        }
        for number, (name, given) in enumerate(step.get("calls", []))
    ]


def _usage(step: dict[str, Any]) -> dict[str, int] | None:
    usage = step.get("usage", [100, 10])
    if not usage:
        return None
    return {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}


def _finish(step: dict[str, Any]) -> str:
    return str(step.get("finish", "tool_calls" if step.get("calls") else "stop"))


def _pieces(step: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the chunks of a stream, text and arguments cut in pieces."""
    text = step.get("say", "")
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": text[start : start + 7]} for start in range(0, len(text), 7)]
    for call in _calls(step):
        arguments = call["function"]["arguments"]
        deltas.append({"tool_calls": [{**call, "function": {"name": call["function"]["name"], "arguments": ""}}]})
        for start in range(0, len(arguments), 11):
            piece = {"index": call["index"], "function": {"arguments": arguments[start : start + 11]}}
            deltas.append({"tool_calls": [piece]})
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": _finish(step)}]})
    if usage := _usage(step):
        chunks.append({"choices": [], "usage": usage})
    return chunks


def _whole(step: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": step.get("say")}
    if calls := _calls(step):
        message["tool_calls"] = calls
    return {"choices": [{"index": 0, "message": message, "finish_reason": _finish(step)}], "usage": _usage(step)}


if __name__ == "__main__":
    stub = Stub(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
    print(stub.server_address[1], flush=True)
    stub.serve_forever()
