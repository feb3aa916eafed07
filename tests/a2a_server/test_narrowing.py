"""A plain message may narrow what agents call for it, and nothing else in its metadata widens anything."""

from __future__ import annotations

from typing import Any

import pytest
from a2a.utils.errors import A2AError

from a2a_server.test_chain import asking, sent
from sublet.policy.request_rules import NARROW_KEY, NOT_NARROWED, Narrowing
from support.a2a_world import World, text

pytestmark = pytest.mark.anyio


async def test_what_a_message_narrows_reaches_the_agents_gate(bob: World) -> None:
    bob.messages.gate.set()
    await sent(bob, asking("do it", {NARROW_KEY: {"deny": ["file.write"], "only": ["file.*"]}}))
    await sent(bob, text("by a person"))
    assert bob.messages.narrowed == [Narrowing(("file.write",), ("file.*",)), NOT_NARROWED]


@pytest.mark.parametrize(
    "value", ["file.*", {"deny": "x"}, {"deny": [5]}, {"allow": ["*"]}, {"only": ["file.raed"]}, 5]
)
async def test_what_narrows_nothing_is_refused(bob: World, value: Any) -> None:
    with pytest.raises(A2AError):
        await sent(bob, asking("do it", {NARROW_KEY: value}))
    assert bob.messages.asked == []
