"""What is told of events, delegations and assignments is what was asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from sublet.daemon.api.delegation_fields import ListNewest
from sublet.daemon.api.events import FollowEvents, ReadEvents
from sublet.daemon.api.web_logins import CreateWebLogin
from sublet.daemon.control.delegation_service import DelegationService
from sublet.daemon.control.event_service import EventService
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.store import Store
from sublet.daemon.web_access.logins import WebLogins
from sublet.daemon.web_access.service import WebService
from sublet.daemon.working.assignment_service import AssignmentService
from sublet.policy.decision import Subject
from sublet.protocol.errors import SubletError
from sublet.protocol.events import EventKeys, EventKind
from support.decisions import gatekeeper

pytestmark = pytest.mark.anyio
ME = Subject("human")


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    store = await Store.open(tmp_path / "sublet.db")
    made = Journal(store)
    for number in range(2):
        await made.events.append_event(EventKind.CONFIG_RELOADED, None, {"n": number})
    await made.events.append_event(EventKind.TOOL_CALL, "dlg_1", {"n": 2})
    await made.events.append_event(EventKind.TOOL_CALL, None, {"n": 3}, keys=EventKeys(finger_session_id="ses_1"))
    yield made
    await store.close()


def service(journal: Journal) -> EventService:
    return EventService(gatekeeper(journal), journal.events)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({}, [0, 1, 2, 3]),
        ({"cursor": 1}, [1, 2, 3]),
        ({"limit": 2}, [0, 1]),
        ({"delegation_id": "dlg_1"}, [2]),
        ({"session_id": "ses_1"}, [3]),
        ({"kind": "config_reloaded"}, [0, 1]),
    ],
)
async def test_events_that_fit_are_read_and_followed(journal: Journal, asked: dict[str, Any], told: list[int]) -> None:
    page = await service(journal).read_events(ReadEvents(**asked), ME)
    assert [event.data["n"] for event in page.events] == told
    if "limit" not in asked:
        async for events in service(journal).follow_events(FollowEvents(**asked), ME):
            assert [event.data["n"] for event in events] == told
            break


async def test_an_event_is_waited_for(journal: Journal) -> None:
    found: list[object] = []

    async def wait() -> None:
        page = await service(journal).read_events(ReadEvents(cursor=4, timeout=30), ME)
        found.extend(event.data["n"] for event in page.events)

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        await journal.events.append_event(EventKind.CONFIG_RELOADED, None, {"n": 4})
    assert found == [4]


async def test_a_login_is_good_for_as_long_as_was_asked(journal: Journal) -> None:
    now = [50.0]
    logins = WebLogins(lambda: now[0])
    made = await WebService(gatekeeper(journal), logins, lambda: "http://127.0.0.1:1").create_web_login(
        CreateWebLogin(ttl_seconds=60), ME
    )
    now[0] += 61
    with pytest.raises(SubletError):
        logins.redeem(made.url.partition("login=")[2])


async def test_delegations_and_work_for_others_are_listed_page_by_page(journal: Journal) -> None:
    asked: list[dict[str, object]] = []

    class Listed:
        """Keeps what it is asked for."""

        async def list(self, **wanted: object) -> list[object]:
            asked.append(wanted)
            return []

        list_assignments = list

    request = ListNewest(limit=7, active=True, before="dlg_1")
    lists = cast("Any", Listed())
    parts = cast("Any", SimpleNamespace(delegator=lists, gate=gatekeeper(journal)))
    await DelegationService(parts).list_newest(request, ME)
    told = AssignmentService(gatekeeper(journal), lists, cast("Any", None))
    await told.list_assignments(request, ME)
    assert asked == [{"limit": 7, "active": True, "before": "dlg_1"}] * 2
