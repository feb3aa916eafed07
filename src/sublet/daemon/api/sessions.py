"""Operations on the supervisor, its sessions and its agents: answers have the names of the specification."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator
from pydantic.alias_generators import to_camel

from sublet.daemon.api.base import MAX_PAGE, Request
from sublet.daemon.api.operation import Asks, Hides, Nothing, Operation, Segment, Streaming
from sublet.policy.decision import Action
from sublet.policy.guardrail.mask import MAX_FIELDS
from sublet.policy.guardrail.options import MAX_RETRIES, OnFailure
from sublet.protocol.bounds import MAX_PROMPT_CHARS
from sublet.protocol.idle_fields import refuse_idle
from sublet.protocol.ids import SESSION_ID
from sublet.protocol.lease_terms import MAX_TOOL_NAMES, ToolName

MAX_MESSAGES_SHOWN = 200
Decision = Literal["direct_reply", "dispatch_agent", "dispatch_module", "ask_human", "reject"]
Status = Literal["active", "paused", "completed", "error"]
Settable = Literal["active", "paused", "completed"]
"""What a session can be made by hand."""
SessionId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]


class AskRequest(Request):
    """Something for the supervisor.

    Args:
        text: what is asked; or, with ``answer``, what the session's question is answered with.
        session_id: the session to go on with; a new one by default.
        agent: who is to do it; by default the router decides.
        answer: whether ``text`` answers the session's question.
        answer_schema: JSON Schema (Draft 2020-12) that what is answered has to satisfy (SuperAgent 10).
        mask: fields of such an answer that are kept, as JSON Pointers with ``*`` for any; all by default.
        retries: how often is asked again for one that satisfies it; by default as configured.
        on_failure: what becomes of the request where none does; by default as configured.
        deny: tools that no agent may call for this request.
        only: the only tools that they may call.
    """

    text: Annotated[str, Field(min_length=1, max_length=MAX_PROMPT_CHARS)]
    session_id: SessionId | None = None
    agent: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    answer: bool = False
    answer_schema: dict[str, JsonValue] | None = None
    mask: Annotated[list[str], Field(min_length=1, max_length=MAX_FIELDS)] | None = None
    retries: Annotated[int, Field(ge=0, le=MAX_RETRIES)] | None = None
    on_failure: OnFailure | None = None
    deny: Annotated[list[ToolName], Field(max_length=MAX_TOOL_NAMES)] = Field(default_factory=list)
    only: Annotated[list[ToolName], Field(max_length=MAX_TOOL_NAMES)] = Field(default_factory=list)

    @model_validator(mode="after")
    def _all_say_something(self) -> Self:
        if self.answer_schema is None:
            refuse_idle(self, "can't be without answer_schema", "mask", "retries", "on_failure")
        if self.answer:
            refuse_idle(self, "can't go with an answer: whoever has asked gets it", "agent")
        return self


class Named(BaseModel):
    """Base of answers with the specification's camelCase names."""

    model_config = ConfigDict(defer_build=True, frozen=True, alias_generator=to_camel, populate_by_name=True)


class AskBegun(Named):
    """A request has begun: its ids, by which events tell of it."""

    finger_session_id: str
    request_id: str


class AskOutput(Named):
    """A piece of what the agent says while it works."""

    stream: Literal["stdout", "stderr", "note"]
    text: str
    dropped_chars: int = 0


class AskAnswer(Named):
    """What came of a request.

    ``result`` is None where a person has to answer ``question`` first; where it was rejected, ``reason`` says why.
    """

    finger_session_id: str
    request_id: str
    route_decision: Decision
    target: str = ""
    confidence: float = 1
    reason: str = ""
    result: str | None = None
    question: str | None = None
    options: list[str] = []
    agent_id: str | None = None
    provider_session_id: str | None = None
    structured: JsonValue = None
    warnings: list[str] = []


class RouteView(Named):
    """Where a session's last request went."""

    target: str
    decision: Decision
    confidence: float
    timestamp: str


class BindingView(Named):
    """Which session of its provider's an agent goes on with; ``*`` stands for all agents of the provider."""

    agent_id: str
    provider: str
    role: str | None
    provider_session_id: str
    updated_at: str


