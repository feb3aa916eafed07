"""What the holder of a lease may do less than its access mode says (AWCP 9, "finer leases").

A term is stated here once. The control API, MCP hosts and the command line ask for it under this name
(``LeaseOptions``), INVITE tells it to the executor, ``lease.json`` to the agent, and every face shows it. There are two
kinds, by who enforces it: ``ViewTerms`` the delegator, ``AgentTerms`` the executor.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from sublet.protocol.bounds import MAX_PATTERNS

NamePattern = Annotated[str, StringConstraints(min_length=1, max_length=1024)]

ToolName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
MAX_TOOL_NAMES = 32


class ViewTerms(BaseModel):
    """What narrows the files of a lease: the delegator's own server enforces it, whatever the executor knows of it."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    keep_all: bool = Field(default=False, description="live: refuse a write that undo could not take back")
    no_delete: bool = Field(default=False, description="It may delete, rename or replace only what it made")
    writable: Annotated[list[NamePattern], Field(max_length=MAX_PATTERNS)] = Field(
        default_factory=list, description="Only these paths may be changed or made: src, docs/*.md, **/tmp"
    )


class AgentTerms(BaseModel):
    """What narrows the tools of the agent: the executor's gate alone can enforce it, and an older one ignores it."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    deny: Annotated[list[ToolName], Field(max_length=MAX_TOOL_NAMES)] = Field(
        default_factory=list, description="Tools that the peer's agent may not call: shell.exec, network"
    )
    only: Annotated[list[ToolName], Field(max_length=MAX_TOOL_NAMES)] = Field(
        default_factory=list, description="The only tools that it may call: file.*"
    )


class LeaseTerms(AgentTerms, ViewTerms):
    """The terms of one lease, those of its files first. By default there are none beside its access mode."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    @classmethod
    def of(cls, source: LeaseTerms) -> Self:
        """Return the terms alone of something that has them among other things, such as a request."""
        return cls(**{name: getattr(source, name) for name in cls.model_fields})

    def term_lines(self) -> list[str]:
        """Return a clause for each term that holds, for people and models of both sides."""
        lines = []
        if self.keep_all:
            lines.append("what can't be kept for undo may not be overwritten")
        if self.no_delete:
            lines.append("nothing may be deleted, renamed or replaced but what the lease has made itself")
        if self.writable:
            lines.append(f"only this may be changed or made, all else is read-only: {', '.join(self.writable)}")
        if self.deny:
            lines.append(f"the agent may not call these tools: {', '.join(self.deny)}")
        if self.only:
            lines.append(f"the agent may call these tools alone: {', '.join(self.only)}")
        return lines
