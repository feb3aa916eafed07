"""The seven events of federation, in the specification's flat form, and read in the tagged form too ("事件类型").

A runtime, a status or a kind of message that nobody here knows is kept as it is said. A field that nobody knows is left
out. What breaks a bound refuses the whole event.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic import JsonValue as AnyJson

from sublet.protocol.bounds import MAX_PROMPT_CHARS, MAX_TTL_SECONDS
from sublet.protocol.canonical import JsonValue
from sublet.protocol.faults import fault_words
from sublet.protocol.federation.errors import FederationCode, TaskRefused

DEFAULT_TASK_SECONDS: Final = 300
MAX_CAPABILITIES: Final = 64
MAX_OUTPUT_CHARS: Final = 200_000
MAX_CONTEXT_CHARS: Final = 100_000
MAX_MODEL_CHARS: Final = 200
PROGRESS: Final = "progress"
CANCEL: Final = "cancel"
"""A kind of message of ours: whoever has asked for a task wants it no more (docs/federation-wire.md)."""
SHUTDOWN: Final = "shutdown"
TIMED_OUT: Final = "timeout"

AgentId = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
NodeText = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,127}$")]
AddressText = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}@[a-z0-9][a-z0-9.-]{0,127}$")]
Word = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
"""A runtime, a status, a kind of message, a capability."""
Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$")]
When = Annotated[str, Field(min_length=1, max_length=64)]


class _Event(BaseModel):
    model_config = ConfigDict(defer_build=True, frozen=True, strict=True, extra="ignore")

    timestamp: When


class AgentRegistered(_Event):
    """Which agent a node has from now on, and what it can do."""

    event_type: Literal["io.cis.agent.registered"] = "io.cis.agent.registered"
    agent_id: AgentId
    node_id: NodeText
    runtime_type: Word
    capabilities: Annotated[list[Word], Field(max_length=MAX_CAPABILITIES)] = []


class AgentUnregistered(_Event):
    """An agent is gone."""

    event_type: Literal["io.cis.agent.unregistered"] = "io.cis.agent.unregistered"
    agent_id: AgentId
    node_id: NodeText
    reason: Annotated[str, Field(max_length=200)] | None = None


class TaskPayload(BaseModel):
    """What an agent is to do."""

    model_config = ConfigDict(defer_build=True, frozen=True, strict=True, extra="ignore")

    task_id: Id
    prompt: Annotated[str, Field(min_length=1, max_length=MAX_PROMPT_CHARS)]
    context: Annotated[str, Field(max_length=MAX_CONTEXT_CHARS)] | None = None
    system_prompt: Annotated[str, Field(max_length=MAX_CONTEXT_CHARS)] | None = None
    model: Annotated[str, Field(max_length=MAX_MODEL_CHARS)] | None = None
    metadata: dict[str, AnyJson] = {}


class TaskRequest(_Event):
    """An agent, or a person, wants something of an agent."""

    event_type: Literal["io.cis.agent.task.request"] = "io.cis.agent.task.request"
    request_id: Id
    from_agent: AddressText
    to_agent: AddressText
    task: TaskPayload
    timeout_secs: Annotated[int, Field(ge=1, le=MAX_TTL_SECONDS)] | None = DEFAULT_TASK_SECONDS

    @property
    def seconds(self) -> int:
        """How long it may take."""
        return DEFAULT_TASK_SECONDS if self.timeout_secs is None else self.timeout_secs


class TaskResult(BaseModel):
    """What came of it."""

    model_config = ConfigDict(defer_build=True, frozen=True, strict=True, extra="ignore")

    success: bool
    output: Annotated[str, Field(max_length=MAX_OUTPUT_CHARS)]
    exit_code: int
    metadata: dict[str, AnyJson] = {}


class TaskResponse(_Event):
    """The end of a task, by its ``request_id``."""

    event_type: Literal["io.cis.agent.task.response"] = "io.cis.agent.task.response"
    request_id: Id
    from_agent: AddressText
    to_agent: AddressText
    result: TaskResult


class AgentMessage(_Event):
    """Something that is said, to one agent or, with ``to_agent`` null, to all."""

    event_type: Literal["io.cis.agent.message"] = "io.cis.agent.message"
    message_id: Id
    from_agent: AddressText
    to_agent: AddressText | None
    message_type: Word
    payload: AnyJson = None


class Heartbeat(_Event):
    """An agent is still there."""

    event_type: Literal["io.cis.agent.heartbeat"] = "io.cis.agent.heartbeat"
    agent_id: AgentId
    node_id: NodeText
    status: Word


class StatusUpdate(_Event):
    """An agent is at something else now."""

    event_type: Literal["io.cis.agent.status_update"] = "io.cis.agent.status_update"
    agent_id: AgentId
    node_id: NodeText
    status: Word
    current_task: Id | None = None


FederationEvent: TypeAlias = (
    AgentRegistered | AgentUnregistered | TaskRequest | TaskResponse | AgentMessage | Heartbeat | StatusUpdate
)
PresenceEvent: TypeAlias = AgentRegistered | AgentUnregistered | Heartbeat | StatusUpdate
"""Events that tell of agents of one node, which may be told many at once."""

EVENTS: Final[Mapping[str, type[FederationEvent]]] = {
    "io.cis.agent.registered": AgentRegistered,
    "io.cis.agent.unregistered": AgentUnregistered,
    "io.cis.agent.task.request": TaskRequest,
    "io.cis.agent.task.response": TaskResponse,
    "io.cis.agent.message": AgentMessage,
    "io.cis.agent.heartbeat": Heartbeat,
    "io.cis.agent.status_update": StatusUpdate,
}


@cache
def _adapter(kind: str) -> TypeAdapter[FederationEvent]:
    """Return what reads an event of one of ``EVENTS``; made when it is needed first, since that takes milliseconds."""
    return TypeAdapter(EVENTS[kind])


def read_event(content: object) -> FederationEvent:
    """Return the event that an object states, flat or tagged: ``{"event_type": …, "payload": {all else}}``.

    Raises:
        TaskRefused: ``INVALID_PAYLOAD``, saying what is wrong.
    """
    if not isinstance(content, dict):
        raise _invalid("an event is a JSON object")
    kind = content.get("event_type")
    if not isinstance(kind, str) or kind not in EVENTS:
        raise _invalid("event_type is none of the seven of agent federation 1.0")
    fields: dict[str, Any] = content
    payload = content.get("payload")
    if set(content) == {"event_type", "payload"} and isinstance(payload, dict):
        fields = {**payload, "event_type": kind}
    try:
        return _adapter(kind).validate_python(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise _invalid(f"{kind}: {where}: {fault_words(first)}") from None


def event_content(event: FederationEvent) -> dict[str, JsonValue]:
    """Return an event in the flat form of the specification."""
    return cast("dict[str, JsonValue]", event.model_dump(mode="json"))


def failure_result(code: FederationCode, message: str, reason: str = "", **more: JsonValue) -> TaskResult:
    """Return the result that tells a failure (federation "错误响应示例").

    Args:
        code: which of the five.
        message: what happened and why.
        reason: a word that programs read beside the code; none where the code says it all.
        more: what else stands in ``metadata``.
    """
    metadata: dict[str, AnyJson] = {"error_code": str(code)}
    if reason:
        metadata["reason"] = reason
    metadata |= more
    return TaskResult(success=False, output=message[:MAX_OUTPUT_CHARS], exit_code=-1, metadata=metadata)


def _invalid(message: str) -> TaskRefused:
    return TaskRefused(FederationCode.INVALID_PAYLOAD, message)
