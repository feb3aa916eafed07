"""What an agent program calls our tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sublet.policy.capabilities.module_file import TOOL_PREFIX
from sublet.protocol.patterns import Pattern
from sublet.supervisor.tools import ToolOffer

SERVER: Final = "sublet"
"""What agents know the server by."""
NAMESPACE: Final = "capability_"
"""Before the id of a capability, where ``agent.json`` names no other."""
_UNSAFE: Final = Pattern(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class NamedOffer:
    """A tool and the name that the agent sees."""

    name: str
    offer: ToolOffer


def wire_name(tool: str, namespace: str | None) -> str:
    """Return the name of ``tool`` where only letters, digits, ``_`` and ``-`` are allowed.

    Args:
        tool: ``capability.ID``, or any other that we offer, as ``sublet.NAME``.
        namespace: what stands before the id of a capability (``commandNamespace``); None for the usual.
    """
    if tool.startswith(TOOL_PREFIX):
        return (namespace or NAMESPACE) + _UNSAFE.sub("_", tool.removeprefix(TOOL_PREFIX))
    return _UNSAFE.sub("_", tool.removeprefix(f"{SERVER}."))


def named(offers: Sequence[ToolOffer], namespace: str | None) -> dict[str, NamedOffer]:
    """Return the offers by their names; of two with the same name, the first one."""
    found: dict[str, NamedOffer] = {}
    for offer in offers:
        name = wire_name(offer.tool, namespace)
        found.setdefault(name, NamedOffer(name, offer))
    return found


def permission_name(name: str) -> str:
    """Return what a request for permission to call our tool ``name`` is for, as ``acp.tool_calls`` tells it."""
    return f"mcp.{SERVER}.{name.lower()}"
