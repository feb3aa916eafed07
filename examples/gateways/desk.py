"""A gateway that brings what people post, and answers them.

    sublet gateway show desk --json | python desk.py [PORT]

    curl --data "What is there to do?" http://127.0.0.1:7070/ann

The last part of the address is the sender's name, whose conversation goes on. What is sent to the gateway, by
``/hub desk TEXT`` or ``sublet gateway send desk TEXT``, is on the board: ``curl http://127.0.0.1:7070``.
"""

from __future__ import annotations

import itertools
import queue
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from connection import Connection, Message

PORT = 7070
MOST_BYTES = 16 << 10
MOST_SHOWN = 100
ANSWER_SECONDS = 60.0


class Desk(ThreadingHTTPServer):
    """Takes what people post while the gateway is connected."""

    daemon_threads = True

    def __init__(self, port: int, connection: Connection) -> None:
        super().__init__(("127.0.0.1", port), Visit)
        self.board: list[str] = []
        self._connection = connection
        self._numbers = itertools.count(1)
        self._answers: dict[str, queue.SimpleQueue[str]] = {}

    def ask(self, sender: str, text: str) -> str:
        """Bring a request of somebody, and return the answer or why there is none."""
        request_id = f"desk{next(self._numbers)}"
        answer = self._answers[request_id] = queue.SimpleQueue()
        try:
            self._connection.say("input", requestId=request_id, message=text, sender=sender, blocking=True)
            return answer.get(timeout=ANSWER_SECONDS)
        except queue.Empty:
            return "There is no answer yet."
        finally:
            del self._answers[request_id]

    def take(self, message: Message) -> None:
        """Take what the daemon says: an answer to a request, or something for the board."""
        answer = self._answers.get(message.get("requestId", ""))
        match message["type"]:
            case "ack" if answer is not None and not message["accepted"]:
                answer.put(f"Not taken: {message['reason']}")
            case "result" if answer is not None:
                answer.put(str(message["output"]) if message["success"] else f"Not done: {message['error']}")
            case "request":
                said = message["message"]
                self.board.append(said["text"] if isinstance(said, dict) else str(said))
                del self.board[:-MOST_SHOWN]
                self._connection.say("result", requestId=message["requestId"], success=True, output="It is shown.")


class Visit(BaseHTTPRequestHandler):
    """One request of a person."""

    server: Desk

    def do_POST(self) -> None:
        """Answer what was posted."""
        size = min(int(self.headers.get("Content-Length", 0)), MOST_BYTES)
        text = self.rfile.read(size).decode("utf-8", "replace")
        self._answer(self.server.ask(self.path.strip("/") or "somebody", text) if text else "Say something.")

    def do_GET(self) -> None:
        """Show the board."""
        self._answer("\n".join(self.server.board) or "There is nothing on the board.")

    def _answer(self, text: str) -> None:
        data = f"{text.rstrip()}\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def main() -> None:
    """Serve while the daemon is there."""
    connection = Connection.shown()
    messages = connection.messages()
    next(messages)
    with Desk(int(sys.argv[1]) if len(sys.argv) > 1 else PORT, connection) as desk:
        print(f"desk: http://127.0.0.1:{desk.server_port}", flush=True)
        threading.Thread(target=desk.serve_forever, daemon=True).start()
        for message in messages:
            desk.take(message)


if __name__ == "__main__":
    main()
