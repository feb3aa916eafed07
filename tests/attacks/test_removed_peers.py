"""A peer that is removed has nothing any more, whatever it was called; and nobody else gets what was its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from nacl.signing import SigningKey

from sublet.daemon.peering.peers import Peer
from sublet.daemon.peering.spoken_names import spoken_names
from sublet.policy.config import parse
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ids import fingerprint
from sublet.supervisor.agent_config import AgentConfig
from support.daemons import two_daemons, wait_for
from support.lender import lender as lending
from support.pairing import Side, side
from support.scripted_link import BOB

pytestmark = pytest.mark.anyio


def test_a_peer_that_got_another_name_loses_its_leases_with_the_new_one(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    with two_daemons(tmp_path) as (lender, worker):
        script = "touch began; while :; do date >> log; sleep 0.1; done"
        made = lender.json("delegate", str(project), "--to", "bob", script, "--background")["delegation_id"]
        wait_for(lambda: (project / "began").exists())
        lender.run("peers", "add", worker.json("pair")["link"], "--name", "robert")
        lender.run("peers", "remove", "robert")
        assert lender.json("output", made, check=None)["state"] == "cancelled"


async def test_nothing_begins_with_a_peer_that_was_removed_since_it_was_looked_up(tmp_path: Path) -> None:
    async with lending(tmp_path) as side:
        for gone in (replace(BOB, name="carol"), replace(BOB, public_key=b"c" * 32)):
            with pytest.raises(SubletError) as refused:
                await side.create(peer=gone)
            assert refused.value.code is LocalCode.PEER_UNKNOWN


async def called(host: Side, guest: Side, hint: str, monkeypatch: pytest.MonkeyPatch) -> Peer:
    """Pair by a link of ``host``, with a guest that calls itself ``hint``, and return it as the host knows it."""
    monkeypatch.setattr("socket.gethostname", lambda: hint)
    guest.link.other = host.pairing
    await guest.pairing.add((await host.pairing.create_link()).link, "host")
    peer = host.peers.by_node_id(guest.identity.node_id)
    assert peer is not None
    return peer


async def test_nobody_calls_itself_by_the_name_of_a_removed_peer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with side(tmp_path / "host", 8001) as host, side(tmp_path / "guest", 8002) as guest:
        await host.peers.add(Peer("bob", bytes(SigningKey.generate().verify_key), None, None))
        await host.peers.remove("bob")
        peer = await called(host, guest, "bob", monkeypatch)
        assert (peer.name, "another key's" in peer.note) == ("bob-2", True)
        loaded = await type(host.peers).load(host.journal)
        assert [one.note for one in loaded.list()] == [peer.note]
        # Its own former name is its own, and what a person types is taken.
        await host.peers.remove("bob-2")
        assert (await called(host, guest, "bob-2", monkeypatch)).name == "bob-2"
        assert (await host.peers.add(replace(peer, name="bob", note=""))).name == "bob"


async def test_nobody_calls_itself_by_a_name_that_a_rule_or_an_agent_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow = {"effect": "allow"}
    rules = parse(
        {
            "version": 1,
            "role": {
                "peer": [
                    {"id": "all", "action": "assignment.accept", **allow},
                    {"id": "own", "subject": {"name": "bob"}, "action": "agent.message", **allow},
                    {"id": "many", "subject": {"name": "ci-*"}, "action": "agent.message", "effect": "deny"},
                ],
                "mcp": [{"id": "to", "action": "delegation.create", "resource": "eve", **allow}],
            },
        }
    ).rules
    far = AgentConfig.model_validate({"id": "far", "provider": {"type": "a2a", "peer": "dan"}})
    async with side(tmp_path / "host", 8001) as host:
        host.spoken = spoken_names(rules, [far])
        for number, (hint, name, why) in enumerate(
            [
                ("bob", "bob-2", "own"),
                ("eve", "eve-2", "to"),
                ("dan", "dan-2", "far"),
                ("ann", "ann", ""),
            ]
        ):
            async with side(tmp_path / str(number), 8002) as guest:
                peer = await called(host, guest, hint, monkeypatch)
                assert (peer.name, why in peer.note) == (name, True)
        async with side(tmp_path / "last", 8002) as guest:
            peer = await called(host, guest, "ci-7", monkeypatch)
            assert peer.name.startswith("peer-")


async def test_work_is_taken_up_with_the_key_that_it_was_given_to(tmp_path: Path) -> None:
    def key() -> bytes:
        return bytes(SigningKey.generate().verify_key)

    first, other = (Peer("bob", key(), f"http://127.0.0.1:{port}/", None) for port in (8011, 8012))
    async with side(tmp_path / "host", 8001) as host:
        await host.peers.add(first)
        await host.peers.remove("bob")
        began = "2026-01-01T00:00:00.000Z"
        pinned = await host.peers.add(other)
        assert host.peers.address_of("bob", first.fingerprint, began) is None
        # Older versions kept no key: who was paired later is not who was meant.
        assert host.peers.address_of("bob", None, began) is None
        assert host.peers.address_of("bob", None, pinned.paired_at) == other.address()
        await host.peers.add(replace(other, name="robert"))
        assert host.peers.address_of("bob", other.fingerprint, began) == replace(other, name="robert").address()


async def test_a_delegation_keeps_the_key_of_its_peer(tmp_path: Path) -> None:
    async with lending(tmp_path) as side:
        assert (await side.record(await side.running())).peer_fingerprint == fingerprint(BOB.public_key)
