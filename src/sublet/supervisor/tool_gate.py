"""What stands before every tool of one run, and what it is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sublet.policy.path_denies import PathDenies
from sublet.protocol.canonical import JsonValue


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that an agent wants to make.

    Args:
        tool: its name, as in ``tools``.
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
