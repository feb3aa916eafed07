"""Authorization tokens: a grant lets one agent make one exact call, for a while and so many times (SuperAgent 6.2).

Nothing here makes a grant by itself. The store consumes one in the same transaction in which it asks ``refusal``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, cast

from sublet.policy.decision import Action, Resource
from sublet.policy.lint_conditions import lint_conditions
from sublet.policy.names import plain, skeleton
from sublet.policy.rules import Condition, Rule
from sublet.policy.tool_names import tool_plain
from sublet.protocol.canonical import MAX_DEPTH, JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.text import clean_line

DEFAULT_TTL_SECONDS: Final = 300
DEFAULT_MAX_USES: Final = 1
MAX_TTL_SECONDS: Final = 7 * 24 * 3600
MAX_USES: Final = 1_000
MAX_ARGUMENT_BYTES: Final = 256 * 1024
"""Of the canonical arguments of one call; a larger call is refused, as nobody could look at it."""
MAX_CONDITIONS: Final = 8
MAX_GLOB_CHARS: Final = 1_000
ATTRIBUTES: Final = frozenset({"path", "access_mode"})
"""What a widened grant may look at, besides ``args.NAME``."""

Refused = Literal[
    "other agent", "other tool", "other arguments", "elsewhere", "own errand", "revoked", "expired", "used up"
]

_BY_AGENT: Final = "agent "


@dataclass(frozen=True, slots=True)
class Moment:
    """When something is looked at, by two clocks: one that people set, and one that nobody sets.

    Args:
        at: Unix seconds.
        boot: names the run of the machine since it was started; empty where it is not known.
        up: seconds since then, those asleep included.
    """

    at: float
    boot: str = ""
    up: float = 0.0


def canonical_arguments(arguments: Mapping[str, JsonValue]) -> str:
    """Return arguments as the one text per value that is shown, kept and hashed: sorted keys, ASCII, no spaces.

    Unlike ``protocol.canonical`` it takes fractions, since it is compared with nothing but itself.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for what is no JSON, nested too deep, or larger than ``MAX_ARGUMENT_BYTES``.
    """
    try:
        _check_depth(dict(arguments), 0)
        text = json.dumps(dict(arguments), sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, f"the arguments can't be decided on: {error}", "Call it with plain JSON."
        ) from None
    if len(text) > MAX_ARGUMENT_BYTES:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            f"the arguments have {len(text):,} bytes, and {MAX_ARGUMENT_BYTES:,} is the most that is decided on",
            "Do it in smaller parts.",
        )
    return text


def arguments_digest(canonical: str) -> str:
    """Return the SHA-256 of canonical arguments, in hex."""
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


@dataclass(frozen=True, slots=True)
class Grant:
    """What one agent may call.

    Args:
        id: names it; it is no secret, since only the agent that the daemon runs can use it.
        agent: id of the only agent that can use it.
        tool: canonical name of the only tool.
        digest: of the only arguments; None where a person has widened it to all that satisfy ``when``.
        when: globs that attributes (``args.NAME``, ``path``) must be like, all of them; with no digest, none is any.
        scope: the delegation or session in which alone it is used; empty for any.
        issued_by: who has issued it.
        issued: when, by both clocks.
        expires_at: Unix seconds; it is over from then on, and once it has lasted that long by the other clock.
        max_uses: how often it can be used in all.
        remaining: how often it still can.
        revoked_at: Unix seconds, where somebody took it back.
        approval_id: the approval that it comes from, if any.
    """

    id: str
    agent: str
    tool: str
    digest: str | None
    issued_by: str
    issued: Moment
    expires_at: float
    max_uses: int
    remaining: int
    when: Mapping[str, str] = field(default_factory=dict)
    scope: str = ""
    revoked_at: float | None = None
    approval_id: str | None = None

    @property
    def widened(self) -> bool:
        """Whether it is for more than one exact call."""
        return self.digest is None

    def left(self, now: Moment) -> float:
        """Return for how many seconds it lasts: the less of what both clocks say, so that setting one adds nothing.

        After a restart of the machine one clock is left; a time before the issue says that it was set back: it is over.
        """
        by_date = self.expires_at - now.at
        if self.issued.boot and now.boot == self.issued.boot:
            return min(by_date, self.issued.up + self.expires_at - self.issued.at - now.up)
        return by_date if now.at >= self.issued.at else 0.0

    def state(self, now: Moment) -> Literal["usable", "used up", "expired", "revoked"]:
        """Return what it is worth at ``now``."""
        if self.revoked_at is not None:
            return "revoked"
        if self.left(now) <= 0:
            return "expired"
        return "usable" if self.remaining > 0 else "used up"


@dataclass(frozen=True, slots=True)
class Call:
    """What is checked against a grant: who calls what with which arguments, where, and through which ``agent@node``."""

    agent: str
    tool: str
    digest: str
    resource: Resource
    scope: str
    callers: Sequence[str] = ()


def refusal(grant: Grant, call: Call, now: Moment) -> Refused | None:
    """Return why ``grant`` does not allow ``call`` at ``now``, or None where it does."""
    if plain(grant.agent) != plain(call.agent):
        return "other agent"
    if tool_plain(grant.tool) != tool_plain(call.tool):
        return "other tool"
    if grant.scope and grant.scope != call.scope:
        return "elsewhere"
    if grant.digest is not None:
        if grant.digest != call.digest:
            return "other arguments"
    elif not conditions_hold(grant.when, call.resource, now.at):
        return "other arguments"
    if grant.issued_by.startswith(_BY_AGENT):
        # Also one that was issued before the errand began, when nobody could know of the errand.
        issuer = skeleton(grant.issued_by.removeprefix(_BY_AGENT))
        if issuer in {skeleton(caller.partition("@")[0]) for caller in call.callers}:
            return "own errand"
    state = grant.state(now)
    return None if state == "usable" else state


def consumed(grant: Grant) -> Grant:
    """Return the grant after one use."""
    assert grant.remaining > 0, "a grant that is used up can't be consumed"
    return replace(grant, remaining=grant.remaining - 1)


def conditions_hold(when: Mapping[str, str], resource: Resource, now: float) -> bool:
    """Tell whether every attribute that ``when`` names is there and like its glob, as an allowing rule wants it."""
    return _as_rule(when).conditions_hold(resource, now)


_CALLS: Final = Rule("grant", "allow", "request", frozenset({"agent"}), frozenset({Action.TOOL_CALL}))


def _as_rule(when: Mapping[str, str]) -> Rule:
    return replace(_CALLS, when={name: Condition(glob=glob) for name, glob in when.items()})


def check_terms(ttl_seconds: int, max_uses: int, when: Mapping[str, str]) -> None:
    """Refuse terms that no grant may have.

    Raises:
        SubletError: ``INVALID_ARGUMENT``.
    """
    if not 1 <= ttl_seconds <= MAX_TTL_SECONDS:
        raise _wrong(f"a grant can't last {ttl_seconds} s", f"Choose 1 to {MAX_TTL_SECONDS} seconds.")
    if not 1 <= max_uses <= MAX_USES:
        raise _wrong(f"a grant can't have {max_uses} uses", f"Choose 1 to {MAX_USES}.")
    if len(when) > MAX_CONDITIONS:
        raise _wrong(f"a grant has at most {MAX_CONDITIONS} conditions", "Issue several grants.")
    for name, glob in when.items():
        if name not in ATTRIBUTES and not (name.startswith("args.") and len(name) > len("args.")):
            raise _wrong(
                f"{clean_line(name, 60)!r} is nothing that a condition can look at",
                "Write args.NAME, path or access_mode.",
            )
        if not 1 <= len(glob) <= MAX_GLOB_CHARS:
            raise _wrong(f"the condition on {clean_line(name, 60)} is empty or too long", "Give a glob, such as src/*.")
    if faults := lint_conditions(_as_rule(when)):
        name, why = faults[0]
        raise _wrong(
            f"the condition on {clean_line(name, 60)} can't be used: {clean_line(why, 300)}",
            "Paths are relative to the lent directory; a command is matched word by word, as in args.command='make *'.",
        )


def check_issuer(issuer: str, agent: str, nests: Mapping[str, Iterable[str]], chain: Sequence[str] = ()) -> None:
    """Refuse an agent that would grant something to itself, by whatever way: this is asked before any rule.

    Args:
        issuer: id of the agent that issues.
        agent: id of the agent that the grant is for.
        nests: which agents each agent calls as its own workers.
        chain: addresses ``agent@node`` of those through whom the call came.

    Raises:
        SubletError: ``POLICY_DENIED``.
    """
    related = {skeleton(name): {skeleton(inner) for inner in inners} for name, inners in nests.items()}
    one, other = skeleton(issuer), skeleton(agent)
    callers = {skeleton(address.partition("@")[0]) for address in chain}
    if one == other or other in _within(one, related) or one in _within(other, related) or one in callers:
        raise SubletError(
            LocalCode.POLICY_DENIED,
            f"agent {clean_line(issuer, 80)} can't grant anything to {clean_line(agent, 80)}: it would grant itself",
            "Let a person decide: sublet approvals",
        )


def _within(agent: str, nests: Mapping[str, set[str]]) -> set[str]:
    """Return all agents that ``agent`` calls, at any depth."""
    found: set[str] = set()
    left = [agent]
    while left:
        for inner in nests.get(left.pop(), set()) - found:
            found.add(inner)
            left.append(inner)
    return found


def _check_depth(value: JsonValue, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    if isinstance(value, dict):
        for name, inner in cast("dict[object, JsonValue]", value).items():
            if not isinstance(name, str):
                raise TypeError("a name is no text")
            _check_depth(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            _check_depth(inner, depth + 1)


def _wrong(message: str, hint: str) -> SubletError:
    return SubletError(LocalCode.INVALID_ARGUMENT, message, hint)
