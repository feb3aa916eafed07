"""Asks policy before an operation, and journals what was refused: every service has one of these (DESIGN 2)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar, TypeVarTuple

from sublet.daemon.background import in_background
from sublet.daemon.storage.journal import Journal
from sublet.policy.engine import Policy
from sublet.policy.model import Action, Decision, Resource, Subject
from sublet.policy.rules import Rule
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import EventKind
from sublet.protocol.text import clean_line

LOOK_SECONDS = 10.0
"""How long a question to the disk may take."""
MAX_JOURNALLED_CHARS = 500

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


class Gatekeeper:
    """Stands before the operations of this daemon.

    Args:
        policy: decides.
        journal: is told what was refused.
        lend_roots: directories that a person has allowed to lend, beside a caller's own roots.
    """

    def __init__(self, policy: Policy, journal: Journal, lend_roots: Callable[[], Sequence[str]]) -> None:
        self._policy = policy
        self._journal = journal
        self._lend_roots = lend_roots

    async def ask(self, caller: Subject, action: Action, name: str, **attributes: str | int | bool) -> None:
        """Return if ``caller`` may do ``action`` to ``name``.

        Raises:
            SubletError: ``POLICY_DENIED``; ``UNAVAILABLE`` where the disk does not answer.
        """
        decision = await self.decide(caller, action, Resource(name, attributes))
        if decision.allowed:
            return
        await self._journal.append_event(
            EventKind.POLICY_REJECTED,
            None,
            {
                "subject": who(caller),
                "action": str(action),
                "resource": clean_line(name, MAX_JOURNALLED_CHARS),
                "layer": decision.layer,
                "rule": decision.rule,
                "reason": decision.reason,
            },
        )
        if decision.hidden:
            raise SubletError(LocalCode.NOT_FOUND, f"there is no {clean_line(name, 100)!r} here")
        raise SubletError(LocalCode.POLICY_DENIED, decision.reason, decision.hint)

    async def decide(
        self,
        caller: Subject,
        action: Action,
        resource: Resource,
        request: Sequence[Rule] = (),
        *,
        granted: bool = False,
    ) -> Decision:
        """Return what policy says; the caller acts on it, and tells of a refusal by itself.

        Args:
            caller: who asks, authenticated.
            action: what is asked for.
            resource: what it is done to.
            request: rules of the request layer.
            granted: whether a grant for exactly this call is at hand, as in ``Policy.decide``.

        Raises:
            SubletError: ``UNAVAILABLE`` where the disk does not answer.
        """
        if action is Action.WORKSPACE_LEND:
            caller = Subject(caller.kind, caller.name, (*caller.roots, *self._lend_roots()), caller.role)
            # The only decision that looks at the disk.
            return await looked_up(self._policy.decide, caller, action, resource, request)
        return self._policy.decide(caller, action, resource, request, granted=granted)


def who(caller: Subject) -> str:
    """Return ``caller`` for people."""
    return f"{caller.kind} {caller.name}".strip()


async def looked_up(look: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
    """Return what ``look`` finds out from the disk, in a thread and with a bound: a dead mount answers never.

    Raises:
        SubletError: ``UNAVAILABLE``, or what ``look`` raises.
    """
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            return await in_background(look, *arguments)
    except TimeoutError:
        raise SubletError(
            LocalCode.UNAVAILABLE, "the disk does not answer for this directory", "Is it on a mount that is gone?"
        ) from None
