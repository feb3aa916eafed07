"""What ``agent.json`` says of an agent's tools (SuperAgent 7.3); ``policy.agent_rules`` makes rules of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from sublet.supervisor.config_parts import ConfigPart, Id

GOVERNING: Final = frozenset({"acp", "iflow", "model"})
"""Types of providers that ask before each tool, so that lists of tools can be enforced."""

Tool = Annotated[str, StringConstraints(min_length=1, max_length=200, strip_whitespace=True)]
Tools = Annotated[tuple[Tool, ...], Field(max_length=500)]


class ToolsConfig(ConfigPart):
    """Rules for single tools (SuperAgent 7.3), by name or glob; for a provider that asks before each tool."""

    whitelist: Tools = Field(default=(), description="The tools it may call, and no others; empty: what policy says")
    blacklist: Tools = Field(default=(), description="Tools it may never call, whatever allows them")
    authorization_required: Tools = Field(
        default=(), alias="authorizationRequired", description="Tools that want a grant for each call"
    )

    def lists(self) -> list[str]:
        """Return which lists have entries."""
        named = {
            "tools.whitelist": self.whitelist,
            "tools.blacklist": self.blacklist,
            "tools.authorizationRequired": self.authorization_required,
        }
        return [name for name, entries in named.items() if entries]


class ProviderGovernance(ConfigPart):
    """Rules for the provider's own tools, and which capabilities it is told of (SuperAgent 7.3)."""

    allowed_tools: Tools = Field(default=(), alias="allowedTools", description="Beside tools.whitelist")
    disallowed_tools: Tools = Field(default=(), alias="disallowedTools", description="Beside tools.blacklist")
    approval_mode: Literal["default", "autoEdit", "plan"] | None = Field(
        default=None,
        alias="approvalMode",
        description="default: as policy says. autoEdit: everything but files wants approval. plan: nothing is changed",
    )
    inject_capabilities: bool = Field(
        default=False, alias="injectCapabilities", description="Whether it is told of the capabilities that it may use"
    )
    capability_ids: Annotated[tuple[Id, ...], Field(max_length=500)] = Field(default=(), alias="capabilityIds")
    command_namespace: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,31}$")] | None = Field(
        default=None,
        alias="commandNamespace",
        description="What stands before the id of a capability in the name of the tool that it sees: 'capability_'",
    )


GovernanceConfig = Annotated[dict[Id, ProviderGovernance], Field(max_length=4)]
"""By the type of the agent's provider, or the name of its preset."""


def check_tools(kind: str, tools: ToolsConfig) -> None:
    """Refuse lists that a provider of type ``kind`` can't enforce.

    Raises:
        ValueError: naming the list and the provider.
    """
    if kind not in GOVERNING and (lists := tools.lists()):
        raise ValueError(_unenforceable(kind, lists[0]))


def check_governance(kind: str, names: frozenset[str], governance: GovernanceConfig) -> None:
    """Refuse rules about another provider than the agent's, and such as its own can't enforce.

    Args:
        kind: type of the provider.
        names: its type and the name of its preset, where it has one.
        governance: ``governance`` of the entry.

    Raises:
        ValueError: naming the provider.
    """
    if stray := sorted(set(governance) - names):
        raise ValueError(f"{stray[0]!r} is a provider that this agent does not have; its own is '{kind}'")
    if governance and kind not in GOVERNING:
        raise ValueError(_unenforceable(kind, f"governance.{next(iter(governance))}"))
    for name, rules in governance.items():
        if (rules.capability_ids or rules.command_namespace is not None) and not rules.inject_capabilities:
            raise ValueError(f"governance.{name}: without injectCapabilities no capability is told of, by any name")


def command_namespace(governance: Mapping[str, ProviderGovernance]) -> str | None:
    """Return what stands before the names of capabilities that an agent is told of; None for the usual."""
    return next((one.command_namespace for one in governance.values() if one.command_namespace is not None), None)


def _unenforceable(kind: str, what: str) -> str:
    return (
        f"a provider of type '{kind}' can't enforce {what}: it does not ask before each tool; "
        "leave it out, and confine by 'sandbox'"
    )
