"""D20, D21: one language of paths in rules, tests of rules, questions and grants; what no path can match is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sublet.policy.config import BadPolicy, PolicyConfig, parse
from sublet.policy.decision import Action, Decision, Resource, Subject
from sublet.policy.engine import Policy
from sublet.policy.grants import check_terms, conditions_hold
from sublet.policy.lending import Protected
from sublet.policy.paths import (
    expanded,
    language_of,
    led_to,
    lent_path,
    lent_paths,
    real_path,
    settled,
    touched_by,
    written,
)
from sublet.policy.rule_tests import asked_resource
from sublet.policy.tool_calls import tool_resource
from sublet.protocol.errors import SubletError

WORKER = Subject("agent", "worker", role="executor")
OWNER = Subject("human")


def rule(**more: Any) -> dict[str, Any]:
    return {"id": "r", "effect": "deny", "action": "tool.call", "resource": "file.*", **more}


def made(*rules: dict[str, Any], tests: list[Any] | None = None) -> PolicyConfig:
    return parse({"version": 1, "global": list(rules), "tests": tests or []})


def called(config: PolicyConfig, tool: str, *paths: str) -> Decision:
    asked = tool_resource(tool, {}, lent_paths(paths, ["workspace", "docs"]), access_mode="rw")
    return Policy(Protected(Path("/nowhere")), config).decide(WORKER, Action.TOOL_CALL, asked)


def problems(*rules: dict[str, Any]) -> str:
    with pytest.raises(BadPolicy) as bad:
        made(*rules)
    return "\n".join(bad.value.problems)


@pytest.mark.parametrize(
    ("path", "seen"),
    [
        ("workspace/src/a.py", "src/a.py"),
        ("workspace", "."),
        ("workspace/", "."),
        ("docs/secrets/x", "secrets/x"),
        ("docs//X/", "X"),
        ("meta/task.md", "meta/task.md"),
        ("workspaces/a", "workspaces/a"),
        ("/etc/passwd", "/etc/passwd"),
        ("", ""),
    ],
)
def test_a_path_of_a_tool_is_relative_to_the_lent_directory(path: str, seen: str) -> None:
    assert lent_path(path, ["workspace", "docs"]) == seen


@pytest.mark.parametrize(
    "condition", [{"within": ["secrets"]}, {"like": "secrets/**"}, {"any_of": ["secrets/key"]}, "secrets/key"]
)
def test_a_deny_of_a_path_denies_it_in_whichever_directory_is_lent(condition: Any) -> None:
    test = {"subject": "agent:worker", "action": "tool.call", "resource": "file.read", "expect": "deny", "rule": "r"}
    config = made(rule(when={"path": condition}), tests=[{**test, "attributes": {"path": "secrets/key"}}])
    for directory in ("workspace", "docs"):
        assert called(config, "file.read", f"{directory}/secrets/key").rule == "r"
        assert called(config, "file.read", f"{directory}/src/a.py").allowed
    assert not called(config, "file.search", "workspace").allowed, "a search reaches all that lies below"


@pytest.mark.parametrize(
    "condition",
    [
        {"within": ["src", "/etc"]},
        {"within": "/home/me/project/src"},
        {"within": "~/src"},
        {"within": "src/.."},
        {"within": "src/*"},
        {"any_of": ["src/a.py", "../b"]},
        {"any_of": ["src/*.py"]},
        {"any_of": [""]},
        {"like": "/srv/**"},
        {"like": "~/x/**"},
        {"like": "./src/**"},
        {"like": "src/../x"},
        {"like": "src/"},
        {"like": "src//a"},
        {"like": "src/**.py"},
        {"like": " src/*"},
        "/etc/passwd",
        {"any_of": ["src/a.py"], "within": ["docs"]},
    ],
)
def test_a_path_of_a_tool_that_can_never_match_is_refused_when_loaded(condition: Any) -> None:
    assert "global[0].when.path" in problems(rule(when={"path": condition}))


@pytest.mark.parametrize("action", ["workspace.lend", "workspace.reveal", "workspace.unlock", "lend_root.manage"])
@pytest.mark.parametrize("condition", [{"within": "priv"}, {"like": "**/priv"}, {"any_of": ["~bob/priv"]}, "./priv"])
def test_a_path_of_lending_is_absolute(action: str, condition: Any) -> None:
    assert "a path of lending is absolute" in problems(rule(action=action, resource="*", when={"path": condition}))


def test_one_rule_does_not_speak_both_languages() -> None:
    both = rule(action=["tool.call", "workspace.lend"], resource="*", when={"path": {"within": "src"}})
    assert "write two rules" in problems(both)


@pytest.mark.parametrize(
    "lend",
    [
        {"when": {"path": {"within": "~/priv"}}},
        {"when": {"path": {"like": "~/priv/**"}}},
        {"when": {"path": "~/priv"}},
        {"resource": "~/priv"},
    ],
)
def test_the_home_is_meant_where_a_rule_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lend: Any) -> None:
    """D21: ``~`` in a rule is the home."""
    home = tmp_path / "home"
    (home / "priv").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    question = {"subject": "human", "action": "workspace.lend", "resource": "~/priv", "expect": "deny", "rule": "r"}
    config = made(rule(action="workspace.lend", **{"resource": "*", **lend}), tests=[question])
    policy = Policy(Protected(Path("/nowhere")), config)
    priv = str(home / "priv")
    assert policy.decide(OWNER, Action.WORKSPACE_LEND, Resource(priv, {"path": priv})).rule == "r"


def test_a_rule_over_a_link_is_one_over_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for condition in (
        {"within": f"{tmp_path}/link"},
        {"like": f"{tmp_path}/link/**"},
        {"any_of": [f"{tmp_path}/link/deep"]},
    ):
        config = made(rule(action="workspace.lend", resource="*", when={"path": condition}))
        asked = asked_resource(Action.WORKSPACE_LEND, f"{tmp_path}/link/deep", {}, {})
        policy = Policy(Protected(Path("/nowhere")), config)
        assert policy.decide(OWNER, Action.WORKSPACE_LEND, asked).rule == "r", condition


def test_a_question_that_names_arguments_is_about_the_paths_in_them() -> None:
    config = made(rule(when={"path": {"within": "secrets"}}))
    policy = Policy(Protected(Path("/nowhere")), config)
    for arguments, allowed in (
        ({"path": "secrets/key"}, False),
        ({"path": "src/../secrets"}, False),
        ({"path": "src/a.py"}, True),
        ({"path": "src/a", "to": "secrets/a"}, False),
    ):
        asked = asked_resource(Action.TOOL_CALL, "file.read", {"access_mode": "rw"}, dict(arguments))
        assert policy.decide(WORKER, Action.TOOL_CALL, asked).allowed is allowed, arguments


@pytest.mark.parametrize("name", ["paht", "args.", "sizes", "declared"])
def test_a_question_about_an_attribute_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(SubletError, match="has no attribute"):
        asked_resource(Action.TOOL_CALL, "file.read", {name: "x"}, {})
    test = {"subject": "agent:w", "action": "tool.call", "resource": "file.read", "expect": "allow"}
    with pytest.raises(BadPolicy, match="has no attribute"):
        made(tests=[{**test, "attributes": {name: "x"}}])


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ({"path": "/etc/*"}, "relative to the lent directory"),
        ({"path": "~/x"}, "relative to the lent directory"),
        ({"path": "./src/*"}, "without"),
        ({"access_mode": "x*"}, "one of"),
        ({"size_bytes": "1*"}, "nothing that a condition can look at"),
        ({"args.command": "make; *"}, "one simple command"),
        ({"args.command": "make $X"}, "one simple command"),
    ],
)
def test_a_condition_of_a_grant_that_never_holds_is_refused(where: dict[str, str], said: str) -> None:
    with pytest.raises(SubletError, match=said):
        check_terms(60, 1, where)


def test_a_grant_for_a_path_speaks_the_language_of_rules() -> None:
    check_terms(60, 1, {"path": "src/**"})
    inside = tool_resource("file.write", {}, lent_paths(["workspace/src/a.py"], ["workspace"]))
    assert conditions_hold({"path": "src/**"}, inside, 0.0)
    assert not conditions_hold({"path": "src/**"}, tool_resource("file.write", {}, ("docs/a",)), 0.0)


@pytest.mark.parametrize(
    ("more", "where"),
    [
        ({"resource": "file.raed"}, "resource"),
        ({"resource": "network"}, "resource"),
        ({"resource": "Bash(git *)"}, "resource"),
        ({"resource": "functions.*"}, "resource"),
        ({"resource": "sublet.delegate_outpt"}, "resource"),
        ({"resource": "shell.run.now"}, "resource"),
        ({"when": {"args.path": {"within": "secrets"}}}, "when.args.path"),
        ({"when": {"args.": "x"}}, "when.args."),
        ({"when": {"peer": ["bob"]}}, "when.peer"),
        ({"when": {"peer": {"any_of": ["bob "]}}}, "when.peer"),
        ({"when": {"size_bytes": {"any_of": [5], "min": 10}}}, "when.size_bytes"),
        ({"effect": "allow", "subject": {"kind": "agent"}, "when": {"args.command": {"like": "a|b"}}}, "when.args"),
        ({"effect": "allow", "subject": {"kind": "agent"}, "when": {"args.command": "a; b"}}, "when.args.command"),
        ({"record": True}, "record"),
        ({"effect": "allow", "action": "delegation.create", "resource": "*", "record": True}, "record"),
    ],
)
def test_what_can_never_match_in_any_field_is_refused_when_loaded(more: dict[str, Any], where: str) -> None:
    assert f"global[0].{where}" in problems(rule(**more))


def test_the_examples_of_the_page_are_loaded() -> None:
    page = (Path(__file__).parents[2] / "docs" / "policy.md").read_text(encoding="utf-8")
    files = [json.loads(block.partition("```")[0]) for block in page.split("```json\n")[1:]]
    whole = [one for one in files if "version" in one]
    assert whole
    for one in whole:
        parse(one)


@pytest.fixture
def links(tmp_path: Path) -> Path:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "root").symlink_to("/")
    (tmp_path / "dirX").mkdir()
    (tmp_path / "toX").symlink_to(tmp_path / "dirX")
    return tmp_path.resolve()


@pytest.mark.parametrize(
    ("pattern", "also"),
    [
        ("{}/link", "{}/real"),
        ("{}/link/*", "{}/real/*"),
        ("{}/link/d*p/x", "{}/real/d*p/x"),
        ("{}/li*k/x", None),
        ("{}/link/deep/**", "{}/real/deep/**"),
        ("{}/real/*", None),
        ("{}/toX", "{}/dirX"),
        ("{}/toX/*", "{}/dirX/*"),
        ("{}/root", "/"),
        ("{}/root/*", "/*"),
        ("{}/nowhere/*", None),
        ("/", None),
        ("/*", None),
        ("/**", None),
        ("/a*", None),
        ("{}/link/", None),
        ("{}/link/../x", None),
        ("relative/*", None),
        ("", None),
        ("{}/a\0b", None),
    ],
)
def test_a_pattern_of_lending_is_told_by_where_it_leads_as_well(links: Path, pattern: str, also: str | None) -> None:
    given = pattern.format(links)
    assert led_to(given) == ((given,) if also is None else (given, also.format(links)))


@pytest.mark.parametrize("condition", [{"like": "/*"}, {"like": "/**"}, {"like": "/x*"}])
def test_a_rule_over_the_root_is_one_over_what_lies_in_it(condition: Any) -> None:
    config = made(rule(action="workspace.lend", resource="*", when={"path": condition}))
    policy = Policy(Protected(Path("/nowhere")), config)
    assert policy.decide(OWNER, Action.WORKSPACE_LEND, Resource("/xyz")).rule == "r"
    named = made(rule(action="workspace.lend", resource=condition["like"]))
    assert Policy(Protected(Path("/nowhere")), named).decide(OWNER, Action.WORKSPACE_LEND, Resource("/xyz")).rule == "r"


def test_where_a_path_really_is(links: Path) -> None:
    for given, found in (
        (f"{links}/link/deep/..", f"{links}/real"), ("link/../a", "link/../a"), ("/a\0b", "/a\0b"), ("a\0b", "a\0b"),
    ):  # fmt: skip
        assert real_path(given) == found


def test_the_home_stands_before_a_path_alone() -> None:
    home = Path("/home/me")
    told = {given: expanded(given, home) for given in ("~", "~/a~/b", "~bob/a", "a/~", "/~", "")}
    assert told == {"~": "/home/me", "~/a~/b": "/home/me/a~/b", "~bob/a": "~bob/a", "a/~": "a/~", "/~": "/~", "": ""}
    assert expanded("~/a") == f"{Path.home()}/a"


def test_which_actions_have_absolute_paths() -> None:
    absolute = {action for action in Action if language_of(action) == "absolute"}
    assert {action.value for action in absolute} == {
        "workspace.lend", "workspace.reveal", "workspace.unlock", "lend_root.manage",
    }  # fmt: skip
    assert {language_of(action) for action in set(Action) - absolute} == {"lent"}


@pytest.mark.parametrize(
    ("action", "name", "path", "asked"),
    [
        (Action.WORKSPACE_LEND, "{}/link", None, ("{}/real", "{}/real")),
        (Action.WORKSPACE_LEND, "project", "{}/link", ("{}/real", "{}/real")),
        (Action.WORKSPACE_LEND, "project", None, ("project", None)),
        (Action.WORKSPACE_LEND, "{}/link", ("{}/link", "b"), ("{}/real", ("{}/real", "b"))),
        (Action.WORKSPACE_LEND, "p", 7, ("p", 7)),
        (Action.LEND_ROOT_MANAGE, "{}/link", None, ("{}/real", "{}/real")),
        (Action.LEND_ROOT_MANAGE, "*", None, ("*", None)),
        (Action.LEND_ROOT_MANAGE, "{}/link", "{}/link/deep", ("{}/real", "{}/real/deep")),
        (Action.WORKSPACE_REVEAL, ".env", "{}/link", (".env", "{}/real")),
        (Action.WORKSPACE_REVEAL, "{}/link", None, ("{}/link", None)),
        (Action.TOOL_CALL, "{}/link", "{}/link", ("{}/link", "{}/link")),
    ],
)
def test_a_question_of_lending_is_settled_by_the_disk(
    links: Path, action: Action, name: str, path: Any, asked: Any
) -> None:
    def filled(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(filled, value))
        return value.format(links) if isinstance(value, str) else value

    given: dict[str, Any] = {"access_mode": "ro"} | ({} if path is None else {"path": filled(path)})
    found = settled(action, Resource(filled(name), given))
    assert (found.name, found.attributes.get("path")) == filled(asked)
    assert found.attributes["access_mode"] == "ro"


def test_a_question_that_is_written_means_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    told: dict[str, Any] = {"path": ("~/a", "b", "~"), "access_mode": "~"}
    here: dict[str, Any] = {"path": ("/home/me/a", "b", "/home/me"), "access_mode": "~"}
    assert written(Action.WORKSPACE_LEND, "~", told) == Resource("/home/me", here)
    assert written(Action.WORKSPACE_REVEAL, "~", {"path": "~"}) == Resource("~", {"path": "/home/me"})
    assert written(Action.WORKSPACE_REVEAL, "x", {"path": 7}) == Resource("x", {"path": 7})
    assert written(Action.TOOL_CALL, "~", told) == Resource("~", told)


@pytest.mark.parametrize(
    ("tool", "arguments", "paths"),
    [
        ("file.read", {}, (".",)),
        ("file.read", {"path": ""}, (".",)),
        ("file.read", {"path": 7}, (".",)),
        ("Read", {"path": "a//./b/../c"}, ("a/c",)),
        ("mv", {"path": "a", "to": "b/", "other": "c"}, ("a", "b")),
        ("mv", {"path": "a", "to": "./a"}, ("a",)),
        ("file.write", {"to": "x"}, ("x",)),
        ("file.read", {"path": "a/.."}, (".",)),
        ("file.read", {"path": "a/../../b"}, ("/a/../../b",)),
        ("file.read", {"path": "/etc/../x"}, ("/etc/../x",)),
        ("shell.exec", {"path": "a"}, ()),
        ("mcp.file.read", {"path": "a"}, ()),
    ],
)
def test_which_paths_a_call_touches(tool: str, arguments: dict[str, Any], paths: tuple[str, ...]) -> None:
    assert touched_by(tool, arguments) == paths
