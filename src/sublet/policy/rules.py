"""One rule: whom it speaks of, what it allows or denies, and under which conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from glob import escape as glob_escape
from typing import ClassVar, Final, Literal, get_args

from sublet.policy.attributes import ARGUMENT_PREFIX, SIFTED
from sublet.policy.commands import COMMAND_LINES, command_matcher, command_of, words
from sublet.policy.decision import Action, Kind, Resource
from sublet.policy.globs import components, matcher, may_match_below, path_matcher, within
from sublet.policy.names import plain, skeleton
from sublet.policy.times import READ_STRICTLY, Times
from sublet.policy.tool_names import TREE_TOOLS, tool_plain

Effect = Literal["allow", "approval", "deny"]
"""``approval`` allows what a grant for exactly this call allows, and nothing without one."""
Layer = Literal["global", "role", "agent", "request"]
Scalar = str | int | bool

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
PATH_ATTRIBUTES: Final = frozenset({"path"})


@dataclass(frozen=True, slots=True)
class Condition:
    """What an attribute must be, where given: one of ``values``, like ``glob``, within one of the paths ``scopes``,
    from ``minimum`` to ``maximum``.

    What allows wants an exact value (``exact``); for what denies or wants approval a lookalike is enough, and so is a
    path of which can't be told where it leads.
    """

    __pydantic_config__: ClassVar = READ_STRICTLY

    values: tuple[Scalar, ...] | None = None
    glob: str | None = None
    minimum: int | None = None
    maximum: int | None = None
    scopes: tuple[str, ...] | None = None

    def holds(self, name: str, value: Scalar, *, exact: bool) -> bool:
        """Tell whether ``value`` of the attribute ``name`` satisfies every part that is given."""
        if self.values is not None and not any(_same(name, value, wanted, exact=exact) for wanted in self.values):
            return False
        if self.glob is not None and not (isinstance(value, str) and _like(name, value, self.glob, exact=exact)):
            return False
        if self.scopes is not None and not (isinstance(value, str) and _inside(value, self.scopes, exact=exact)):
            return False
        if self.minimum is None and self.maximum is None:
            return True
        if isinstance(value, bool) or not isinstance(value, int):
            return not exact
        return (self.minimum is None or value >= self.minimum) and (self.maximum is None or value <= self.maximum)

    def allows_command(self, command: Sequence[str] | None) -> bool:
        """Tell whether the words of a command are those of one of ``values`` and like ``glob``; none are never."""
        if command is None or self.scopes is not None or self.minimum is not None or self.maximum is not None:
            return False
        if self.values is not None and not any(
            isinstance(line, str) and words(line) == tuple(command) for line in self.values
        ):
            return False
        return self.glob is None or command_matcher(self.glob)(command)

    def may_hold_below(self, directory: str) -> bool:
        """Tell whether a path in ``directory`` could satisfy every part that is given, as for what denies."""
        for wanted in (self.values, self.scopes):
            if wanted is not None and not any(may_match_below(glob_escape(str(path)), directory) for path in wanted):
                return False
        return self.glob is None or may_match_below(self.glob, directory)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of one layer. Patterns are globs over canonical names, or over the components of absolute paths.

    ``when`` are conditions on attributes of the resource. Where the attribute is not given, an allow does not match,
    and a deny or an approval does: what is not known never widens. Of an attribute with several values, an allow wants
    all to satisfy the condition, a deny or an approval any. A search or a move reaches all below the paths that it
    names, so a deny or an approval over paths meets it from the directories above as well; a deny does not where all
    that is found is asked for by itself (``SIFTED``). ``times`` is when the rule holds at all. ``hide`` makes a deny
    look like the absence of what was asked for. ``record`` writes down what an allow lets be read. ``spares`` are
    canonical names of tools that the rule does not speak of.
    """

    __pydantic_config__: ClassVar = READ_STRICTLY

    id: str
    effect: Effect
    layer: Layer
    kinds: frozenset[Kind]
    actions: frozenset[Action]
    name: str = "*"
    resource: str = "*"
    when: Mapping[str, Condition] = field(default_factory=dict)
    reason: str = ""
    hint: str = ""
    role: str = "*"
    times: Times | None = None
    hide: bool = False
    spares: frozenset[str] = frozenset()
    record: bool = False

    @property
    def exact(self) -> bool:
        """Whether names and values are compared strictly: a lookalike is never allowed, and always denied."""
        return self.effect == "allow"

    def conditions_hold(self, resource: Resource, now: float) -> bool:
        """Tell whether the attributes, and the time in Unix seconds, are as the rule wants them."""
        if self.times is not None and not self.times.hold(now):
            return False
        if self.spares and tool_plain(resource.name) in self.spares:
            return False
        exact = self.exact
        trees = not exact and bool(PATH_ATTRIBUTES & self.when.keys()) and tool_plain(resource.name) in TREE_TOOLS
        trees = trees and not (self.effect == "deny" and resource.attributes.get(SIFTED) is True)
        for attribute, condition in self.when.items():
            value = resource.attributes.get(attribute)
            if value is None:
                if exact:
                    return False
            elif exact and attribute in COMMAND_LINES:
                if not condition.allows_command(command_of(attribute, resource.attributes)):
                    return False
            elif isinstance(value, tuple):
                satisfied = all if exact else any
                below = trees and attribute in PATH_ATTRIBUTES and any(map(condition.may_hold_below, value))
                if not below and not satisfied(condition.holds(attribute, item, exact=exact) for item in value):
                    return False
            elif not condition.holds(attribute, value, exact=exact):
                return False
        return True


def _same(name: str, value: Scalar, wanted: Scalar, *, exact: bool) -> bool:
    if not isinstance(value, str) or not isinstance(wanted, str):
        return type(value) is type(wanted) and value == wanted
    if name in PATH_ATTRIBUTES:
        found = components(value)
        return found == components(wanted) if found is not None else not exact
    if not exact:
        return skeleton(value) == skeleton(wanted)
    return value == wanted if name.startswith(ARGUMENT_PREFIX) else plain(value) == plain(wanted)


def _like(name: str, value: str, glob: str, *, exact: bool) -> bool:
    if name in PATH_ATTRIBUTES:
        return path_matcher(glob)(value) if components(value) is not None else not exact
    if not exact:
        return matcher(skeleton(glob))(skeleton(value))
    return matcher(glob)(value) if name.startswith(ARGUMENT_PREFIX) else matcher(plain(glob))(plain(value))


def _inside(value: str, scopes: tuple[str, ...], *, exact: bool) -> bool:
    for scope in scopes:
        found = within(value, components(scope) or (), absolute=scope.startswith("/"))
        if found or (found is None and not exact):
            return True
    return False
