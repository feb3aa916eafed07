"""Where HTTP for nodes is served, and what becomes of it where that can't be."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from support.federation_world import World, until
from support.http_nodes import HttpNode, serving

pytestmark = pytest.mark.anyio


async def test_it_listens_where_the_file_says_and_speaks_plainly_where_it_says_so(tmp_path: Path) -> None:
    ann = HttpNode(World(), "ann", tmp_path / "a")
    ann.listen = "127.0.0.9:0"
    ann.set()
    async with serving(ann):
        assert ann.http.address.startswith("https://127.0.0.9:")
        ann.set(tls=False)
        ann.look()
        await until(lambda: ann.http.address.startswith("http://127.0.0.9:"))


async def test_a_port_that_is_taken_is_told_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sublet.app.node_http.RETRY_SECONDS", 0.05)
    world = World()
    ann, bob = HttpNode(world, "ann", tmp_path / "a"), HttpNode(world, "bob", tmp_path / "b")
    async with serving(ann), anyio.create_task_group() as group:
        bob.listen = ann.http.address.removeprefix("https://")
        bob.set()
        group.start_soon(bob.http.serve)
        await until(lambda: "can't be served" in bob.http.remark)
        assert bob.http.address == ""
        ann.set(enabled=False)
        ann.look()
        await until(lambda: bob.http.address)
        assert bob.http.remark == ""
        group.cancel_scope.cancel()
