"""Who called whom on the way to a call, so that no loop and no endless nesting ever starts work (SuperAgent 5.3).

Addresses are ``agent@node``, where the node is the name that its key gives it (``ids.node_id``), never the name that
somebody calls it by: neither an alias nor another spelling hides who has been there before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.patterns import Pattern
from sublet.protocol.text import clean_line

DEFAULT_MAX_DEPTH: Final = 4
"""How deep calls may be nested where nothing else is configured."""
HIGHEST_MAX_DEPTH: Final = 32
"""The most that can be configured."""
MAX_CHAIN: Final = 64
"""Callers that a chain from elsewhere may name; a longer one is refused unread."""
MAX_ADDRESS_CHARS: Final = 200

_ADDRESS = Pattern(r"[a-z0-9][a-z0-9._-]{0,62}@[a-z0-9][a-z0-9.-]{0,127}")


@dataclass(frozen=True, slots=True)
class Chain:
    """The calls that led here.

    Args:
        execution_chain: addresses ``agent@node`` of those who called, the first caller first; empty for a person.
        lease_id: names the lease of this call; whatever it started ends with it.
        ttl: seconds from now until the lease ends, at the time of sending; never more than the caller's own rest.
    """

    execution_chain: tuple[str, ...] = ()
    lease_id: str = ""
    ttl: float | None = None

    @property
    def nesting_depth(self) -> int:
        """How many calls deep this is."""
        return len(self.execution_chain)

    def called_by(self, address: str, *, lease_id: str, ttl: float | None) -> Chain:
        """Return the chain of a call that ``address``, which was called by this one, makes.

        Args:
            address: the caller's ``agent@node``.
            lease_id: of the new call.
            ttl: seconds that it may take; capped by what is left here.

        Raises:
            SubletError: ``INVALID_ARGUMENT`` for what is no address.
        """
        rest = [seconds for seconds in (self.ttl, ttl) if seconds is not None]
        return Chain((*self.execution_chain, canonical_address(address)), lease_id, min(rest) if rest else None)

    def shown(self, target: str = "") -> str:
        """Return the chain for people, with ``target`` at its end."""
        return " → ".join((*self.execution_chain, *((target,) if target else ()))) or "nobody"


def address(agent_id: str, node_id: str) -> str:
    """Return the canonical address of an agent of a node.

    Raises:
        SubletError: ``INVALID_ARGUMENT``.
    """
    return canonical_address(f"{agent_id}@{node_id}")


def canonical_address(text: str) -> str:
    """Return an address in the one form in which it is compared.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for anything but letters, digits, dots and dashes around one ``@``.
    """
    folded = text.lower() if text.isascii() else ""
    if len(text) > MAX_ADDRESS_CHARS or not _ADDRESS.fullmatch(folded):
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, f"{clean_line(text, 80)!r} is no address of an agent", "Write agent@node."
        )
    return folded


def check_call(chain: Chain, target: str | None, *, max_depth: int = DEFAULT_MAX_DEPTH) -> None:
    """Refuse a call that would loop, nest too deep or come after its lease; to be asked before anything is done.

    Args:
        chain: of the call, its last caller last.
        target: address of who is called; None where only the other side will know.
        max_depth: the most callers that a call may have behind it.

    Raises:
        SubletError: ``LOOP_REFUSED``, ``DEPTH_REFUSED`` or ``LEASE_OVER``, each with the chain in its message;
            ``INVALID_ARGUMENT`` for what is no address.
    """
    wanted = "?" if target is None else canonical_address(target)
    callers = [canonical_address(caller) for caller in chain.execution_chain]
    if wanted in callers:
        raise SubletError(
            LocalCode.LOOP_REFUSED,
            f"{wanted} is called by its own call: {chain.shown(wanted)}",
            "Do the work yourself, or ask an agent that is not in this chain.",
        )
    if len(set(callers)) != len(callers):
        raise SubletError(
            LocalCode.LOOP_REFUSED,
            f"the chain of callers goes in a loop already: {chain.shown(wanted)}",
            "Start again from a person's request.",
        )
    if len(callers) > max_depth:
        raise SubletError(
            LocalCode.DEPTH_REFUSED,
            f"calls are nested {len(callers)} deep, and {max_depth} is the most here: {chain.shown(wanted)}",
            "Answer with what is there, or raise supervisor.max_depth in config.json.",
        )
    if chain.ttl is not None and chain.ttl <= 0:
        raise SubletError(
            LocalCode.LEASE_OVER,
            f"the lease of this call is over: {chain.shown(wanted)}",
            "Ask again with more time.",
        )
