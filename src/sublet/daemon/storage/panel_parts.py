"""What the record of a delegation keeps of the panel that it is a member of: the whole plan, and how this member ended.

Each member has the plan, so that a panel needs no row of its own, and is pruned with its delegations.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from sublet.protocol.panels import DEFAULT_CHECK_SECONDS, StopRule


class _Part(BaseModel):
    model_config = ConfigDict(defer_build=True, frozen=True)


class PlannedMember(_Part):
    """Who has the task, under which delegation, and why this one."""

    delegation_id: str
    address: str
    peer: str
    agent: str
    why: str


class MemberOutcome(_Part):
    """How a member ended.

    ``seconds`` is how long it worked. ``exit_code`` is that of the check; None where it has none, and ``reason`` says
    why. ``output`` is the end of what the check printed: text of the peer's, as the check read its files.
    """

    state: Literal["ready", "passed", "failed", "none"]
    seconds: float
    exit_code: int | None = None
    reason: str = ""
    output: str = ""


class PanelPart(_Part):
    """The panel, and which of its ``members`` this delegation is, the first being 0."""

    id: str
    to: str
    index: int
    members: tuple[PlannedMember, ...]
    check: str | None = None
    check_seconds: int = DEFAULT_CHECK_SECONDS
    stop: StopRule = "all"
    max_agent_seconds: int | None = None
    outcome: MemberOutcome | None = None
