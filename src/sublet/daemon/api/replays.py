"""Operations on replays: what was decided in a session is decided again, and compared (SuperAgent 12)."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, JsonValue

from sublet.daemon.api.base import View
from sublet.daemon.api.operation import Asks, Operation
from sublet.daemon.api.sessions import OneSession
from sublet.policy.decision import Action

MAX_REPLAYED_EVENTS = 20_000
"""Of one session; a longer one is not replayed."""


class ReplayRequest(OneSession):
    """What to replay; with ``current`` by the rules that hold now in place of those of then."""

    current: bool = False


class ReplayStep(View):
    """One decision, as it was recorded and as it was made again; fields as of ``supervisor.replay.steps.Step``."""

    model_config = ConfigDict(from_attributes=True)

    seq: int
    kind: str
    result: Literal["equal", "different", "not_replayable", "unknown"]
    note: str = ""
    recorded: dict[str, JsonValue] | None = None
    replayed: dict[str, JsonValue] | None = None
    out_of_order: bool = False
    copies: int = 0
    missing: int | None = None


class ReplayView(View):
    """All of it. ``equal`` only where every step is; ``rules`` says by which rules was decided."""

    session: str
    rules: Literal["recorded", "current"]
    events: int
    equal: bool
    steps: list[ReplayStep]


REPLAY = Operation(
    "sessions.replay",
    "GET",
    "/v1/sessions/{session_id}/replay",
    ReplayRequest,
    ReplayView,
    asks=Asks(Action.SESSION_READ, "{session_id}"),
    summary="Decide again what was decided in a session, and compare. No agent is asked and nothing is changed.",
)
