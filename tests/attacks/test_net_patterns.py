"""Patterns on text from elsewhere run on a linear engine, and mean what they meant; a check keeps others out."""

from __future__ import annotations

import ast
import fnmatch
import importlib
import pkgutil
import re
from pathlib import Path
from random import Random

import pytest
from acp.schema import ToolCallUpdate

import sublet
from sublet.policy.guardrail.extract import candidates
from sublet.policy.guardrail.relaxed import TooManySteps
from sublet.protocol.patterns import MADE, BadPattern, Pattern, glob
from sublet.protocol.text import clean, clean_line
from sublet.supervisor.acp.tool_calls import tool_call
from sublet.supervisor.router.syntax import mentions, parse, words

SRC = Path(sublet.__file__).parent
ALLOWED = {
    "policy/guardrail/relaxed.py": "matches at a place in a text, by one class with one repetition each",
}
"""Modules that may use Python's ``re``, and why."""
BACKTRACKING = {"re", "fnmatch", "regex", "sre_parse", "sre_compile"}
NAMED = re.compile(rf"\b(?:{'|'.join(sorted(BACKTRACKING))}|r?i?glob)\b")


def uses(file: Path) -> list[str]:
    """Return the backtracking engines that a module imports, and calls that go to one."""
    found = []
    text = file.read_text(encoding="utf-8")
    if not NAMED.search(text):  # to parse all modules takes seconds
        return []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names if name.name.partition(".")[0] in BACKTRACKING]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in BACKTRACKING:
            found.append(str(node.module))
        elif isinstance(node, ast.Attribute) and node.attr in ("glob", "rglob", "iglob"):
            found.append(f"a path's {node.attr}")
    return found


def test_nobody_else_uses_a_backtracking_engine() -> None:
    found = {str(file.relative_to(SRC)): uses(file) for file in SRC.rglob("*.py")}
    engines = {name for name, used in found.items() if {one for one in used if not one.startswith("a path's")}}
    assert engines <= ALLOWED.keys(), "use sublet.protocol.patterns, or say why not in ALLOWED"
    assert engines == ALLOWED.keys(), "a reason is left that nobody needs"


def test_every_pattern_is_one_of_the_engine() -> None:
    for module in pkgutil.walk_packages(sublet.__path__, "sublet."):
        if not module.name.endswith(("__main__", "tool_server.relay")):
            importlib.import_module(module.name)
    assert len(MADE) > 100
    for pattern in MADE:
        pattern.check()


def test_a_pattern_that_would_need_backtracking_is_refused() -> None:
    for source in (r"(a)\1", r"(?=a)b", r"(?<!a)b", r"(?P<x>a)(?P=x)", "a{2000}", "("):
        with pytest.raises(BadPattern):
            Pattern(source, static=False).check()


CHARS = "ab]![-*?\\^&~|.é\xff\n"


def test_a_glob_means_what_fnmatch_means() -> None:
    random, compared = Random(1), 0
    for _ in range(4_000):
        pattern = "".join(random.choice(CHARS) for _ in range(random.randrange(7)))
        try:
            expected = re.compile(fnmatch.translate(pattern))
        except re.error:
            continue
        ours, over_bytes = glob(pattern), glob(pattern.encode("latin-1"))
        expected_bytes = re.compile(fnmatch.translate(pattern).encode("latin-1"))
        for _ in range(5):
            name = "".join(random.choice(CHARS) for _ in range(random.randrange(6)))
            raw = name.encode("latin-1")
            assert bool(ours.match(name)) == bool(expected.match(name)), (pattern, name)
            assert bool(over_bytes.match(raw)) == bool(expected_bytes.match(raw)), (pattern, name)
            compared += 1
    assert compared > 10_000


@pytest.mark.parametrize("source", ["[a-z]+", r"(\w+)@(\w+)", "é+", "a|ab", r"\s*,\s*"])
def test_matches_are_where_re_finds_them(source: str) -> None:
    random, expected, ours = Random(2), re.compile(source, re.ASCII), Pattern(source, static=False)
    for _ in range(2_000):
        text = "".join(random.choice("axé@\ud800, 😀b") for _ in range(random.randrange(9)))
        theirs = [(found.start(), found.end(), found[0]) for found in expected.finditer(text)]
        assert [(found.start(), found.end(), found[0]) for found in ours.finditer(text)] == theirs
        assert ours.sub("Z", text) == expected.sub("Z", text)
        assert bool(ours.fullmatch(text)) == bool(expected.fullmatch(text))


def test_the_end_is_the_end() -> None:
    assert not Pattern(r"a$", static=False).match("a\n")
    assert not Pattern(r"a\Z", static=False).match("a\n")
    assert Pattern(r"a\Z", static=False).match("a")
    # A backslash and the letter, not the end.
    for source in (r"a\\Z", r"a\\\\Z", r"a\\\Z", r"[\\Z]"):
        for text in ("a\\Z", "a\\\\Z", "a\\", "Z", "\\"):
            expected = bool(re.search(source, text))
            assert bool(Pattern(source, static=False).search(text)) == expected, (source, text)
            assert bool(Pattern(source.encode(), static=False).search(text.encode())) == expected, (source, text)


def test_mentions_and_words_of_any_script() -> None:
    assert mentions("@bob and x@mail.example, (@Ann-1.) @@no _@no é@no") == {"bob", "ann-1"}
    assert words("Grüße naïve file_name.py 中文") >= {"grüsse", "naïve", "file", "name", "py", "中文"}
    found = parse("@bob:\u00a0do it")
    assert found is not None
    assert (found.name, found.rest) == ("bob", "do it")
    assert parse("@bob.x!") is None


def test_what_is_hidden_stays_hidden() -> None:
    assert clean("a\x1b[31mb\x1b]0;t\x07c\u202ed\u200be\ufe0ff\n\tg\ud800") == "abcdef\n\tg"
    assert clean_line("a\r\nb\x1b") == "a b"


def test_fences_are_cut_as_before() -> None:
    reply = 'x ```json\n{"a": 1}``` y ~~~\n[2]\n~~~ z ````{"b": 3}```` end ``` {"c": 4}'
    assert [(one.value, one.place.name) for one in candidates(reply)] == [
        ({"a": 1}, "JSON_FENCE"),
        ([2], "FENCE"),
        ({"b": 3}, "FENCE"),
        ({"c": 4}, "FENCE"),
    ]


def test_values_that_are_begun_again_and_again_end_in_a_refusal_not_in_a_wait() -> None:
    reply = "[" * 600 + "1," * 100_000
    with pytest.raises(TooManySteps):
        candidates(reply)


def test_an_acp_tools_name_means_what_it_meant() -> None:
    def named(name: str) -> str:
        return tool_call(ToolCallUpdate(tool_call_id="x", field_meta={"x": {"toolName": name}}), []).tool

    assert named("mcp__files__read_all") == "mcp.files.read_all"
    assert named("mcp__a__b__c") == "mcp.a.b__c"
    assert named("mcp__" + "_" * 40_000 + "!").startswith("acp.mcp__")
