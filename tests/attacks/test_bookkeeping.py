"""What is told of promised slots and of leases that never came to work: by real INVITEs, and by a mount that hangs."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from sublet.a2a_client.client import A2APeerLink
from sublet.daemon.peering.identity import load_identity
from sublet.daemon.ports.peer_link import PeerAddress
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.messages import Accept, Error, Invite
from support.daemons import Daemon, two_daemons, wait_for
from support.leases import delegate
from support.worker import ALICE, HERE, Worker, invite, worker

pytestmark = pytest.mark.anyio
SLOTS = 5


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Daemon]]:
    with two_daemons(tmp_path_factory.mktemp("slots")) as both:
        yield both


@asynccontextmanager
async def inviting(delegator: Daemon, executor: Daemon) -> AsyncIterator[tuple[A2APeerLink, PeerAddress]]:
    """Yield the outgoing side of a paired daemon, with its real key, and the executor as it knows it."""
    state = delegator.home / "state"
    identity = load_identity(state / "keys")
    with contextlib.closing(sqlite3.connect(f"file:{state / 'sublet.db'}?mode=ro", uri=True)) as database:
        key, certificate = database.execute("SELECT public_key, tls_certificate FROM peers").fetchone()
    link = A2APeerLink(identity.key, identity.node_id, identity.fingerprint)
    try:
        yield link, PeerAddress("bob", str(executor.info["a2a_url"]), key, certificate)
    finally:
        await link.aclose()


def short() -> Invite:
    return invite(f"dlg_{uuid.uuid4().hex}", ttl_seconds=1)


async def told(daemon: Daemon) -> tuple[int, int]:
    """Return the slots in use and all slots, as ``status`` tells them."""
    status: dict[str, Any] = await anyio.to_thread.run_sync(lambda: daemon.json("status"))
    return status["assignments_active"], status["slots"]


async def test_status_counts_the_slots_that_invites_hold_and_they_come_back(daemons: tuple[Daemon, Daemon]) -> None:
    alice, bob = daemons
    async with inviting(alice, bob) as (link, peer):
        assert await told(bob) == (0, SLOTS)
        for number in range(SLOTS):
            _, answer = await link.invite(peer, short())
            assert isinstance(answer, Accept)
            assert await told(bob) == (number + 1, SLOTS)
        _, refused = await link.invite(peer, short())
        assert isinstance(refused, Error)
        assert refused.code is ErrorCode.DECLINED
        # A lease of one second holds its slot for six, and not for the minute that the longest may.
        assert (refused.sublet.retry_after_seconds or 0) <= 6
        assert await told(bob) == (SLOTS, SLOTS)
        shown = await anyio.to_thread.run_sync(lambda: bob.run("status").stdout)
        assert f"{SLOTS} of {SLOTS} slots" in shown
        await anyio.to_thread.run_sync(lambda: wait_for(lambda: bob.json("status")["assignments_active"] == 0))
        _, answer = await link.invite(peer, short())
        assert isinstance(answer, Accept)


async def test_a_delegation_is_told_that_all_slots_are_promised(
    daemons: tuple[Daemon, Daemon], tmp_path: Path
) -> None:
    alice, bob = daemons
    await anyio.to_thread.run_sync(lambda: wait_for(lambda: bob.json("status")["assignments_active"] == 0))
    (tmp_path / "lent").mkdir()
    async with inviting(alice, bob) as (link, peer):
        promised = [short() for _ in range(SLOTS)]
        for one in promised:
            await link.invite(peer, one)
        ended = await anyio.to_thread.run_sync(lambda: delegate(alice, tmp_path / "lent", "touch ran"))
        assert (ended["state"], ended["error"]["code"]) == ("error", "DECLINED")
        assert f"all {SLOTS} slots" in ended["error"]["message"]
        assert not (tmp_path / "lent" / "ran").exists()


# a mount that never comes


@pytest.fixture
async def side(tmp_path: Path) -> AsyncIterator[Worker]:
    """An executor with real parts."""
    async with worker(tmp_path) as made:
        yield made


SILENT = {"nothing at all": b"", "a greeting and no more": b"SSH-2.0-OpenSSH_9.2\r\n"}


@asynccontextmanager
async def silent_port(words: bytes) -> AsyncIterator[int]:
    """Listen, say ``words`` to whoever calls, and hold the connection without another byte."""

    held: list[asyncio.StreamWriter] = []

    async def hold(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)
        writer.write(words)

    server = await asyncio.start_server(hold, HERE, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in held:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


@pytest.mark.parametrize("words", SILENT.values(), ids=SILENT)
async def test_a_lease_whose_mount_never_came_says_that_nothing_ran(side: Worker, words: bytes) -> None:
    accept = await side.accepted(ttl_seconds=2)
    async with silent_port(words) as port:
        start = side.start_message(accept, 2)
        endpoint = start.mount.endpoint.model_copy(update={"port": port})
        start = start.model_copy(update={"mount": start.mount.model_copy(update={"endpoint": endpoint})})
        with pytest.raises(SubletError) as no:
            [update async for update in side.executor.run(start, ALICE, source_host=HERE)]
    assert no.value.code is ErrorCode.EXPIRED
    assert "never started" in no.value.message
    assert "while the task was running" not in no.value.message
    assert side.agent.jobs == []
    await side.check_nothing_held()


async def test_a_lease_whose_agent_was_at_work_says_so(side: Worker) -> None:
    """Beside the one above: the same end of the lease, but for the mount."""
    accept = await side.accepted(ttl_seconds=2)

    async def work(job: Any, report: Any) -> Any:
        await asyncio.Event().wait()

    side.agent.work = work
    with pytest.raises(SubletError) as no:
        await side.updates(side.start(accept, seconds=2))
    assert no.value.code is ErrorCode.EXPIRED
    assert "while the task was running" in no.value.message
    assert len(side.agent.jobs) == 1
