"""A grant is for one agent, one tool, one call, for a while: whatever differs is refused, each for its own reason."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from sublet.policy.decision import Resource
from sublet.policy.grants import (
    MAX_ARGUMENT_BYTES,
    MAX_CONDITIONS,
    MAX_GLOB_CHARS,
    MAX_TTL_SECONDS,
    MAX_USES,
    Call,
    Grant,
    Moment,
    arguments_digest,
    canonical_arguments,
    check_issuer,
    check_terms,
    conditions_hold,
    consumed,
    refusal,
)
from sublet.protocol.canonical import MAX_DEPTH
from sublet.protocol.errors import LocalCode, SubletError

NOW = Moment(1_000.0, "boot", 50.0)
GRANT = Grant(
    id="g", agent="coder", tool="shell.exec", digest="d", issued_by="human", issued=Moment(900.0, "boot", 10.0),
    expires_at=1_100.0, max_uses=2, remaining=2, scope="dlg_1",
)  # fmt: skip
CALL = Call("coder", "shell.exec", "d", Resource("shell.exec", {"path": ("src/a.py",), "args.x": "one"}), "dlg_1")


@pytest.mark.parametrize(
    ("grant", "call", "reason"),
    [
        ({}, {}, None),
        ({}, {"agent": "Coder"}, None),
        ({}, {"agent": "other"}, "other agent"),
        ({}, {"tool": "Bash"}, None),
        ({}, {"tool": "file.read"}, "other tool"),
        ({}, {"scope": "dlg_2"}, "elsewhere"),
        ({"scope": ""}, {"scope": "dlg_2"}, None),
        ({}, {"digest": "e"}, "other arguments"),
        ({"digest": None}, {"digest": "e"}, None),
        ({"digest": None, "when": {"path": "src/*"}}, {}, None),
        ({"digest": None, "when": {"path": "doc/*"}}, {}, "other arguments"),
        ({"digest": None, "when": {"args.x": "o*", "path": "src/*"}}, {}, None),
        ({"digest": None, "when": {"args.x": "t*", "path": "src/*"}}, {}, "other arguments"),
        ({"digest": None, "when": {"args.y": "*"}}, {}, "other arguments"),
        ({"digest": "d", "when": {"path": "doc/*"}}, {}, None),
        ({"issued_by": "agent boss"}, {"callers": ("Boss@node", "x@y")}, "own errand"),
        ({"issued_by": "agent boss"}, {"callers": ("x@boss",)}, None),
        ({"issued_by": "human"}, {"callers": ("human@node",)}, None),
        ({"revoked_at": 5.0}, {}, "revoked"),
        ({"revoked_at": 0.0}, {}, "revoked"),
        ({"remaining": 0}, {}, "used up"),
        ({"remaining": 1}, {}, None),
        ({"issued_by": "agent boss"}, {"callers": ("Boss@x@node",)}, "own errand"),
        ({"expires_at": 1_000.5}, {}, None),
        ({"expires_at": 1_000.0}, {}, "expired"),
        ({"expires_at": 1_000.0, "remaining": 0}, {}, "expired"),
        ({"expires_at": 900.0, "revoked_at": 1.0}, {}, "revoked"),
    ],
)
def test_why_a_grant_does_not_allow_a_call(grant: dict[str, Any], call: dict[str, Any], reason: str | None) -> None:
    assert refusal(replace(GRANT, **grant), replace(CALL, **call), NOW) == reason


@pytest.mark.parametrize(
    ("now", "left"),
    [
        (Moment(1_000.0, "boot", 50.0), 100.0),
        (Moment(1_000.0, "boot", 205.0), 5.0),
        (Moment(1_095.0, "boot", 50.0), 5.0),
        (Moment(800.0, "boot", 110.0), 100.0),
        (Moment(1_000.0, "other", 9_000.0), 100.0),
        (Moment(1_000.0), 100.0),
        (Moment(900.0, "other", 0.0), 200.0),
        (Moment(899.0, "other", 0.0), 0.0),
        (Moment(1_101.0, "other", 0.0), -1.0),
    ],
)
def test_it_lasts_as_long_as_the_shorter_of_two_clocks_says(now: Moment, left: float) -> None:
    assert GRANT.left(now) == left


def test_where_no_run_of_the_machine_is_known_the_date_alone_counts() -> None:
    assert replace(GRANT, issued=Moment(900.0, "", 0.0)).left(Moment(1_000.0, "", 9_000.0)) == 100.0


def test_each_use_takes_one() -> None:
    assert [GRANT.remaining, consumed(GRANT).remaining, consumed(consumed(GRANT)).remaining] == [2, 1, 0]
    assert consumed(GRANT) == replace(GRANT, remaining=1)
    with pytest.raises(AssertionError):
        consumed(replace(GRANT, remaining=0))
    assert (GRANT.widened, replace(GRANT, digest=None).widened) == (False, True)


def test_conditions_are_those_of_an_allowing_rule() -> None:
    resource = Resource("shell.exec", {"access_mode": "rw", "args.name": "Readme", "path": ("a/b", "c")})
    assert conditions_hold({}, resource, 0.0)
    assert conditions_hold({"access_mode": "rw", "args.name": "R*"}, resource, 0.0)
    assert not conditions_hold({"args.name": "r*"}, resource, 0.0)
    assert not conditions_hold({"path": "a/*"}, resource, 0.0)


def test_arguments_have_one_text() -> None:
    text = canonical_arguments({"b": [1, 2.5, None], "a": {"d": "\u00e9", "c": True}})
    assert text == '{"a":{"c":true,"d":"\\u00e9"},"b":[1,2.5,null]}'
    assert arguments_digest(text) == hashlib.sha256(text.encode()).hexdigest()


def deep(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = {"a": value} if level % 2 else [value]
    return value


@pytest.mark.parametrize(
    "arguments",
    [
        {"a": float("nan")},
        {"a": float("inf")},
        {"a": object()},
        {"a": {1: 2}},
        {"a": [{"b": {2: 3}}]},
        {1: 2},
        {"a": deep(MAX_DEPTH)},
        {"a": "x" * MAX_ARGUMENT_BYTES},
        {"a": "x" * (MAX_ARGUMENT_BYTES - len('{"a":""}') + 1)},
    ],
)
def test_arguments_that_nobody_could_decide_on_are_refused(arguments: Any) -> None:
    with pytest.raises(SubletError) as refused:
        canonical_arguments(arguments)
    assert refused.value.code is LocalCode.INVALID_ARGUMENT


def test_the_largest_arguments_are_decided_on() -> None:
    assert MAX_ARGUMENT_BYTES == 256 * 1024
    assert len(canonical_arguments({"a": "x" * (MAX_ARGUMENT_BYTES - len('{"a":""}'))})) == MAX_ARGUMENT_BYTES
    assert canonical_arguments({"a": deep(MAX_DEPTH - 1)})


@pytest.mark.parametrize(
    ("seconds", "uses", "when", "possible"),
    [
        (1, 1, {}, True),
        (0, 1, {}, False),
        (7 * 24 * 3600, 1_000, {}, True),
        (7 * 24 * 3600 + 1, 1, {}, False),
        (1, 0, {}, False),
        (1, 1_001, {}, False),
        (1, 1, {f"args.a{number}": "*" for number in range(8)}, True),
        (1, 1, {f"args.a{number}": "*" for number in range(9)}, False),
        (1, 1, {"path": "src/*", "access_mode": "ro"}, True),
        (1, 1, {"peer": "bob"}, False),
        (1, 1, {"args.": "x"}, False),
        (1, 1, {"argsx": "x"}, False),
        (1, 1, {"args.x": ""}, False),
        (1, 1, {"args.x": "a" * 1_000}, True),
        (1, 1, {"args.x": "a" * 1_001}, False),
        (1, 1, {"path": "/etc/*"}, False),
    ],
)
def test_terms_of_a_grant(seconds: int, uses: int, when: dict[str, str], possible: bool) -> None:
    assert (MAX_TTL_SECONDS, MAX_USES, MAX_CONDITIONS, MAX_GLOB_CHARS) == (604_800, 1_000, 8, 1_000)
    if possible:
        check_terms(seconds, uses, when)
        return
    with pytest.raises(SubletError) as refused:
        check_terms(seconds, uses, when)
    assert refused.value.code is LocalCode.INVALID_ARGUMENT
    assert refused.value.hint
    if "args." in when:
        assert "nothing that a condition can look at" in refused.value.message


NESTS = {"boss": ["coder", "writer"], "coder": ["tester"], "tester": ["coder"], "other": []}


@pytest.mark.parametrize(
    ("issuer", "agent", "chain", "possible"),
    [
        ("boss", "other", (), True),
        ("boss", "boss", (), False),
        ("boss", "B\u043ess", (), False),
        ("boss", "coder", (), False),
        ("boss", "tester", (), False),
        ("tester", "boss", (), False),
        ("coder", "writer", (), True),
        ("writer", "coder", (), True),
        ("boss", "other", ("boss@node", "x@y"), False),
        ("boss", "other", ("boss@x@node",), False),
        ("boss", "other", ("x@boss",), True),
        ("boss", "other", ("other@node",), True),
        ("nobody", "other", (), True),
    ],
)
def test_no_agent_grants_itself_anything(issuer: str, agent: str, chain: tuple[str, ...], possible: bool) -> None:
    if possible:
        check_issuer(issuer, agent, NESTS, chain)
        return
    with pytest.raises(SubletError) as refused:
        check_issuer(issuer, agent, NESTS, chain)
    assert refused.value.code is LocalCode.POLICY_DENIED
