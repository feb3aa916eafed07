from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sublet.daemon.api.delegation_views import LeaseQuota
from sublet.daemon.api.delegations import CreateDelegation
from sublet.daemon.storage import event_log
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.records import DelegationRecord, ResourceRecord
from sublet.daemon.storage.resource_log import ResourceChange
from sublet.daemon.storage.store import Store
from sublet.disk.set_aside import SetAside
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import EventFilter, EventKeys, EventKind
from sublet.protocol.lifecycle import DelegationState, IllegalTransition

pytestmark = pytest.mark.anyio

STATE = EventKind.DELEGATION_STATE
OUTPUT = EventKind.DELEGATION_OUTPUT


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = await Store.open(tmp_path / "sublet.db")
    yield store
    await store.close()


@pytest.fixture
def journal(store: Store) -> Journal:
    return Journal(store)


def record(
    name: str = "dlg_1", *, key: str | None = None, created_at: str = "2026-01-01T00:00:00Z"
) -> DelegationRecord:
    request = CreateDelegation(workspace_dir="/w", peer="bob", prompt="p", idempotency_key=key)
    return DelegationRecord(
        id=name,
        caller="human:",
        request=request,
        peer="bob",
        agent=None,
        resources=(ResourceRecord(name="workspace", path="/w", access_mode="rw"),),
        description="p",
        access_mode="rw",
        ttl_seconds=60,
        quota=LeaseQuota(max_total_bytes=1, max_files=1, max_file_bytes=1),
        created_at=created_at,
        updated_at=created_at,
    )


def moved(old: DelegationRecord, state: DelegationState) -> DelegationRecord:
    return old.model_copy(update={"state": state})


async def test_a_record_and_its_event_come_together(journal: Journal) -> None:
    first = record()
    await journal.save_delegation(first, STATE, {"state": "created"})
    event = await journal.save_delegation(moved(first, DelegationState.INVITED), STATE, {"state": "invited"})
    assert event is not None
    assert await journal.events.newest_event("dlg_1") == event.seq == 2
    assert await journal.load_delegation("dlg_1") == moved(first, DelegationState.INVITED)
    assert await journal.load_delegation("dlg_2") is None
    page = await journal.events.events_after(0, "dlg_1")
    assert [e.data["state"] for e in page.events] == ["created", "invited"]
    assert await journal.save_delegation(moved(first, DelegationState.INVITED)) is None


async def test_a_transition_that_the_table_lacks_changes_nothing(journal: Journal) -> None:
    first = record()
    with pytest.raises(IllegalTransition, match="from None to running"):
        await journal.save_delegation(moved(first, DelegationState.RUNNING))
    await journal.save_delegation(first, STATE, {})
    await journal.save_delegation(moved(first, DelegationState.CANCELLED), STATE, {})
    for state in (DelegationState.INVITED, DelegationState.COMPLETED, DelegationState.CREATED):
        with pytest.raises(IllegalTransition):
            await journal.save_delegation(moved(first, state), STATE, {})
    found = await journal.load_delegation("dlg_1")
    assert found is not None
    assert found.state is DelegationState.CANCELLED
    assert await journal.events.newest_event() == 2


async def test_an_idempotency_key_belongs_to_one_delegation(journal: Journal) -> None:
    await journal.save_delegation(record(key="k"))
    assert await journal.find_delegation("human:", "k") == record(key="k")
    assert await journal.find_delegation("mcp:x", "k") is None
    with pytest.raises(SubletError) as refused:
        await journal.save_delegation(record("dlg_2", key="k"), STATE, {})
    assert refused.value.code is LocalCode.CONFLICT
    assert await journal.events.newest_event() == 0
    await journal.save_delegation(record("dlg_3"))
    await journal.save_delegation(record("dlg_4"))


async def test_lists_the_newest_first(journal: Journal) -> None:
    for day in range(1, 4):
        await journal.save_delegation(record(f"dlg_{day}", created_at=f"2026-01-0{day}T00:00:00Z"))
    await journal.save_delegation(moved(record("dlg_2"), DelegationState.EXPIRED))
    assert [r.id for r in await journal.list_delegations()] == ["dlg_3", "dlg_2", "dlg_1"]
    assert [r.id for r in await journal.list_delegations(active=True)] == ["dlg_3", "dlg_1"]
    assert [r.id for r in await journal.list_delegations(limit=1)] == ["dlg_3"]
    assert [r.id for r in await journal.list_delegations(before="dlg_3")] == ["dlg_2", "dlg_1"]
    assert [r.id for r in await journal.list_delegations(before="dlg_3", active=True)] == ["dlg_1"]
    assert await journal.list_delegations(before="dlg_1") == []
    with pytest.raises(SubletError, match="NOT_FOUND"):
        await journal.list_delegations(before="dlg_none")
    assert await journal.count_delegations() == {"created": 2, "expired": 1}
    assert await journal.list_assignments(active=True) == []


