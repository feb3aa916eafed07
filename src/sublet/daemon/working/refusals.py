"""How the executor refuses and ends work, in words for the peer and for the log."""

from __future__ import annotations

from sublet.daemon.storage.records import AssignmentRecord
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.lifecycle import AssignmentState


def cancelled(why: str) -> SubletError:
    """Return the error of work that was stopped."""
    return SubletError(ErrorCode.CANCELLED, why, "What was written until then stays; see the audit.")


def not_running(record: AssignmentRecord | None) -> SubletError:
    """Return the refusal to go on with work that does not run."""
    state = "over" if record is None or record.state is AssignmentState.ACTIVE else str(record.state)
    return SubletError(
        ErrorCode.DECLINED, f"there is nothing to go on with: the work is {state}", "Delegate again if needed."
    )


def stopping() -> SubletError:
    """Return the error of work that a stop of the daemon ends."""
    return cancelled("the executor's daemon was stopped")


def names_of(record: AssignmentRecord) -> dict[str, str]:
    """Return what the log calls a piece of work by, for the owner of this machine to see whose it was."""
    return {"delegation_id": record.id, "peer": record.peer, "agent": record.agent}


def used() -> SubletError:
    """Return the refusal of an INVITE whose id was used."""
    return SubletError(ErrorCode.DECLINED, "this delegation id was used before", "Invite again with a new id.")
