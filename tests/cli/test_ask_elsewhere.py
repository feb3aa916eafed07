"""What is typed for an agent of another node is told from what is for one here."""

from __future__ import annotations

import pytest

from sublet.cli.commands.asking.ask_elsewhere import addressed


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("@coder@kitchen.local fix them", ("coder@kitchen.local", "fix them")),
        ("  @coder@bob:  fix  them ", ("coder@bob", "fix  them")),
        ("@coder fix them", None),
        ("@coder@kitchen.local", None),
        ("mail x@y.z about it", None),
        ("", None),
    ],
)
def test_an_address_comes_first(text: str, found: tuple[str, str] | None) -> None:
    assert addressed(text) == found
