"""What a delegator demands of the executor's sandbox, and whether ACCEPT meets it, by value (AWCP 7.2).

A demand is a name, or ``NAME=true`` or ``NAME=false`` for an item of ``sandbox_profile``. The name alone demands the
restriction: ``cwd_only`` is ``cwd_only=true``, ``allow_network`` is ``allow_network=false``, ``allow_exec`` is
``allow_exec=false``; of a limit, such as ``memory``, that there is one. A restriction counts only where the executor
says that it enforces it, and declares no other value. Who declares no profile at all is taken by what it enforces.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from sublet.protocol.bounds import DEMAND
from sublet.protocol.messages import SandboxProfile
from sublet.protocol.patterns import Pattern

RESTRICTED: Final = {"cwd_only": True, "allow_network": False, "allow_exec": False}
"""The value of each item of ``sandbox_profile`` that holds an agent back."""
_DEMAND: Final = Pattern(DEMAND)


def parse_demand(text: str) -> tuple[str, bool | None]:
    """Return name and wanted value; None for the value of what has none, as a limit.

    Raises:
        ValueError: it is no demand.
    """
    if not _DEMAND.fullmatch(text):
        raise ValueError(f"{text!r} is no demand on a sandbox")
    name, _, value = text.partition("=")
    return name, RESTRICTED.get(name) if not value else value == "true"


def names_to_enforce(demands: Iterable[str]) -> list[str]:
    """Return the names that INVITE requires to be enforced: those of restrictions and limits."""
    found = (parse_demand(demand) for demand in demands)
    return list(dict.fromkeys(name for name, value in found if value == RESTRICTED.get(name)))


def unmet(demands: Iterable[str], profile: SandboxProfile | None, enforced: Collection[str]) -> list[str]:
    """Return the demands that an answer does not meet, in order.

    Args:
        demands: of the delegator.
        profile: what the executor declares; None where it declares nothing.
        enforced: the names that it says it enforces.
    """
    return sorted({demand for demand in demands if not _is_met(demand, profile, enforced)})


def _is_met(demand: str, profile: SandboxProfile | None, enforced: Collection[str]) -> bool:
    name, value = parse_demand(demand)
    if value is None:
        return name in enforced
    restricts = value is RESTRICTED[name]
    if profile is None:
        return restricts and name in enforced
    return getattr(profile, name) is value and (not restricts or name in enforced)
