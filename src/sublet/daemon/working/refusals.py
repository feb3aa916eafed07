"""How the executor ends work of its own accord, and what the log calls a piece of work by."""

from __future__ import annotations

from sublet.daemon.storage.records import AssignmentRecord
from sublet.protocol.assignment.refusals import cancelled
from sublet.protocol.errors import ErrorCode, SubletError


def stopping() -> SubletError:
    """Return the error of work that a stop of the daemon ends."""
    return cancelled("the executor's daemon was stopped")


def broken() -> SubletError:
    """Return the error of work that an error of our own has ended."""
    return SubletError(ErrorCode.TASK_FAILED, "the executor had an internal error", "See its log.")


def names_of(record: AssignmentRecord) -> dict[str, str]:
    """Return what the log calls a piece of work by, for the owner of this machine to see whose it was."""
    return {"delegation_id": record.id, "peer": record.peer, "agent": record.agent}
