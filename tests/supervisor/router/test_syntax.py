"""What the beginning of a request addresses, and which names and words are in it."""

from __future__ import annotations

import pytest

from sublet.supervisor.router.syntax import Direct, is_direct_hub, mentions, parse, words


@pytest.mark.parametrize(
    ("text", "direct"),
    [
        ("/hub Jira create\n a ticket ", Direct("hub", "jira", "create\n a ticket")),
        ("/hub\tjira", Direct("hub", "jira", "")),
        ("/hub", Direct("hub", "", "")),
        ("/hub " + "m" * 200, Direct("hub", "m" * 200, "")),
        ("/Hub jira", None),
        ("@Coder. do it", Direct("mention", "coder", "do it")),
        ("@coderX do it", Direct("mention", "coderx", "do it")),
        ("@coder: do it ", Direct("mention", "coder", "do it")),
        ("@coder", Direct("mention", "coder", "")),
        ("@coder a\nb", Direct("mention", "coder", "a\nb")),
        ("@" + "a" * 63, Direct("mention", "a" * 63, "")),
        ("@" + "a" * 64, None),
        ("@.coder x", None),
        (" /agents\n", Direct("agents", "", "")),
        ("/help", Direct("help", "", "")),
        ("/agents x", None),
        ("", None),
    ],
)
def test_what_the_beginning_addresses(text: str, direct: Direct | None) -> None:
    assert parse(text) == direct
    assert is_direct_hub(text) is (direct is not None and direct.kind == "hub")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("@coder and then @Tester.", {"coder", "tester"}),
        ("(@coder)", {"coder"}),
        ("@coderX do", {"coderx"}),
        ("mail to me@example", set()),
        ("7@example", set()),
        ("_@coder", set()),
        ("@@coder", set()),
        ("-@coder", {"coder"}),
        ("nobody", set()),
    ],
)
def test_a_name_is_mentioned_where_it_is_no_part_of_something_else(text: str, named: set[str]) -> None:
    assert mentions(text) == named


def test_words_are_folded_and_those_of_compounds_are_there_too() -> None:
    assert words("Straße re-run a_b v1.2!") == {"strasse", "re-run", "re", "run", "a_b", "a", "b", "v1.2", "v1", "2"}
    assert words("") == set()
