"""What is said of wrong input: the value that is wrong, by the name under which it was typed, and how."""

from __future__ import annotations

import ast
import io
import sys
from pathlib import Path

import pytest

import sublet.cli
from sublet.cli.app import run
from sublet.cli.reaching.connection import Session
from support.fake_control import FakeControl

COMMANDS = Path(sublet.cli.__file__).parent / "commands"
ROOM = "0190aaaa-0000-7000-8000-000000000000"


def said(capsys: pytest.CaptureFixture[str], argv: list[str], session: Session | None = None) -> str:
    assert run(argv, session=session or FakeControl().session()) == 2
    return capsys.readouterr().err.splitlines()[0]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["room", "create", "x" * 300], "Invalid value for NAME: it has more than 256 characters"),
        (["room", "create", ""], "Invalid value for NAME: it is empty"),
        (
            ["room", "create", "x", "--policy", "opn"],
            "Invalid value for --policy: it should be 'open', 'knock' or 'invite'",
        ),
        (["peers", "add", "sublet:x", "--name", "Bob!"], "'Bob!' is no name for a peer"),
        (["peers", "add", "x" * 5_000, "--name", "bob"], "Invalid value for LINK: it has more than 4,096 characters"),
        (["send", ROOM, ""], "the text is empty"),
        (["send", ROOM, "x" * 70_000], "the text has more than 65,536 characters; attach a file for more"),
        (["search", "x" * 5_000], "Invalid value for WORD: it has more than 500 characters"),
        (["policy", "explain", "--subject", "a", "--action", "b", "--resource", "c", "--at", "q"], "'q' is no time"),
        (
            ["ask", "hi", "--schema", "/nonexistent"],
            "Invalid value for --schema: /nonexistent can't be read: No such file",
        ),
        (["ask", "hi", "--schema", "/"], "Invalid value for --schema: / can't be read: Is a directory"),
        (["ask", "hi", "--schema", "/dev/null"], "Invalid value for --schema: /dev/null is no JSON"),
    ],
)
def test_the_value_that_is_wrong_is_named(capsys: pytest.CaptureFixture[str], argv: list[str], words: str) -> None:
    assert words in said(capsys, argv)


@pytest.mark.parametrize("argv", [["send", ROOM, "-"], ["drafts", ROOM, "-"], ["profile", "--text", "-"]])
def test_nothing_on_stdin_is_called_that(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, argv: list[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert "the text on stdin is empty" in said(capsys, argv)


def test_no_command_guesses_what_a_request_did_not_take() -> None:
    """Whoever catches the refusal looks into it."""
    guessing = [
        f"{file.name}:{node.lineno}"
        for file in COMMANDS.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ExceptHandler)
        if node.type is not None and "ValidationError" in ast.unparse(node.type) and node.name is None
    ]
    assert guessing == []
