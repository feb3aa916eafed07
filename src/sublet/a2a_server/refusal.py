"""One failure, three forms: ``SubletError`` here, ERROR on the AWCP wire, and the error of an A2A or HTTP call."""

from __future__ import annotations

from a2a.utils.errors import A2AError, InvalidParamsError
from starlette.responses import JSONResponse

from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.messages import MAX_ERROR_CHARS, Error, ErrorExtension


def wire_error(delegation_id: str, error: SubletError, fallback: ErrorCode) -> Error:
    """Return the AWCP ERROR for ``error`` (AWCP 4.5).

    Codes and texts of our own faces may name local paths and policies, so they stay here: the peer learns
    ``fallback`` and that the reason is in the log.

    Args:
        delegation_id: which delegation it is about.
        error: what happened.
        fallback: the code that travels where ``error`` has a local one.
    """
    if isinstance(error.code, ErrorCode):
        return Error(
            delegation_id=delegation_id,
            code=error.code,
            message=error.message[:MAX_ERROR_CHARS],
            hint=error.hint[:MAX_ERROR_CHARS],
            sublet=_extension(error),
        )
    return Error(
        delegation_id=delegation_id,
        code=fallback,
        message="the executor refused or failed for a reason of its own",
        hint="Its owner finds the reason in the executor's log.",
    )


def _extension(error: SubletError) -> ErrorExtension:
    end = error.agent_end
    if end is None:
        return ErrorExtension(retry_after_seconds=error.retry_after_seconds)
    return ErrorExtension(
        retry_after_seconds=error.retry_after_seconds,
        exit_code=end.exit_code,
        reason=end.reason,
        output_tail=end.output_tail[-MAX_ERROR_CHARS:],
        prompts=list(end.prompts),
    )


def a2a_error(error: SubletError, kind: type[A2AError] = InvalidParamsError) -> A2AError:
    """Return the A2A error that carries ``error`` as ``{code, message, hint}``.

    The SDK reserves the key ``errors`` of this object for field violations of one fixed shape.
    """
    return kind(message=error.message, data=_outsiders(error))


def http_error(status: int, error: SubletError, headers: dict[str, str] | None = None) -> JSONResponse:
    """Return the HTTP answer that carries ``error``."""
    return JSONResponse({"error": _outsiders(error)}, status_code=status, headers=headers)


def _outsiders(error: SubletError) -> dict[str, str]:
    return {"code": str(error.code), "message": error.message, "hint": error.hint}
