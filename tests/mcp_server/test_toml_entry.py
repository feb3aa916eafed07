"""One table in a TOML file of another program: all that the user has written elsewhere stays, byte for byte."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.mcp_server.toml_entry import drop_table, dump_table, put_table

PATH = ("mcp_servers", "sublet")
ENTRY: dict[str, Any] = {"command": "/opt/sublet", "args": ["mcp"]}
ADDED = '[mcp_servers.sublet]\ncommand = "/opt/sublet"\nargs = ["mcp"]\n'


def lines_that_differ(before: str, after: str) -> tuple[set[str], set[str]]:
    old, new = before.splitlines(), after.splitlines()
    return {line for line in old if line not in new}, {line for line in new if line not in old}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", ADDED, id="an empty file"),
        pytest.param("a = 1", "a = 1\n\n" + ADDED, id="no end of line"),
        pytest.param("a = 1\n", "a = 1\n\n" + ADDED, id="one key"),
        pytest.param("a = 1\n\n# end\n", "a = 1\n\n# end\n\n" + ADDED, id="a comment at the end"),
        pytest.param(
            '[mcp_servers.other]\ncommand = "x" # mine\n',
            '[mcp_servers.other]\ncommand = "x" # mine\n\n' + ADDED,
            id="a sibling",
        ),
        pytest.param(
            "[mcp_servers.other]\n\n# of z\n[z]\n",
            "[mcp_servers.other]\n\n# of z\n[z]\n\n" + ADDED,
            id="behind all else",
        ),
        pytest.param("a = 1\r\n", "a = 1\r\n\r\n" + ADDED.replace("\n", "\r\n"), id="line ends of Windows"),
        pytest.param(
            'mcp_servers.other.command = "x"\n',
            'mcp_servers.other.command = "x"\n\n' + ADDED,
            id="keys with dots",
        ),
        pytest.param(
            'mcp_servers = { other = { command = "x" } } # mine\n',
            'mcp_servers = { other = { command = "x" }, sublet = {command = "/opt/sublet", args = ["mcp"]}} # mine\n',
            id="a table in one line",
        ),
    ],
)
def test_a_table_is_added_and_all_else_stays(text: str, expected: str) -> None:
    assert put_table(text, PATH, ENTRY) == expected
    assert put_table(expected, PATH, ENTRY) == expected


@pytest.mark.parametrize(
    ("text", "table", "gone", "new"),
    [
        pytest.param(
            '# a\n[mcp_servers.sublet] # b\ncommand = "old" # c\nargs = ["mcp"]\n# d\n[z]\nq = 1\n',
            ENTRY,
            {'command = "old" # c'},
            {'command = "/opt/sublet" # c'},
            id="one key, its comment stays",
        ),
        pytest.param(
            ADDED + 'since = 2026-01-01\n[mcp_servers.sublet.env]\nA = "1" # a\n',
            {**ENTRY, "since": tomllib.loads("d = 2026-01-01")["d"], "env": {"A": "1", "B": "2"}},
            set(),
            {'B = "2"'},
            id="one variable, and a date stays",
        ),
        pytest.param(
            '[mcp_servers]\nsublet = { command = "old", args = [ "mcp" ] } # mine\n',
            ENTRY,
            {'sublet = { command = "old", args = [ "mcp" ] } # mine'},
            {'sublet = { command = "/opt/sublet", args = [ "mcp" ] } # mine'},
            id="in one line",
        ),
        pytest.param(
            '[mcp_servers."sublet"]\ncommand = "old"\nargs = ["mcp"]\n',
            ENTRY,
            {'command = "old"'},
            {'command = "/opt/sublet"'},
            id="a name in quotes",
        ),
        pytest.param(
            'text = """\n[mcp_servers.sublet]\n"""\n[mcp_servers.sublet]\ncommand = "old"\nargs = ["mcp"]\n',
            ENTRY,
            {'command = "old"'},
            {'command = "/opt/sublet"'},
            id="a text that looks like it",
        ),
    ],
)
def test_of_an_older_table_only_what_differs_is_written(
    text: str, table: dict[str, Any], gone: set[str], new: set[str]
) -> None:
    after = put_table(text, PATH, table)
    assert after is not None
    assert lines_that_differ(text, after) == (gone, new)
    assert tomllib.loads(after)["mcp_servers"]["sublet"] == table


@pytest.mark.parametrize("text", ['mcp_servers = "none"\n', "[[mcp_servers]]\na = 1\n", "mcp_servers = [{}]\n"])
def test_what_is_no_table_is_left(text: str) -> None:
    assert put_table(text, PATH, ENTRY) is None


@pytest.mark.parametrize("text", ["model = ", "[a\n", 'a = "\n', "a = 1\na = 2\n", "\x00"])
def test_damaged_toml_is_said_to_be(text: str) -> None:
    with pytest.raises(tomllib.TOMLDecodeError):
        put_table(text, PATH, ENTRY)
    with pytest.raises(tomllib.TOMLDecodeError):
        drop_table(text, PATH)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a = 1 # x\n\n" + ADDED, "a = 1 # x\n", id="at the end"),
        pytest.param(ADDED + "\n[z]\nq = 1\n", "[z]\nq = 1\n", id="ahead of another"),
        pytest.param(ADDED + "# of it\n\n# of z\n[z]\nq = 1\n", "# of z\n[z]\nq = 1\n", id="the next one's comment"),
        pytest.param(ADDED + "\n# the end\n", "# the end\n", id="the file's last comment"),
        pytest.param(
            "[a]\n\n" + ADDED + '[mcp_servers.sublet.env]\nA = "1"\n\n# of z\n\n[z]\n',
            "[a]\n\n# of z\n\n[z]\n",
            id="with what is below it",
        ),
        pytest.param(
            'mcp_servers = { other = {}, sublet = { command = "x" } } # mine\n',
            "mcp_servers = { other = {}  } # mine\n",
            id="in one line",
        ),
        pytest.param("a = 1\n", "a = 1\n", id="not there"),
    ],
)
def test_a_table_is_taken_out_and_all_else_stays(text: str, expected: str) -> None:
    assert drop_table(text, PATH) == expected


_words = st.text("abz#[]'\"é =", max_size=6)
_values = st.one_of(st.integers(-9, 9), st.booleans(), _words, st.lists(st.integers(0, 9), max_size=2))
_blanks = st.sampled_from(["", "\n", "# a note\n", "\n# a note\n\n"])


@st.composite
def files(draw: st.DrawFn) -> str:
    text = draw(_blanks)
    for name in draw(st.lists(st.sampled_from(["a", "b.c", "mcp_servers.other", 'p."x y"']), unique=True)):
        text += f"[{name}]\n" + "".join(
            f"{dump_value(key, value)}{draw(_blanks)}" for key, value in draw(st.dictionaries(_words, _values)).items()
        )
    return text


def dump_value(key: str, value: object) -> str:
    return dump_table(("t",), {key: value}).partition("\n")[2]


@given(files(), st.dictionaries(st.sampled_from(["command", "args", "k"]), _values, min_size=1))
def test_every_line_of_the_user_survives_both_ways(text: str, table: dict[str, Any]) -> None:
    put = put_table(text, PATH, table)
    assert put is not None
    config = tomllib.loads(put)
    assert config["mcp_servers"].pop("sublet") == table
    dropped = drop_table(put, PATH)
    assert dropped is not None
    assert [line for line in dropped.splitlines() if line.strip()] == [
        line for line in text.splitlines() if line.strip()
    ]
