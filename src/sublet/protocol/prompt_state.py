"""How far an agent is with each of its prompts, as DONE, ERROR and progress tell it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sublet.protocol.wire import DelegationId, Short, Wire


class PromptState(Wire):
    """How far the agent is with one prompt: INVITE's, or that of a follow-up."""

    follow_up_id: DelegationId | None = Field(default=None, description="None is the prompt of INVITE")
    state: Literal["running", "done", "failed"]
    reason: Short | None = Field(default=None, description="Where it failed: failed, timeout, limit or crashed")
    exit_code: int | None = None
