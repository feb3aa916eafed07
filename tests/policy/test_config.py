"""``policy.json``: what is refused at load, naming its place, and keeping the last good one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sublet.policy import config
from sublet.policy.config import PolicyConfig, load
from sublet.policy.decision import Action, Resource, Subject
from sublet.policy.defaults import CEILING
from sublet.policy.engine import Policy
from sublet.policy.lending import Protected
from sublet.policy.rules import KINDS, Condition
from sublet.protocol.errors import LocalCode, SubletError


def write(tmp_path: Path, document: Any) -> Path:
    source = tmp_path / "policy.json"
    source.write_text(document if isinstance(document, str) else json.dumps(document))
    return source


def problem(tmp_path: Path, document: Any) -> str:
    with pytest.raises(SubletError) as caught:
        load(write(tmp_path, document))
    assert caught.value.code is LocalCode.INVALID_ARGUMENT
    return caught.value.message


def rule(**fields: Any) -> dict[str, Any]:
    return {"id": "r", "effect": "deny", "action": "delegation.create", **fields}


def test_no_file_means_the_defaults(tmp_path: Path) -> None:
    assert load(tmp_path / "policy.json") == PolicyConfig()


def test_limits(tmp_path: Path) -> None:
    document = {
        "version": 1,
        "limits": {
            "max_ttl_seconds": 600,
            "slots": 2,
            "access_modes": ["ro"],
            "admission": {
                "max_files": 10,
                "max_file_bytes": 1_048_576,
                "max_seconds": 2.5,
                "on_sensitive": "refuse",
            },
            "require_enforced": ["memory"],
        },
    }
    limits = load(write(tmp_path, document)).limits
    assert (limits.max_ttl_seconds, limits.slots, limits.access_modes) == (600, 2, ("ro",))
    assert limits.require_enforced == ("memory",)
    assert (limits.admission.max_files, limits.admission.on_sensitive) == (10, "refuse")
    assert (limits.admission.max_file_bytes, limits.admission.max_seconds) == (1 << 20, 2.5)
    assert limits.admission.max_total_bytes == PolicyConfig().limits.admission.max_total_bytes
    total = {"version": 1, "limits": {"admission": {"max_total_bytes": 7}}}
    assert load(write(tmp_path, total)).limits.admission.max_total_bytes == 7


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "the file"),
        ("null", "the file"),
        ({}, "version"),
        ({"version": 2}, "version"),
        ({"version": 1, "rules": []}, "rules"),
        ('{"version": 1, "version": 1}', "twice"),
        ({"version": 1, "limits": {"slots": "5"}}, "limits.slots"),
        ({"version": 1, "limits": {"slots": True}}, "limits.slots"),
        ({"version": 1, "limits": {"max_ttl": 5}}, "limits.max_ttl"),
        ({"version": 1, "limits": {"max_ttl_seconds": 10**9}}, "limits.max_ttl_seconds"),
        ({"version": 1, "global": [rule(effect="maybe")]}, "global[0].effect"),
        ({"version": 1, "global": [rule(efect="deny")]}, "global[0].efect"),
        ({"version": 1, "global": [rule(), rule()]}, "global[1].id"),
        ({"version": 1, "global": [rule(id="default.x")]}, "global[0].id"),
        ({"version": 1, "role": {"robot": [rule(action="peer.pair")]}}, "role.robot"),
        ({"version": 1, "role": {"A Robot": [rule()]}}, "role.A Robot"),
        ({"version": 1, "role": {"mcp": [rule(subject={"kind": "human"})]}}, "role.mcp[0].subject.kind"),
        ({"version": 1, "agent": {"bob": [rule(subject={"name": "eve"})]}}, "agent.bob[0].subject.name"),
        ({"version": 1, "global": [rule(action="delegation.craete")]}, "global[0].action"),
        ({"version": 1, "global": [rule(when={"color": "red"})]}, "global[0].when.color"),
        ({"version": 1, "global": [rule(when={"agent": {}})]}, "global[0].when.agent"),
        ({"version": 1, "global": [rule(when={"ttl_seconds": {"min": 5, "max": 4}})]}, "global[0].when.ttl_seconds"),
        ({"version": 1, "global": [rule(resource="\u200b")]}, "global[0]"),
    ],
)
def test_a_bad_file_names_the_place(tmp_path: Path, document: Any, place: str) -> None:
    assert place in problem(tmp_path, document)


@pytest.mark.parametrize(
    "rules",
    [
        {"role": {"peer": [rule(effect="allow", action="peer.manage")]}},
        {"role": {"mcp": [rule(effect="allow", action="daemon.control")]}},
        {"global": [rule(id="d"), rule(effect="allow", resource="bob")]},
        {"role": {"mcp": [rule(effect="allow")]}, "global": [rule(id="g", effect="allow", subject={"kind": "mcp"})]},
    ],
)
def test_a_rule_that_can_never_match_is_refused(tmp_path: Path, rules: dict[str, Any]) -> None:
    assert "never matches" in problem(tmp_path, {"version": 1, **rules})


def test_rules_that_can_match_are_not_refused(tmp_path: Path) -> None:
    document = {
        "version": 1,
        "global": [
            rule(id="d1", resource="mallory"),
            rule(id="d2", when={"access_mode": "rw"}, action=["delegation.create", "assignment.accept"]),
            rule(id="a1", effect="allow", action="*", resource="bob"),
        ],
        "role": {"mcp": [rule(id="a2", effect="allow", action="workspace.reveal", resource=".env.test")]},
        "agent": {"claude": [rule(id="a3", effect="allow", action="delegation.*", resource="b*")]},
    }
    assert len(load(write(tmp_path, document)).rules) == 5


def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "MAX_RULES", 1)
    assert "more than 1 rules" in problem(tmp_path, {"version": 1, "global": [rule(id="a"), rule(id="b")]})
    monkeypatch.setattr(config, "MAX_POLICY_BYTES", 10)
    assert "larger" in problem(tmp_path, {"version": 1, "global": []})


def test_a_directory_in_place_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(SubletError, match="can't be read"):
        load(tmp_path)


def test_a_bad_reload_keeps_what_held_before(tmp_path: Path) -> None:
    def allowed() -> bool:
        return policy.decide(Subject("mcp", "claude"), Action.DELEGATION_CREATE, Resource("bob")).allowed

    source = write(tmp_path, {"version": 1, "global": [rule()], "limits": {"slots": 1}})
    policy = Policy.load(source, Protected(tmp_path))
    assert not allowed()
    write(tmp_path, {"version": 1, "global": [{"id": "broken"}], "limits": {"slots": 9}})
    with pytest.raises(SubletError):
        policy.reload()
    assert not allowed()
    assert policy.limits.slots == 1
    write(tmp_path, {"version": 1})
    policy.reload()
    assert allowed()
    assert policy.limits.slots == 5


def loaded(tmp_path: Path, **document: Any) -> PolicyConfig:
    return load(write(tmp_path, {"version": 1, **document}))


def test_a_file_of_just_the_most_bytes_and_rules_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path, {"version": 1, "global": [rule(id="a"), rule(id="b", resource="x", action="peer.pair")]})
    monkeypatch.setattr(config, "MAX_RULES", 2)
    monkeypatch.setattr(config, "MAX_POLICY_BYTES", source.stat().st_size)
    read = load(source)
    assert (len(read.rules), read.from_file, read.places) == (2, True, ("global[0]", "global[1]"))


def test_problems_are_told_up_to_a_few_and_then_counted(tmp_path: Path) -> None:
    for number, more in ((5, ""), (7, "; and 2 more problems")):
        rules = [rule(id=f"r{i}", resource=f"x{i}", when={"color": "red"}) for i in range(number)]
        said = problem(tmp_path, {"version": 1, "global": rules})
        assert said.startswith(f"{tmp_path / 'policy.json'}: global[0].when.color: ")
        assert said.partition("; and ")[1:] == more.partition("; and ")[1:]
        assert said.count("has this attribute") == 5


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"role": {"coder": [rule(subject={"kind": "mcp"})]}}, "role.coder[0].subject.kind: a rule below role.coder"),
        ({"role": {"coder": [rule(subject={"role": "x"})]}}, "role.coder[0].subject.role: a rule below role.coder"),
        ({"global": [rule(subject={"kind": "mcp", "role": "x"})]}, "global[0].subject.role: only agents have roles"),
        ({"agent": {"peer:a:b": [rule()]}}, "agent.peer:a:b: a name stands without its kind: a:b, with subject.kind"),
        ({"agent": {"peer": [rule()]}}, "agent.peer: a name stands without its kind: NAME, with subject.kind peer"),
        ({"global": [rule(record=True)]}, "global[0].record: refusals and changes are recorded anyway"),
    ],
)
def test_who_is_named_twice_or_wrongly_is_told_where(tmp_path: Path, document: Any, said: str) -> None:
    assert said in problem(tmp_path, {"version": 1, **document})


def test_of_whom_rules_speak(tmp_path: Path) -> None:
    def reads(id: str, **more: Any) -> dict[str, Any]:
        return {"id": id, "effect": "allow", "action": "delegation.read", "record": True, **more}

    found = loaded(
        tmp_path,
        **{"global": [rule(id="b", action="tool.call", subject={"role": "x"})]},
        role={"coder": [rule(id="c", action="tool.call")], "mcp": [rule(id="d", resource="y")]},
        agent={"zed": [reads("a")], "bob": [rule(id="e", subject={"kind": "mcp"})]},
    ).rules
    able = {kind for kind in KINDS if Action.DELEGATION_READ in CEILING[kind]}
    assert able < set(KINDS)
    assert [(one.id, one.layer, set(one.kinds), one.name, one.role, one.record) for one in found] == [
        ("b", "global", {"agent"}, "*", "x", False),
        ("c", "role", {"agent"}, "*", "coder", False),
        ("d", "role", {"mcp"}, "*", "*", False),
        ("a", "agent", able, "zed", "*", True),
        ("e", "agent", {"mcp"}, "bob", "*", False),
    ]


def test_the_home_is_meant_in_paths_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    paths = ["workspace.lend", "lend_root.manage"]
    rules = [rule(id="a", action=paths, resource="~/x"), rule(id="b", action="room.send", resource="~")]
    assert [one.resource for one in loaded(tmp_path, **{"global": rules}).rules] == [f"{tmp_path}/x", "~"]


def test_conditions_are_as_they_are_written_but_paths_of_lending(tmp_path: Path) -> None:
    twice = [
        ("tool.call", "path", ["a", "a"]), ("workspace.lend", "access_mode", ["ro", "ro"]),
        ("workspace.lend", "path", ["/a", "/a"]),
    ]  # fmt: skip
    rules = [rule(id=f"r{i}", action=a, when={name: {"any_of": v}}) for i, (a, name, v) in enumerate(twice)]
    found = [one.when for one in loaded(tmp_path, **{"global": rules}).rules]
    assert found == [
        {"path": Condition(("a", "a"))}, {"access_mode": Condition(("ro", "ro"))}, {"path": Condition(("/a",))},
    ]  # fmt: skip


def test_tests_that_a_file_carries_are_read_as_questions(tmp_path: Path) -> None:
    asked = {"action": "tool.call", "resource": "file.read", "expect": "allow"}
    subjects: list[tuple[Any, Subject]] = [
        ({"name": "x", "role": "r"}, Subject("agent", "x", role="r")),
        ({}, Subject("agent")),
        ("y", Subject("agent", "y")),
        ("agent:z", Subject("agent", "z")),
    ]
    tests = [{**asked, "subject": given, "attributes": {"path": ["a", "b"]}} for given, _ in subjects]
    found = loaded(tmp_path, tests=tests).tests
    assert [one.subject for one in found] == [subject for _, subject in subjects]
    assert {one.place: one.attributes for one in found} == {f"tests[{i}]": {"path": ("a", "b")} for i in range(4)}
    human = {"subject": {"kind": "human"}, "action": "room.send", "resource": "r", "expect": "deny"}
    said = problem(tmp_path, {"version": 1, "tests": [human, {**human, "expect": "needs_grant"}]})
    assert said.count("expected ") == 2
    assert "tests[0]: expected deny" in said
    assert "; tests[1]: expected needs_grant" in said


def test_a_deny_speaks_of_all_kinds_and_says_its_words(tmp_path: Path) -> None:
    [made] = loaded(tmp_path, **{"global": [rule(resource="x", reason="so", hint="do", hide=True)]}).rules
    assert (set(made.kinds), made.reason, made.hint, made.hide) == (set(KINDS), "so", "do", True)


def test_limits_hold_for_the_tests_that_a_file_carries_and_broken_rules_are_told_first(tmp_path: Path) -> None:
    asked = {"subject": "peer:bob", "action": "assignment.accept", "resource": "x", "attributes": {"access_mode": "rw"}}
    limits = {"access_modes": ["ro"]}
    assert loaded(tmp_path, limits=limits, tests=[{**asked, "expect": "deny", "rule": "limits.access_modes"}]).tests
    document = {"version": 1, "limits": limits, "tests": [{**asked, "expect": "allow"}]}
    assert "tests[0]: expected allow" in problem(tmp_path, document)
    assert len(config.parse(document, tested=False).tests) == 1
    both = problem(tmp_path, {**document, "global": [rule(when={"color": "red"})]})
    assert "global[0].when.color" in both
    assert "tests[0]" not in both
