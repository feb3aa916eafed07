"""Reads what a request over HTTP asks for. Names that are unknown, or come twice, are errors."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.requests import Request

from sublet.daemon.api.operation import IN_THE_QUERY, MAX_BODY_BYTES, Nothing, RequestT, Stated
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.faults import malformed

ModelT = TypeVar("ModelT", bound=BaseModel)


async def read_request(http: Request, operation: Stated[RequestT], max_bytes: int | None = None) -> RequestT:
    """Return the validated request of ``operation``.

    Args:
        http: what came.
        operation: what is asked for.
        max_bytes: how large the body may be; by default as the operation says.

    Raises:
        SubletError: ``INVALID_ARGUMENT``.
    """
    model, named = operation.request, {name: http.path_params[name] for name in operation.path_fields}
    if operation.method in IN_THE_QUERY:
        return _validated(model, {**_query(http, refused=named), **named})
    raw = await _body(http, operation.max_bytes if max_bytes is None else max_bytes)
    if not named:
        return _from_json(model, raw)
    try:
        values = from_json(raw)
    except ValueError:
        return _from_json(model, raw)  # which says what is wrong with it
    if not isinstance(values, dict):
        return _validated(model, values)
    return _validated(model, {**_without(values, named), **named})


async def read_body(request: Request, model: type[ModelT], max_bytes: int = MAX_BODY_BYTES) -> ModelT:
    """Return the validated body; an empty one counts as an empty object.

    Raises:
        SubletError: ``INVALID_ARGUMENT``, also for more than ``max_bytes``.
    """
    return _from_json(model, await _body(request, max_bytes))


def read_query(request: Request, model: type[ModelT]) -> ModelT:
    """Return the validated query; names that are unknown or come twice are errors.

    Raises:
        SubletError: ``INVALID_ARGUMENT``.
    """
    return _validated(model, _query(request))


async def _body(request: Request, max_bytes: int) -> bytes:
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > max_bytes:
            raise SubletError(LocalCode.INVALID_ARGUMENT, f"the body is larger than {max_bytes} bytes", "Send less.")
    if raw and request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise SubletError(LocalCode.INVALID_ARGUMENT, "the body is not JSON", "Send application/json.")
    read_query(request, Nothing)
    return bytes(raw) or b"{}"


def _query(request: Request, refused: dict[str, str] | None = None) -> dict[str, str]:
    items = request.query_params.multi_items()
    values = dict(items)
    if len(values) != len(items):
        raise SubletError(LocalCode.INVALID_ARGUMENT, "a query parameter comes twice", "Give each one once.")
    return _without(values, refused or {})


def _without(values: dict[str, Any], named: dict[str, str]) -> dict[str, Any]:
    """Return ``values``, none of which may be said in the path as well."""
    if twice := values.keys() & named.keys():
        what = f"{min(twice)}: there is no such field"
        raise SubletError(LocalCode.INVALID_ARGUMENT, what, "Correct the argument and try again.")
    return values


def _from_json(model: type[ModelT], raw: bytes) -> ModelT:
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        raise malformed(error) from None


def _validated(model: type[ModelT], values: object) -> ModelT:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise malformed(error) from None
