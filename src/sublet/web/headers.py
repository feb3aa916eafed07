"""Which requests are the page's own, and what every answer tells the browser (DESIGN 9.1).

A name that somebody else can point at 127.0.0.1 is refused, and so is every request that another page has caused: also
one from another port of this machine, which browsers take for the same site.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

ANSWER_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'self'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
}
_READS = ("GET", "HEAD")


class OwnPageOnly:
    """Refuses foreign requests before anything else sees them, and adds ``ANSWER_HEADERS`` to every answer.

    Args:
        app: answers what is let through.
        host: what ``Host`` has to be, and the origin but for its ``http://``.
    """

    def __init__(self, app: ASGIApp, host: str) -> None:
        self._app = app
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(ANSWER_HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope["method"], scope["path"], Headers(scope=scope))
        app = self._app if refusal is None else PlainTextResponse(f"{refusal}\n", status_code=403)
        await app(scope, receive, sent)

    def _refusal(self, method: str, path: str, headers: Headers) -> str | None:
        if headers.getlist("host") != [self._host]:
            return f"This page is at http://{self._host}/ and answers under no other name."
        origins = headers.getlist("origin")
        if origins and origins != [f"http://{self._host}"]:
            return "This page answers nobody but itself."
        if method not in _READS and not origins:
            return "A request that changes something has to say where it comes from."
        return None if _own(headers.getlist("sec-fetch-site"), headers, method, path) else "Another page has sent this."


def _own(sites: Sequence[str], headers: Headers, method: str, path: str) -> bool:
    """Tell whether the browser says that our own page or the person herself has sent this; others need not say."""
    if not sites or sites in (["same-origin"], ["none"]):
        return True
    # Whoever follows a login link from elsewhere comes to the bare page, which holds nothing of hers.
    return method == "GET" and path == "/" and headers.get("sec-fetch-mode") == "navigate"