async def test_what_is_held_is_known_to_the_next_process(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "sublet.db")
    journal = Journal(store)
    lease = await journal.resources.acquire("dlg_1", "lease", {"user": "dlg_1"})
    lock = await journal.resources.acquire("dlg_1", "lock", {"path": "/w"})
    mount = await journal.resources.acquire("dlg_2", "mount", {"path": "/m"})
    await journal.resources.release(lock)
    await journal.resources.release(lock)
    await store.close()
    store = await Store.open(tmp_path / "sublet.db")
    journal = Journal(store)
    held = await journal.resources.open_resources()
    assert [(h.id, h.owner, h.kind, h.detail) for h in held] == [
        (lease, "dlg_1", "lease", {"user": "dlg_1"}),
        (mount, "dlg_2", "mount", {"path": "/m"}),
    ]
    assert await journal.resources.release_owned("dlg_1", "mount", "slot") == 0
    assert await journal.resources.release_owned("dlg_1") == 1
    assert [h.id for h in await journal.resources.open_resources("dlg_2")] == [mount]
    assert await journal.resources.open_resources("dlg_1") == []
    await store.close()


async def test_what_is_held_comes_with_the_transition_or_not_at_all(journal: Journal) -> None:
    first = record()
    await journal.save_delegation(first, STATE, {}, ResourceChange(takes={"lock": {"path": "/w"}, "lease": {}}))
    with pytest.raises(IllegalTransition):
        await journal.save_delegation(
            moved(first, DelegationState.RUNNING), STATE, {}, ResourceChange({"view": {}}, ())
        )
    held = await journal.resources.open_resources("dlg_1")
    assert [(one.kind, one.detail) for one in held] == [("lock", {"path": "/w"}), ("lease", {})]
    invited = moved(first, DelegationState.INVITED)
    await journal.save_delegation(invited, STATE, {}, ResourceChange({"remote_task": {}}, ("lease",)))
    assert [one.kind for one in await journal.resources.open_resources("dlg_1")] == ["lock", "remote_task"]
    await journal.save_delegation(invited, held=ResourceChange(gives_back=()))
    assert await journal.resources.open_resources("dlg_1") == []


async def test_pages_go_on_where_the_last_ended(journal: Journal) -> None:
    for number in range(5):
        await journal.events.append_event(OUTPUT, "dlg_1" if number % 2 else "dlg_2", {"n": number})
    page = await journal.events.events_after(0, limit=3)
    assert [e.data["n"] for e in page.events] == [0, 1, 2]
    page = await journal.events.events_after(page.cursor, limit=3)
    assert [e.data["n"] for e in page.events] == [3, 4]
    assert (await journal.events.events_after(page.cursor)).events == []
    assert [e.data["n"] for e in (await journal.events.events_after(2, "dlg_1")).events] == [3]
    assert (await journal.events.events_after(10**6)).cursor == 5
    assert len((await journal.events.events_after(-3, limit=0)).events) == 1


async def test_a_reader_wakes_for_what_it_waits_for_and_nothing_else(journal: Journal) -> None:
    async with asyncio.TaskGroup() as group:
        one = group.create_task(journal.events.wait_for_events(0, "dlg_1", timeout=30))
        every = group.create_task(journal.events.wait_for_events(0, timeout=30))
        await journal.events.append_event(OUTPUT, "dlg_2", {"n": 1})
        assert [e.data["n"] for e in (await every).events] == [1]
        assert not one.done()
        await journal.events.append_event(OUTPUT, "dlg_1", {"n": 2})
        assert [e.data["n"] for e in (await one).events] == [2]
    assert (await journal.events.wait_for_events(0, timeout=0)).cursor == 2
    assert (await journal.events.wait_for_events(2, timeout=0.01)).events == []


async def test_waiting_readers_are_bounded(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "MAX_READERS", 1)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(journal.events.wait_for_events(0, timeout=30))
        await asyncio.sleep(0)
        with pytest.raises(SubletError) as refused:
            await journal.events.wait_for_events(0, timeout=30)
        assert refused.value.code is LocalCode.UNAVAILABLE
        await journal.events.append_event(OUTPUT, None, {})
        assert len((await first).events) == 1
    assert len((await journal.events.wait_for_events(0, timeout=30)).events) == 1


async def test_old_events_are_pruned_and_their_numbers_never_come_back(
    journal: Journal, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "KEEP_EVENTS", 10)
    monkeypatch.setattr(event_log, "PRUNE_EVERY", 20)
    for number in range(40):
        await journal.events.append_event(OUTPUT, "dlg_1", {"n": number})
    assert [e.seq for e in (await journal.events.events_after(0)).events] == list(range(31, 41))
    assert await journal.forgettable.forget(delegations=["dlg_1"]) == 10
    assert (await journal.events.append_event(OUTPUT, "dlg_1", {})).seq == 41


async def test_forgetting_takes_the_record_too(journal: Journal) -> None:
    await journal.save_delegation(record(), STATE, {})
    await journal.save_delegation(record("dlg_2"), STATE, {})
    assert await journal.forgettable.forget(delegations=["dlg_1"], assignments=["dlg_1"]) == 1
    assert [r.id for r in await journal.list_delegations()] == ["dlg_2"]


