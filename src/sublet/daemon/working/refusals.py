"""How the executor ends work of its own accord."""

from __future__ import annotations

from sublet.protocol.assignment.refusals import cancelled
from sublet.protocol.errors import ErrorCode, SubletError


def stopping() -> SubletError:
    """Return the error of work that a stop of the daemon ends."""
    return cancelled("the executor's daemon was stopped")


def broken() -> SubletError:
    """Return the error of work that an error of our own has ended."""
    return SubletError(ErrorCode.TASK_FAILED, "the executor had an internal error", "See its log.")
