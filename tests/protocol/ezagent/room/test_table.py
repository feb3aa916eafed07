"""Who may write which field of a room's config, one row for each case of the table."""

from __future__ import annotations

import pytest

from sublet.protocol.ezagent.ids import room_id
from sublet.protocol.ezagent.room.ancestry import Ancestry, KnownWrites
from sublet.protocol.ezagent.room.state import (
    MAX_GRANTS,
    MAX_REMOVALS,
    Level,
    Membership,
    MembershipGrant,
    Removal,
    Role,
    RoomState,
)
from sublet.protocol.ezagent.room.statements import NESTED_MAP, NestedMap, Path, Statement
from sublet.protocol.ezagent.room.table import ADMIN_FIELDS, MAX_NAME_CHARS, allowed, level_of
from sublet.protocol.ezagent.yjs.update import Value

ROOM = room_id("@owner:a", 1_771_668_300_000, b"s" * 16)
OWNER, ADMIN, BOB, EVE, BANNED = "@owner:a", "@admin:a", "@bob:a", "@eve:a", "@banned:a"
NEVER = Ancestry({})
SEEN: Value = {"config": {"1": 1}}
LEFT: Value = {"role": "left", "seen": SEEN}


def grant(state: RoomState, entity: str, role: Role, times: int = 1) -> None:
    membership = state.entities.setdefault(entity, Membership())
    for number in range(times):
        item = (1, number)
        membership.grant(MembershipGrant(item, role, OWNER, None, KnownWrites(NEVER, item, is_first=True)))
    if role is Role.OWNER:
        state.owners[entity] = None


def remove(state: RoomState, entity: str, times: int = 1, *, banned: bool = False) -> None:
    membership = state.entities.setdefault(entity, Membership())
    for number in range(times):
        membership.remove(Removal((2, number), OWNER, {}, banned, ""))


def room(policy: str = "invite", *changes: str) -> RoomState:
    state = RoomState(ROOM, OWNER)
    grant(state, OWNER, Role.OWNER)
    grant(state, ADMIN, Role.ADMIN)
    grant(state, BOB, Role.MEMBER)
    remove(state, BANNED, banned=True)
    state.fields["membership", "policy"] = policy
    for change in changes:
        match change.split():
            case ["owner", who]:
                grant(state, who, Role.OWNER)
            case ["admin", who]:
                grant(state, who, Role.ADMIN)
            case ["level", name, value]:
                state.levels[name] = Level(int(value))
            case ["power", who, value]:
                state.users[who] = Level(int(value))
            case ["removed", who, times]:
                remove(state, who, int(times))
            case ["granted", who, times]:
                grant(state, who, Role.MEMBER, int(times))
    return state


def may(signer: str, path: str, value: Value | NestedMap, state: RoomState) -> bool:
    keys: Path = tuple(path.split("|"))
    return allowed(Statement((9, 9), signer, keys, value, None, None, 1), state)


MEMBER, KNOCK, USER = "membership|members|", "membership|knocks|", "power_levels|users|"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("name", "Room"),
        ("name", "x" * MAX_NAME_CHARS),
        ("avatar_hash", "x"),
        ("relays", []),
        ("encryption", "members"),
        ("timeline", {}),
        ("enabled_extensions", []),
        ("membership|policy", "open"),
        ("power_levels|default", 50),
        ("power_levels|events_default", {"level": 50}),
        ("power_levels|admin", 0),
        ("ext|moderation|power_level", 50),
        ("ext|moderation", NESTED_MAP),
        ("ext|moderation|x", None),
        ("ext|moderation|x|y", 1),
        ("ext|watch", NESTED_MAP),
        (KNOCK + EVE, None),
        (MEMBER + BANNED, "member"),
    ],
)
@pytest.mark.parametrize("level", [50, 60])
def test_what_an_admin_alone_may_write(path: str, value: Value | NestedMap, level: int) -> None:
    state = room("invite", f"level admin {level}")
    assert [may(who, path, value, state) for who in (OWNER, ADMIN, BOB, EVE, BANNED)] == [
        *(True, level == 50, False, False, False)
    ]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("name", ""),
        ("name", "x" * (MAX_NAME_CHARS + 1)),
        ("name", None),
        ("name", 1),
        ("avatar_hash", NESTED_MAP),
        ("membership", NESTED_MAP),
        ("membership|members", NESTED_MAP),
        ("membership|knocks", NESTED_MAP),
        ("power_levels", NESTED_MAP),
        ("power_levels|users", NESTED_MAP),
        ("power_levels|other", 1),
        ("power_levels|admin|x", 1),
        ("other|moderation|power_level", 1),
        ("power_levels|admin", 101),
        ("power_levels|admin", -1),
        ("power_levels|admin", None),
        ("power_levels|admin", True),
        ("ext|moderation|power_level", "x"),
        ("ext", NESTED_MAP),
        ("created_by", OWNER),
        ("salt", "x"),
        ("other", 1),
        ("name|x", 1),
        (MEMBER + "bob", "member"),
        (MEMBER + EVE, "other"),
        (MEMBER + EVE, None),
        (MEMBER + EVE + "|x", "member"),
        (KNOCK + "eve", None),
        (USER + "bob", 1),
        (USER + EVE, 1),
        (USER + BOB, None),
        (USER + BOB, "x"),
        (KNOCK + EVE, {}),
        ("ext|watch|" + BOB, {}),
        (MEMBER + BOB, {"role": "left"}),
        (MEMBER + BOB, {"role": "left", "seen": 1}),
    ],
)
def test_what_nobody_may_write(path: str, value: Value | NestedMap) -> None:
    state = room()
    assert [may(who, path, value, state) for who in (OWNER, ADMIN, EVE)] == [False] * 3


