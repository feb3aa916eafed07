"""Operations on federation: the nodes, the agents of all of them, and tasks for these (agent federation 1.0)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, JsonValue

from sublet.daemon.api.base import MAX_PAGE, Request, View
from sublet.daemon.api.operation import Asks, Hides, Nothing, Operation, Streaming
from sublet.daemon.api.sessions import AskOutput, Named
from sublet.policy.decision import Action
from sublet.protocol.bounds import MAX_PROMPT_CHARS, MAX_TTL_SECONDS

MAX_TARGET_CHARS = 200
MAX_BROADCAST_CHARS = 4_000
BROADCAST_ROOM = "!agent-broadcast"
"""What policy is asked for, and what hosts name, where something is said to all nodes."""
CAPABILITY = "capability:"
"""Before the name of a capability, where an agent is looked for by it."""
Target = Annotated[str, Field(min_length=1, max_length=MAX_TARGET_CHARS)]


class NodeView(View):
    """A node: this one, or one whose key is pinned."""

    node_id: str | None = Field(description="What it calls itself; None until it has said so")
    peer: str | None = Field(description="What it is called here; None for this node")
    state: Literal["here", "reached", "silent", "refused", "off"]
    why_not: str = Field(default="", description="Why nothing is exchanged with it; empty where something is")
    trusted: bool = Field(default=True, description="Whether tasks are exchanged with it")
    namespace: str = ""
    agents: int = 0
    busy: int = 0
    last_seen: str | None = Field(default=None, description="RFC 3339; None where nothing was heard of it")
    fingerprint: str = ""
    url: str | None = Field(default=None, description="Where it is called over HTTP; None where it is paired, or not")


class FederatedAgentView(View):
    """An agent of any node."""

    address: str
    agent_id: str
    node_id: str
    peer: str | None = Field(description="What its node is called here; None for this node")
    status: str
    runtime_type: str
    capabilities: list[str]
    current_task: str | None = Field(
        default=None, description="Id of the task that it is at, where that is one of ours"
    )
    last_seen: str


class Broadcast(Request):
    """What is said to all nodes that are members of this node's broadcast room."""

    text: Annotated[str, Field(min_length=1, max_length=MAX_BROADCAST_CHARS)]
    message_type: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")] = "announcement"


class BroadcastHeard(View):
    """A member of the room: what its node is called here, and why it has not heard; empty where it has."""

    peer: str
    why_not: str = ""


class BroadcastSent(View):
    """What was said, and who has heard it."""

    message_id: str
    room_id: str
    from_agent: str
    at: str
    heard: list[BroadcastHeard]


class ListBroadcasts(Request):
    """How many to list, the newest."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 50


class BroadcastView(View):
    """What a node has said to all; ``text`` is its own."""

    message_id: str
    from_agent: str
    peer: str | None = Field(description="What its node is called here; None for what was said here")
    message_type: str
    text: str
    at: str


class Find(Request):
    """Whom to look for: ``AGENT@NODE``, an id that one node has, or ``capability:NAME``."""

    to: Target


class FoundAgent(View):
    """An agent, and how it is lent a directory."""

    address: str
    peer: str | None = Field(description="What its node is called here; None for this node")
    agent_id: str
    why: str = Field(description="Why this one")


class AskAgent(Request):
    """A task for an agent of any node.

    Args:
        to: ``AGENT@NODE``, an id that one node has, or ``capability:NAME`` for the best free one.
        text: what is to be done.
        context: what else the agent should know.
        timeout_seconds: how long it may take; as configured by default.
        wait: whether to wait for a node, or an agent, that is not there (``queue_if_offline``).
    """

    to: Target
    text: Annotated[str, Field(min_length=1, max_length=MAX_PROMPT_CHARS)]
    context: Annotated[str, Field(max_length=100_000)] | None = None
    timeout_seconds: Annotated[int, Field(ge=1, le=MAX_TTL_SECONDS)] | None = None
    wait: bool = False


class TaskBegun(Named):
    """A task is given to an agent."""

    target: str
    reason: str


class FailedTask(BaseModel):
    """Why a task was not done, as the specification has it."""

    success: Literal[False] = False
    output: str
    exit_code: int
    metadata: dict[str, JsonValue] = Field(default={})


class TaskAnswer(Named):
    """What came of a task: as that of ``supervisor.ask``.

    ``result`` is what the agent answers, or an object with ``metadata.error_code`` where the task was not done.
    """

    finger_session_id: str | None = None
    route_decision: Literal["dispatch_agent"] = "dispatch_agent"
    target: str
    confidence: float = 1
    reason: str = ""
    result: str | FailedTask
    question: str | None = None
    options: list[str] = Field(default=[])
    agent_id: str
    metadata: dict[str, JsonValue] = Field(default={})
    warnings: list[str] = Field(default=[])


LIST_NODES = Operation(
    "federation.nodes",
    "GET",
    "/v1/nodes",
    Nothing,
    list[NodeView],
    asks=Asks(Action.DELEGATION_READ),
    summary="Return this node and the others, and how it stands with each.",
    hides=Hides(Action.DELEGATION_CREATE, "peer"),
)
LIST_ALL_AGENTS = Operation(
    "federation.agents",
    "GET",
    "/v1/nodes/agents",
    Nothing,
    list[FederatedAgentView],
    asks=Asks(Action.DELEGATION_READ),
    summary="Return the agents of all nodes, this one's first.",
    hides=Hides(Action.DELEGATION_CREATE, "peer"),
)
FIND_AGENT = Operation(
    "federation.find",
    "GET",
    "/v1/nodes/find",
    Find,
    FoundAgent,
    asks=Asks(Action.DELEGATION_READ),
    summary="Return which agent an address or a capability means, and why this one.",
    hides=None,
)
BROADCAST = Operation(
    "federation.broadcast",
    "POST",
    "/v1/nodes/messages",
    Broadcast,
    BroadcastSent,
    asks=Asks(Action.ROOM_SEND, BROADCAST_ROOM),
    summary="Say something to all nodes that are paired or listed, trusted, in this namespace and reached.",
)
LIST_BROADCASTS = Operation(
    "federation.broadcasts",
    "GET",
    "/v1/nodes/messages",
    ListBroadcasts,
    list[BroadcastView],
    asks=Asks(Action.ROOM_READ, BROADCAST_ROOM),
    summary="Return what nodes have said to all, this one too, the oldest first.",
    hides=Hides(Action.DELEGATION_CREATE, "peer"),
)
ASK_AGENT: Streaming[AskAgent, TaskBegun | AskOutput | TaskAnswer] = Streaming(
    "federation.ask",
    "POST",
    "/v1/nodes/ask",
    AskAgent,
    {"begun": TaskBegun, "output": AskOutput, "answer": TaskAnswer},
    asks=Asks(Action.AGENT_ASK, "{to}"),
    summary="Give an agent of any node a task: whom it goes to, then what is said, then what came of it.",
)
