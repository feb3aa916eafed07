"""Who may write which field of a room's config: one table (DESIGN 6.5).

Self-leave, an open join, a knock, an invite and one's own channel watch need no admin; everything else does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from sublet.protocol.ezagent.ids import is_entity_id
from sublet.protocol.ezagent.room.state import MAX_GRANTS, MAX_REMOVALS, ROLE_POWER, Policy, Role, RoomState
from sublet.protocol.ezagent.room.statements import KNOCKS, MEMBERS, USERS, NestedMap, Path, Statement
from sublet.protocol.ezagent.sealing.levels import is_raise

Check: TypeAlias = Callable[[Statement, RoomState], bool]

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
    check = _check(statement.path)
    return check is not None and check(statement, state)


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


def _admin(statement: Statement, state: RoomState) -> bool:
    if statement.path == ("name",) and not (
        isinstance(statement.value, str) and 0 < len(statement.value) <= MAX_NAME_CHARS
    ):
        return False
    if statement.path == ENCRYPTION and not is_raise(statement.value, state.fields.get(ENCRYPTION)):
        return False
    return not isinstance(statement.value, NestedMap) and _is_admin(statement, state)


def _ext(statement: Statement, state: RoomState) -> bool:
    return _is_admin(statement, state)


def _is_admin(statement: Statement, state: RoomState) -> bool:
    return state.power(statement.signer) >= state.level("admin").value


def _member(statement: Statement, state: RoomState) -> bool:
    role = statement.role
    if role is None:
        return False
    return _leaves(statement, state) if role is Role.LEFT else _joins(statement, state, role)


def _leaves(statement: Statement, state: RoomState) -> bool:
    subject, signer = statement.subject, statement.signer
    role = state.role(subject)
    if statement.seen is None:
        return False
    if role is Role.OWNER and not state.has_other_owner(subject):
        return False
    membership = state.entities.get(subject)
    if role is None and membership is not None and len(membership.removals) >= MAX_REMOVALS:
        return False  # what is over can't be over once more without end
    if signer == subject:
        return role is not None
    return _is_admin(statement, state) and state.power(signer) > state.power(subject)


def _joins(statement: Statement, state: RoomState, role: Role) -> bool:
    subject, signer = statement.subject, statement.signer
    power, held = state.power(signer), state.role(subject)
    membership = state.entities.get(subject)
    if membership is not None and (len(membership.removals) >= MAX_REMOVALS or len(membership.grants) >= MAX_GRANTS):
        return False
    if held is not None and signer != subject and power <= state.power(subject) and role is not Role.OWNER:
        return False  # a change of somebody's role asks for more power than it takes away
    if signer == subject and held is None:
        banned = membership is not None and membership.banned()
        return state.policy is Policy.OPEN and role is Role.MEMBER and not banned
    if role is Role.MEMBER and held is None:
        if (membership is not None and membership.banned()) or state.policy is Policy.KNOCK:
            return _is_admin(statement, state)
        return state.role(signer) is not None and power >= state.level("events_default").value
    if role is Role.OWNER:
        return state.role(signer) is Role.OWNER
    if signer == subject and held is Role.OWNER:
        return state.has_other_owner(subject)
    return _is_admin(statement, state) and power >= ROLE_POWER[role]


def _knock(statement: Statement, state: RoomState) -> bool:
    if statement.signer != statement.subject:
        return statement.value is None and _is_admin(statement, state)  # an admin answers it
    membership = state.entities.get(statement.signer)
    return state.policy is Policy.KNOCK and not (membership is not None and membership.banned())


def _user(statement: Statement, state: RoomState) -> bool:
    level, power = statement.level, state.power(statement.signer)
    if level is None or state.role(statement.subject) is None:
        return False
    held = state.power(statement.subject)
    if statement.signer == statement.subject:
        return level <= held and state.role(statement.subject) is not Role.OWNER
    return _is_admin(statement, state) and level <= power and held < power


def _level(statement: Statement, state: RoomState) -> bool:
    level = statement.level
    return level is not None and _is_admin(statement, state) and level <= state.power(statement.signer)


def _own_watch(statement: Statement, state: RoomState) -> bool:
    return statement.path[2] == statement.signer and state.role(statement.signer) is not None