@pytest.mark.parametrize(
    ("policy", "changes", "subject", "value", "allowed"),
    [
        # to come in
        ("invite", [], EVE, "member", "owner admin bob"),
        ("open", [], EVE, "member", "owner admin bob eve"),
        ("knock", [], EVE, "member", "owner admin"),
        ("open", [], EVE, "admin", "owner admin"),
        ("open", [], EVE, "owner", "owner"),
        ("invite", ["level events_default 10"], EVE, "member", "owner admin"),
        ("invite", ["level events_default 10", "power bob 10"], EVE, "member", "owner admin bob"),
        ("invite", ["level admin 60"], EVE, "admin", "owner"),
        ("invite", ["level admin 0"], EVE, "admin", "owner admin"),
        ("open", [], BANNED, "member", "owner admin"),
        ("invite", [], BANNED, "member", "owner admin"),
        ("open", [f"removed {EVE} {MAX_REMOVALS - 1}"], EVE, "member", "owner admin bob eve"),
        ("open", [f"removed {EVE} {MAX_REMOVALS}"], EVE, "member", ""),
        ("open", [f"removed {EVE} {MAX_REMOVALS}"], EVE, "owner", ""),
        # to become something else
        ("open", [], BOB, "member", "owner admin"),
        ("open", [], BOB, "admin", "owner admin"),
        ("open", [], BOB, "owner", "owner"),
        ("invite", [f"granted {BOB} {MAX_GRANTS - 2}"], BOB, "admin", "owner admin"),
        ("invite", [f"granted {BOB} {MAX_GRANTS - 1}"], BOB, "admin", ""),
        ("open", [], ADMIN, "member", "owner admin"),
        ("open", [], ADMIN, "admin", "owner admin"),
        ("open", [f"admin {BOB}"], ADMIN, "member", "owner admin"),
        ("open", [f"admin {BOB}", f"power {BOB} 51"], ADMIN, "member", "owner admin bob"),
        ("open", [], OWNER, "member", ""),
        ("open", [], OWNER, "admin", ""),
        ("open", [], OWNER, "owner", "owner"),
        ("open", [f"owner {BOB}"], OWNER, "member", "owner"),
        ("open", [f"owner {BOB}"], OWNER, "admin", "owner"),
        ("open", [f"owner {BOB}"], OWNER, "owner", "owner bob"),
        # to leave
        ("open", [], BOB, LEFT, "owner admin bob"),
        ("open", [], ADMIN, LEFT, "owner admin"),
        ("open", [], OWNER, LEFT, ""),
        ("open", [f"owner {BOB}"], OWNER, LEFT, "owner"),
        ("open", [f"owner {BOB}", "power @owner:a 99"], OWNER, LEFT, "owner bob"),
        ("open", [f"admin {BOB}"], ADMIN, LEFT, "owner admin"),
        ("open", [], EVE, LEFT, "owner admin"),
        ("open", [], BANNED, LEFT, "owner admin"),
        ("open", [f"removed {EVE} {MAX_REMOVALS - 1}"], EVE, LEFT, "owner admin"),
        ("open", [f"removed {EVE} {MAX_REMOVALS}"], EVE, LEFT, ""),
        ("open", [f"removed {BOB} {MAX_REMOVALS}", f"granted {BOB} 1"], BOB, LEFT, ""),
        ("open", ["level admin 60"], BOB, LEFT, "owner bob"),
    ],
)
def test_who_lets_whom_in_and_out(policy: str, changes: list[str], subject: str, value: Value, allowed: str) -> None:
    state = room(policy, *(change.replace(" bob ", f" {BOB} ") for change in changes))
    who = [signer for signer in (OWNER, ADMIN, BOB, EVE, BANNED) if may(signer, MEMBER + subject, value, state)]
    assert " ".join(one[1:].partition(":")[0] for one in who) == allowed


