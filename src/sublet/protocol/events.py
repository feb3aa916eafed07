"""The one vocabulary of events: what the journal holds, what faces stream, what replays (SuperAgent 9.1, DESIGN 7)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel


class EventKind(StrEnum):
    """Kinds of events that exist so far; each capability adds its own here.

    Those from ``SESSION_CREATED`` to ``POLICY_REJECTED`` are the mandatory ones of SuperAgent 9.1.
    """

    DELEGATION_STATE = "delegation_state"
    DELEGATION_CONDITION = "delegation_condition"
    DELEGATION_OUTPUT = "delegation_output"
    WORKSPACE_CHANGED = "workspace_changed"
    DELEGATION_AUDIT = "delegation_audit"
    DELEGATION_EXTENDED = "delegation_extended"
    DELEGATION_FOLLOW_UP = "delegation_follow_up"
    DELEGATION_REVIEW = "delegation_review"
    ASSIGNMENT_STATE = "assignment_state"
    PAIR_LINK_MADE = "pair_link_made"
    PEER_PAIRED = "peer_paired"
    PEER_MOVED = "peer_moved"
    PEER_RENAMED = "peer_renamed"
    PEER_REMOVED = "peer_removed"
    PEER_KEY_CHANGED = "peer_key_changed"
    CONFIG_RELOADED = "config_reloaded"
    CONFIG_REJECTED = "config_rejected"
    SESSION_CREATED = "session_created"
    SESSION_BOUND = "session_bound"
    SESSION_RESUMED = "session_resumed"
    SESSION_DAMAGED = "session_damaged"
    ROUTE_DECIDED = "route_decided"
    DISPATCH_SENT = "dispatch_sent"
    DISPATCH_RESULT = "dispatch_result"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    TOOL_ERROR = "tool_error"
    ASK_HUMAN = "ask_human"
    APPROVAL_REQUIRED = "approval_required"
    GUARDRAIL_FAILED = "guardrail_failed"
    POLICY_REJECTED = "policy_rejected"
    APPROVAL_DECIDED = "approval_decided"
    GRANT_ISSUED = "grant_issued"
    GRANT_REVOKED = "grant_revoked"
    APPROVER_CHANGED = "approver_changed"
    NODE_STATE = "node_state"
    NODE_AGENT = "node_agent"
    NODE_TASK = "node_task"
    NODE_MESSAGE = "node_message"
    PANEL_STATE = "panel_state"
    OFFICE_CREATED = "office_created"
    OFFICE_CLOSED = "office_closed"
    OFFICE_KICKED = "office_kicked"
    OFFICE_JOINED = "office_joined"
    OFFICE_LEFT = "office_left"
    OFFICE_CALL = "office_call"


class EventKeys(BaseModel):
    """The key fields that tell of which run an event is a part (SuperAgent 9.2), and which event it follows from.

    ``causation_id`` is the ``seq`` of the event that led to this one.
    """

    model_config = ConfigDict(
        defer_build=True, frozen=True, populate_by_name=True, alias_generator=to_camel, serialize_by_alias=True
    )

    finger_session_id: str | None = None
    agent_id: str | None = None
    provider_session_id: str | None = None
    request_id: str | None = None
    route_decision: str | None = None
    causation_id: int | None = None


class Event(BaseModel):
    """One thing that happened.

    ``seq`` grows by one per event and is the cursor of every reader; ``at`` is RFC 3339 in UTC.
    ``kind`` is a plain name where another version wrote it. ``keys`` tell of which run it is a part, under the names of
    SuperAgent 9.2.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    seq: int
    at: str
    kind: Annotated[EventKind | str, Field(union_mode="left_to_right")]
    delegation_id: str | None = None
    keys: EventKeys = EventKeys()
    data: dict[str, JsonValue] = {}


class EventFilter(BaseModel):
    """Which events are wanted: those that fit all that is given; without ``sessions`` none that is a session's."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    delegation_id: str | None = None
    session_id: str | None = None
    kind: EventKind | None = None
    sessions: bool = True

    def fits(self, event: Event) -> bool:
        """Tell whether ``event`` is wanted."""
        return (
            self.delegation_id in (None, event.delegation_id)
            and self.session_id in (None, event.keys.finger_session_id)
            and self.kind in (None, event.kind)
            and (self.sessions or event.keys.finger_session_id is None)
        )
