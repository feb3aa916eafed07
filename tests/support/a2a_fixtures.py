"""A served A2A face for each test, and who calls it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sublet.a2a_client.client import A2APeerLink
from support.a2a_world import World, world


@pytest.fixture
async def bob(tmp_path: Path) -> AsyncIterator[World]:
    """A served face that is paired with ``alice`` and ``mallory``."""
    async with world(tmp_path) as served:
        yield served


@pytest.fixture
async def link(bob: World) -> AsyncIterator[A2APeerLink]:
    """The outgoing side of ``alice``."""
    link = bob.alice.link()
    yield link
    await link.aclose()
