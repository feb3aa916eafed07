"""What a paired peer may answer to any request, as bytes on the wire."""

from __future__ import annotations

_OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
_JSON = _OK + b"Content-Type: application/json\r\n\r\n"
_EVENTS = _OK + b"Content-Type: text/event-stream\r\n\r\n"

ODD_ANSWERS: dict[str, bytes] = {
    "redirect to a:b": b"HTTP/1.1 308 Away\r\nLocation: a:b\r\nContent-Length: 0\r\n\r\n",
    "redirect to http://[": b"HTTP/1.1 302 Away\r\nLocation: http://[\r\nContent-Length: 0\r\n\r\n",
    "redirect to no port": b"HTTP/1.1 302 Away\r\nLocation: http://x:99999999/\r\nContent-Length: 0\r\n\r\n",
    "redirect to bytes": b"HTTP/1.1 301 Away\r\nLocation: \xff\xfe\r\nContent-Length: 0\r\n\r\n",
    "redirect elsewhere": b"HTTP/1.1 307 Away\r\nLocation: https://evil.example/\r\nContent-Length: 0\r\n\r\n",
    "no HTTP": b"\0\1\2\3\r\n\r\n",
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "half a body": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
    "bad chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "packed": _OK + b"Content-Encoding: gzip\r\n\r\n\x1f\x8b",
    "odd charset": _OK + b"Content-Type: application/json; charset=nonsense\r\n\r\n{}",
    "not UTF-8": _JSON + b'{"a":"\xff"}',
    "UTF-16": _JSON + '{"a":1}'.encode("utf-16"),
    "no object": _JSON + b"[1,2]",
    "null": _JSON + b"null",
    "deep": _JSON + b"[" * 100_000,
    "many values": _JSON + b"[" + b"0," * 100_000 + b"0]",
    "not finite": _JSON + b'{"a":1e999}',
    "status 99999": b"HTTP/1.1 99999 Odd\r\nContent-Length: 0\r\n\r\n",
    "status 999": b"HTTP/1.1 999 Odd\r\nContent-Length: 2\r\n\r\n{}",
    "an error that is none": b'HTTP/1.1 403 No\r\nContent-Length: 13\r\n\r\n{"error":[{}]',
    "events cut off": _EVENTS + b"data: {",
    "events of nothing": _EVENTS + b"data: \n\ndata: null\n\ndata: [\n\n",
    "events that are deep": _EVENTS + b"data: " + b"[" * 50_000 + b"\n\n",
    "events without end": _EVENTS + b"data: " + b"x" * (3 << 20),
    "many lines of one event": _EVENTS + b"data: xxxxxxxxxxxx\n" * 200_000,
    "a cookie and long headers": b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
}
