"""The names that tools run later: each row matches what it says, and the docs have the table."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from sublet.workspace import folding
from sublet.workspace.view.locked_names import BEGIN, END, LockedNames, carried, load, packages, patterns, table
from sublet.workspace.view.patterns import fold
from sublet.workspace.view.rules import DEFAULT_CARRIED, DEFAULT_HIDDEN, DEFAULT_LOCKED, PACKAGES, Rules
from support.views import default_rules

PATHS = Path(__file__).with_name("locked_paths.toml")
PAGE = Path(__file__).parent.parent.parent.parent / "docs" / "what-is-lent.md"


def named(pattern: str) -> tuple[tuple[bytes, ...], bool]:
    """Return a name that the pattern means, and whether it means it at the top only."""
    body = pattern.removeprefix("**/").strip("/").replace("*", "any")
    return tuple(part.encode() for part in body.split("/")), pattern.startswith("/")


@pytest.mark.parametrize("row", load(), ids=lambda row: row.patterns[0])
def test_a_row_locks_what_it_names_and_says_where_that_is_from(row: LockedNames) -> None:
    rules = default_rules()
    for pattern in row.patterns:
        parts, only_top = named(pattern)
        assert rules.locked(parts), pattern
        assert rules.locked((*parts, b"below")), pattern
        assert rules.locked((b"sub", *parts)) is not only_top, pattern
        assert not rules.secret(parts), pattern
        assert rules.locked((b"node_modules", b"p", *parts)) is not (only_top or row.carried), pattern
        assert not rules.locked((*parts[:-1], b"x" + parts[-1] + b"x")), pattern
    assert row.source.startswith("https://")
    assert row.does
    assert "|" not in row.does + row.tool


def test_no_name_is_there_twice() -> None:
    every = (*patterns(), *carried())
    assert len(set(every)) == len(every)


def expected() -> dict[str, list[str]]:
    found: dict[str, list[str]] = tomllib.loads(PATHS.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("path", expected()["locked"])
def test_what_is_expected_to_be_locked_is(path: str) -> None:
    """The list of the test knows nothing of the patterns: it names what tools are known to run or obey."""
    assert default_rules().locked(tuple(path.encode().split(b"/"))), path


@pytest.mark.parametrize("path", expected()["free"])
def test_what_is_expected_to_be_free_is(path: str) -> None:
    assert not default_rules().locked(tuple(path.encode().split(b"/"))), path


@pytest.mark.parametrize("row", load(), ids=lambda row: row.patterns[0])
def test_each_row_locks_a_path_of_the_list(row: LockedNames) -> None:
    alone = Rules([], row.patterns, [])
    assert any(alone.locked(tuple(path.encode().split(b"/"))) for path in expected()["locked"])


def test_nothing_is_unlocked_by_a_move_out_of_packages() -> None:
    rules = default_rules()
    assert packages() == PACKAGES
    assert rules.packed((b"node_modules", b"p"))
    assert rules.packed((b"lib", b"site-packages"))
    assert not rules.packed((b"lib", b"p"))
    assert not Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, []).packed((b"node_modules",))


def test_what_packages_carry_is_unlocked_by_the_lender_as_all_else() -> None:
    names = (b"sub", b"AGENTS.md")
    given = DEFAULT_CARRIED
    assert Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, [], carried=given).locked(names)
    assert not Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, [], unlocked=["AGENTS.md"], carried=given).locked(names)
    shown = Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, [], git="ro", carried=given).without_repository()
    assert shown.locked(names)


def test_the_docs_have_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    start, end = page.index(BEGIN), page.index(END) + len(END)
    assert page[start:end] == table(), "run `make locked`"


@pytest.mark.parametrize(
    ("name", "same"),
    [
        (".GIT", ".git"), ("GIT~1", ".git"), (".git.", ".git"), (".git ", ".git"), (".git::$INDEX_ALLOCATION", ".git"),
        (".g\u200cit", ".git"), ("\uff0egit", ".git"), (".\uff27IT", ".git"), ("\ufb01le", "file"), ("a:b", "a"),
        ("..", ".."), (". ", ". "), ("plain", "plain"), ("\u00e9", "\u00e9"), ("e\u0301", "\u00e9"),
    ],
)  # fmt: skip
def test_names_are_folded_as_file_systems_do(name: str, same: str) -> None:
    assert fold(name.encode()) == same.encode()


def test_bytes_that_are_no_text_stay_what_they_are() -> None:
    assert fold(b"\xff\xfe.PEM") == b"\xff\xfe.pem"


def test_a_name_with_capitals_is_locked_in_any_letters_where_the_file_system_folds() -> None:
    for folds in (False, True):
        rules = Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, [], carried=DEFAULT_CARRIED, folds=folds)
        assert rules.locked((b"HEAD",))
        assert rules.locked((b"head",)) is folds
        assert rules.without_repository().locked((b"claude.md",)) is folds


def test_a_file_system_that_folds_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not folding.may_fold(tmp_path)
    assert not folding.may_fold(tmp_path / "absent")
    monkeypatch.setattr(folding, "file_system_of", lambda _: b"exfat")
    assert folding.may_fold(tmp_path)
