"""The one vocabulary of events: what the journal holds, what faces stream, what replays (SuperAgent 9.1, DESIGN 7)."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, JsonValue


class EventKind(StrEnum):
    """Kinds of events that exist so far; each capability adds its own here."""

    DELEGATION_STATE = "delegation_state"
    DELEGATION_CONDITION = "delegation_condition"
    DELEGATION_OUTPUT = "delegation_output"
    WORKSPACE_CHANGED = "workspace_changed"
    DELEGATION_AUDIT = "delegation_audit"
    DELEGATION_EXTENDED = "delegation_extended"
    DELEGATION_FOLLOW_UP = "delegation_follow_up"
    DELEGATION_REVIEW = "delegation_review"
    ASSIGNMENT_STATE = "assignment_state"
    PEER_PAIRED = "peer_paired"
    PEER_REMOVED = "peer_removed"
    PEER_KEY_CHANGED = "peer_key_changed"
    POLICY_REJECTED = "policy_rejected"


class Event(BaseModel):
    """One thing that happened.

    ``seq`` grows by one per event and is the cursor of every reader; ``at`` is RFC 3339 in UTC.
    """

    model_config = ConfigDict(frozen=True)

    seq: int
    at: str
    kind: EventKind
    delegation_id: str | None = None
    data: dict[str, JsonValue] = {}
