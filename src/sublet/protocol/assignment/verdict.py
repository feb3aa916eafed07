"""Whether the work of an assignment is done, and why not (AWCP 4.5, DESIGN 4.1)."""

from __future__ import annotations

from dataclasses import dataclass

from sublet.protocol.errors import AgentEnd, ErrorCode, SubletError
from sublet.protocol.prompt_state import PromptState


@dataclass(frozen=True, slots=True)
class Ended:
    """How the agent ended its last prompt.

    Args:
        reason: ``done``, ``failed``, ``timeout``, ``limit``, ``cancelled`` or ``crashed``.
        summary: the end of what it said.
        exit_code: of its process, where it had one.
        why: in one line how it ended, for work that was not done.
    """

    reason: str
    summary: str
    exit_code: int | None = None
    why: str = ""


def why_not_done(
    delegation_id: str,
    outcome: Ended | None,
    prompts: tuple[PromptState, ...],
    *,
    late: bool,
    began: bool,
    missing: bool,
    lost: str | None,
    stopped: SubletError | None,
    failed: SubletError | None,
    left: str = "",
) -> SubletError | None:
    """Return why the work is not done, with the end of what the agent said; None where it is.

    Args:
        delegation_id: whose work it is.
        outcome: what the provider said, None where it did not come to that.
        prompts: how each prompt ended.
        late: whether the lease is over, or as good as.
        began: whether the agent was started at all.
        missing: whether writes did not all arrive.
        lost: why the link to the files was lost for good, None where it was not.
        stopped: why the work was stopped, if so.
        failed: for what it was to end as failed, if so.
        left: what is still here of the directory, in words, if anything.
    """
    if late and (outcome is None or outcome.reason == "timeout" or (outcome.reason == "done" and missing)):
        # The delegator cancels a lease that ends, perhaps before our own clock says so.
        return expired(left) if began else never_began()
    if stopped is not None:
        return stopped
    if failed is not None:
        return failed if outcome is None else _with_end(failed, outcome, prompts)
    if outcome is None or (lost is not None and outcome.reason != "done"):
        return SubletError(
            ErrorCode.MOUNT_FAILED,
            "the link to the delegator's files was lost while the task ran, and the agent was stopped: "
            + (lost or "the work was ended"),
            "Look at the audit for what arrived, then delegate again.",
        )
    if outcome.reason != "done":
        return SubletError(
            ErrorCode.TASK_FAILED,
            outcome.why,
            f"`sublet output {delegation_id}` has all it printed.",
            agent_end=_end(outcome, prompts),
        )
    if missing:
        reason = f": {lost}" if lost is not None else ""
        return SubletError(
            ErrorCode.TASK_FAILED,
            f"the work was done, but its last writes did not all reach the delegator{reason}",
            "Look at the audit for what arrived, then delegate again.",
        )
    return None


def expired(left: str = "") -> SubletError:
    """Return the error of a lease that ended while the work ran (AWCP 4.5); ``left`` as for ``why_not_done``."""
    if left:
        return SubletError(
            ErrorCode.EXPIRED,
            f"the lease ended while the task was running; the agent was stopped, but on its machine {left}",
            "Nothing there reaches your files any more; the daemon there removes it when it starts again.",
        )
    return SubletError(
        ErrorCode.EXPIRED,
        "the lease ended while the task was running; the agent was stopped and the directory unmounted",
        "Delegate again with a longer lease.",
    )


def never_began() -> SubletError:
    """Return the error of a lease that ended before there was anything for the agent to work in."""
    return SubletError(
        ErrorCode.EXPIRED,
        "the lease ended before the directory was mounted, so the agent was never started",
        "Delegate again with a longer lease. `sublet doctor` on both sides tells what keeps a mount from coming.",
    )


def _end(outcome: Ended, prompts: tuple[PromptState, ...]) -> AgentEnd:
    return AgentEnd(outcome.reason, outcome.exit_code, outcome.summary, prompts)


def _with_end(error: SubletError, outcome: Ended, prompts: tuple[PromptState, ...]) -> SubletError:
    end = _end(outcome, prompts)
    return SubletError(error.code, error.message, error.hint, from_peer=error.from_peer, agent_end=end)
