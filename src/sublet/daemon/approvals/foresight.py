"""What policy says of the calls of one run, asked ahead: nothing is written down, nothing waits, nothing is used up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

from sublet.daemon.approvals.run_facts import RunFacts
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.policy.decision import UNMATCHED, Action, Decision, Resource, Value
from sublet.policy.path_denies import PathDenies
from sublet.policy.paths import lent_paths
from sublet.policy.tool_calls import tool_resource
from sublet.protocol.canonical import JsonValue
from sublet.supervisor.tool_gate import ToolCall
from sublet.supervisor.tools import FILE_READ, FILE_SEARCH

UNHEARD_OF: Final = "acp.unheard-of"
"""A tool of which no rule speaks by name: what decides on it decides on any."""


class Foresight:
    """Looks up what policy would say of a run's calls; ``RunGate`` decides by it and writes down.

    Args:
        gate: asks policy.
        facts: whose run it is, and where it acts.
    """

    def __init__(self, gate: Gatekeeper, facts: RunFacts) -> None:
        self._gate = gate
        self._facts = facts

    def strictest(self, call: ToolCall) -> ToolCall:
        """Return ``call`` by that one of its names on which the strictest decision is; the others are in ``also``."""
        if not call.also and not call.perhaps:
            return call
        names = [call.tool, *call.also]
        by_name = {name: self.foreseen(call, name) for name in names}
        for name in call.also:
            # A name that no rule knows is none to decide by, unless a list says which tools there are.
            if by_name[name].rule == UNMATCHED and by_name[name].layer == "global":
                names.remove(name)
        anything = self.foreseen(call, UNHEARD_OF)
        for name in call.perhaps:
            found = self.foreseen(call, name)
            if not found.allowed and found.rule not in (UNMATCHED, anything.rule):
                by_name[name] = found
                names.append(name)
        first = max(names, key=lambda name: _strictness(by_name[name]))  # of equals the first
        others = tuple(name for name in names if name != first)
        return replace(call, tool=first, also=others, perhaps=())

    def foreseen(self, call: ToolCall, name: str, *, granted: bool = False) -> Decision:
        """Return what policy says of ``call`` under the name ``name``."""
        resource = self.resource(replace(call, tool=name))
        return self._gate.foresee(
            self._facts.subject, Action.TOOL_CALL, resource, self._facts.narrowing, granted=granted
        ).decision

    def reveals(self, call: ToolCall, path: str) -> bool:
        """``ToolGate.reveals``."""

        same = self._at(call, path)
        # What a person has to approve, she has approved for the call as a whole.
        if not same.allowed and not same.needs_grant:
            return False
        return call.tool != FILE_SEARCH or self._at(call, path, FILE_READ).allowed

    def conceals(self, call: ToolCall, path: str) -> bool:
        """``ToolGate.conceals``."""
        return self._at(call, path).hidden or self._at(call, path, FILE_READ).hidden

    def path_denies(self) -> PathDenies:
        """``ToolGate.path_denies``."""
        known: dict[str, Value] = {"access_mode": self._mode(())}
        if self._facts.delegation_id is not None:
            known["delegation_id"] = self._facts.delegation_id
        if self._facts.peer is not None:
            known["peer"] = self._facts.peer
        return self._gate.path_denies(self._facts.subject, known)

    def _at(self, call: ToolCall, path: str, tool: str | None = None) -> Decision:
        """Return what policy says of ``call``, or of another tool, at ``path``."""
        arguments: Mapping[str, JsonValue] = call.arguments if tool is None else {"path": path}
        there = ToolCall(tool or call.tool, arguments, call.call_id, (path,), call.sifted)
        return self._gate.foresee(
            self._facts.subject, Action.TOOL_CALL, self.resource(there), self._facts.narrowing
        ).decision

    def resource(self, call: ToolCall) -> Resource:
        """Return the call as rules see it."""
        return tool_resource(
            call.tool,
            call.arguments,
            self.lent(call.paths),
            access_mode=self._mode(call.paths),
            delegation_id=self._facts.delegation_id,
            peer=self._facts.peer,
            sifted=call.sifted,
        )

    def lent(self, paths: Sequence[str]) -> tuple[str, ...]:
        """Return paths of the view as rules, and grants that a person words, see them."""
        return lent_paths(paths, [one.name for one in self._facts.resources])

    def _mode(self, paths: Sequence[str]) -> Literal["ro", "rw"]:
        """Return the narrowest access to whatever the call touches; of the whole lease where it names nothing."""
        modes = {one.name: one.access_mode for one in self._facts.resources}
        touched = {name for path in paths if (name := path.partition("/")[0]) in modes}
        if touched:
            return "ro" if any(modes[name] == "ro" for name in touched) else "rw"
        return "rw" if "rw" in modes.values() else "ro"


def _strictness(decision: Decision) -> int:
    """Return how strict a decision is: what a rule denies is more than what none allows."""
    if decision.allowed or decision.needs_grant:
        return 0 if decision.allowed else 1
    return 2 if decision.rule == UNMATCHED else 3