class MessageView(Named):
    """One message of a session."""

    at: str
    role: Literal["user", "agent", "human", "note"]
    text: str
    request_id: str | None = None
    agent_id: str | None = None
    route_decision: Decision | None = None
    code: str | None = None


class SessionView(Named):
    """A session at a glance. ``busy`` tells that a request of it runs now."""

    finger_session_id: str
    title: str
    status: Status
    owner: str
    created_at: str
    updated_at: str
    last_route: RouteView | None = None
    question: str | None = None
    options: list[str] = []
    busy: bool = False


class SessionDetail(SessionView):
    """A session with its bindings and its newest messages, the oldest of them first."""

    bindings: list[BindingView] = []
    messages: list[MessageView] = []
    unreadable_messages: int = 0


SessionInPath = Annotated[str, Segment(SESSION_ID.match, "id of a session", "See: sublet sessions list")]


class ListSessions(Request):
    """How many sessions to list."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 50


class OneSession(Request):
    """Names the conversation with the supervisor that an operation is about."""

    session_id: SessionInPath


class ShowSession(OneSession):
    """A session, and how many of its messages to show."""

    messages: Annotated[int, Field(ge=0, le=MAX_MESSAGES_SHOWN)] = 20


class NewSession(Request):
    """Begin a session."""

    title: Annotated[str, Field(max_length=200)] = ""


class SessionChange(OneSession):
    """Pause, complete or resume a session."""

    status: Settable


class LocalAgentView(Named):
    """An agent of this daemon: what it can do, and whether the caller may have it."""

    agent_id: str
    role: str
    provider: str
    description: str = ""
    skills: list[str] = []
    cost: float = 1
    trust: float = 1
    running: int = 0
    ok: bool = True
    detail: str = ""
    denied: str = Field(default="", description="Why policy lets the caller not have it")


class LocalAgents(Named):
    """The agents of this daemon, the default one first."""

    agents: list[LocalAgentView] = []


_SESSION = "/v1/sessions/{session_id}"

ASK: Streaming[AskRequest, AskBegun | AskOutput | AskAnswer] = Streaming(
    "supervisor.ask",
    "POST",
    "/v1/ask",
    AskRequest,
    {"begun": AskBegun, "output": AskOutput, "answer": AskAnswer},
    asks=Asks(Action.AGENT_ASK, "{agent}"),
    summary="Have the supervisor see to a request: its ids, then what is said, then what came of it.",
)
LIST_AGENTS = Operation(
    "agents.list",
    "GET",
    "/v1/agents",
    Nothing,
    LocalAgents,
    asks=Asks(Action.SESSION_READ),
    summary="Return the agents of this daemon, and which of them the caller may not have.",
    hides=Hides(Action.AGENT_DISPATCH, "agent_id", "agents"),
)
LIST_SESSIONS = Operation(
    "sessions.list",
    "GET",
    "/v1/sessions",
    ListSessions,
    list[SessionView],
    asks=Asks(Action.SESSION_READ),
    summary="Return the sessions that were used last.",
    hides=Hides(Action.SESSION_READ, "finger_session_id"),
)
CREATE_SESSION = Operation(
    "sessions.create",
    "POST",
    "/v1/sessions",
    NewSession,
    SessionView,
    asks=Asks(Action.SESSION_MANAGE),
    summary="Begin a session.",
    status=201,
)
GET_SESSION = Operation(
    "sessions.get",
    "GET",
    _SESSION,
    ShowSession,
    SessionDetail,
    asks=Asks(Action.SESSION_READ, "{session_id}"),
    summary="Return a session with its bindings and newest messages.",
)
CHANGE_SESSION = Operation(
    "sessions.change",
    "POST",
    _SESSION,
    SessionChange,
    SessionView,
    asks=Asks(Action.SESSION_MANAGE, "{session_id}"),
    summary="Pause, complete or resume a session.",
)
DELETE_SESSION = Operation(
    "sessions.delete",
    "DELETE",
    _SESSION,
    OneSession,
    SessionView,
    asks=Asks(Action.SESSION_MANAGE, "{session_id}"),
    summary="Forget a session with its messages and bindings. What its providers keep is theirs.",
)
