"""What is typed into a chat."""

from __future__ import annotations

import pytest

from sublet.cli.app import run
from sublet.cli.chat.slash import COMMANDS, Command, Say, help_text, parse
from sublet.protocol.errors import SubletError
from support.fake_control import FakeControl


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("", None),
        ("  \n ", None),
        ("hello there", Say("hello there")),
        (" /indented", Say(" /indented")),
        ("//etc/passwd", Say("/etc/passwd")),
        ("/quit", Command("quit")),
        ("/reply", Command("reply")),
        ("/reply k3f9 all of  this", Command("reply", ("k3f9", "all of  this"))),
        ("/react +1", Command("react", ("+1",))),
        ("/edit two\nlines", Command("edit", ("two", "lines"))),
        ("/attach my file.txt", Command("attach", ("my file.txt",))),
        ("/save", Command("save")),
        ("/save k3f9 ~/a b", Command("save", ("k3f9", "~/a b"))),
        ("/redact k3f9 it is spam", Command("redact", ("k3f9", "it is spam"))),
    ],
)
def test_words_and_commands(typed: str, meant: object) -> None:
    assert parse(typed) == meant


@pytest.mark.parametrize("typed", ["/", "/ ", "/nothing", "/react", "/quit now", "/pin", "/attach", "/\x1b[2J"])
def test_what_is_written_otherwise_is_refused_in_clean_words(typed: str) -> None:
    with pytest.raises(SubletError) as refused:
        parse(typed)
    assert "\x1b" not in refused.value.message


def test_help_lists_every_command() -> None:
    assert all(f"/{name}" in help_text() for name in COMMANDS)


def test_without_a_terminal_other_commands_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["chat", "Work"], session=FakeControl().session()) != 0
    assert "sublet read" in capsys.readouterr().err
