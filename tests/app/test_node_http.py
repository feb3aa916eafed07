"""Where HTTP for nodes is served, and what becomes of it where that can't be."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import anyio
import pytest

from sublet.node_http.listed import Place
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


async def test_certificates_that_can_not_be_made_end_nothing_and_are_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sublet.app.node_http.RETRY_SECONDS", 0.05)
    ann = HttpNode(World(), "ann", tmp_path / "a")
    async with serving(ann):
        address, certificates = ann.http.address, ann.http._certificates
        assert certificates is not None
        real, tried = certificates.trust, list[int]()

        def trust(keys: Iterable[bytes], now: datetime) -> bool:
            tried.append(1)
            if len(tried) < 3:
                raise OSError("no space left")
            return real(keys, now)

        monkeypatch.setattr(certificates, "trust", trust)
        ann.look()
        await until(lambda: len(tried) >= 3)
        assert ann.http.address == address


async def test_a_node_that_is_listed_later_waits_for_none_of_those_that_do_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, called = HttpNode(World(), "ann", tmp_path / "a"), list[int]()

    async def silent(place: Place, what: str, payload: bytes) -> bytes | None:
        called.append(place.port)
        await anyio.sleep_forever()
        return None

    monkeypatch.setattr(ann.http.caller, "_ask", silent)
    async with serving(ann):
        ann.list("bob.local", "https://127.0.0.1:1", "SHA256:" + "b" * 43)
        await until(lambda: called == [1])
        ann.list("bob.local", "https://127.0.0.1:2", "SHA256:" + "b" * 43)
        await until(lambda: 2 in called)
