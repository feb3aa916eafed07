"""Stand-ins for the endpoints of OpenAI's Responses and of Gemini, on loopback: one call of a tool, then the end."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SAID = "done"


def responses(body: Mapping[str, Any], tool: str, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the events of a streamed response."""
    called = any(item.get("type") == "function_call_output" for item in body.get("input", []))
    item: dict[str, Any] = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": tool}
    item["arguments"] = json.dumps(dict(arguments))
    if called:
        content = [{"type": "output_text", "text": SAID}]
        item = {"type": "message", "id": "msg_1", "role": "assistant", "content": content}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    return [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": "resp_1", "output": [item], "usage": usage}},
    ]


def gemini(body: Mapping[str, Any], tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer of Gemini's, which is the same whether it is streamed or not."""
    part: dict[str, Any] = {"functionCall": {"name": tool, "args": dict(arguments)}}
    if "responseJsonSchema" in json.dumps(body):
        # It asks first which of its models is to answer.
        part = {"text": json.dumps({"reasoning": "easy", "model_choice": "flash"})}
    elif any("functionResponse" in one for item in body.get("contents", []) for one in item.get("parts", [])):
        part = {"text": SAID}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "usageMetadata": usage}


def _told(event: Mapping[str, Any]) -> str:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


@contextmanager
def serving(tool: str, arguments: Mapping[str, Any]) -> Iterator[str]:
    """Serve it, and yield the base URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            self._send(b"{}", "application/json")

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
            if "enerateContent" in self.path:
                answer = json.dumps(gemini(body, tool, arguments))
                if "stream" in self.path:
                    self._send(f"data: {answer}\n\n".encode(), "text/event-stream")
                else:
                    self._send(answer.encode(), "application/json")
                return
            events = responses(body, tool, arguments)
            self._send("".join(map(_told, events)).encode(), "text/event-stream")

        def _send(self, data: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
