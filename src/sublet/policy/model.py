"""What a decision is made of: who wants to do what to which thing, and the answer with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

Kind = Literal["human", "mcp", "peer", "a2a"]


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
    PEER_MANAGE = "peer.manage"
    PEER_PAIR = "peer.pair"
    TOKEN_MANAGE = "token.manage"  # noqa: S105 - the name of an action, not a secret
    LEND_ROOT_MANAGE = "lend_root.manage"
    RESOURCES_PRUNE = "resources.prune"
    DAEMON_CONTROL = "daemon.control"
    AGENT_MESSAGE = "agent.message"


@dataclass(frozen=True, slots=True)
class Subject:
    """Who asks.

    ``kind``: ``human`` is the owner at a terminal (control socket, CLI), ``mcp`` an agent in an MCP host,
    ``peer`` a paired daemon (``name`` is its peer name), ``a2a`` a plain A2A client (``name`` is its token's name).
    ``roots`` are directories that the caller is confined to, as its MCP host announced them.
    """

    kind: Kind
    name: str = ""
    roots: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Resource:
    """What it is done to: a kind-specific name and the attributes that rules look at."""

    name: str
    attributes: dict[str, str | int | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer, with the layer and rule that gave it, so that ``policy explain`` and audit rows can name them."""

    allowed: bool
    layer: str
    rule: str
    reason: str
    hint: str = ""
