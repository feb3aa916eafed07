"""What holds without any configuration, and what no configuration can grant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sublet.policy.decision import Action, Kind
from sublet.policy.rules import Condition, Rule

_DELEGATION: Final = frozenset(
    {
        Action.DELEGATION_CREATE,
        Action.DELEGATION_READ,
        Action.DELEGATION_CANCEL,
        Action.DELEGATION_EXTEND,
        Action.DELEGATION_SAY,
        Action.DELEGATION_REVIEW,
        # Writing back is no more than a live lease would have done; the directory is asked for besides.
        Action.DELEGATION_APPLY,
        Action.DELEGATION_DISCARD,
        Action.DELEGATION_UNDO,
    }
)

_ROOMS: Final = frozenset({Action.ROOM_READ, Action.ROOM_SEND, Action.ROOM_MANAGE})

CEILING: Final[Mapping[Kind, frozenset[Action]]] = {
    "human": frozenset(Action),
    # Of Sublet's own tools; what a tool then does is asked for besides.
    "mcp": _DELEGATION
    | _ROOMS
    # What is purged is gone for good, so an agent purges by a rule that says so.
    | {
        Action.TOOL_CALL,
        Action.ROOM_PURGE,
        Action.WORKSPACE_LEND,
        Action.WORKSPACE_REVEAL,
        Action.WORKSPACE_UNLOCK,
    },
    # To bring ours into rooms without a person's yes is for a rule that says so.
    "peer": frozenset({Action.ASSIGNMENT_ACCEPT, Action.AGENT_MESSAGE, Action.ROOM_JOIN}),
    # Of clients with a token, and of what gateways bring; a module by a rule that names it.
    "a2a": frozenset({Action.AGENT_MESSAGE, Action.MODULE_DISPATCH}),
    "node": frozenset({Action.NODE_READ, Action.NODE_TASK, Action.AGENT_MESSAGE}),
    "agent": _DELEGATION
    | {
        Action.TOOL_CALL,
        Action.AGENT_ASK,
        Action.AGENT_DISPATCH,
        Action.MODULE_DISPATCH,
        Action.CAPABILITY_READ,
        Action.CAPABILITY_RUN,
        Action.WORKSPACE_LEND,
        # By a rule that names it, and never for itself (policy.grants).
        Action.GRANT_ISSUE,
    },
    "office": frozenset({Action.OFFICE_CALL, Action.OFFICE_LOOK}),
}
"""Actions that a rule can allow at all, by kind of subject. Whatever is not here is a person's to do."""

DEFAULT_RULES: Final = (
    Rule(
        id="default.human",
        effect="allow",
        layer="global",
        kinds=frozenset({"human"}),
        actions=frozenset(Action),
        reason="the owner of this daemon may do everything but lend forbidden directories",
    ),
    Rule(
        id="default.mcp",
        effect="allow",
        layer="global",
        kinds=frozenset({"mcp"}),
        actions=_DELEGATION | {Action.WORKSPACE_LEND},
        reason="an agent in an MCP host may delegate, watch, steer, cancel, and review and apply what comes back",
    ),
    Rule(
        id="default.mcp.tools",
        effect="allow",
        layer="global",
        kinds=frozenset({"mcp"}),
        actions=frozenset({Action.TOOL_CALL}),
        resource="sublet.*",
        reason="an agent in an MCP host may call Sublet's tools, each of which asks again for what it does",
    ),
    Rule(
        id="default.mcp.rooms",
        effect="allow",
        layer="global",
        kinds=frozenset({"mcp"}),
        actions=_ROOMS,
        reason="an agent in an MCP host may talk in rooms, where its membership says in which",
    ),
    Rule(
        id="default.peer",
        effect="allow",
        layer="global",
        kinds=frozenset({"peer"}),
        actions=frozenset({Action.ASSIGNMENT_ACCEPT, Action.AGENT_MESSAGE}),
        reason="a paired daemon may give this one work, and talk to the agents here",
    ),
    Rule(
        id="default.a2a",
        effect="allow",
        layer="global",
        kinds=frozenset({"a2a"}),
        actions=frozenset({Action.AGENT_MESSAGE}),
        reason="a client with a token may talk to the agents here",
    ),
    Rule(
        id="default.node",
        effect="allow",
        layer="global",
        kinds=frozenset({"node"}),
        actions=frozenset({Action.NODE_READ, Action.AGENT_MESSAGE}),
        reason="a node whose key is pinned may tell of its agents, and talk to those here",
    ),
    Rule(
        id="default.node.task",
        effect="allow",
        layer="global",
        kinds=frozenset({"node"}),
        actions=frozenset({Action.NODE_TASK}),
        when={"system_prompt": Condition(values=(False,))},
        reason="a node whose key is pinned may give agents here tasks, and does not say how they work",
    ),
    Rule(
        id="default.agent.workers",
        effect="allow",
        layer="global",
        kinds=frozenset({"agent"}),
        actions=frozenset({Action.AGENT_DISPATCH}),
        when={"declared": Condition(values=(True,))},
        reason="an agent may call the workers that its own entry in agent.json names",
    ),
    Rule(
        id="default.agent.files",
        effect="allow",
        layer="global",
        kinds=frozenset({"agent"}),
        actions=frozenset({Action.TOOL_CALL}),
        resource="file.*",
        reason="an agent may work on the files of its lease, which the mount and its access mode confine",
    ),
    Rule(
        id="default.agent.shell",
        effect="allow",
        layer="global",
        kinds=frozenset({"agent"}),
        actions=frozenset({Action.TOOL_CALL}),
        resource="shell.exec",
        reason="an agent may run programs, which its sandbox confines",
    ),
    Rule(
        id="default.office.call",
        effect="allow",
        layer="global",
        kinds=frozenset({"office"}),
        actions=frozenset({Action.OFFICE_CALL}),
        reason="the Agent of an office may call the tools of the Computers that share it",
    ),
    *(
        Rule(
            id=f"default.office.{read}",
            effect="allow",
            layer="global",
            kinds=frozenset({"office"}),
            actions=frozenset({Action.OFFICE_LOOK}),
            resource=read,
            reason=f"the Agent of an office may read the {read} of its Computers, and that is written down",
            record=True,
        )
        for read in ("config", "desktop")
    ),
    Rule(
        id="default.office.look",
        effect="allow",
        layer="global",
        kinds=frozenset({"office"}),
        actions=frozenset({Action.OFFICE_LOOK}),
        reason="the Agent of an office may see what its Computers offer",
    ),
)
