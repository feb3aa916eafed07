"""An MCP server elsewhere can't fill memory, neither by size nor by packing."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2
import pytest

from sublet.supervisor.chat.mcp_http import MAX_ANSWER_BYTES, bounded_client

pytestmark = pytest.mark.anyio


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Answer as the path says."""
        packed = self.path == "/packed"
        kind = "text/event-stream" if self.path == "/stream" else "application/json"
        size = 10 if self.path == "/small" else MAX_ANSWER_BYTES + 1
        self.send_response(200)
        self.send_header("Content-Type", kind)
        if packed:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        try:
            self.wfile.write(gzip.compress(bytes(size)) if packed else b"x" * size)
        except OSError:
            return  # it was not read to its end


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(("path", "why"), [("/packed", "packed"), ("/large", "larger")])
async def test_what_could_fill_memory_is_not_read(url: str, path: str, why: str) -> None:
    async with bounded_client({}, 30) as client:
        with pytest.raises(httpx2.HTTPError, match=why):
            await client.get(url + path)
        # Events are bounded one by one, by whoever reads them.
        assert len((await client.get(f"{url}/stream")).content) == MAX_ANSWER_BYTES + 1
        assert (await client.get(f"{url}/small")).content == b"x" * 10
