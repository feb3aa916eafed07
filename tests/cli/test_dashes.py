"""D44: a text that begins with a dash is a text, in every command that takes one; a misspelt option stays an error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sublet.cli.app import run
from sublet.cli.command_table import TABLE, import_command
from sublet.cli.dashes import FREE_TEXT, takes_text
from support.fake_control import FakeControl

ROOM = "0190aaaa-0000-7000-8000-000000000000"
TEXTS = ("- [ ] tests", "-1", "--> there", "-- two\n- three", "-h is how to ask for help", "--- a/x\n+++ b/x", "-🙂")
NEEDED = {"DIR": ".", "ID": "del_1", "REF": "last", "EMOJI": "+1", "SESSION": "ses_1"}


def leaves() -> list[tuple[list[str], Any]]:
    """Return all commands that take free text, with how they are called."""
    found: list[tuple[list[str], Any]] = []

    def walk(path: list[str], command: Any) -> None:
        for name, below in getattr(command, "commands", {}).items():
            walk([*path, name], below)
        if not hasattr(command, "commands") and takes_text(command):
            found.append((path, command))

    for name, entry in TABLE.items():
        walk([name], import_command(name, entry))
    return found


def test_every_command_with_a_text_takes_one_that_begins_with_a_dash() -> None:
    found = leaves()
    assert {" ".join(path) for path, _ in found} >= {"send", "ask", "delegate", "say", "edit", "search", "text edit"}
    for path, command in found:
        for text in TEXTS:
            arguments, name = [], ""
            for one in command.params:
                if one.param_type_name == "argument":
                    is_text = one.metavar in FREE_TEXT
                    name = one.name if is_text else name
                    arguments.append(text if is_text else NEEDED.get(one.metavar, "Work"))
            needed = ["--to", "bob"] if path == ["delegate"] else []
            for given in ([*arguments, "--json", *needed], ["--json", *needed, *arguments]):
                context = command.make_context(path[-1], list(given), resilient_parsing=False)
                value = context.params[name]
                assert text in ([value] if isinstance(value, str) else value), (path, given)
                assert context.params["as_json"] is True


def test_what_is_meant_as_an_option_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["send", ROOM, "--reply-too", "x", "y"], ["send", ROOM, "--jsno"], ["send", ROOM, "-z"]):
        assert run(argv, session=FakeControl().session()) == 2
        said = capsys.readouterr().err
        assert "No such option" in said
        assert "write -- before it" in said
    assert run(["ls", "--al", "--json"], session=FakeControl().session()) == 2
    assert "before it" not in json.loads(capsys.readouterr().out)["error"]["hint"]


def test_values_of_options_and_what_follows_two_dashes_stay_what_they_were() -> None:
    send = import_command("send", TABLE["send"])
    for given, body, reply in (
        (["W", "- a", "--reply-to", "- b"], "- a", "- b"),
        (["--reply-to=- b", "W", "- a"], "- a", "- b"),
        (["W", "--reply-to", "x", "--", "--json"], "--json", "x"),
        (["W", "-"], "-", None),
    ):
        params = send.make_context("send", list(given)).params
        assert (params["text"], params["reply_to"], params["as_json"]) == (body, reply, False)
