"""Every statement that a test of messaging makes the product run is looked at, once: see ``support.plans``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.plans import LISTED, Watched, watched


@pytest.fixture(scope="session")
def statements() -> Iterator[Watched]:
    """Look at the statements of all connections from here on."""
    with watched() as watch:
        yield watch


@pytest.fixture(autouse=True)
def _looks_at_few_rows(statements: Watched) -> Iterator[None]:
    """Fail where a statement of the product looks at more rows than it names."""
    yield
    assert not (found := statements.take()), f"mend these, or say what bounds them in {LISTED.name}:\n" + "\n".join(
        found
    )
