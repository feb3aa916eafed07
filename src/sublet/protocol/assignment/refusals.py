"""How an executor refuses, in words for the peer."""

from __future__ import annotations

from sublet.protocol.bounds import AccessMode
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.lifecycle import AssignmentState


def cancelled(why: str) -> SubletError:
    """Return the error of work that was stopped."""
    return SubletError(ErrorCode.CANCELLED, why, "What was written until then stays; see the audit.")


def used() -> SubletError:
    """Return the refusal of an INVITE whose id was used."""
    return SubletError(ErrorCode.DECLINED, "this delegation id was used before", "Invite again with a new id.")


def unknown() -> SubletError:
    """Return the refusal of words about a delegation that is not the caller's; whether there is one is not told."""
    return SubletError(ErrorCode.DECLINED, "no such delegation of yours is known here", "Start with INVITE.")


def not_waiting(state: AssignmentState) -> SubletError:
    """Return the refusal of a START for work that does not wait for one."""
    return SubletError(
        ErrorCode.DECLINED,
        f"this delegation is not waiting for START; it is {state}",
        "Start with a new INVITE.",
    )


def not_running(state: AssignmentState | None) -> SubletError:
    """Return the refusal to go on with work that does not run."""
    shown = "over" if state is None or state is AssignmentState.ACTIVE else str(state)
    return SubletError(
        ErrorCode.DECLINED, f"there is nothing to go on with: the work is {shown}", "Delegate again if needed."
    )


def no_start(seconds: float) -> SubletError:
    """Return why an accepted INVITE was given up after ``seconds``."""
    return SubletError(ErrorCode.DECLINED, f"no START came within {seconds:.0f} s", "Invite again.")


def slot_lost() -> SubletError:
    """Return why an accepted INVITE was given up for another peer's."""
    return SubletError(
        ErrorCode.DECLINED,
        "you were promised more slots of this executor than another peer, who needed one before your START",
        "Invite again, and for fewer delegations at once.",
    )


def start_too_late() -> SubletError:
    """Return the refusal of a START whose time ran out while policy was asked."""
    return SubletError(ErrorCode.START_EXPIRED, "the lease was over before it could begin", "Delegate again.")


def older_process() -> SubletError:
    """Return the refusal of a renewal by a process of the delegator's that was replaced."""
    return SubletError(
        ErrorCode.DECLINED,
        "another process of the delegator's has taken this delegation over since",
        "Stop the older one.",
    )


def other_access(mode: AccessMode) -> SubletError:
    """Return the refusal of a renewal with other access."""
    return SubletError(ErrorCode.DECLINED, f"the work runs with {mode} access", "Delegate again for another.")
