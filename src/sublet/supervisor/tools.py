"""How a provider asks before a tool acts, and tells what became of it (SuperAgent 6.2).

Providers see nothing but this: policy, authorization tokens, the journal and people stand behind the gate, which the
daemon passes in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError

if TYPE_CHECKING:
    from sublet.policy.path_denies import PathDenies
    from sublet.supervisor.model import Job

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
class ToolCall:
    """One call that an agent wants to make.

    Args:
        tool: its name, as above.
        arguments: exactly those it is called with; a grant is bound to their digest.
        call_id: names the call within its run.
        paths: files and directories it touches, inside the mount, relative to the lease's view with ``/`` between
            parts and the resource's name first; a path outside of it is given as absolute.
        sifted: whether ``ToolGate.reveals`` is asked about all that it finds before any of it is told.
        also: what else the agent calls the tool, such as its program's own name for it; the strictest decision stands.
        perhaps: what it may be besides; only a rule that speaks of such a name makes a decision stricter.
    """

    tool: str
    arguments: Mapping[str, JsonValue]
    call_id: str
    paths: tuple[str, ...] = field(default=())
    sifted: bool = False
    also: tuple[str, ...] = ()
    perhaps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a call may be made, by which layer and rule, and what the agent is told where it may not.

    ``hidden``: the agent is told what it would be told if there were no such thing.
    """

    allowed: bool
    layer: str
    rule: str
    reason: str
    hint: str = ""
    hidden: bool = False


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


class ToolGate(Protocol):
    """Stands before every tool of one run."""

    async def ask(self, call: ToolCall) -> Verdict:
        """Decide on ``call``, and wait for a person where policy wants one; a refusal is an answer, no exception.

        Journals ``tool_call`` before it allows, ``policy_rejected`` where it refuses, ``approval_required`` where a
        person is waited for. Cancelling the call takes the question back.
        """

    def reveals(self, call: ToolCall, path: str) -> bool:
        """Tell whether ``call``, which was allowed, may tell of what it finds at ``path``: it may, where policy allows
        the same call there and, for a search, reading it. Nothing is written down; fit for other threads.
        """

    def conceals(self, call: ToolCall, path: str) -> bool:
        """Tell whether the agent must not know that there is anything at ``path``, where ``reveals`` says no."""

    def path_denies(self) -> PathDenies | None:
        """Return what the agent may not read or write by its path, which its sandbox closes; None for nothing."""

    async def ended(
        self, call: ToolCall, *, error: str | None = None, result: Mapping[str, JsonValue] | None = None
    ) -> None:
        """Journal ``tool_result``, or ``tool_error`` where ``error`` says why it failed; of a call that was allowed."""
