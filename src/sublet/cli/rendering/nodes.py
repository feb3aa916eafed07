"""How nodes and their agents look in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from sublet.cli.rendering.columns import Columns
from sublet.cli.rendering.delegations import local_time
from sublet.cli.rendering.words import whole_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sublet.daemon.api.federation import FederatedAgentView, NodeView

_STYLES = {"here": "green", "reached": "green", "silent": "yellow", "refused": "red", "off": "dim"}
_STATUS_STYLES = {"idle": "green", "busy": "yellow", "error": "red"}


def node_table(found: Sequence[NodeView]) -> RenderableType:
    """Return for each node its name, what it is called here, how it stands with it, and its agents."""
    rows = [
        [
            Text(whole_line(one.node_id or "?")),
            Text(whole_line(one.peer or "-")),
            Text(one.state if one.trusted else f"{one.state}, no tasks", style=_STYLES[one.state]),
            Text(f"{one.agents} ({one.busy} busy)" if one.busy else str(one.agents)),
            Text(local_time(one.last_seen) if one.last_seen else "-"),
        ]
        for one in found
    ]
    return Columns(("node", "peer", "state", "agents", "heard"), rows)


def everywhere_table(found: Sequence[FederatedAgentView]) -> RenderableType:
    """Return for each agent its address, what it is at, and what it can do."""
    rows = [
        [
            Text(whole_line(one.address)),
            Text(whole_line(one.status), style=_STATUS_STYLES.get(one.status, "")),
            Text(whole_line(one.runtime_type)),
            Text(whole_line(", ".join(one.capabilities)) or "-"),
            Text(local_time(one.last_seen)),
        ]
        for one in found
    ]
    return Columns(("address", "status", "runtime", "can", "heard"), rows)
