"""A gateway's connection to the daemon by HTTP: it reads a stream, and posts what it says (docs/modules.md)."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any

Message = dict[str, Any]


class Connection:
    """Speaks for one gateway.

    Args:
        url: as ``sublet gateway show ID`` tells it.
        token: likewise.
    """

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"}

    @classmethod
    def shown(cls) -> Connection:
        """Connect by what ``sublet gateway show ID --json`` prints, from standard input: no argument has the token."""
        shown = json.load(sys.stdin)
        return cls(shown["url"], shown["token"])

    def messages(self) -> Iterator[Message]:
        """Yield what the daemon says, until it or the connection ends; the first is empty, and says that it is open."""
        request = urllib.request.Request(f"{self._url}/stream", headers=self._headers)
        with urllib.request.urlopen(request) as stream:
            yield {}
            for line in stream:
                if line.startswith(b"data: "):
                    message = json.loads(line.removeprefix(b"data: "))
                    if message["type"] == "ping":
                        self.say("pong", requestId=message["requestId"])
                    else:
                        yield message

    def say(self, kind: str, **fields: Any) -> None:
        """Send the daemon one message."""
        line = json.dumps({"type": kind, **fields}).encode()
        request = urllib.request.Request(f"{self._url}/messages", data=line, headers=self._headers)
        with urllib.request.urlopen(request):
            pass
