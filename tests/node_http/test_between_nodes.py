"""Two nodes that are not paired find and ask each other over HTTP; whoever is not listed gets nothing."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from sublet.node_http.certificates import key_of
from support.federation_world import World, until
from support.http_nodes import HttpNode, acquaint, know_each_other, serving

pytestmark = pytest.mark.anyio

A, B = "worker-1@ann.local", "worker-1@bob.local"


@pytest.mark.parametrize("tls", [True, False])
async def test_nodes_that_list_each_other_find_and_ask_each_other(tmp_path: Path, tls: bool) -> None:
    world = World()
    ann, bob = HttpNode(world, "ann", tmp_path / "a", tls=tls), HttpNode(world, "bob", tmp_path / "b", tls=tls)
    async with serving(ann, bob):
        assert ann.http.address.startswith("https:" if tls else "http:")
        acquaint(ann, bob)
        await know_each_other(ann, bob)
        assert (ann.node.addresses(), bob.node.addresses()) == ([B], [A])
        done = await ann.node.result(B, "the dishes")
        assert (done.success, done.output) == (True, "worker-1 did the dishes")
        (known,) = ann.http.listed.known()
        assert (known.alias, known.fingerprint, known.paired) == ("bob.local", bob.fingerprint, False)
        # Who is taken out of the file has nothing any more, on connections that are open too.
        bob.peers = []
        bob.set()
        bob.look()
        refused = await ann.node.result(B, "more")
        assert not refused.success
        assert bob.node.started == ["the dishes"]
    assert not list((tmp_path / "a").glob("*.pem"))


async def test_a_certificate_is_renewed_while_nodes_talk_and_nothing_fails(tmp_path: Path) -> None:
    world = World()
    ann, bob = HttpNode(world, "ann", tmp_path / "a"), HttpNode(world, "bob", tmp_path / "b")
    async with serving(ann, bob):
        acquaint(ann, bob)
        await know_each_other(ann, bob)
        certificates = bob.http._certificates
        assert certificates is not None
        results: list[bool] = []
        shown = {await certificate_of(ann, bob)}

        async def ask() -> None:
            results.extend([(await ann.node.result(B, f"task {number}")).success for number in range(20)])

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            for _ in range(3):
                certificates._made -= timedelta(days=11)
                assert certificates.trust(bob.http.listed.keys(), datetime.now(UTC))
                shown.add(await certificate_of(ann, bob))
        assert results == [True] * 20
        assert len(shown) == 4
        assert {key_of(one, datetime.now(UTC)) for one in shown} == {bytes(bob.node.own.key.verify_key)}
        assert not certificates.trust(bob.http.listed.keys(), datetime.now(UTC))


async def certificate_of(who: HttpNode, other: HttpNode) -> bytes:
    """Return what a node shows to another one now, in a handshake that both sides have finished."""
    certificates = who.http._certificates
    assert certificates is not None
    host, port = other.http.address.removeprefix("https://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=certificates.client)
    try:
        writer.write(b"GET /_cis/v1/health HTTP/1.1\r\nHost: bob\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert isinstance(shown, bytes)
        return shown
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def test_another_key_at_the_place_of_a_node_is_told_and_gets_nothing(tmp_path: Path) -> None:
    world = World()
    ann, bob, eve = (HttpNode(world, name, tmp_path / name) for name in ("ann", "bob", "eve"))
    async with serving(ann, bob, eve):
        ann.list("bob.local", eve.http.address, bob.fingerprint)
        eve.list("ann.local", ann.http.address, ann.fingerprint)
        (peer,) = ann.node.settings.peers
        await until(lambda: "another key" in ann.http.why_not(peer))
        assert ann.http.listed.known() == []
        assert eve.node.ledger.rows == {}
        # The same name at its own place is found, without a restart.
        ann.list("bob.local", bob.http.address, bob.fingerprint)
        bob.list("ann.local", ann.http.address, ann.fingerprint)
        await until(lambda: ann.node.addresses() == [B])
        await until(lambda: ann.http.why_not(ann.node.settings.peers[0]) == "")  # once its own call has come through


async def test_it_is_off_unless_it_is_switched_on_and_moves_where_the_file_says(tmp_path: Path) -> None:
    world = World()
    ann, bob = HttpNode(world, "ann", tmp_path / "a"), HttpNode(world, "bob", tmp_path / "b")
    async with serving(ann, bob):
        acquaint(ann, bob)
        await know_each_other(ann, bob)
        first = bob.http.address
        bob.set(enabled=False)
        bob.look()
        await until(lambda: not bob.http.address)
        assert "http.enabled is false" in bob.http.why_not(bob.node.settings.peers[0])
        assert not (await ann.node.result(B, "it")).success
        bob.set()
        bob.look()
        await until(lambda: bob.http.address)
        assert bob.http.address != first
        ann.list("bob.local", bob.http.address, bob.fingerprint)
        await know_each_other(ann, bob)
        assert (await ann.node.result(B, "it")).success


async def test_the_clock_of_a_plain_request_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    ann, bob = HttpNode(world, "ann", tmp_path / "a", tls=False), HttpNode(world, "bob", tmp_path / "b", tls=False)
    ann.http.caller._wall = lambda: time.time() - 400
    async with serving(ann, bob):
        acquaint(ann, bob)
        await until(lambda: ann.node.addresses() == [B])  # Bob's clock is right
        await until(lambda: any(one.refused for one in ann.federation.neighbours.all()))
        assert bob.node.addresses() == []
