"""Finds agents of all nodes by what a caller types: an address, a bare id, or what they can do."""

from __future__ import annotations

from collections.abc import Callable

from sublet.daemon.api.federation import CAPABILITY, FoundAgent
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.federation.neighbours import Neighbour
from sublet.federation.node import Federation
from sublet.federation.table import AgentEntry
from sublet.policy.decision import Action, Resource, Subject
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.federation.addresses import AgentAddress
from sublet.protocol.text import clean_line


class Finding:
    """Finds those that a caller may use.

    Args:
        gate: asks policy.
        federation: knows the nodes.
    """

    def __init__(self, gate: Gatekeeper, federation: Federation) -> None:
        self._gate = gate
        self._federation = federation

    def found(self, to: str, caller: Subject, *, lent: bool = False) -> tuple[AgentAddress, str | None, str]:
        """Return whom an address or a capability means, what its node is called here, and why it is this one.

        Args:
            to: as it was typed.
            caller: who asks.
            lent: whether it is to be lent a directory, which only paired daemons are.

        Raises:
            SubletError: ``INVALID_ARGUMENT``, ``NOT_FOUND`` or ``CONFLICT``.
        """
        if to.startswith(CAPABILITY):
            capability = to.removeprefix(CAPABILITY).lower()
            choice = self._federation.best(capability, self._usable_by(caller, lent))
            if choice is None:
                raise _none_can(capability)
            return choice.address, choice.alias, choice.why
        address = self._federation.target(to, lambda one: not self._hidden(one, caller))
        if address.node == self._federation.own.name:
            return address, None, "it is one of this node"
        neighbour = self._federation.neighbours.by_name(address.node)
        alias = neighbour.node.alias if neighbour is not None else None
        if neighbour is None or self._gate.hides(caller, Action.DELEGATION_CREATE, neighbour.node.alias):
            return address, None, "no node is known by that name"
        if lent and not neighbour.node.paired:
            raise SubletError(
                LocalCode.NOT_FOUND,
                f"{alias} is no paired daemon, and a directory is lent to paired daemons alone",
                f"Pair with it, or ask its agent without a directory: sublet ask '@{address} ...'",
            )
        return address, alias, f"{alias} is what its node is called here"

    def _usable_by(self, caller: Subject, lent: bool) -> Callable[[AgentEntry, Neighbour], bool]:
        def usable(entry: AgentEntry, neighbour: Neighbour) -> bool:
            if lent and not neighbour.node.paired:
                return False
            resource = Resource(neighbour.node.alias, {"agent": entry.address.agent_id})
            return self._gate.foresee(caller, Action.DELEGATION_CREATE, resource).decision.allowed

        return usable

    def several(self, to: str, wanted: int, caller: Subject) -> list[FoundAgent]:
        """Return the members of a panel: the best with a capability, or those that are named, separated by commas.

        Args:
            to: ``capability:NAME``, or names as ``find`` takes them.
            wanted: how many there have to be.
            caller: who asks.

        Raises:
            SubletError: ``INVALID_ARGUMENT``, ``NOT_FOUND`` or ``CONFLICT``.
        """
        if to.startswith(CAPABILITY):
            capability = to.removeprefix(CAPABILITY).lower()
            choices = self._federation.several(capability, self._usable_by(caller, lent=True), wanted)
            if not choices:
                raise _none_can(capability)
            found = [
                FoundAgent(address=str(one.address), peer=one.alias, agent_id=one.address.agent_id, why=one.why)
                for one in choices
            ]
        else:
            named = [self.found(one.strip(), caller, lent=True) for one in to.split(",")]
            found = [
                FoundAgent(address=str(address), peer=alias, agent_id=address.agent_id, why=why)
                for address, alias, why in named
            ]
        if len(found) != wanted:
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                f"a panel of {wanted} was asked for, and {clean_line(to, 200)} means {len(found)}",
                "Name as many, or ask for a smaller panel: sublet agents --everywhere",
            )
        return found

    def _hidden(self, address: AgentAddress, caller: Subject) -> bool:
        """Tell whether a caller must not know of an agent, as the list of all agents leaves it out."""
        if address.node == self._federation.own.name:
            return self._gate.hides(caller, Action.AGENT_DISPATCH, address.agent_id)
        neighbour = self._federation.neighbours.by_name(address.node)
        return neighbour is not None and self._gate.hides(caller, Action.DELEGATION_CREATE, neighbour.node.alias)


def _none_can(capability: str) -> SubletError:
    return SubletError(
        LocalCode.NOT_FOUND,
        f"no agent of another node that you may use has the capability {clean_line(capability, 80)!r}",
        "`sublet agents --everywhere` lists what each can do.",
    )