async def test_events_are_found_by_session_and_kind_and_name_their_cause(journal: Journal) -> None:
    keys = EventKeys(
        finger_session_id="ses_1",
        agent_id="coder",
        provider_session_id="p-1",
        request_id="req_1",
        route_decision="dispatch_agent",
    )
    cause = await journal.events.append_event(EventKind.ROUTE_DECIDED, None, {}, keys=keys)
    after = keys.model_copy(update={"causation_id": cause.seq})
    called = await journal.events.append_event(EventKind.TOOL_CALL, None, {"tool": "shell.exec"}, keys=after)
    await journal.events.append_event(EventKind.TOOL_CALL, None, {}, keys=EventKeys(finger_session_id="ses_2"))
    page = await journal.events.events_after(0, only=EventFilter(session_id="ses_1"))
    assert page.events == [cause, called]
    assert page.events[1].keys == after
    assert page.events[1].model_dump(mode="json")["keys"]["causationId"] == cause.seq
    only = EventFilter(session_id="ses_1", kind=EventKind.TOOL_CALL)
    assert [one.seq for one in (await journal.events.events_after(0, only=only)).events] == [called.seq]


async def test_an_event_of_a_delegation_follows_from_its_last_state(journal: Journal) -> None:
    state = await journal.events.append_event(EventKind.DELEGATION_STATE, "dlg_1", {})
    said = await journal.events.append_event(OUTPUT, "dlg_1", {})
    await journal.events.append_event(EventKind.DELEGATION_STATE, "dlg_2", {})
    later = await journal.events.append_event(OUTPUT, "dlg_1", {}, keys=EventKeys(request_id="fup_1"))
    assert state.keys == EventKeys(request_id="dlg_1")
    assert said.keys == EventKeys(request_id="dlg_1", causation_id=state.seq)
    assert later.keys == EventKeys(request_id="fup_1", causation_id=state.seq)


async def test_only_news_that_fits_wakes_a_reader(journal: Journal) -> None:
    async with asyncio.TaskGroup() as group:
        only = EventFilter(kind=EventKind.TOOL_CALL)
        reader = group.create_task(journal.events.wait_for_events(0, timeout=30, only=only))
        await journal.events.append_event(OUTPUT, "dlg_1", {})
        wanted = await journal.events.append_event(EventKind.TOOL_CALL, None, {})
        assert (await reader).events == [wanted]


async def test_the_key_fields_stand_in_one_place(journal: Journal) -> None:
    data: dict[str, JsonValue] = {"agentId": "coder", "tool": "file.read"}
    with pytest.raises(ValueError, match="agentId"):
        await journal.events.append_event(EventKind.TOOL_RESULT, "dlg_1", data)
    keys = EventKeys(agent_id="coder", causation_id=4)
    event = await journal.events.append_event(EventKind.TOOL_RESULT, "dlg_1", {"tool": "file.read"}, keys=keys)
    assert event.keys == EventKeys(agent_id="coder", request_id="dlg_1", causation_id=4)
    assert (await journal.events.events_after(0)).events == [event]


async def test_events_of_sessions_can_be_left_out(journal: Journal) -> None:
    await journal.events.append_event(EventKind.ROUTE_DECIDED, None, {}, keys=EventKeys(finger_session_id="ses_1"))
    other = await journal.events.append_event(EventKind.PEER_PAIRED, None, {})
    only = EventFilter(sessions=False)
    page = await journal.events.wait_for_events(0, timeout=0, only=only)
    assert [event.seq for event in page.events] == [other.seq]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"text"', "[" * 100_000])
def test_a_torn_row_is_an_empty_object(text: str) -> None:
    assert event_log.load_object(text) == {}
    assert event_log.load_object('{"a": 1}') == {"a": 1}


def torn(connection: sqlite3.Connection) -> int:
    """Add a row that is no record to both tables."""
    common = "(id, state, record, created_at, updated_at, {}) VALUES ('one', 'running', '{{}}', '', '', '')"
    connection.execute("INSERT INTO delegations " + common.format("caller"))
    return connection.execute("INSERT INTO assignments " + common.format("peer")).rowcount


async def test_a_row_that_is_no_record_leaves_the_others_alone(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "sublet.db")
    aside = SetAside(tmp_path)
    journal = Journal(store, aside)
    try:
        await store.write(torn)
        assert await journal.load_delegation("one") is None
        assert await journal.load_assignment("one") is None
        assert await journal.list_delegations() == []
        assert [(thing.what, Path(thing.kept_as).read_bytes()) for thing in aside.told] == [
            ("delegations/one", b"{}"),
            ("assignments/one", b"{}"),
        ]
        await store.write(torn)
        with pytest.raises(SubletError, match="is no record"):
            await Journal(store).load_delegation("one")
    finally:
        await store.close()
