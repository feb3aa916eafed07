"""What faces are offered around calls for which a person may be wanted: of a tool by an MCP host, of a capability."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from sublet.policy.decision import Action, Resource, Subject
from sublet.protocol.canonical import JsonValue


@dataclass(frozen=True, slots=True)
class AskedCall:
    """One call, as policy and people see it.

    Args:
        caller: who calls.
        action: what policy is asked for.
        resource: what policy is asked about.
        tool: its name, to which a grant is bound.
        arguments: all of them, to whose digest a grant is bound.
        scope: within which alone an approval counts, such as one connection; empty for anywhere.
    """

    caller: Subject
    action: Action
    resource: Resource
    tool: str
    arguments: Mapping[str, JsonValue]
    scope: str = ""


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A call that waits for a person.

    Args:
        id: of the approval.
        agent: who calls, as grants name it.
        tool: canonical name of the tool.
        digest: SHA-256 of the arguments.
        arguments: canonical JSON in ASCII.
        reason: why a person is wanted.
        rule: which rule wants it, and of which layer.
        seconds: for how long it can be decided.
    """

    id: str
    agent: str
    tool: str
    digest: str
    arguments: str
    reason: str
    rule: str
    seconds: int


Became = Literal["pending", "approved", "denied", "expired", "withdrawn"]


@dataclass(frozen=True, slots=True)
class Begun:
    """A call that is allowed: its use of a grant, the journal's event of it and its entry in the audit log, if any."""

    use: int | None = None
    event: int | None = None
    entry: int | None = None


class CallApi(Protocol):
    """Policy, grants and people before a call. Failures are ``SubletError``."""

    async def question(self, call: AskedCall) -> OpenQuestion | None:
        """Return what waits for a person, asked now if nobody has; None where nobody has to be asked (any more)."""

    async def decided(self, question_id: str, seconds: float) -> Became:
        """Return what the question became, once it is decided or over, or ``pending`` after ``seconds``.

        Raises:
            SubletError: ``NOT_FOUND``.
        """

    async def withdraw(self, question_id: str, *, denied_by: str | None = None) -> None:
        """Close a question that is open: it is taken back, or somebody said no."""

    async def begin(self, call: AskedCall, unknown: str) -> Begun:
        """Return where the call is allowed, with a use of its grant spent.

        Args:
            call: what is called.
            unknown: what is said where a rule hides that there is such a thing.

        Raises:
            SubletError: ``POLICY_DENIED``, ``NOT_FOUND`` where it is hidden; ``APPROVAL_REQUIRED``, whose hint says how
                a person approves; ``APPROVER_MISSING``.
        """

    def hides(self, caller: Subject, tool: str) -> bool:
        """Tell whether ``caller`` must not see that there is such a tool. Nothing is written down."""

    async def ended(self, begun: Begun, error: str | None) -> None:
        """Write down what became of a call."""
