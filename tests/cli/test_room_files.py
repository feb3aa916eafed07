"""Files of messages: which one is meant, and under which name one that came is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from sublet.cli.options.room_files import safe_name, typed_path
from sublet.cli.rendering.entity_names import EntityNames
from sublet.cli.rendering.rooms import room_name

ME = "@human:node-aaaaaaaaaaaaaaaa"
HIM = "@human:node-bbbbbbbbbbbbbbbb"


@pytest.mark.parametrize("typed", ["a file.txt", " a file.txt ", "'a file.txt'", "a\\ file.txt", '"a file.txt"'])
def test_a_path_may_be_quoted_as_terminals_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a file.txt").touch()
    assert typed_path(typed) == Path("a file.txt")


def test_what_is_there_is_meant_as_it_is_and_the_home_has_its_sign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    Path("'quoted'").touch()
    assert typed_path("'quoted'") == Path("'quoted'")
    assert typed_path("~/x") == tmp_path / "x"
    assert typed_path("it's new") == Path("it's new")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("..\\..\\x.txt", "x.txt"),
        (".bashrc", "bashrc"),
        ("--output", "output"),
        ("a b\x1b[2J.txt", "a_b_2J.txt"),
        ("...", "file"),
    ],
)
def test_a_name_that_a_peer_gave_is_no_path(given: str, kept: str) -> None:
    assert safe_name(given) == kept


def test_a_conversation_of_two_is_called_by_whom_it_is_with() -> None:
    names = EntityNames(ME, {"node-bbbbbbbbbbbbbbbb": "bob"})
    assert room_name(f"{ME} and {HIM}", names) == "with bob"
    assert room_name(f"{HIM} and {HIM}", names) == f"{HIM} and {HIM}"
    assert room_name("salt and pepper", names) == "salt and pepper"
    assert names.is_near(HIM)
    assert names.is_near(ME)
    assert not names.is_near("@human:node-cccccccccccccccc")
