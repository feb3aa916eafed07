"""D25: a command is allowed word by word, and one simple command only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sublet.policy.commands import command_defect, command_matcher, command_of, words
from sublet.policy.config import parse
from sublet.policy.decision import Action, Subject
from sublet.policy.engine import Policy
from sublet.policy.grants import conditions_hold
from sublet.policy.lending import Protected
from sublet.policy.tool_calls import tool_resource

WORKER = Subject("agent", "worker", role="executor")

HARMLESS = ["make all", "make  all -j2", "make 'a b'", 'make "a;b" c', "make HEAD~1", "make a#b", "\tmake x "]
OTHERWISE = [
    "make x; other", "make x && other", "make x | other", "make x & other", "make x\nother", "make x > /etc/x",
    "make $(other)", "make `other`", 'make "$(other)"', "make $X", "make <(other)", "make *", "make ~/x", "make a=~/x",
    "make 'unclosed", "make {a,b}", "make x #y", "make x\\\nother", "X=1 make x", "(make x)", "maker x", "make",
    "make\x00x", "make\rx", "/tmp/make x", "",
]  # fmt: skip


def called(command: Any, **more: Any) -> Any:
    return tool_resource("shell.exec", {"command": command, **more}, access_mode="rw")


@pytest.mark.parametrize("line", HARMLESS)
def test_one_simple_command_is_matched_by_its_words(line: str) -> None:
    assert conditions_hold({"args.command": "make *"}, called(line), 0.0)


@pytest.mark.parametrize("line", OTHERWISE)
def test_nothing_rides_along_with_a_granted_command(line: str) -> None:
    assert not conditions_hold({"args.command": "make *"}, called(line), 0.0)


@pytest.mark.parametrize("line", OTHERWISE)
@pytest.mark.parametrize("condition", [{"like": "make *"}, {"any_of": ["make x", "make all"]}])
def test_a_rule_that_allows_a_command_is_as_strict_as_a_grant(line: str, condition: Any) -> None:
    allow = {
        "id": "r",
        "effect": "allow",
        "action": "tool.call",
        "resource": "shell.exec",
        "when": {"args.command": condition},
    }
    policy = Policy(Protected(Path("/nowhere")), parse({"version": 1, "role": {"agent": [allow]}}))
    assert policy.decide(WORKER, Action.TOOL_CALL, called("make  'x'")).allowed
    assert not policy.decide(WORKER, Action.TOOL_CALL, called(line)).allowed


@pytest.mark.parametrize(
    ("command", "more", "holds"),
    [
        ("make", {"args": ["x"]}, True),
        ("make", {"args": ["x; other"]}, True),  # no shell reads it
        ("make", {}, False),
        ("sh", {"args": ["-c", "make x"]}, False),
        ("make", {"args": ["x"], "env": {"PATH": "/tmp"}}, False),
        ("make x", {"env": {"LD_PRELOAD": "x.so"}}, False),
        ("make x", {"args": ["y"]}, False),
        ("make x", {"args": "y"}, False),
        ("make x", {"args": []}, True),
        ("make x", {"args": [1]}, False),
        ("make x", {"args": [{"x": 1}]}, False),
        ("make x", {"env": [{"name": "PATH", "value": "/tmp"}]}, False),
        ("make x", {"env": ["PATH=/tmp"]}, False),
        ("make x", {"args": {"0": "y"}}, False),
        ("make x", {**{f"p{n}": n for n in range(300)}, "args": ["y"]}, False),
        ("make x", {**{f"p{n}": n for n in range(300)}, "env": {"PATH": "/tmp"}}, False),
        (["make", "x"], {}, True),
        (["bash", "-lc", "make x"], {}, False),
    ],
)
def test_a_program_with_a_list_of_arguments_is_one_command(command: Any, more: dict[str, Any], holds: bool) -> None:
    assert conditions_hold({"args.command": "make *"}, called(command, **more), 0.0) is holds


@pytest.mark.parametrize(
    ("pattern", "line", "holds"),
    [
        ("git diff *", "git diff a b c", True),
        ("git * --stat", "git diff HEAD --stat", True),
        ("git * --stat", "git --stat", False),
        ("python -m pytest tests/*", "python -m pytest tests/a.py", True),
        ("python -m pytest tests/*", "python -m pytest 'tests/a.py --co'", True),
        ("python -m pytest tests/*", "python -m pytest tests/a.py -p evil", False),
        ("/usr/bin/make *", "/usr/bin/make x", True),
        ("*", "anything at all", True),
        ("*", "a; b", False),
        ("ls", "ls", True),
        ("ls", "ls x", False),
    ],
)
def test_patterns_of_commands(pattern: str, line: str, holds: bool) -> None:
    assert conditions_hold({"args.command": pattern}, called(line), 0.0) is holds


def test_quotes_join_what_stands_beside_them() -> None:
    assert words("""a'b c'"d" ''""") == ("ab cd", "")
    assert words("") is None


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("Xa Xb", ("Xa", "Xb")),
        ("a\tb", ("a", "b")),
        ("aX~b", ("aX~b",)),
        ("a'X\"'", ('aX"',)),
        ("''", ("",)),
        ("'a\nb'", None),
        ("a:~b", None),
        ("a=~b", None),
        ("'a", None),
        ("a '", None),
        ('"a`b"', None),
        ("'a`b$c\\\\'", ("a`b$c\\\\",)),
        ("#a", None),
        ("~a", None),
    ],
)
def test_the_words_of_a_line(line: str, found: tuple[str, ...] | None) -> None:
    assert words(line) == found


def test_the_words_beside_a_program_are_those_of_all_lists() -> None:
    attributes = called("make", args=["a"], arguments=["b"], argv=["c", "d"]).attributes
    assert command_of("args.command", attributes) == ("make", "a", "b", "c", "d")
    assert command_of("args.command", called("make", argv=["c"]).attributes) == ("make", "c")
    assert command_of("args.cmd", called("make", argv=["c"]).attributes) is None
    assert command_of("args.command", called(["make", "x"], argv=["c"]).attributes) == ("make", "x", "c")


@pytest.mark.parametrize(
    ("pattern", "line", "holds"),
    [
        ("cat /usr/*", "cat /usr/share/x", True),
        ("cat /usr/*", "cat /user", False),
        ("cat /usr/*", "cat usr/x", False),
        ("cat //*", "cat //host", True),
        ("cat //*", "cat /host", False),
        ("cat //host", "cat //host", True),
        ("cat /", "cat /", True),
        ("cat /", "cat /x", False),
        ("cat /a", "cat a", False),
        ("cat a*", "cat abc", True),
        ("* *", "a b", True),
        ("* *", "a", False),
        ("* b", "a a b", True),
    ],
)
def test_a_word_of_a_pattern_is_text_whatever_it_begins_with(pattern: str, line: str, holds: bool) -> None:
    assert command_matcher(pattern)(line.split()) is holds


@pytest.mark.parametrize("pattern", ["make *", " make [ab]? ", "make !x", "make X"])
def test_a_pattern_that_can_allow_a_command(pattern: str) -> None:
    assert command_defect(pattern) == ""


@pytest.mark.parametrize("char", list(";&|<>()$`\\{}\n\r'\""))
def test_a_pattern_that_no_simple_command_has(char: str) -> None:
    assert "one simple command" in command_defect(f"make{char}x")


def test_a_pattern_of_no_words_has_a_defect() -> None:
    assert "empty" in command_defect("  ")
    assert "not closed" in command_defect("make [a")
