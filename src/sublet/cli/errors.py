"""How a failure leaves the command line: its exit status, its words on a terminal, its JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING

from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.faults import malformed
from sublet.protocol.lifecycle import DelegationState

if TYPE_CHECKING:
    from sublet.daemon.api.delegation_views import DelegationView


class Exit(IntEnum):
    """Exit statuses, as ``sublet --help`` and docs/cli.md state them."""

    OK = 0
    ERROR = 1
    USAGE = 2
    ALREADY_RUNNING = 3
    DAEMON_UNAVAILABLE = 4
    DECLINED = 5
    CANCELLED = 6
    EXPIRED = 7
    CONFLICTS = 8
    QUESTION = 9
    INTERRUPTED = 130
    BROKEN_PIPE = 141


MEANING: Mapping[Exit, str] = {
    Exit.OK: "done; for delegate: the work is completed",
    Exit.ERROR: "ended in an error",
    Exit.USAGE: "wrong arguments",
    Exit.ALREADY_RUNNING: "a daemon is already running",
    Exit.DAEMON_UNAVAILABLE: "no daemon is running, or it does not answer",
    Exit.DECLINED: "declined by policy or by the peer",
    Exit.CANCELLED: "cancelled",
    Exit.EXPIRED: "the lease ran out",
    Exit.CONFLICTS: "apply and undo: there are conflicts, so not everything was done",
    Exit.QUESTION: "ask and answer: a person has to answer a question first",
    Exit.INTERRUPTED: "interrupted; a delegation goes on in the daemon",
    Exit.BROKEN_PIPE: "the reader of the output went away",
}

_BY_CODE: Mapping[str, Exit] = {
    LocalCode.INVALID_ARGUMENT: Exit.USAGE,
    LocalCode.ALREADY_RUNNING: Exit.ALREADY_RUNNING,
    LocalCode.DAEMON_UNAVAILABLE: Exit.DAEMON_UNAVAILABLE,
    LocalCode.POLICY_DENIED: Exit.DECLINED,
    LocalCode.LOOP_REFUSED: Exit.DECLINED,
    LocalCode.DEPTH_REFUSED: Exit.DECLINED,
    LocalCode.NO_ROUTE: Exit.DECLINED,
    LocalCode.SESSION_CLOSED: Exit.DECLINED,
    LocalCode.LEASE_OVER: Exit.EXPIRED,
    LocalCode.KEY_CHANGED: Exit.DECLINED,
    LocalCode.TOKEN_INVALID: Exit.DECLINED,
    LocalCode.APPROVAL_INVALID: Exit.DECLINED,
    LocalCode.APPROVAL_REQUIRED: Exit.DECLINED,
    LocalCode.APPROVER_MISSING: Exit.DECLINED,
    LocalCode.PASSPHRASE_WRONG: Exit.DECLINED,
    ErrorCode.DECLINED: Exit.DECLINED,
    ErrorCode.AUTH_FAILED: Exit.DECLINED,
    ErrorCode.CANCELLED: Exit.CANCELLED,
    ErrorCode.EXPIRED: Exit.EXPIRED,
    ErrorCode.START_EXPIRED: Exit.EXPIRED,
}


def exit_for(code: str) -> Exit:
    """Return the exit status for an error ``code``; an unknown one is a plain error."""
    return _BY_CODE.get(code, Exit.ERROR)


def exit_for_view(view: DelegationView, *, background: bool = False) -> Exit:
    """Return the exit status of ``delegate`` for ``view``: 0 only for completed work.

    Args:
        view: the delegation as it is.
        background: the caller asked for the handle only, so work that has not ended yet is a success.
    """
    match view.state:
        case DelegationState.COMPLETED:
            return Exit.OK
        case DelegationState.CANCELLED:
            return Exit.CANCELLED
        case DelegationState.EXPIRED:
            return Exit.EXPIRED
        case DelegationState.ERROR:
            # an error is never a success, whatever code it carries
            return exit_for(view.error.code) if view.error else Exit.ERROR
        case _:
            return Exit.OK if background else Exit.INTERRUPTED


def error_object(error: SubletError) -> dict[str, object]:
    """Return the object that ``--json`` prints for ``error``, with the keys of a delegation that scripts look at."""
    return {
        "delegation_id": None,
        "state": "error",
        "result": None,
        "error": error.as_json(),
        "hidden": [],
        "audit": None,
    }


def sole_error(error: BaseException) -> SubletError | None:
    """Return the failure that a user is told about, also out of the groups that task groups wrap it in.

    An argument that no request can hold is one as well.
    """
    from pydantic import ValidationError

    while isinstance(error, BaseExceptionGroup):
        known = [inner for inner in error.exceptions if isinstance(inner, SubletError)]
        error = known[0] if known else error.exceptions[0]
    if isinstance(error, ValidationError):
        return malformed(error)
    return error if isinstance(error, SubletError) else None
