"""Who may write which field of a room's config: one table (DESIGN 6.5).

Self-leave, an open join, a knock, an invite and one's own channel watch need no admin; everything else does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from sublet.protocol.ezagent.ids import is_entity_id
from sublet.protocol.ezagent.room.state import (
    MAX_GRANTS,
    MAX_REMOVALS,
    NO_POWER,
    ROLE_POWER,
    Policy,
    Role,
    RoomState,
)
from sublet.protocol.ezagent.room.statements import KNOCKS, MEMBERS, USERS, NestedMap, Path, Statement
from sublet.protocol.ezagent.sealing.levels import is_raise

Check: TypeAlias = Callable[[Statement, RoomState], "int | None"]
"""Returns the least power that a statement takes, ``NO_POWER`` where it takes none; None where nobody may make it."""

ENCRYPTION: Final = ("encryption",)
ADMIN_FIELDS: Final = (
    ("name",),
    ("avatar_hash",),
    ("relays",),
    ENCRYPTION,
    ("timeline",),
    ("enabled_extensions",),
    ("membership", "policy"),
)
LEVELS: Final = ("default", "events_default", "admin")
MAX_NAME_CHARS: Final = 256


def allowed(statement: Statement, state: RoomState) -> bool:
    """Tell whether a statement may be made in this state; the room's creator makes the first ones without a check."""
    needed = power_needed(statement, state)
    return needed is not None and state.power(statement.signer) >= needed


def power_needed(statement: Statement, state: RoomState) -> int | None:
    """Return the least power that its signer needs for a statement in this state; None where no power suffices.

    Who has less later, and did not know, has written it all the same, as far as they have so much still.
    """
    check = _check(statement.path)
    return check(statement, state) if check is not None else None


def _check(path: Path) -> Check | None:
    if path in ADMIN_FIELDS:
        return _admin
    if len(path) == 3 and path[:2] == MEMBERS and is_entity_id(path[2]):
        return _member
    if len(path) == 3 and path[:2] == KNOCKS and is_entity_id(path[2]):
        return _knock
    if len(path) == 3 and path[:2] == USERS and is_entity_id(path[2]):
        return _user
    if path[0] == "ext" and len(path) == 3 and path[1] == "watch":
        return _own_watch
    if level_of(path) is not None:
        return _level
    if path[0] == "ext" and len(path) >= 2:
        return _ext
    return None


def level_of(path: Path) -> str | None:
    """Return the name of the level that a field sets; None where it sets none.

    That of an extension is ``ext.{id}.power_level`` (ezagent, EXT-07), which its writer rule calls
    ``power_levels.ext.{id}``.
    """
    if len(path) == 2 and path[0] == "power_levels" and path[1] in LEVELS:
        return path[1]
    return path[1] if len(path) == 3 and path[0] == "ext" and path[2] == "power_level" else None


def _admin(statement: Statement, state: RoomState) -> int | None:
    if statement.path == ("name",) and not (
        isinstance(statement.value, str) and 0 < len(statement.value) <= MAX_NAME_CHARS
    ):
        return None
    if statement.path == ENCRYPTION and not is_raise(statement.value, state.fields.get(ENCRYPTION)):
        return None
    return state.level("admin").value if not isinstance(statement.value, NestedMap) else None


def _ext(statement: Statement, state: RoomState) -> int | None:
    return state.level("admin").value


def _member(statement: Statement, state: RoomState) -> int | None:
    role = statement.role
    if role is None:
        return None
    return _leaves(statement, state) if role is Role.LEFT else _joins(statement, state, role)


def _leaves(statement: Statement, state: RoomState) -> int | None:
    subject, signer = statement.subject, statement.signer
    role = state.role(subject)
    if statement.seen is None:
        return None
    if role is Role.OWNER and not state.has_other_owner(subject):
        return None
    membership = state.entities.get(subject)
    if role is None and membership is not None and len(membership.removals) >= MAX_REMOVALS:
        return None  # what is over can't be over once more without end
    if signer == subject:
        return _free(role is not None)
    return max(state.level("admin").value, state.power(subject) + 1)


def _joins(statement: Statement, state: RoomState, role: Role) -> int | None:
    subject, signer = statement.subject, statement.signer
    admin, held = state.level("admin").value, state.role(subject)
    membership = state.entities.get(subject)
    if membership is not None and (len(membership.removals) >= MAX_REMOVALS or len(membership.grants) >= MAX_GRANTS):
        return None
    if signer == subject and held is None:
        banned = membership is not None and membership.banned()
        return _free(state.policy is Policy.OPEN and role is Role.MEMBER and not banned)
    if role is Role.MEMBER and held is None:
        if (membership is not None and membership.banned()) or state.policy is Policy.KNOCK:
            return admin
        return state.level("events_default").value if state.role(signer) is not None else None
    if role is Role.OWNER:
        return _free(state.role(signer) is Role.OWNER)
    if signer == subject and held is Role.OWNER:
        return _free(state.has_other_owner(subject))
    needed = max(admin, ROLE_POWER[role])
    # A change of somebody's role asks for more power than it takes away.
    return max(needed, state.power(subject) + 1) if held is not None and signer != subject else needed


def _knock(statement: Statement, state: RoomState) -> int | None:
    if statement.signer != statement.subject:
        return state.level("admin").value if statement.value is None else None  # an admin answers it
    membership = state.entities.get(statement.signer)
    return _free(state.policy is Policy.KNOCK and not (membership is not None and membership.banned()))


def _user(statement: Statement, state: RoomState) -> int | None:
    level = statement.level
    if level is None or state.role(statement.subject) is None:
        return None
    if statement.signer == statement.subject:
        return level if state.role(statement.subject) is not Role.OWNER else None
    return max(state.level("admin").value, level, state.power(statement.subject) + 1)


def _level(statement: Statement, state: RoomState) -> int | None:
    level = statement.level
    return max(state.level("admin").value, level) if level is not None else None


def _own_watch(statement: Statement, state: RoomState) -> int | None:
    return _free(statement.path[2] == statement.signer and state.role(statement.signer) is not None)


def _free(may: bool) -> int | None:
    """Return what a statement takes that no power is asked for."""
    return NO_POWER if may else None
