"""Which attributes the resource of an action has, and what they can be; rules may look at no other (DESIGN 7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from sublet.policy.decision import Action, Value
from sublet.policy.names import skeleton
from sublet.protocol.bounds import MAX_TTL_SECONDS
from sublet.protocol.events import EventKind

ARGUMENT_PREFIX: Final = "args."
"""An argument ``command`` of a tool is the attribute ``args.command``; one inside an object ``args.outer.inner``."""

SIFTED: Final = "sifted"
"""Says of a tool call that all it finds is asked for before it is told. No rule can name it."""

UNCLEAR: Final = "unclear"
"""Names what stands beside a command and can't be compared, such as a list of other than texts. No rule can name it."""
WORDS_BESIDE: Final = ("args.args", "args.arguments", "args.argv")
"""Attributes whose words come after those of a command."""
AROUND_A_COMMAND: Final = ("args.env", "args.environment", "args.variables")
UNNAMED: Final = frozenset({SIFTED, UNCLEAR})

Type = Literal["name", "path", "number", "flag", "choice", "any"]


@dataclass(frozen=True, slots=True)
class Attribute:
    """What an attribute can be.

    ``type``: ``name`` is compared in canonical form, ``path`` by whole components, ``number`` is within ``minimum`` and
    ``maximum``, ``choice`` one of ``choices``; ``any`` is known at run time only.
    """

    type: Type
    choices: frozenset[str] = frozenset()
    minimum: int = 0
    maximum: int | None = None

    def defect_of(self, value: Value) -> str:
        """Return why no resource has this value, or nothing."""
        values = value if isinstance(value, tuple) else (value,)
        if self.type == "any":
            return ""
        if self.type == "number":
            low, high = self.minimum, self.maximum
            spelled = f"it is a number, at least {low}" + (f" and at most {high}" if high is not None else "")
            fits = all(type(one) is int and low <= one and (high is None or one <= high) for one in values)
            return "" if fits else spelled
        if self.type == "flag":
            return "" if all(type(one) is bool for one in values) else "it is true or false"
        if not all(isinstance(one, str) for one in values):
            return "it is a text"
        if self.type == "choice" and not {skeleton(str(one)) for one in values} <= self.spelled:
            return f"it is one of {', '.join(sorted(self.choices))}"
        return ""

    @property
    def spelled(self) -> frozenset[str]:
        """The choices in the form in which they are compared."""
        return frozenset(map(skeleton, self.choices))


_NAME: Final = Attribute("name")
_PATH: Final = Attribute("path")
_COUNT: Final = Attribute("number")
_FLAG: Final = Attribute("flag")
_ACCESS: Final = Attribute("choice", frozenset({"ro", "rw"}))
_TTL: Final = Attribute("number", minimum=1, maximum=MAX_TTL_SECONDS)
_ARGUMENT: Final = Attribute("any")
_CALL: Final = {"peer": _NAME, "room": _NAME}

ATTRIBUTES: Final[Mapping[Action, Mapping[str, Attribute]]] = {
    Action.DELEGATION_CREATE: {
        "agent": _NAME,
        "access_mode": _ACCESS,
        "ttl_seconds": _TTL,
        "max_total_bytes": _COUNT,
        "max_files": _COUNT,
        "max_file_bytes": _COUNT,
    },
    Action.DELEGATION_APPLY: {
        "to": Attribute("choice", frozenset({"directory", "branch"})),
        "partial": _FLAG,
        "allow_mass_deletion": _FLAG,
    },
    Action.DELEGATION_EXTEND: {"ttl_seconds": _TTL},
    Action.WORKSPACE_LEND: {"path": _PATH, "access_mode": _ACCESS},
    Action.WORKSPACE_REVEAL: {"path": _PATH},
    Action.WORKSPACE_UNLOCK: {"path": _PATH},
    Action.ASSIGNMENT_ACCEPT: {"access_mode": _ACCESS, "ttl_seconds": _TTL},
    Action.LEND_ROOT_MANAGE: {"path": _PATH},
    Action.TOOL_CALL: {"path": _PATH, "access_mode": _ACCESS, "delegation_id": _NAME, "size_bytes": _COUNT, **_CALL},
    Action.AGENT_MESSAGE: {"room": _NAME, "size_bytes": _COUNT},
    Action.ROOM_SEND: {"size_bytes": _COUNT},
    Action.AGENT_ASK: {"agent": _NAME, "size_bytes": _COUNT, **_CALL},
    Action.AGENT_DISPATCH: {"declared": _FLAG, "depth": _COUNT, **_CALL},
    Action.MODULE_DISPATCH: {"depth": _COUNT, "event": Attribute("choice", frozenset(EventKind)), **_CALL},
    Action.NODE_READ: {"namespace": _NAME},
    Action.NODE_TASK: {"namespace": _NAME, "system_prompt": _FLAG, "size_bytes": _COUNT},
    Action.CAPABILITY_RUN: {"size_bytes": _COUNT},
    Action.OFFICE_CALL: {"office": _NAME, "computer": _NAME, "size_bytes": _COUNT},
    Action.OFFICE_LOOK: {"office": _NAME, "computer": _NAME},
    Action.GRANT_ISSUE: {"agent": _NAME, "tool": _NAME, "ttl_seconds": _COUNT, "max_uses": _COUNT},
}
"""By action; what is not here has none."""

WITH_ARGUMENTS: Final = frozenset({Action.TOOL_CALL, Action.CAPABILITY_RUN, Action.OFFICE_CALL})
"""Actions whose resource has the arguments of a call as attributes."""

PATH_RESOURCES: Final = frozenset({Action.WORKSPACE_LEND, Action.LEND_ROOT_MANAGE})
"""Actions whose resource is an absolute path, or ``*`` for all of them at once."""

FIXED_RESOURCES: Final[Mapping[Action, frozenset[str]]] = {
    Action.OFFICE_LOOK: frozenset({"blob", "config", "desktop", "resources", "skill", "skills", "tools"}),
    Action.DAEMON_CONTROL: frozenset({"status", "doctor", "reload", "stop"}),
    Action.RESOURCES_PRUNE: frozenset({"*"}),
}
"""Actions that are asked for these resources only."""


def attribute_of(action: Action, name: str) -> Attribute | None:
    """Return what attribute ``name`` of the resource of ``action`` can be, or None where it has no such attribute."""
    if name.startswith(ARGUMENT_PREFIX) and name != ARGUMENT_PREFIX:
        return _ARGUMENT if action in WITH_ARGUMENTS else None
    return ATTRIBUTES.get(action, {}).get(name)
