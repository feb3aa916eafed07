"""What a paired peer can answer, and invite to: it is the peer's fault, and ends nothing of ours."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from a2a.types import SubscribeToTaskRequest
from a2a.utils.errors import A2AError

from attacks.kit.caller import answering
from attacks.kit.odd_peer import ODD_ANSWERS
from sublet.a2a_client.client import A2APeerLink
from sublet.daemon.peering.identity import load_identity
from sublet.daemon.peering.pairing import OwnAddress
from sublet.daemon.peering.peers import Peer, PeerStore
from sublet.daemon.peering.whereabouts import Whereabouts
from sublet.daemon.ports.given_to_a2a import PairRequest
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.store import Store
from sublet.protocol.assignment.granting import start_seconds
from sublet.protocol.assignment.verdict import why_not_done
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.messages import Accept, Error
from support.a2a_world import MemoryNonces, World, world
from support.worker import ALICE, MALLORY, Worker, invite, worker

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def _peers(base: Path) -> AsyncIterator[PeerStore]:
    """Yield who is paired, kept in a database of its own."""
    store = await Store.open(base / "state.sqlite3")
    try:
        yield await PeerStore.load(Journal(store))
    finally:
        await store.close()


@pytest.fixture
async def bob(tmp_path: Path) -> AsyncIterator[World]:
    """A served face, and who is paired with it."""
    async with world(tmp_path) as served:
        yield served


@pytest.mark.parametrize("name", ODD_ANSWERS)
async def test_any_answer_of_a_peers_is_its_own_fault(bob: World, name: str) -> None:
    link = bob.alice.link()
    try:
        async with answering(ODD_ANSWERS[name]) as url:
            peer = replace(bob.peer(), a2a_url=url)
            with pytest.raises(SubletError):
                await link.agents(peer)
            with pytest.raises(SubletError):
                await link.pair(url, PairRequest(*[""] * len(PairRequest.__dataclass_fields__)), tls_fingerprint=None)
            session = await link._session(peer)
            with pytest.raises((SubletError, A2AError)):
                await session.get_task("t")
            with suppress(SubletError, A2AError):  # a stream that ends without a word is looked at again
                _ = [event async for event in session.stream(SubscribeToTaskRequest(id="t"))]
    finally:
        await link.aclose()


async def test_a_peers_redirect_does_not_end_who_tells_where_we_are(tmp_path: Path) -> None:
    identity, other = load_identity(tmp_path / "a"), load_identity(tmp_path / "b")
    async with _peers(tmp_path) as peers, answering(ODD_ANSWERS["redirect to a:b"]) as url:
        await peers.add(Peer("bob", other.public_key, url, None, "2026-11-29T00:00:00Z"))
        link = A2APeerLink(identity.key, identity.node_id, identity.fingerprint)
        own = OwnAddress("http://127.0.0.1:1/", None)
        whereabouts = Whereabouts(identity, peers, link, lambda: own, MemoryNonces())
        try:
            with anyio.move_on_after(2) as waited:
                await whereabouts.serve()
            assert waited.cancelled_caught  # it goes on, and tries again later
        finally:
            await link.aclose()


async def test_an_address_that_is_none_is_set_aside_at_the_start(tmp_path: Path) -> None:
    other = load_identity(tmp_path / "b")
    async with _peers(tmp_path) as peers:
        await peers.add(Peer("bob", other.public_key, "a:b", None, "2026-11-29T00:00:00Z"))
        again = await PeerStore.load(peers._journal)
        found = again.get("bob")
        assert found is not None
        assert found.a2a_url is None


# INVITE


async def test_another_invite_under_a_used_id_is_refused(bob: World) -> None:
    link = bob.alice.link()
    try:
        first = invite()
        _, accepted = await link.invite(bob.peer(), first)
        assert isinstance(accepted, Accept)
        _, again = await link.invite(bob.peer(), first)
        assert isinstance(again, Accept)
        other = first.model_copy(update={"task": first.task.model_copy(update={"prompt": "something else"})})
        _, refused = await link.invite(bob.peer(), other)
        assert isinstance(refused, Error)
        assert "used before" in refused.message
    finally:
        await link.aclose()


@pytest.fixture
async def side(tmp_path: Path) -> AsyncIterator[Worker]:
    """An executor with real parts."""
    async with worker(tmp_path) as made:
        yield made


async def test_the_executor_compares_all_that_an_invite_asks(side: Worker) -> None:
    await side.accepted()
    record = await side.record()
    await side.executor.check_invite(record.invite, ALICE)
    extension = record.invite.sublet
    for changed in (
        record.invite.model_copy(update={"lease": record.invite.lease.model_copy(update={"ttl_seconds": 1})}),
        record.invite.model_copy(update={"sublet": extension.model_copy(update={"agent": "other"})}),
        record.invite.model_copy(update={"sublet": extension.model_copy(update={"result_mode": "staged"})}),
    ):
        with pytest.raises(SubletError, match="used before"):
            await side.executor.check_invite(changed, ALICE)
    with pytest.raises(SubletError, match="used before"):
        await side.executor.check_invite(record.invite, MALLORY)


def test_a_slot_is_kept_for_little_longer_than_its_lease_could_hold_it() -> None:
    assert start_seconds(5) == 10
    assert start_seconds(3_600) == 60


def test_a_lease_that_ended_before_its_mount_does_not_say_that_anything_ran() -> None:
    def verdict(*, began: bool) -> SubletError:
        error = why_not_done(
            "dlg_1", None, (), late=True, began=began, missing=True, lost=None, stopped=None, failed=None
        )
        assert error is not None
        assert error.code is ErrorCode.EXPIRED
        return error

    assert "never started" in verdict(began=False).message
    assert "while the task was running" in verdict(began=True).message
