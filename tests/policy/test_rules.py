"""Conditions over paths, sizes, times and arguments, roles, and what a file's own tests are for."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from sublet.policy.config import BadPolicy, parse
from sublet.policy.decision import Action, Decision, Resource, Subject
from sublet.policy.engine import Policy
from sublet.policy.globs import components, covers, matcher, path_matcher
from sublet.policy.lending import Protected
from sublet.policy.rules import Condition, Rule
from sublet.policy.tool_calls import tool_resource
from sublet.protocol.errors import SubletError

EXAMPLES = Path(__file__).parents[2] / "examples" / "policies"
WORKER = Subject("agent", "worker", role="executor")


def policy(*rules: dict[str, Any], role: str = "agent", now: str = "2026-11-27T10:00:00+00:00") -> Policy:
    """Return a policy with ``rules`` below a role; 2026-11-27 is a Friday."""
    document = {"version": 1, "role": {role: [{"id": f"r{i}", **rule} for i, rule in enumerate(rules)]}}
    return Policy(Protected(Path("/nowhere")), parse(document), clock=lambda: datetime.fromisoformat(now).timestamp())


def rule(effect: str = "allow", resource: str = "file.*", **more: Any) -> dict[str, Any]:
    return {"effect": effect, "action": "tool.call", "resource": resource, **more}


def call(engine: Policy, tool: str = "file.read", *paths: str, subject: Subject = WORKER, **arguments: Any) -> Decision:
    return engine.decide(subject, Action.TOOL_CALL, tool_resource(tool, arguments, paths, access_mode="rw"))


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("src", True),
        ("src/a/b.py", True),
        ("src//a/./b", True),
        ("src-evil/a", False),
        ("srcs", False),
        ("Src/a", False),
        ("sr", False),
        ("src/../secret", False),
        ("src/..", False),
        ("..", False),
        ("/src/a", False),
        ("", False),
        ("s\u0433c/a", False),
    ],
)
def test_a_path_scope_is_whole_components(path: str, inside: bool) -> None:
    allowing = policy(rule(when={"path": {"within": "src"}}))
    assert call(allowing, "file.read", path).allowed is inside
    denying = policy(rule("deny", when={"path": {"within": "src"}}))
    told_apart = components(path) is not None and not path.startswith("/")
    assert call(denying, "file.read", path).allowed is (not inside and told_apart)


def test_of_many_paths_all_have_to_be_allowed_and_none_denied() -> None:
    allowing = policy(rule(when={"path": {"within": ["src", "docs"]}}))
    assert call(allowing, "file.move", "src/a", "docs/b").allowed
    assert not call(allowing, "file.move", "src/a", "other/b").allowed
    assert not call(allowing, "file.move").allowed
    denying = policy(rule("deny", when={"path": {"like": "**/.env*"}}))
    assert call(denying, "file.read", "src/a").allowed
    assert not call(denying, "file.move", "src/a", "src/.env.local").allowed
    assert not call(denying, "file.read", ".env").allowed


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("/srv/project", "/srv/project", True),
        ("/srv/project", "/srv/project-evil", False),
        ("/srv/*", "/srv/a", True),
        ("/srv/*", "/srv/a/b", False),
        ("/srv/**", "/srv", True),
        ("/srv/**", "/srv/a/b/c", True),
        ("/srv/**", "/srvs/a", False),
        ("/srv/**/x", "/srv/x", True),
        ("/srv/**/x", "/srv/a/b/x", True),
        ("/srv/**/x", "/srv/a/b/y", False),
        ("/srv/**", "/srv/../etc", False),
        ("/srv/p*t", "/srv/project", True),
        ("/**", "/", True),
        ("src/**", "/src/a", False),
    ],
)
def test_patterns_of_paths(pattern: str, path: str, matches: bool) -> None:
    assert path_matcher(pattern)(path) is matches


def test_a_pattern_of_many_wildcards_is_no_trap() -> None:
    assert not path_matcher("/**/a" * 30 + "/b")("/a" * 500)


def test_a_lent_directory_is_what_its_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "link").symlink_to(tmp_path / "secret")
    document = {
        "version": 1,
        "global": [
            {
                "id": "no-secret",
                "effect": "deny",
                "action": "workspace.lend",
                "when": {"path": {"within": str(tmp_path / "secret")}},
            }
        ],
    }
    engine = Policy(Protected(Path("/nowhere")), parse(document))
    caller = Subject("mcp", "claude", (str(tmp_path),))
    for path in ("project/link", "secret", "project/../secret"):
        asked = str(tmp_path / path)
        decision = engine.decide(caller, Action.WORKSPACE_LEND, Resource(asked, {"path": asked}))
        assert decision.rule == "no-secret", path
    asked = str(tmp_path / "project")
    assert engine.decide(caller, Action.WORKSPACE_LEND, Resource(asked, {"path": asked})).allowed


def test_arguments_are_attributes_and_compared_as_they_are_where_they_allow() -> None:
    allowing = policy(rule(resource="shell.exec", when={"args.command": {"any_of": ["ls", "make test"]}}))
    assert call(allowing, "shell.exec", command="ls").allowed
    for command in ("LS", "l\u0455", "ls; rm -rf x", None, ["ls"]):
        assert not call(allowing, "shell.exec", command=command).allowed or command == ["ls"]
    denying = policy(rule("deny", "shell.exec", when={"args.command": {"like": "rm *"}}), rule(resource="shell.exec"))
    assert not call(denying, "shell.exec", command="RM -rf x").allowed
    assert not call(denying, "shell.exec").allowed
    assert call(denying, "shell.exec", command="ls").allowed
    nested = policy(rule("deny", "shell.exec", when={"args.options.force": True}))
    assert not call(nested, "shell.exec", options={"force": True}).allowed
    assert call(nested, "shell.exec", options={"force": False}).allowed


def test_sizes_have_units() -> None:
    engine = policy(rule("deny", "file.write", when={"size_bytes": {"min": "1 KiB"}}))
    assert call(engine, "file.write", content="x" * 100).allowed
    assert not call(engine, "file.write", content="x" * 2_000).allowed


@pytest.mark.parametrize(
    ("now", "holds"),
    [
        ("2026-11-27T21:59:00+00:00", False),
        ("2026-11-27T22:00:00+00:00", True),
        ("2026-11-28T05:59:00+00:00", True),  # the night that began on Friday
        ("2026-11-28T06:00:00+00:00", False),
        ("2026-11-28T23:00:00+00:00", False),  # Saturday
        ("2026-11-29T01:00:00+00:00", False),
        ("2026-11-27T23:30:00+01:00", True),
    ],
)
def test_times_of_the_day_go_by_the_clock_that_is_passed_in(now: str, holds: bool) -> None:
    times = {"days": ["fri"], "from": "22:00", "to": "06:00", "zone": "UTC"}
    assert call(policy(rule("deny", times=times), now=now)).allowed is not holds


def test_a_zone_is_minded() -> None:
    times = {"from": "08:00", "to": "09:00", "zone": "Europe/Berlin"}
    assert not call(policy(rule("deny", times=times), now="2026-07-01T06:30:00+00:00")).allowed
    assert not call(policy(rule("deny", times=times), now="2026-12-01T07:30:00+00:00")).allowed
    assert call(policy(rule("deny", times=times), now="2026-12-01T06:30:00+00:00")).allowed


def test_a_role_is_of_agents_and_stands_beside_their_kind() -> None:
    engine = policy(rule(resource="file.read"), role="reviewer")
    reviewer = Subject("agent", "x", role="Reviewer")
    assert call(engine, "file.read", subject=reviewer).allowed
    assert not call(engine, "file.write", subject=reviewer).allowed
    assert call(engine, "file.write").allowed
    denying = policy(rule("deny"), role="my-own.role")
    assert not call(denying, subject=Subject("agent", "x", role="my-own.role")).allowed
    assert call(denying).allowed
    lookalike = Subject("agent", "x", role="r\u0435viewer")
    assert call(engine, "file.write", subject=lookalike).allowed, "what a role allows is not for a lookalike"
    assert call(engine, "file.read", subject=lookalike).rule == "default.agent.files"


def test_limits_of_tools_stand_whatever_allows() -> None:
    engine = policy(rule(resource="*"))
    for tool in ("file.write", "file_edit", "mv", "unlink"):
        decision = engine.decide(WORKER, Action.TOOL_CALL, tool_resource(tool, {}, ["a"], access_mode="ro"))
        assert decision.rule == "limits.read_only", tool
    for path in ("/etc/passwd", "../x", "a/../../x"):
        asked = tool_resource("file.read", {}, [path], access_mode="rw")
        assert engine.decide(WORKER, Action.TOOL_CALL, asked, granted=True).rule == "limits.inside_lease", path


def test_hidden_denials_say_so() -> None:
    assert call(policy(rule("deny", hide=True))).hidden
    assert not call(policy(rule("deny"))).hidden


def test_a_policy_whose_own_tests_fail_is_refused() -> None:
    document: dict[str, Any] = {
        "version": 1,
        "global": [{"id": "no", "effect": "deny", "action": "tool.call", "resource": "shell.exec"}],
        "tests": [
            {"subject": "agent:x", "action": "tool.call", "resource": "bash", "expect": "deny", "rule": "no"},
            {"subject": "agent:x", "action": "tool.call", "resource": "bash", "expect": "allow"},
            {"subject": "agent:x", "action": "tool.call", "resource": "bash", "expect": "deny", "rule": "other"},
        ],
    }
    with pytest.raises(BadPolicy) as bad:
        parse(document)
    assert [problem.partition(":")[0] for problem in bad.value.problems] == ["tests[1]", "tests[2]"]
    assert len(parse(document, tested=False).tests) == 3
    document["tests"] = [{"subject": "robot:x", "action": "fly", "resource": "x", "expect": "deny"}]
    with pytest.raises(BadPolicy, match=r"tests\[0\]\.subject"):
        parse(document)


def test_a_reload_refuses_a_policy_whose_tests_fail(tmp_path: Path) -> None:
    source = tmp_path / "policy.json"
    failing = {"subject": "human", "action": "peer.pair", "resource": "x", "expect": "deny"}
    source.write_text(json.dumps({"version": 1, "limits": {"slots": 2}}))
    engine = Policy.load(source, Protected(tmp_path))
    source.write_text(json.dumps({"version": 1, "limits": {"slots": 9}, "tests": [failing]}))
    with pytest.raises(SubletError, match="expected deny"):
        engine.reload()
    assert engine.limits.slots == 2


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.json")), ids=lambda path: path.stem)
def test_the_examples_pass_their_own_tests(path: Path) -> None:
    config = parse(json.loads(path.read_text(encoding="utf-8")))
    assert len(config.rules) >= 6
    asked = {test.rule for test in config.tests}
    unasked = {one.id for one in config.rules} - asked
    assert len(config.tests) > 10
    assert len(unasked) < len(config.rules)


def lint(**more: Any) -> str:
    first = {"id": "r", "effect": "deny", "action": "tool.call", "resource": "shell.exec", **more}
    with pytest.raises(BadPolicy) as bad:
        parse({"version": 1, "global": [first]})
    return "; ".join(bad.value.problems)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"resource": "/bin/sh"}, "no resource of tool.call is named like"),
        ({"resource": "x\x07"}, "control character"),
        ({"resource": " x"}, "begins or ends with a space"),
        ({"resource": "[b-a]"}, "is empty"),
        ({"resource": "[ab"}, "not closed"),
        ({"resource": "file.[rw]*"}, "what a tool is called with is a condition"),
        ({"action": "workspace.lend", "resource": "project"}, "no resource of workspace.lend"),
        ({"action": "workspace.lend", "resource": "/srv/"}, "no slash at its end"),
        ({"action": "workspace.lend", "resource": "/srv/../x"}, "without '.' and '..'"),
        ({"action": "workspace.lend", "resource": "/srv/a**"}, "whole components"),
        ({"action": "daemon.control", "resource": "restart"}, "no resource of daemon.control"),
        ({"action": "peer.pair", "subject": {"kind": "human", "name": "me"}}, "a person has no name"),
        ({"action": "peer.pair", "subject": {"kind": "mcp"}}, "never matters"),
        ({"subject": {"kind": "human", "role": "x"}}, "only agents have roles"),
        ({"when": {"access_mode": "x"}}, "it is one of ro, rw"),
        ({"when": {"access_mode": {"like": "w*"}}}, "it is one of ro, rw"),
        ({"when": {"access_mode": {"min": 1}}}, "min and max are for numbers"),
        ({"when": {"size_bytes": "many"}}, "none of the values is one"),
        ({"when": {"size_bytes": {"max": -1}}}, "at least 0"),
        ({"when": {"size_bytes": {"like": "1*"}}}, "like is for text"),
        ({"when": {"peer": {"within": "x"}}}, "within is for paths"),
        ({"when": {"path": {"within": "a/../b"}}}, "is no path"),
        ({"when": {"path": {"within": "a/*"}}}, "is no path"),
        ({"when": {"size_bytes": {"max": "10 apples"}}}, "a size such as"),
        ({"action": "delegation.extend", "resource": "*", "when": {"ttl_seconds": {"min": 10**9}}}, "at most 604800"),
        ({"times": {"from": "25:00"}}, "24:00"),
        ({"times": {"from": "8:00"}}, "no time of day"),
        ({"times": {"from": "08:00", "to": "08:00"}}, "the same minute"),
        ({"times": {"zone": "Mars/Olympus"}}, "no time zone"),
        ({"times": {"days": ["someday"]}}, "times.days"),
        ({"effect": "allow", "subject": {"kind": "agent"}, "hide": True}, "only what is denied"),
        ({"id": "agent.json.x"}, "id that decisions without a rule of yours have"),
        ({"id": "ceiling"}, "id that decisions without a rule of yours have"),
        ({"effect": "allow", "subject": {"kind": "agent"}}, "the built-in rule default.agent.shell of the same layer"),
    ],
)
def test_what_can_never_match_or_matter_is_found(change: dict[str, Any], said: str) -> None:
    assert said in lint(**change)


def test_shadows_are_found_across_layers_and_spellings() -> None:
    deny = {"id": "d", "effect": "deny", "action": "tool.call", "resource": "shell.*"}
    for other, said in [
        ({"id": "a", "effect": "allow", "action": "tool.call", "resource": "bash"}, "never matches: global[0] denies"),
        (
            {"id": "a", "effect": "approval", "action": "tool.call", "resource": "shell.exec"},
            "never matches: global[0]",
        ),
        ({"id": "a", "effect": "deny", "action": "tool.call", "resource": "Shell_Exec"}, "unreachable: global[0]"),
    ]:
        with pytest.raises(BadPolicy, match=r"agent\.w\[0\]") as bad:
            parse({"version": 1, "global": [deny], "agent": {"w": [other]}})
        assert said in bad.value.problems[0]
    conditional = {**deny, "when": {"access_mode": "rw"}}
    allow = {"id": "a", "effect": "allow", "action": "tool.call", "resource": "bash"}
    assert parse({"version": 1, "global": [conditional], "agent": {"w": [allow]}}).rules


PATTERNS = st.text("ab.*?/", min_size=1, max_size=6)


@given(PATTERNS, PATTERNS, st.text("ab./", max_size=6))
def test_what_covers_a_pattern_matches_whatever_it_matches(wide: str, narrow: str, name: str) -> None:
    """Lint may overlook a shadow, and must never see one that is none."""
    if covers(wide, narrow) and matcher(narrow)(name):
        assert matcher(wide)(name)


@pytest.mark.parametrize(
    "arguments",
    [
        {"a.b": "good", "a": {"b": "evil"}},
        {"a": {"b": "evil"}, "a.b": "good"},
        {"a.b": None, "a": {"b": "good"}},
        {"a.b": "good", **{f"filler{n}": n for n in range(300)}, "a": {"b": "evil"}},
    ],
)
def test_no_argument_hides_another_of_the_same_attribute(arguments: dict[str, Any]) -> None:
    allowing = policy(rule(when={"args.a.b": "good"}))
    assert call(allowing, a={"b": "good"}).allowed
    assert not call(allowing, **arguments).allowed
    denying = policy(rule(), rule("deny", when={"args.a.b": "evil"}))
    assert call(denying, a={"b": "good"}).allowed
    assert not call(denying, **arguments).allowed


@pytest.mark.parametrize(
    "condition",
    [{"within": "ws/secret/deep"}, {"like": "ws/secret/**"}, "ws/secret/deep/key", {"like": "ws/secret/d*/k?y"}],
)
@pytest.mark.parametrize("effect", ["deny", "approval"])
def test_what_reaches_below_a_path_meets_the_rules_for_what_lies_there(effect: str, condition: Any) -> None:
    engine = policy(rule(), rule(effect, when={"path": condition}))
    for tool in ("file.search", "grep", "mv"):
        for path in ("ws", "ws/secret", "ws/./secret/deep", "ws/src/../secret"):
            assert not call(engine, tool, "ws/notes/a", path).allowed, (tool, path)
        assert call(engine, tool, "ws/notes/a", "ws/sec").allowed
    # What acts on the one path that it names is not kept from the directories above.
    assert call(engine, "file.list", "ws").allowed


def test_what_is_sifted_by_itself_is_denied_only_where_it_is_and_approved_from_above() -> None:
    sifted = tool_resource("file.search", {}, ("ws",), sifted=True)
    denying, asking = (
        policy(rule(), rule(effect, when={"path": {"like": "**/.env"}})) for effect in ("deny", "approval")
    )
    assert denying.decide(WORKER, Action.TOOL_CALL, sifted).allowed
    assert asking.decide(WORKER, Action.TOOL_CALL, sifted).needs_grant
    for path in ("ws/.env", "ws/a/b/.env", "ws/a/../.env"):
        there = tool_resource("file.search", {}, (path,), sifted=True)
        assert not denying.decide(WORKER, Action.TOOL_CALL, there).allowed


def test_an_allow_reaches_no_higher_than_it_says() -> None:
    engine = policy(rule(when={"path": {"within": "ws/src"}}))
    assert call(engine, "file.search", "ws/src").allowed
    assert not call(engine, "file.search", "ws").allowed


@pytest.mark.parametrize(
    ("condition", "name", "value", "exact", "loose"),
    [
        (Condition(scopes=("src",)), "path", "src/a", True, True),
        (Condition(scopes=("src",)), "path", "src/..", False, True),
        (Condition(scopes=("src",)), "path", 7, False, False),
        (Condition(glob="src/*"), "path", "src/..", False, True),
        (Condition(glob="src/*"), "path", "src/a/b", False, False),
        (Condition(values=("src/a",)), "path", "src//a", True, True),
        (Condition(values=("src/a",)), "path", "src/..", False, True),
        (Condition(minimum=1), "size_bytes", "x", False, True),
        (Condition(minimum=1), "size_bytes", True, False, True),
        (Condition(maximum=1), "size_bytes", "x", False, True),
        (Condition(minimum=1), "size_bytes", 1, True, True),
        (Condition(minimum=1), "size_bytes", 0, False, False),
        (Condition(maximum=1), "size_bytes", 1, True, True),
        (Condition(maximum=1), "size_bytes", 2, False, False),
        (Condition(values=(1,)), "size_bytes", True, False, False),
        (Condition(values=(1,)), "size_bytes", 1, True, True),
        (Condition(values=("Bob",)), "peer", "bOB", True, True),
        (Condition(values=("bob",)), "peer", "b\u043eb", False, True),
        (Condition(values=("Bob",)), "args.x", "bob", False, True),
        (Condition(glob="B*"), "peer", "bob", True, True),
        (Condition(glob="B*"), "args.x", "bob", False, True),
        (Condition(glob="b*"), "peer", 7, False, False),
        (Condition(), "peer", 7, True, True),
    ],
)
def test_a_condition_holds_exactly_or_loosely(
    condition: Condition, name: str, value: Any, exact: bool, loose: bool
) -> None:
    assert (condition.holds(name, value, exact=True), condition.holds(name, value, exact=False)) == (exact, loose)


@pytest.mark.parametrize(
    ("condition", "allowed"),
    [
        (Condition(), True),
        (Condition(values=("make  'x'",)), True),
        (Condition(values=("other", "make x")), True),
        (Condition(values=("make",)), False),
        (Condition(values=(7,)), False),
        (Condition(glob="make *"), True),
        (Condition(glob="make"), False),
        (Condition(values=("make x",), glob="make y"), False),
        (Condition(scopes=("make",)), False),
        (Condition(minimum=1), False),
        (Condition(maximum=1), False),
    ],
)
def test_a_command_is_allowed_by_its_words(condition: Condition, allowed: bool) -> None:
    assert condition.allows_command(("make", "x")) is allowed
    assert not condition.allows_command(None)


def test_each_of_several_values_is_compared_exactly_where_a_rule_allows() -> None:
    when = {"args.x": Condition(values=("Readme",))}
    calls, agents = frozenset({Action.TOOL_CALL}), frozenset[Any]({"agent"})
    asked = Resource("x", {"args.x": ("Readme", "readme")})
    assert not Rule("r", "allow", "role", agents, calls, when=when).conditions_hold(asked, 0.0)
    assert Rule("r", "deny", "role", agents, calls, when=when).conditions_hold(asked, 0.0)


@pytest.mark.parametrize("kept", [Condition, Rule])
def test_what_is_kept_of_rules_has_no_field_that_is_not_known(kept: type) -> None:
    rule = {"id": "r", "effect": "deny", "layer": "role", "kinds": ["agent"], "actions": ["tool.call"]}
    given = {} if kept is Condition else rule
    assert TypeAdapter(kept).validate_python(given) is not None
    with pytest.raises(ValidationError):
        TypeAdapter(kept).validate_python({**given, "later": 1})
