"""What is typed for an agent of another node is told from what is for one here."""

from __future__ import annotations

import pytest
import typer

from sublet.cli.commands.asking.ask_elsewhere import addressed


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("@coder@kitchen.local fix them", ("coder@kitchen.local", "fix them")),
        ("  @coder@bob:  fix  them ", ("coder@bob", "fix  them")),
        ("@coder fix them", None),
        ("@coder@kitchen.local\nfix\nthem", ("coder@kitchen.local", "fix\nthem")),
        ("@coder@kitchen.local\tfix", ("coder@kitchen.local", "fix")),
        ("@coder", None),
        ("mail x@y.z about it", None),
        ("", None),
    ],
)
def test_an_address_comes_first(text: str, found: tuple[str, str] | None) -> None:
    assert addressed(text) == found


@pytest.mark.parametrize("text", ["@coder@kitchen.local", " @coder@kitchen.local: \n"])
def test_an_address_alone_is_told_of_and_goes_to_nobody_else(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"what @coder@kitchen\.local is to do"):
        addressed(text)
