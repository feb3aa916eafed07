"""What the control API is asked: the shape of each request, and how it is read. Unknown names are errors."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.requests import Request

from sublet.daemon.api.base import Request as Arguments
from sublet.daemon.api.peer_models import DEFAULT_LINK_SECONDS
from sublet.daemon.control.http import HOST
from sublet.protocol.errors import LocalCode, SubletError


class CreatePairLink(Arguments):
    """How long the link is valid."""

    ttl_seconds: int = DEFAULT_LINK_SECONDS


class CreateToken(Arguments):
    """Name of the token, and how long it is valid."""

    name: Annotated[str, Field(max_length=200)]
    ttl_seconds: int | None = None


class LendRoot(Arguments):
    """A directory."""

    path: Annotated[str, Field(min_length=1, max_length=4096)]


def check_headers(request: Request) -> None:
    """Refuse whatever a browser would send: the socket is for programs.

    Raises:
        SubletError: ``POLICY_DENIED``.
    """
    headers = request.headers
    if headers.getlist("host") != [HOST] or "origin" in headers or "sec-fetch-site" in headers:
        raise SubletError(LocalCode.POLICY_DENIED, "the control socket answers the command line only", "Use `sublet`.")
