"""The lender's own server sees the executor's last connection go while the work runs, and a connection come back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from sublet.daemon.lending import connection_watch
from sublet.daemon.ports.peer_link import Silence
from sublet.protocol.events import EventKind
from sublet.protocol.lifecycle import DelegationState
from support.lender import WAIT_SECONDS, Lender, lender
from support.scripted_link import EXECUTOR_KEY, accepting
from support.sftp_client import Lender as Leased

pytestmark = pytest.mark.anyio

SHORT, LONG = 0.05, 30.0
CUT, UP = "degraded", ""


@pytest.fixture
async def side(tmp_path: Path) -> AsyncIterator[Lender]:
    async with lender(tmp_path) as side:
        yield side


@pytest.fixture(autouse=True)
def grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_watch, "CONNECTION_GRACE_SECONDS", SHORT)


async def shown(side: Lender, delegation_id: str) -> list[str]:
    """Return the conditions that were journalled so far, without that of the end."""
    page = await side.journal.events.events_after(0, delegation_id, limit=500)
    conditions = [each.data["condition"] for each in page.events if each.kind is EventKind.DELEGATION_CONDITION]
    kinds = [str(each["kind"]) if isinstance(each, dict) else UP for each in conditions]
    return [kind for kind in kinds if kind != "ending"]


async def until_shown(side: Lender, delegation_id: str, *kinds: str) -> None:
    """Wait until exactly ``kinds`` were shown, in order."""
    with anyio.fail_after(WAIT_SECONDS):
        while await shown(side, delegation_id) != list(kinds):
            await anyio.sleep(0.01)


def leased(side: Lender, delegation_id: str) -> Leased:
    return Leased(side.data_plane, EXECUTOR_KEY, delegation_id)


async def test_the_last_connection_that_goes_is_shown_until_one_is_back(side: Lender) -> None:
    found = await side.running()
    async with leased(side, found).connect():
        pass
    await until_shown(side, found, CUT)
    view = await side.delegator.view(found)
    assert view.condition is not None
    assert "bob has no connection to the files" in view.condition.detail
    assert view.state is DelegationState.RUNNING
    async with leased(side, found).connect():
        await until_shown(side, found, CUT, UP)
    await until_shown(side, found, CUT, UP, CUT)
    side.link.done(found)
    assert (await side.settled(found)).state is DelegationState.COMPLETED


async def test_one_of_several_connections_is_no_loss(side: Lender) -> None:
    found = await side.running()
    async with leased(side, found).connect():
        async with leased(side, found).connect():
            pass
        await anyio.sleep(SHORT * 4)
        assert await shown(side, found) == []
    await until_shown(side, found, CUT)


async def test_neither_an_executor_that_has_not_come_yet_nor_an_end_is_a_loss(
    side: Lender, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await side.running()
    await anyio.sleep(SHORT * 4)
    monkeypatch.setattr(connection_watch, "CONNECTION_GRACE_SECONDS", LONG)
    for _ in range(3):
        async with leased(side, found).connect():
            pass
    side.link.done(found)
    assert (await side.settled(found)).state is DelegationState.COMPLETED
    assert await shown(side, found) == []


async def test_words_that_do_not_come_are_shown_first(side: Lender) -> None:
    found = await side.running()
    async with leased(side, found).connect():
        side.link.say(found, Silence("the stream broke"))
        await until_shown(side, found, "unresponsive")
    await anyio.sleep(SHORT * 4)
    side.link.say(found, Silence(""))
    await until_shown(side, found, "unresponsive", CUT)


async def test_work_that_comes_back_at_its_end_only_needs_no_connection_meanwhile(side: Lender) -> None:
    side.link.answer = accepting(sublet={"transport": "archive"})
    found = await side.running(transport="archive")
    async with leased(side, found).connect():
        pass
    await anyio.sleep(SHORT * 4)
    assert await shown(side, found) == []
