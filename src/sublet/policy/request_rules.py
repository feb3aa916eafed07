"""The request layer: what a caller narrows for one call, whatever the layers below allow (SuperAgent 6.1.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from sublet.policy.decision import Action, Kind
from sublet.policy.rules import KINDS, Effect, Rule
from sublet.policy.tool_names import FAMILIES, tool_defect
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.text import clean_line

NARROW_KEY: Final = "sublet.narrow"
"""Where the metadata of an A2A message narrows its request: an object with ``deny`` and ``only``."""
MAX_NAMES: Final = 32
MAX_NAME_CHARS: Final = 200
_ALL_KINDS: Final[frozenset[Kind]] = frozenset(KINDS)


@dataclass(frozen=True)
class Narrowing:
    """What one request leaves of what its agent may call.

    Args:
        deny: tools that are denied, by names or globs.
        only: the only tools that are left; none says nothing.
    """

    deny: tuple[str, ...] = ()
    only: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.deny or self.only)

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The rules of the request layer."""
        denies = [_rule("deny", name, "deny") for given in self.deny for name in _family(given)]
        allows = [_rule("only", name, "allow") for given in self.only for name in _family(given)]
        return (*denies, *allows)

    def data(self) -> dict[str, JsonValue]:
        """Return it as it is recorded."""
        return {"deny": [*self.deny], "only": [*self.only]}


NOT_NARROWED: Final = Narrowing()


def narrowing(deny: Sequence[str], only: Sequence[str]) -> Narrowing:
    """Return what a request says.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for a name that no tool can have, and for too many.
    """
    for name in (*deny, *only):
        family = name.casefold() in FAMILIES
        if why := "it is too long" if len(name) > MAX_NAME_CHARS else "" if family else tool_defect(name):
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                f"{clean_line(name, 80)!r} narrows nothing: {why}",
                "Write names such as file.write, file.* or network.",
            )
    if max(len(deny), len(only)) > MAX_NAMES:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, f"a request names at most {MAX_NAMES} tools", "Write globs, such as file.*."
        )
    return Narrowing(tuple(deny), tuple(only))


def told_narrowing(value: object) -> Narrowing:
    """Return what somebody else's JSON says under ``NARROW_KEY``.

    Raises:
        SubletError: ``INVALID_ARGUMENT``.
    """
    told = value if isinstance(value, Mapping) else {"deny": value}
    deny, only = _names(told.get("deny", [])), _names(told.get("only", []))
    if deny is None or only is None or told.keys() - {"deny", "only"}:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, f"{NARROW_KEY} is an object with lists deny and only", "Write names of tools."
        )
    return narrowing(deny, only)


def _names(value: object) -> list[str] | None:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        return None
    return [str(name) for name in value]


def _family(name: str) -> tuple[str, ...]:
    return (name, f"{name}.*") if name.casefold() in FAMILIES else (name,)


def _rule(place: str, name: str, effect: Effect) -> Rule:
    return Rule(
        id=f"request.{place}.{name}",
        effect=effect,
        layer="request",
        kinds=_ALL_KINDS,
        actions=frozenset({Action.TOOL_CALL}),
        resource=name,
        reason=f"the request says so: {place} {name}" if effect == "deny" else "",
    )
