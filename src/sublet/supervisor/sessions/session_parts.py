"""What is kept of a session, with the names of the specification (SuperAgent 4.1, 4.2)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints
from pydantic.alias_generators import to_camel

from sublet.protocol.ids import PROVIDER_SESSION_ID, SESSION_ID
from sublet.protocol.patterns import Pattern

MAX_TITLE_CHARS = 200
MAX_TEXT_CHARS = 64_000
"""Of one message that is kept; what is longer is cut, and says so."""
MAX_BINDINGS = 256
"""Agents of one session."""

Status = Literal["active", "paused", "completed", "error"]
RouteDecision = Literal["direct_reply", "dispatch_agent", "dispatch_module", "ask_human", "reject"]


def _whole(pattern: Pattern[str]) -> StringConstraints:
    """Return that a text is what ``pattern`` describes, from its first character to its last."""
    return StringConstraints(pattern=rf"\A(?:{pattern.source.removesuffix(chr(92) + 'Z')})\z")


FingerSessionId = Annotated[str, _whole(SESSION_ID)]
ProviderSessionId = Annotated[str, _whole(PROVIDER_SESSION_ID)]
Time = Annotated[str, StringConstraints(max_length=64)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class SessionPart(BaseModel):
    """Base: immutable, camelCase on the disk; what a newer version has added is kept as it is."""

    model_config = ConfigDict(
        defer_build=True, frozen=True, extra="allow", alias_generator=to_camel, populate_by_name=True
    )


class LastRoute(SessionPart):
    """Where the last request of a session went, and how sure the router was."""

    target: Annotated[str, StringConstraints(max_length=200)]
    decision: RouteDecision
    confidence: Annotated[float, Field(ge=0, le=1)]
    timestamp: Time


class SessionRoutingState(SessionPart):
    """What the router remembers of a session (SuperAgent 4.1)."""

    finger_session_id: FingerSessionId
    last_route: LastRoute | None = None
    last_dispatch: LastRoute | None = None
    """The last one that went to an agent: what the session goes on with, whatever was asked in between."""
    capability_snapshot_version: Annotated[str, StringConstraints(max_length=100)] = ""


class MainSession(SessionPart):
    """A conversation, with whomever of the agents takes part in it.

    ``owner`` is who began it, and the only one besides this daemon's owner who may go on with it.
    """

    finger_session_id: FingerSessionId
    title: Annotated[str, StringConstraints(max_length=MAX_TITLE_CHARS)] = ""
    created_at: Time
    updated_at: Time
    status: Status = "active"
    owner: Annotated[str, StringConstraints(max_length=300)] = "human"
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    routing: SessionRoutingState | None = None


class AgentSessionBinding(SessionPart):
    """Which session of its provider's an agent goes on with in this one."""

    finger_session_id: FingerSessionId
    agent_id: Name
    provider: Name
    role: Annotated[str, StringConstraints(max_length=100)] | None = None
    provider_session_id: ProviderSessionId
    updated_at: Time


class AgentSessions(SessionPart):
    """``agent-sessions.json``."""

    version: Literal[1] = 1
    bindings: Annotated[tuple[AgentSessionBinding, ...], Field(max_length=MAX_BINDINGS)] = ()


class SessionMessage(SessionPart):
    """One line of ``messages.jsonl``."""

    at: Time
    role: Literal["user", "agent", "human", "note"]
    text: str
    request_id: str | None = None
    agent_id: str | None = None
    route_decision: RouteDecision | None = None
    code: str | None = None


class Damage(BaseModel):
    """A file of a session that could not be read, and where it was put aside."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    finger_session_id: str
    file: str
    set_aside_as: str
    why: str
