"""A card tells what keeps agents from working, and looks at that beside the loop, a few times a minute at most."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sublet.a2a_server import face as face_module
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.readiness import Lack, unable
from support.a2a_world import world

pytestmark = pytest.mark.anyio


async def test_files_are_looked_at_in_a_thread_and_not_for_each_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[threading.Thread] = []

    def looks(config: AgentConfig) -> Lack | None:
        looked.append(threading.current_thread())
        return unable(config)

    async with world(tmp_path) as bob:
        monkeypatch.setattr(face_module, "unable", looks)
        monkeypatch.setattr(face_module, "LOOK_SECONDS", 0.0)
        card = await bob.face.card()
        assert looked
        assert threading.main_thread() not in looked
        monkeypatch.setattr(face_module, "LOOK_SECONDS", 3_600.0)
        looked.clear()
        assert await bob.face.card() is card
        assert looked == []


async def test_what_an_agent_lacks_is_on_the_card_as_soon_as_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path) as bob:
        before = await bob.face.card()
        monkeypatch.setattr(face_module, "LOOK_SECONDS", 0.0)
        monkeypatch.setattr(face_module, "unable", lambda _: Lack("the program is gone", "Install it."))
        after = await bob.face.card()
        assert after is not before
        assert "the program is gone" in str(after)
