"""Names in the forms in which they are compared, and what is remembered of them."""

from __future__ import annotations

import pytest

from sublet.policy import names
from sublet.policy.names import MAX_REMEMBERED_CHARS, plain, remembered, skeleton


@pytest.mark.parametrize(
    ("name", "exact", "loose"),
    [
        ("", "", ""),
        ("Bob", "bob", "bob"),
        ("/Srv/\u0430", "/Srv/\u0430", "/Srv/\u0430"),
        ("a\x07B\x7f", "a\x07b\x7f", "ab"),
        ("\u00c9", "\u00e9", "\u00e9"),
        ("E\u0301", "\u00e9", "\u00e9"),
        ("\u212b", "\u00e5", "\u00e5"),
        ("\uff22ob", "\uff42ob", "bob"),
        ("stra\u00dfe", "stra\u00dfe", "strasse"),
        ("b\u043eb", "b\u043eb", "bob"),
        ("B\u041eB", "b\u043eb", "bob"),
        ("a\u200bb", "a\u200bb", "ab"),
        ("a\ufe00b", "a\ufe00b", "ab"),
        ("a\ufe0fb", "a\ufe0fb", "ab"),
        ("a\ufe10b", "a\ufe10b", "a,b"),
        ("a\U000e0100b", "a\U000e0100b", "ab"),
        ("a\U000e01efb", "a\U000e01efb", "ab"),
        ("a\U000e01f0b", "a\U000e01f0b", "a\U000e01f0b"),
        ("a\u3164b\u034fc", "a\u3164b\u034fc", "abc"),
        ("\u00e9\x07", "\u00e9\x07", "\u00e9"),
    ],
)
def test_forms(name: str, exact: str, loose: str) -> None:
    assert (plain(name), skeleton(name)) == (exact, loose)
    long = "z" * MAX_REMEMBERED_CHARS
    if not name.startswith("/"):
        assert (plain(name + long), skeleton(name + long)) == (exact + long, loose + long)


def test_short_names_alone_are_remembered() -> None:
    asked: list[str] = []

    @remembered
    def form(name: str) -> str:
        """Tell of itself."""
        asked.append(name)
        return name.upper()

    short, long = "a" * MAX_REMEMBERED_CHARS, "a" * (MAX_REMEMBERED_CHARS + 1)
    for name in (short, short, long, long):
        assert form(name) == name.upper()
    assert asked == [short, long, long]
    assert (form.__name__, form.__doc__) == ("form", "Tell of itself.")


def test_folding_ends_although_a_form_might_not_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    folds: list[str] = []

    def grow(name: str) -> str:
        folds.append(name)
        return name + "x"

    monkeypatch.setattr(names, "_folded", grow)
    assert names.skeleton("\u00e9-folded") == "\u00e9-foldedxxxx"
    assert len(folds) == 4
