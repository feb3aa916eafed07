"""What the control API is asked: the shape of each request, and how it is read. Unknown names are errors."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import BaseModel, Field, ValidationError
from starlette.requests import Request

from sublet.daemon.api.base import Request as Arguments
from sublet.daemon.api.models import DEFAULT_LINK_SECONDS, MAX_PAGE, MAX_WAIT_SECONDS
from sublet.daemon.control.http import HOST
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import EventFilter, EventKind
from sublet.protocol.faults import fault_words

MAX_BODY_BYTES = 2 << 20

ModelT = TypeVar("ModelT", bound=BaseModel)


class Nothing(Arguments):
    """No arguments."""


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


async def read_body(request: Request, model: type[ModelT], max_bytes: int = MAX_BODY_BYTES) -> ModelT:
    """Return the validated body; an empty one counts as an empty object.

    Raises:
        SubletError: ``INVALID_ARGUMENT``, also for more than ``max_bytes``.
    """
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > max_bytes:
            raise SubletError(LocalCode.INVALID_ARGUMENT, f"the body is larger than {max_bytes} bytes", "Send less.")
    if raw and request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise SubletError(LocalCode.INVALID_ARGUMENT, "the body is not JSON", "Send application/json.")
    read_query(request, Nothing)
    try:
        return model.model_validate_json(bytes(raw) or b"{}")
    except ValidationError as error:
        raise _malformed(error) from None


def read_query(request: Request, model: type[ModelT]) -> ModelT:
    """Return the validated query; names that are unknown or come twice are errors.

    Raises:
        SubletError: ``INVALID_ARGUMENT``.
    """
    items = request.query_params.multi_items()
    values = dict(items)
    if len(values) != len(items):
        raise SubletError(LocalCode.INVALID_ARGUMENT, "a query parameter comes twice", "Give each one once.")
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise _malformed(error) from None


def _malformed(error: ValidationError) -> SubletError:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "the request"
    return SubletError(
        LocalCode.INVALID_ARGUMENT, f"{where}: {fault_words(first)}", "Correct the argument and try again."
    )
