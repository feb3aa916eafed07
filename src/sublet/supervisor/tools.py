"""How a provider asks before a tool acts, and tells what became of it (SuperAgent 6.2).

Providers see nothing but this: policy, authorization tokens, the journal and people stand behind the gate, which the
daemon passes in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.supervisor.job import Job
from sublet.supervisor.tool_gate import ToolCall

FILE_READ: Final = "file.read"
FILE_WRITE: Final = "file.write"
FILE_EDIT: Final = "file.edit"
FILE_LIST: Final = "file.list"
FILE_SEARCH: Final = "file.search"
FILE_MOVE: Final = "file.move"
FILE_DELETE: Final = "file.delete"
SHELL_EXEC: Final = "shell.exec"
NETWORK_FETCH: Final = "network.fetch"
ASK_HUMAN: Final = "sublet.ask_human"
DELEGATE: Final = "sublet.delegate"
DELEGATE_OUTPUT: Final = "sublet.delegate_output"
DELEGATE_CANCEL: Final = "sublet.delegate_cancel"
SEND_MESSAGE: Final = "sublet.send_message"
WATCH: Final = "sublet.watch"
"""Names that mean the same whichever provider asks. Others are ``mcp.SERVER.TOOL``, ``capability.ID`` and, where a
provider's own tool fits none of these, ``PROVIDER.NAME``."""


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """A tool beside a provider's own: its name, what it is for in a few words, and the JSON Schema of its arguments."""

    tool: str
    description: str
    parameters: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What came of a call: words for whoever called, and why it failed, where it did."""

    text: str
    error: str | None = None


class ToolSource(Protocol):
    """Where a provider gets tools besides its own; it asks its gate before each call as for those."""

    def offers(self, agent_id: str) -> Sequence[ToolOffer]:
        """Return those that an agent is told of."""

    async def call(self, call: ToolCall, job: Job, agent_id: str) -> ToolAnswer:
        """Make a call that the gate has allowed ``agent_id``, in the directories of ``job``.

        Raises:
            SubletError: ``INVALID_ARGUMENT`` for arguments that the tool does not take; ``NOT_FOUND``.
        """


class JoinedTools:
    """Several sources as one; each tool is of the first that offers it."""

    def __init__(self, *sources: ToolSource) -> None:
        self._sources = sources

    def offers(self, agent_id: str) -> Sequence[ToolOffer]:
        """``ToolSource.offers``."""
        return [offer for source in self._sources for offer in source.offers(agent_id)]

    async def call(self, call: ToolCall, job: Job, agent_id: str) -> ToolAnswer:
        """``ToolSource.call``."""
        for source in self._sources:
            if any(offer.tool == call.tool for offer in source.offers(agent_id)):
                return await source.call(call, job, agent_id)
        raise SubletError(LocalCode.NOT_FOUND, f"there is no tool {call.tool[:100]!r} any more")
