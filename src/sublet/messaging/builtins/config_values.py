"""Which values a field of a room's config may get from one of ours: those that something here reads.

Rules: what would be shown as a fact and change nothing is refused, so nobody relies on it. What other daemons have
written is shown as it is, since the fold decides by who may write and not by what. Weak: an extension that only others
have can be switched off here and not on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sublet.messaging.opening.shards import MAX_REFS_PER_MONTH
from sublet.messaging.schema.datatypes import AnnotationPlace
from sublet.messaging.schema.fields import Written
from sublet.messaging.schema.schema import Schema
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.room.state import Policy, RoomState
from sublet.protocol.ezagent.room.table import ADMIN_FIELDS, MAX_NAME_CHARS, level_of
from sublet.protocol.ezagent.sealing.levels import Encryption, encryption_of, is_raise

ENCRYPTION: Final = Encryption.TRANSPORT_ONLY.value
"""Of a new room, where whoever opens it says nothing else."""
WINDOW: Final = "monthly"
MAX_POWER: Final = 100
MAX_AGENT_TURNS: Final = 1_000
_TIMELINE: Final = ("timeline",)
_EXTENSIONS: Final = ("enabled_extensions",)


def config_field(name: str, value: Written) -> tuple[tuple[str, ...], dict[str, Written] | None]:
    """Return the path of a field that is named with dots, and what of a field of the timeline alone is changed.

    Args:
        name: such as ``membership.policy`` or ``timeline.max_refs_per_window``.
        value: what it shall be.
    """
    path = tuple(name.split("."))
    if path[:1] == _TIMELINE and len(path) == 2:
        return _TIMELINE, {path[1]: value}
    return path, None


def check_value(
    schema: Schema, known: Mapping[str, frozenset[str]], state: RoomState, path: tuple[str, ...], value: Written
) -> None:
    """Refuse a value of a field that has no effect here.

    Args:
        schema: what extensions keep in a room's config.
        known: the extensions that are here, and what each needs.
        state: the room as it is.
        path: the field.
        value: what it shall be; None takes it away.

    Raises:
        SubletError: ``INVALID_ARGUMENT``.
    """
    name = ".".join(path)
    if level_of(path) is not None:
        if not _is_whole(value, 0, MAX_POWER):
            raise _wrong(f"{name} is a whole number from 0 to {MAX_POWER}", f"{name}=50")
    elif path[0] == "ext":
        if len(path) < 3 or (AnnotationPlace.ON_ROOM_CONFIG, path[1]) not in schema.annotations:
            raise _wrong(f"{name} is read by no extension here")
    elif path not in ADMIN_FIELDS:
        raise _wrong(f"{name} is no field of a room's config that can be changed")
    elif path == ("name",):
        if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_CHARS:
            raise _wrong(f"a room has a name of 1 to {MAX_NAME_CHARS} characters")
    elif path == ("membership", "policy"):
        if value not in {policy.value for policy in Policy}:
            raise _wrong("a room's policy is open, knock or invite", "membership.policy=invite")
    elif path == ("encryption",):
        level_asked(value)
        if not is_raise(value, state.fields.get(path)):
            raise _wrong("a room that is sealed for its members stays so: its encryption is raised, and never lowered")
    elif path == _TIMELINE:
        _check_timeline(value)
    elif path == _EXTENSIONS:
        check_extensions(known, frozenset(state.enabled_extensions), value)
    elif value is not None:
        raise _wrong(f"nothing reads {name}, so setting it would change nothing")


def level_asked(value: Written) -> Encryption:
    """Return the level that a room is to have.

    Raises:
        SubletError: ``INVALID_ARGUMENT``: there is no such level.
    """
    level = encryption_of(value)
    if level is None:
        raise _wrong("the encryption of a room is transport_only, or members", "encryption=members")
    return level


def _check_timeline(value: Written) -> None:
    if not isinstance(value, dict) or not value.keys() <= {"window_size", "max_refs_per_window", "max_agent_turns"}:
        raise _wrong(
            "of the timeline max_refs_per_window and max_agent_turns can be changed",
            "timeline.max_refs_per_window=100000",
        )
    if value.get("window_size", WINDOW) != WINDOW:
        raise _wrong("a part of the timeline is a month; there is no other window_size")
    if "max_refs_per_window" in value and not _is_whole(value["max_refs_per_window"], 1, MAX_REFS_PER_MONTH):
        raise _wrong(
            f"max_refs_per_window is a whole number from 1 to {MAX_REFS_PER_MONTH}",
            "timeline.max_refs_per_window=100000",
        )
    if "max_agent_turns" in value and not _is_whole(value["max_agent_turns"], 1, MAX_AGENT_TURNS):
        raise _wrong(
            f"max_agent_turns is a whole number from 1 to {MAX_AGENT_TURNS}: after so many turns of agents without a "
            "person their conversation ends",
            "timeline.max_agent_turns=64",
        )


def check_extensions(known: Mapping[str, frozenset[str]], before: frozenset[str], value: Written) -> None:
    """Refuse a list of extensions that names one that nobody knows, or one without what it needs.

    Args:
        known: the extensions that are here, and what each needs.
        before: those that the room has enabled, which others may have alone.
        value: those that it shall have.

    Raises:
        SubletError: ``INVALID_ARGUMENT``.
    """
    names = [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
    if not isinstance(value, list) or len(names) != len(value):
        raise _wrong("the extensions of a room are a list of their names")
    if len(set(names)) != len(names):
        raise _wrong("an extension is named twice")
    unknown = sorted(set(names) - known.keys() - before)
    if unknown:
        raise _wrong(f"no extension here is called {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    for name in names:
        for needed in sorted(known.get(name, frozenset()) & known.keys() - set(names)):
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                f"{name} needs {needed}, which would be off",
                f"Enable or disable both: --enable {needed}, or --disable {name}.",
            )


def _is_whole(value: Written, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _wrong(message: str, example: str = "") -> SubletError:
    hint = f"Such as: sublet room config ROOM --set {example}" if example else "See: sublet room config ROOM"
    return SubletError(LocalCode.INVALID_ARGUMENT, message, hint)
