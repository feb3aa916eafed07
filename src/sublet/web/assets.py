"""The files of the page: read once from the package, so that no request ever becomes a path."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
INDEX = "index.html"


@dataclass(frozen=True, slots=True)
class Asset:
    """One file: what it is, and a tag that changes with it."""

    content: bytes
    media_type: str
    tag: str

    async def answer(self, request: Request) -> Response:
        """Return it, or nothing where the browser has it already."""
        headers = {"ETag": self.tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == self.tag:
            return Response(status_code=304, headers=headers)
        return Response(self.content, media_type=self.media_type, headers=headers)


def load_assets() -> dict[str, Asset]:
    """Return the files by the path under which they are served; the page itself is ``/``."""
    found: dict[str, Asset] = {}
    for file in (resources.files("sublet.web") / "static").iterdir():
        suffix = "." + file.name.rpartition(".")[2]
        if suffix not in _TYPES:
            continue
        content = file.read_bytes()
        path = "/" if file.name == INDEX else f"/{file.name}"
        found[path] = Asset(content, _TYPES[suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"')
    return found