@pytest.mark.parametrize(
    ("policy", "signer", "subject", "value", "allowed"),
    [
        ("knock", EVE, EVE, {}, True),
        ("knock", EVE, EVE, None, True),
        ("knock", BANNED, BANNED, {}, False),
        ("open", EVE, EVE, {}, False),
        ("invite", EVE, EVE, {}, False),
        ("knock", BOB, EVE, {}, False),
        ("knock", BOB, EVE, None, False),
        ("knock", ADMIN, EVE, {}, False),
        ("knock", ADMIN, EVE, None, True),
        ("invite", ADMIN, EVE, None, True),
    ],
)
def test_a_knock_is_ones_own_and_answered_by_an_admin(
    policy: str, signer: str, subject: str, value: Value, allowed: bool
) -> None:
    assert may(signer, KNOCK + subject, value, room(policy)) is allowed


def test_who_was_removed_and_not_banned_knocks_again() -> None:
    assert may(EVE, KNOCK + EVE, {}, room("knock", f"removed {EVE} 2"))


@pytest.mark.parametrize(
    ("changes", "subject", "level", "allowed"),
    [
        ([], BOB, 0, "owner admin bob"),
        ([], BOB, 1, "owner admin"),
        ([], BOB, 50, "owner admin"),
        ([], BOB, 51, "owner"),
        ([], BOB, 100, "owner"),
        ([f"power {BOB} 50"], BOB, 0, "owner bob"),
        ([f"power {BOB} 49"], BOB, 0, "owner admin bob"),
        ([], ADMIN, 50, "owner admin"),
        ([], ADMIN, 0, "owner admin"),
        ([], ADMIN, 51, "owner"),
        ([], OWNER, 50, ""),
        (["power @owner:a 40"], OWNER, 50, "admin"),
        (["level admin 60"], BOB, 0, "owner bob"),
        ([], EVE, 0, ""),
    ],
)
def test_who_gives_power_to_whom(changes: list[str], subject: str, level: int, allowed: str) -> None:
    state = room("invite", *changes)
    who = [signer for signer in (OWNER, ADMIN, BOB, EVE) if may(signer, USER + subject, {"level": level}, state)]
    assert " ".join(one[1:].partition(":")[0] for one in who) == allowed


@pytest.mark.parametrize(("level", "allowed"), [(50, True), (51, False)])
def test_nobody_asks_for_more_power_than_they_have(level: int, allowed: bool) -> None:
    for path in ("power_levels|default", "ext|moderation|power_level"):
        assert may(ADMIN, path, level, room()) is allowed
        assert may(OWNER, path, 100, room())


def test_ones_own_watch_needs_membership_alone() -> None:
    state = room()
    for signer in (OWNER, ADMIN, BOB):
        assert may(signer, f"ext|watch|{signer}", {}, state)
    assert not may(EVE, f"ext|watch|{EVE}", {}, state)
    assert not may(OWNER, f"ext|watch|{BOB}", {}, state)
    assert may(OWNER, f"ext|watch|{BOB}|x", {}, state)  # no watch
    assert not may(BOB, f"ext|other|{BOB}", {}, state)


def test_which_fields_set_levels() -> None:
    assert MAX_NAME_CHARS == 256
    assert {"|".join(path) for path in ADMIN_FIELDS} == {
        *("name", "avatar_hash", "relays", "encryption", "timeline", "enabled_extensions", "membership|policy")
    }
    for name in ("default", "events_default", "admin"):
        assert level_of(("power_levels", name)) == name
        assert level_of((name, "power_levels")) is None
        assert level_of(("power_levels", name, "power_level")) is None
    assert level_of(("ext", "a", "power_level")) == "a"
    for path in (("power_levels",), ("power_levels", "users"), ("ext", "a"), ("ext", "a", "x"), ("ext", "a", "b", "c")):
        assert level_of(path) is None
    assert level_of(("ext", "a", "power_level", "x")) is None
    assert level_of(("other", "a", "power_level")) is None
