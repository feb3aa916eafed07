"""Times, sizes, subjects and names as people write them in a policy."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from sublet.policy.decision import Action, Resource, Subject
from sublet.policy.effects import may_only_look, only_looks
from sublet.policy.named_peers import NamedPeers
from sublet.policy.rules import Condition, Rule
from sublet.policy.sizes import size_written
from sublet.policy.subjects import checked, subject_named
from sublet.policy.times import Times, minute_of_day, zone_name, zone_named
from sublet.protocol.errors import LocalCode, SubletError


@pytest.mark.parametrize(
    ("text", "minute"),
    [
        ("00:00", 0),
        ("00:59", 59),
        ("08:30", 510),
        ("23:59", 1439),
        ("24:00", 1440),
        ("24:01", None),
        ("25:00", None),
        ("08:60", None),
        ("8:30", None),
        ("08:3", None),
        ("008:30", None),
        ("0830", None),
        ("08.30", None),
        ("ab:cd", None),
        ("-1:30", None),
        ("\u0660\u0661:\u0660\u0660", None),
        ("08:30:00", None),
        ("", None),
        (":", None),
    ],
)
def test_minutes_of_a_day(text: str, minute: int | None) -> None:
    if minute is not None:
        assert minute_of_day(text) == minute
        return
    with pytest.raises(ValueError, match=r"is no time of day|is later than"):
        minute_of_day(text)


def test_zones_have_names() -> None:
    for name in ("UTC", "Europe/Berlin"):
        assert zone_name(zone_named(name)) == name
    assert zone_named("UTC") is UTC
    for name in ("", "Nowhere/City", "../etc/passwd", "utc\0", "Europe"):
        with pytest.raises(ValueError, match="is no time zone"):
            zone_named(name)


@pytest.mark.parametrize(
    ("times", "at", "holds"),
    [
        (Times(), "2026-11-27T00:00", True),
        (Times(start=540, end=1020), "2026-11-27T08:59", False),
        (Times(start=540, end=1020), "2026-11-27T09:00", True),
        (Times(start=540, end=1020), "2026-11-27T16:59", True),
        (Times(start=540, end=1020), "2026-11-27T17:00", False),
        # A Friday's night goes on until Saturday's morning.
        (Times(start=1320, end=360, days=frozenset({4})), "2026-11-27T22:00", True),
        (Times(start=1320, end=360, days=frozenset({4})), "2026-11-27T21:59", False),
        (Times(start=1320, end=360, days=frozenset({4})), "2026-11-28T05:59", True),
        (Times(start=1320, end=360, days=frozenset({4})), "2026-11-28T06:00", False),
        (Times(start=1320, end=360, days=frozenset({4})), "2026-11-28T22:00", False),
        (Times(start=1320, end=360, days=frozenset({4})), "2026-11-27T05:00", False),
        (Times(start=540, end=540), "2026-11-27T08:00", True),
        (Times(start=540, end=540), "2026-11-27T09:00", True),
        (Times(days=frozenset({0})), "2026-11-30T12:00", True),
        (Times(days=frozenset({0})), "2026-11-29T12:00", False),
        (Times(start=600, end=660, zone=zone_named("Europe/Berlin")), "2026-11-27T09:30", True),
        (Times(start=600, end=660, zone=zone_named("Europe/Berlin")), "2026-11-27T10:30", False),
    ],
)
def test_spans_of_days(times: Times, at: str, holds: bool) -> None:
    assert times.hold(datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp()) is holds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0 B", 0), ("7b", 7), ("2 kB", 2_000), ("2 KB", 2_000), ("2 MB", 2_000_000), ("2 GB", 2_000_000_000),
        ("2 KiB", 2_048), ("2 MiB", 2 << 20), ("2 gib", 2 << 30), ("9" * 15 + " B", int("9" * 15)),
        ("9" * 16 + " B", None), ("2", None), ("2  MB", None), ("2 M", None), (" 2 B", None), ("2 B ", None),
        ("-2 B", None), ("2.5 MB", None), ("2 TB", None), ("x2 B", None), ("2 iB", None),
    ],
)  # fmt: skip
def test_sizes(text: str, size: int | None) -> None:
    assert size_written(text) == size


@pytest.mark.parametrize(
    ("text", "role", "subject"),
    [
        ("human", "", Subject("human")),
        ("mcp:claude", "", Subject("mcp", "claude")),
        (" peer:bob ", "", Subject("peer", "bob")),
        ("a2a", "", Subject("a2a")),
        ("agent:a:b", "r", Subject("agent", "a:b", role="r")),
        ("coder", "r", Subject("agent", "coder", role="r")),
        ("nobody:x", "", None),
        ("", "", None),
        (":x", "", None),
        ("human:eve", "", None),
        ("mcp:claude", "r", None),
    ],
)
def test_subjects(text: str, role: str, subject: Subject | None) -> None:
    if subject is not None:
        assert checked(subject_named(text, role)) == subject
        return
    with pytest.raises(SubletError) as refused:
        checked(subject_named(text, role))
    assert refused.value.code is LocalCode.INVALID_ARGUMENT


LOOKING = {
    Action.DELEGATION_READ, Action.ASSIGNMENT_READ, Action.SESSION_READ, Action.CAPABILITY_READ, Action.ROOM_READ,
    Action.GATEWAY_READ, Action.POLICY_READ, Action.AUDIT_READ, Action.APPROVAL_READ, Action.GRANT_READ,
    Action.DELEGATION_REVIEW, Action.NODE_READ, Action.OFFICE_READ, Action.OFFICE_LOOK,
}  # fmt: skip
BY_RESOURCE = {
    Action.PEER_MANAGE: ("*", "bob"),
    Action.TOKEN_MANAGE: ("*", "t"),
    Action.LEND_ROOT_MANAGE: ("*", "/x"),
    Action.DAEMON_CONTROL: ("status", "stop"),
    Action.TOOL_CALL: ("Read", "Write"),
}
"""What looks, and what does not."""


@pytest.mark.parametrize("action", Action)
def test_what_only_looks(action: Action) -> None:
    looks, changes = BY_RESOURCE.get(action, ("*", "x"))
    assert only_looks(action, Resource(looks)) is (action in LOOKING or action in BY_RESOURCE)
    assert only_looks(action, Resource(changes)) is (action in LOOKING)
    assert may_only_look(action) is (action in LOOKING or action in BY_RESOURCE)
    if action is Action.DAEMON_CONTROL:
        assert only_looks(action, Resource("doctor"))


def about(**fields: Any) -> Rule:
    given: dict[str, Any] = {"kinds": frozenset({"mcp"}), "actions": frozenset({Action.ROOM_SEND}), **fields}
    return Rule("r", "deny", "global", **given)


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        (about(kinds=frozenset({"peer", "mcp"}), name="Bob"), True),
        (about(kinds=frozenset({"peer"}), name="b*"), True),
        (about(kinds=frozenset({"peer"}), name="*"), False),
        (about(kinds=frozenset({"peer"}), name="carol"), False),
        (about(name="bob"), False),
        (about(actions=frozenset({Action.DELEGATION_CREATE}), resource="bob"), True),
        (about(actions=frozenset({Action.PEER_MANAGE}), resource="bob"), True),
        (about(actions=frozenset({Action.PEER_PAIR}), resource="b\u043eb"), True),
        (about(actions=frozenset({Action.PEER_PAIR}), resource="**"), False),
        (about(resource="bob"), False),
        (about(when={"peer": Condition(values=("eve", "BOB"))}), True),
        (about(when={"peer": Condition(values=("eve",))}), False),
        (about(when={"peer": Condition(glob="b?b")}), True),
        (about(when={"peer": Condition(glob="*")}), False),
        (about(when={"room": Condition(values=("bob",))}), False),
    ],
)
def test_which_rules_name_a_peer(rule: Rule, named: bool) -> None:
    other = about(kinds=frozenset({"peer"}), name="eve")
    assert NamedPeers([other, rule]).rule_about("bob") == ("r" if named else None)


def test_a_peer_may_be_named_by_any_letter() -> None:
    assert NamedPeers([about(kinds=frozenset({"peer"}), name="X")]).rule_about("x") == "r"


def test_times_that_are_kept_have_no_field_that_is_not_known() -> None:
    assert TypeAdapter(Times).validate_python({"start": 1}) == Times(start=1)
    with pytest.raises(ValidationError):
        TypeAdapter(Times).validate_python({"start": 1, "later": 1})
