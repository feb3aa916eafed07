"""Names of nodes and addresses of agents, each a type that one parser makes (federation "路由机制")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NewType

from sublet.protocol import ids
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.patterns import Pattern
from sublet.protocol.text import clean_line

NodeName = NewType("NodeName", str)
"""The name of a node, which ``node_name`` has checked: never a path, an option or a part of a key."""

MAX_HOST_CHARS: Final = 40
"""Of the name of a machine, in the name that a node gives itself."""
SUFFIX_CHARS: Final = 8
"""Of the key, in the name that a node gives itself: 40 bits, so that two machines of one name are two nodes."""
DEFAULT_NAMESPACE: Final = "default"

_NODE = Pattern(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*\Z")
_NAMESPACE = Pattern(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?\Z")
_MAX_NODE_CHARS: Final = 128
_HOST = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


def node_name(text: str) -> NodeName:
    """Return the name of a node in the one form in which it is compared.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for anything but labels of letters, digits and dashes between dots.
    """
    folded = text.lower() if text.isascii() else ""
    if len(folded) > _MAX_NODE_CHARS or not _NODE.fullmatch(folded):
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            f"{clean_line(text, 80)!r} is no name of a node",
            "It is such as kitchen.local: letters, digits and dashes between dots.",
        )
    return NodeName(folded)


def namespace(text: str) -> str:
    """Return the name of a namespace.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for anything but letters, digits and dashes.
    """
    if not _NAMESPACE.fullmatch(text):
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            f"{clean_line(text, 80)!r} is no namespace",
            "It is such as team-alpha: letters, digits and dashes.",
        )
    return text


def default_node_name(host: str, public_key: bytes) -> NodeName:
    """Return the name that a node has where nobody chose one: its machine's, and the beginning of its key's hash.

    Args:
        host: what the machine calls itself, whatever that is.
        public_key: raw Ed25519 key.
    """
    label = "".join(one if one in _HOST else "-" for one in host.lower().partition(".")[0])[:MAX_HOST_CHARS].strip("-")
    suffix = ids.node_id(public_key).removeprefix("node-")[:SUFFIX_CHARS]
    return node_name(f"{label or 'node'}-{suffix}")


@dataclass(frozen=True, slots=True)
class AgentAddress:
    """``agent-id@node-id``, checked and folded."""

    agent_id: str
    node: NodeName

    @classmethod
    def parse(cls, text: str) -> AgentAddress:
        """Return the address that a text is.

        Raises:
            SubletError: ``INVALID_ARGUMENT`` where it is not one agent, one ``@`` and one node.
        """
        agent, at, node = text.partition("@")
        folded = agent.lower() if agent.isascii() else ""
        if not at or not ids.AGENT_ID.fullmatch(folded):
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                f"{clean_line(text, 80)!r} is no address of an agent",
                "Write AGENT@NODE; `sublet agents --everywhere` lists them.",
            )
        return cls(folded, node_name(node))

    def __str__(self) -> str:
        return f"{self.agent_id}@{self.node}"


def federation_room(space: str, node: NodeName) -> str:
    """Return the room in which what is for one node is sent: the receiver's (federation "Room 分配策略")."""
    return f"!agent-federation-{space}:{node}"


def broadcast_room(node: NodeName) -> str:
    """Return the room in which a node speaks to all: the sender's."""
    return f"!agent-broadcast:{node}"
