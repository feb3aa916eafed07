"""Which events are for an output gateway (SuperAgent 8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from pydantic import Field, field_validator, model_validator

from sublet.policy.capabilities.module_file import Line, ModulePart
from sublet.policy.globs import defect, matcher
from sublet.protocol.events import Event, EventKind

MAX_RULES: Final = 32
_REPLIES: Final = frozenset({EventKind.DISPATCH_RESULT, EventKind.ASK_HUMAN})


class FeedRule(ModulePart):
    """One rule: an event is for the gateway if it is of one of the kinds, or a reply, and fits the rest.

    ``replies`` are what whoever has asked is told: answers of agents and modules, their failures, and questions; what
    agents tell each other on the way is none. ``agent`` and ``session`` are globs.
    """

    kinds: Annotated[tuple[EventKind, ...], Field(max_length=64)] = ()
    replies: bool = False
    agent: Line | None = None
    session: Line | None = None

    @field_validator("kinds", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        if not isinstance(value, list):
            return value
        known = {str(kind): kind for kind in EventKind}
        for name in value:
            if name not in known:
                raise ValueError(f"{str(name)[:80]!r} is no kind of event; see: sublet events --help")
        return tuple(known[name] for name in value)

    @field_validator("agent", "session")
    @classmethod
    def _a_glob(cls, pattern: str | None) -> str | None:
        if pattern is not None and (why := defect(pattern)):
            raise ValueError(f"it never matches: {why}")
        return pattern

    @model_validator(mode="after")
    def _of_something(self) -> FeedRule:
        if not self.kinds and not self.replies:
            raise ValueError("a rule names kinds of events, or replies")
        return self


def wanted(rules: Sequence[FeedRule], event: Event) -> bool:
    """Tell whether any of ``rules`` is for ``event``."""
    return any(_fits(rule, event) for rule in rules)


def _fits(rule: FeedRule, event: Event) -> bool:
    reply = rule.replies and event.kind in _REPLIES and event.data.get("nestingDepth", 0) == 0
    if not reply and event.kind not in rule.kinds:
        return False
    keys = event.keys
    return all(
        pattern is None or (found is not None and matcher(pattern)(found))
        for pattern, found in ((rule.agent, keys.agent_id), (rule.session, keys.finger_session_id))
    )
