"""What a decision is made of: who wants to do what to which thing, and the answer with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal

Kind = Literal["human", "mcp", "peer", "a2a", "agent", "node", "office"]


class Action(StrEnum):
    """Everything that is asked of ``decide()``; a face or service that acts without asking is a defect."""

    DELEGATION_CREATE = "delegation.create"
    DELEGATION_READ = "delegation.read"
    DELEGATION_CANCEL = "delegation.cancel"
    DELEGATION_EXTEND = "delegation.extend"
    DELEGATION_SAY = "delegation.say"
    DELEGATION_REVIEW = "delegation.review"
    DELEGATION_APPLY = "delegation.apply"
    DELEGATION_DISCARD = "delegation.discard"
    DELEGATION_UNDO = "delegation.undo"
    WORKSPACE_LEND = "workspace.lend"
    WORKSPACE_REVEAL = "workspace.reveal"
    WORKSPACE_UNLOCK = "workspace.unlock"
    ASSIGNMENT_READ = "assignment.read"
    ASSIGNMENT_ACCEPT = "assignment.accept"
    ASSIGNMENT_CANCEL = "assignment.cancel"
    PEER_MANAGE = "peer.manage"
    PEER_PAIR = "peer.pair"
    TOKEN_MANAGE = "token.manage"  # noqa: S105 - the name of an action, not a secret
    LEND_ROOT_MANAGE = "lend_root.manage"
    RESOURCES_PRUNE = "resources.prune"
    DAEMON_CONTROL = "daemon.control"
    AGENT_MESSAGE = "agent.message"
    AGENT_ASK = "agent.ask"
    AGENT_DISPATCH = "agent.dispatch"
    MODULE_DISPATCH = "module.dispatch"
    TOOL_CALL = "tool.call"
    SESSION_READ = "session.read"
    SESSION_MANAGE = "session.manage"
    CAPABILITY_READ = "capability.read"
    CAPABILITY_RUN = "capability.run"
    ROOM_READ = "room.read"
    ROOM_SEND = "room.send"
    ROOM_MANAGE = "room.manage"
    ROOM_PURGE = "room.purge"
    ROOM_JOIN = "room.join"
    NODE_READ = "node.read"
    NODE_TASK = "node.task"
    GATEWAY_READ = "gateway.read"
    GATEWAY_MANAGE = "gateway.manage"
    POLICY_READ = "policy.read"
    AUDIT_READ = "audit.read"
    APPROVAL_READ = "approval.read"
    APPROVAL_DECIDE = "approval.decide"
    GRANT_READ = "grant.read"
    GRANT_ISSUE = "grant.issue"
    GRANT_REVOKE = "grant.revoke"
    OFFICE_READ = "office.read"
    OFFICE_MANAGE = "office.manage"
    OFFICE_CALL = "office.call"
    OFFICE_LOOK = "office.look"
    WEB_LOGIN = "web.login"


@dataclass(frozen=True, slots=True)
class Subject:
    """Who asks.

    ``kind``: ``human`` is the owner at a terminal (control socket, CLI), ``mcp`` an agent in an MCP host,
    ``peer`` a paired daemon (``name`` is its peer name), ``a2a`` a plain A2A client (``name`` is its token's name),
    ``agent`` an agent that this daemon runs (``name`` is its id), which asks for its tools and for other agents,
    ``node`` a node of federation (``name`` is what it calls itself, bound to its key), whose events are read here and
    whose tasks are done.
    ``office`` the Agent of an office (``name`` is ``OFFICE/NAME``), which asks for what Computers there have.
    ``roots`` are directories that the caller is confined to, as its MCP host announced them. ``role`` is the role of
    an agent, as ``agent.json`` names it.
    """

    kind: Kind
    name: str = ""
    roots: tuple[str, ...] = ()
    role: str = ""
    run: str = ""
    """Which job an agent works on while it asks: what it calls goes on with that job's chain."""


Value = str | int | bool | tuple[str, ...]
"""What an attribute can be; a tuple is several at once, such as the paths that one tool call touches."""


@dataclass(frozen=True, slots=True)
class Resource:
    """What it is done to: a kind-specific name and the attributes that rules look at."""

    name: str
    attributes: Mapping[str, Value] = field(default_factory=dict)


UNMATCHED: Final = "unmatched"
"""The rule of a denial for which no rule stands: nothing allows it."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer, with the layer and rule that gave it, so that ``policy explain`` and audit rows can name them.

    ``needs_grant``: not allowed as it stands, but a grant for exactly this call would allow it; never set together with
    ``allowed``. ``hidden``: whoever asked is told what it would be told of a name that does not exist. ``record``: it
    is written down although it lets nobody change anything.
    """

    allowed: bool
    layer: str
    rule: str
    reason: str
    hint: str = ""
    needs_grant: bool = False
    hidden: bool = False
    record: bool = False

    @property
    def outcome(self) -> Literal["allow", "deny", "needs_grant"]:
        """The answer in one word."""
        return "allow" if self.allowed else "needs_grant" if self.needs_grant else "deny"
