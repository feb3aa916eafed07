"""Why a delegation ends, and why somebody who wants something of it is refused, in words for this side."""

from __future__ import annotations

from sublet.protocol.bounds import MAX_FOLLOW_UPS
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.lifecycle import DelegationState


def interrupted() -> SubletError:
    """Return the error that says that our own daemon was killed, and that what it did can't go on."""
    return SubletError(
        ErrorCode.TASK_FAILED,
        "the delegator's daemon stopped unexpectedly while the delegation was under way; its access died with it",
        "Look at the audit for what was done, then delegate again.",
    )


def lease_over(ttl_seconds: int) -> SubletError:
    """Return the error that says that the lease has ended."""
    return SubletError(
        ErrorCode.EXPIRED,
        f"the lease of {ttl_seconds} s ended before the work did, so access was cut",
        "Delegate again with a longer --ttl; what was written until then is in the audit.",
    )


def never_began() -> SubletError:
    """Return the error that says that the time asked for passed before there was a lease."""
    return SubletError(
        ErrorCode.EXPIRED,
        "the time asked for passed before the peer could begin",
        "Delegate again with a longer --ttl, or when the directory or the peer is free.",
    )


def is_over(delegation_id: str, state: DelegationState) -> SubletError:
    """Return the refusal of what only a delegation under way can do."""
    return SubletError(LocalCode.CONFLICT, f"{delegation_id} is over: {state}", "Delegate again.")


def not_begun(state: DelegationState) -> SubletError:
    """Return the refusal of what only work that runs can do."""
    return SubletError(LocalCode.CONFLICT, f"the work has not begun yet; it is {state}", "Try again once it runs.")


def deaf(peer: str) -> SubletError:
    """Return the refusal to tell a peer something that can't be told anything while it works."""
    return SubletError(LocalCode.CONFLICT, f"{peer} can't be told anything while it works", "Delegate again.")


def longest_already(longest: int) -> SubletError:
    """Return the refusal of an extension beyond this side's limit."""
    return SubletError(
        LocalCode.POLICY_DENIED,
        f"a lease may last {longest} s here, and this one does already",
        "Raise max_ttl_seconds in policy.json, or delegate again.",
    )


def caller_over(callers: str) -> SubletError:
    """Return the refusal of an extension beyond the lease of the agent that asked."""
    return SubletError(
        LocalCode.LEASE_OVER,
        f"the lease of the agent that asked for this one ends no later: {callers}",
        "Extend that one first.",
    )


def no_more_time(peer: str) -> SubletError:
    """Return the refusal of an extension that the peer does not agree to."""
    return SubletError(
        ErrorCode.DECLINED,
        f"{peer} agrees to no more time than the lease has",
        "Its owner can raise max_ttl_seconds there; or delegate again.",
    )


def too_many_follow_ups() -> SubletError:
    """Return the refusal of one follow-up too many."""
    return SubletError(LocalCode.CONFLICT, f"{MAX_FOLLOW_UPS} follow-ups were sent already", "Delegate again.")


def another_follow_up(follow_up_id: str) -> SubletError:
    """Return the refusal of another text under the id of an earlier follow-up."""
    return SubletError(
        LocalCode.CONFLICT,
        f"the follow-up {follow_up_id} was sent already, with another prompt",
        "Use another id for another follow-up.",
    )
