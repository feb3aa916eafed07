"""Rules when a lease has ended: as they were, but for what it made under hidden names."""

from __future__ import annotations

import inspect

import pytest

from sublet.workspace.birth import Identity
from sublet.workspace.export import ViewRules
from sublet.workspace.own_names import OwnNames
from sublet.workspace.view.own_rules import OwnShown, with_own

OWN = (b"dir", b".env")


class Asked:
    """Rules that note what they are asked."""

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.calls: list[tuple[object, ...]] = []

    def __getattr__(self, name: str) -> object:
        def ask(*arguments: object) -> object:
            self.calls.append((name, *arguments))
            return self.answer

        return ask


@pytest.fixture
def own() -> OwnNames:
    made = OwnNames()
    made.made(OWN, Identity(1, 2, 3))
    return made


QUESTIONS = sorted(
    name
    for name, of in inspect.getmembers(ViewRules, inspect.isfunction)
    if not name.startswith("_") and name not in ("hidden", "without_repository")
)


@pytest.mark.parametrize("question", QUESTIONS)
def test_all_else_is_as_the_rules_have_it(question: str, own: OwnNames) -> None:
    for answer in (True, False):
        rules = Asked(answer)
        asked = inspect.signature(getattr(ViewRules, question)).parameters
        arguments: list[object] = [OWN] if "parts" in asked else [b"name"] if "name" in asked else []
        assert getattr(OwnShown(rules, own), question)(*arguments) is answer  # type: ignore[arg-type]
        assert rules.calls == [(question, *arguments)]


def test_what_the_lease_made_is_not_hidden(own: OwnNames) -> None:
    for hidden in (True, False):
        rules = OwnShown(Asked(hidden), own)  # type: ignore[arg-type]
        assert not rules.hidden(OWN)
        assert rules.hidden((b"dir", b"other")) is hidden
        assert rules.hidden(()) is hidden
    inner = Asked(True)
    outer = Asked(inner)
    compared = OwnShown(outer, own).without_repository()  # type: ignore[arg-type]
    assert not compared.hidden(OWN)
    assert compared.hidden((b"x",))
    assert outer.calls == [("without_repository",)]
    assert inner.calls == [("hidden", OWN), ("hidden", (b"x",))]


def test_rules_are_themselves_where_nothing_was_made(own: OwnNames) -> None:
    rules = Asked(True)
    assert with_own(rules, None) is rules  # type: ignore[arg-type,comparison-overlap]
    assert with_own(rules, OwnNames()) is rules  # type: ignore[arg-type,comparison-overlap]
    assert isinstance(with_own(rules, own), OwnShown)  # type: ignore[arg-type]
