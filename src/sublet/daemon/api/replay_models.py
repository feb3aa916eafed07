"""What a replay is asked, and what it says (SuperAgent 12)."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from sublet.daemon.api.base import Request

MAX_REPLAYED_EVENTS = 20_000
"""Of one session; a longer one is not replayed."""


class ReplayRequest(Request):
    """How to replay; with ``current`` by the rules that hold now in place of those of then."""

    current: bool = False


class ReplayStep(BaseModel):
    """One decision, as it was recorded and as it was made again; fields as of ``supervisor.replay.model.Step``."""

    model_config = ConfigDict(defer_build=True, frozen=True, from_attributes=True)

    seq: int
    kind: str
    result: Literal["equal", "different", "not_replayable", "unknown"]
    note: str = ""
    recorded: dict[str, JsonValue] | None = None
    replayed: dict[str, JsonValue] | None = None
    out_of_order: bool = False
    copies: int = 0
    missing: int | None = None


class ReplayView(BaseModel):
    """All of it. ``equal`` only where every step is; ``rules`` says by which rules was decided."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    session: str
    rules: Literal["recorded", "current"]
    events: int
    equal: bool
    steps: list[ReplayStep]
