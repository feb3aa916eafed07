"""What the control API is asked: the shape of each request, and how it is read. Unknown names are errors."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.requests import Request

from sublet.daemon.api.base import MAX_PAGE, MAX_WAIT_SECONDS
from sublet.daemon.api.base import Request as Arguments
from sublet.daemon.api.models import DEFAULT_LINK_SECONDS
from sublet.daemon.control.http import HOST
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import EventFilter, EventKind


class Wait(Arguments):
    """How long to wait, in seconds."""

    timeout: Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS)] = 0


class ListDelegations(Arguments):
    """Which delegations to list."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 50
    active: bool = False


class Patch(Arguments):
    """Whether the patch is wanted."""

    patch: bool = False


class Events(Arguments):
    """Which events to stream."""

    cursor: Annotated[int, Field(ge=0)] = 0
    delegation_id: Annotated[str, Field(max_length=64)] | None = None
    session_id: Annotated[str, Field(max_length=64)] | None = None
    kind: EventKind | None = None

    def only(self) -> EventFilter:
        """Return it without the cursor."""
        return EventFilter(delegation_id=self.delegation_id, session_id=self.session_id, kind=self.kind)


class EventsPage(Events):
    """Which page of events to return."""

    timeout: Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS)] = 0
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 100


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
