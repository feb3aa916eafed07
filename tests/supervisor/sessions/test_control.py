"""Sessions outlive the process, keep agents apart, and lose nothing silently (SuperAgent 4)."""

from __future__ import annotations

import json
import os
import resource
import stat
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import EventKind
from sublet.supervisor.sessions.control import MAX_WAITING
from sublet.supervisor.sessions.older_map import read_older_map
from sublet.supervisor.sessions.session_parts import LastRoute, SessionMessage, SessionRoutingState, Status
from sublet.supervisor.sessions.store import MAX_MESSAGES_BYTES, SessionStore
from support.budgets import examples
from support.supervising import Clock, Events, control

pytestmark = pytest.mark.anyio
ID = "ses_1"


def message(text: str) -> SessionMessage:
    return SessionMessage(at="2026-01-01T00:00:00Z", role="user", text=text)


async def test_what_was_told_is_there_after_a_restart(tmp_path: Path) -> None:
    events = Events()
    first = control(tmp_path, events)
    session = await first.create(title="refactor", metadata={"a": 1})
    one = session.finger_session_id
    await first.bind(one, "coder", "acp", "p-1", role="executor")
    await first.bind(one, "reviewer", "acp", "p-2")
    await first.record(one, message("hello"))
    route = LastRoute(target="coder", decision="dispatch_agent", confidence=0.8, timestamp="2026-01-01T00:00:00Z")
    state = SessionRoutingState(finger_session_id=one, last_route=route, capability_snapshot_version="v1")
    await first.remember(one, state, {"a": None, "b": 2})

    again = control(tmp_path, events)
    assert {(b.agent_id, b.provider_session_id) for b in await again.bindings(one)} == {
        ("coder", "p-1"),
        ("reviewer", "p-2"),
    }
    assert [m.text for m in (await again.messages(one, 10)).messages] == ["hello"]
    loaded = await again.get(one)
    assert (loaded.routing, loaded.metadata, loaded.title) == (state, {"b": 2}, "refactor")
    assert events.kinds() == ["session_created", "session_bound", "session_bound"]
    directory = tmp_path / "sessions" / one
    assert sorted(p.name for p in directory.iterdir()) == ["agent-sessions.json", "messages.jsonl", "session.json"]
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(p.stat().st_mode) for p in directory.iterdir()} == {0o600}
    on_disk = json.loads((directory / "session.json").read_text())
    assert on_disk["fingerSessionId"] == one
    assert on_disk["routing"]["lastRoute"]["target"] == "coder"


async def test_scopes_of_bindings(tmp_path: Path) -> None:
    side = control(tmp_path, Events())
    await side.create(session_id=ID)
    await side.bind(ID, "coder", "acp", "own")
    await side.bind(ID, "coder", "acp", "shared", scope="finger")
    own = await side.binding(ID, "coder", "acp", "finger+agent")
    shared = await side.binding(ID, "other", "acp", "finger")
    assert own.binding is not None
    assert shared.binding is not None
    assert (own.binding.provider_session_id, shared.binding.provider_session_id) == ("own", "shared")
    assert (await side.binding(ID, "other", "acp", "finger+agent")).binding is None
    assert (await side.binding(ID, "coder", "model", "finger+agent")).binding is None


async def test_going_on_and_losing_are_told_apart(tmp_path: Path) -> None:
    events = Events()
    side = control(tmp_path, events)
    await side.create(session_id=ID)
    for provider_session in ("p-1", "p-1", "p-2"):
        await side.bind(ID, "coder", "acp", provider_session)
    assert events.kinds()[1:] == ["session_bound", "session_resumed", "session_bound"]
    assert "lost" not in events.told[1].data
    assert events.told[3].data["lost"] == "p-1"
    assert events.told[3].keys.provider_session_id == "p-2"


@pytest.mark.parametrize("status", ["paused", "completed", "error"])
async def test_what_is_not_active_takes_no_input(tmp_path: Path, status: Status) -> None:
    side = control(tmp_path, Events())
    await side.create(session_id=ID)
    await side.set_status(ID, status)
    with pytest.raises(SubletError, match=status) as no:
        await side.for_input(ID, "human")
    assert no.value.code is LocalCode.SESSION_CLOSED
    assert f"sublet sessions resume {ID}" in no.value.hint
    await side.set_status(ID, "active")
    assert (await side.for_input(ID, "human")).status == "active"


async def test_ways_between_states_are_those_of_the_table(tmp_path: Path) -> None:
    side = control(tmp_path, Events())
    await side.create(session_id=ID)
    await side.set_status(ID, "completed")
    with pytest.raises(SubletError) as no:
        await side.set_status(ID, "paused")
    assert no.value.code is LocalCode.CONFLICT
    assert (await side.set_status(ID, "completed")).status == "completed"


async def test_nobody_goes_on_with_a_session_of_others(tmp_path: Path) -> None:
    side = control(tmp_path, Events())
    await side.create(session_id=ID, owner="token:ci")
    assert (await side.for_input(ID, "token:ci")).owner == "token:ci"
    assert (await side.for_input(ID, "human")).owner == "token:ci"
    with pytest.raises(SubletError) as no:
        await side.for_input(ID, "token:other")
    with pytest.raises(SubletError) as absent:
        await side.for_input("ses_2", "token:other")
    assert no.value.code is absent.value.code is LocalCode.NOT_FOUND
    assert no.value.message == absent.value.message.replace("ses_2", ID)


@pytest.mark.parametrize("name", ["..", "../x", "/etc", "a/b", ".hidden", "", "x" * 65, "a\0b", "ses\n", "é"], ids=repr)
async def test_an_id_is_never_a_path(tmp_path: Path, name: str) -> None:
    side = control(tmp_path, Events())
    for attempt in (side.get(name), side.create(session_id=name), side.bindings(name), side.delete(name)):
        with pytest.raises((SubletError, ValueError)):
            await attempt
    assert [p.name for p in tmp_path.iterdir()] in ([], ["sessions"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(30))
@given(st.binary(max_size=200), st.sampled_from(["session.json", "agent-sessions.json"]))
def test_whatever_lies_there_is_read_or_put_aside(tmp_path: Path, raw: bytes, name: str) -> None:
    async def body() -> None:
        events = Events()
        side = control(tmp_path, events)
        session = await side.create()
        one = session.finger_session_id
        await side.bind(one, "coder", "acp", "p-1")
        file = tmp_path / "sessions" / one / name
        file.write_bytes(raw)
        bindings, loaded = await side.bindings(one), await side.get(one)
        aside = list(file.parent.glob(f"{name}.corrupt-*"))
        damaged = events.of(EventKind.SESSION_DAMAGED)
        # Nothing that hypothesis finds in so few bytes is a record of this session; agent-sessions.json may be ``{}``.
        assert len(aside) == len(damaged) <= 1
        assert [p.read_bytes() for p in aside] in ([raw], [])
        if aside and name == "session.json":
            assert loaded.status == "error"
            with pytest.raises(SubletError, match="put aside"):
                await side.for_input(one, "human")
        if name == "session.json":
            assert aside
            assert bindings

    anyio.run(body)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/etc/passwd", path)])
@pytest.mark.parametrize("name", ["session.json", "agent-sessions.json"])
async def test_what_is_no_file_is_put_aside_and_nobody_waits_for_it(
    tmp_path: Path, make: Callable[[Path], None], name: str
) -> None:
    events = Events()
    side = control(tmp_path, events)
    await side.create(session_id=ID)
    await side.bind(ID, "coder", "acp", "p-1")
    file = tmp_path / "sessions" / ID / name
    file.unlink()
    make(file)
    assert (await side.get(ID)).status == ("error" if name == "session.json" else "active")
    assert len(await side.bindings(ID)) == (1 if name == "session.json" else 0)
    assert [one.data["file"] for one in events.of(EventKind.SESSION_DAMAGED)] == [name]
    assert len(list(file.parent.glob(f"{name}.corrupt-*"))) == 1


async def test_a_message_that_did_not_fit_is_not_taken(tmp_path: Path) -> None:
    side = control(tmp_path, Events())
    await side.create(session_id=ID)
    await side.record(ID, message("kept"))
    file = tmp_path / "sessions" / ID / "messages.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # As on a disk that is all but full: a part of it is written.
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 20, hard))
    try:
        with pytest.raises(SubletError) as no:
            await side.record(ID, message("lost"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert no.value.code is LocalCode.UNAVAILABLE
    await side.record(ID, message("after"))
    found = await side.messages(ID, 10)
    assert ([m.text for m in found.messages], found.unreadable) == (["kept", "after"], 1)


async def test_a_session_whose_record_was_lost_can_be_gone_on_with(tmp_path: Path) -> None:
    events = Events()
    side = control(tmp_path, events)
    await side.create(session_id=ID)
    await side.record(ID, message("kept"))
    (tmp_path / "sessions" / ID / "session.json").write_text("{")
    assert [s.status for s in await side.list()] == ["error"]
    await side.set_status(ID, "active")
    assert (await side.for_input(ID, "human")).status == "active"
    assert [m.text for m in (await side.messages(ID, 5)).messages] == ["kept"]


async def test_a_torn_message_costs_no_other(tmp_path: Path) -> None:
    side = control(tmp_path, Events())
    await side.create(session_id=ID)
    await side.record(ID, message("one"))
    file = tmp_path / "sessions" / ID / "messages.jsonl"
    with file.open("ab") as torn:
        torn.write(b'{"at":"2026-01-01T00:00:00Z","role":"us')
    await side.record(ID, message("two"))
    found = await side.messages(ID, 10)
    assert ([m.text for m in found.messages], found.unreadable) == (["one", "two"], 1)


async def test_messages_are_bounded(tmp_path: Path) -> None:
    side = control(tmp_path, Events())
    await side.create(session_id=ID)
    directory = tmp_path / "sessions" / ID
    for filler in ("a", "b"):
        await side.record(ID, message(filler))
        with (directory / "messages.jsonl").open("ab") as file:
            file.truncate(MAX_MESSAGES_BYTES)
    await side.record(ID, message("the last " + "x" * 200_000))
    assert sum(p.stat().st_size for p in directory.glob("messages*")) < 2 * MAX_MESSAGES_BYTES
    newest = (await side.messages(ID, 1)).messages[0]
    assert newest.text.startswith("the last")
    assert "more characters cut" in newest.text


async def test_requests_of_one_session_take_turns_and_few_wait(tmp_path: Path) -> None:
    side = control(tmp_path, Events())
    await side.create(session_id=ID)
    order: list[int] = []
    refused: list[str] = []
    go_on = anyio.Event()

    async def request(number: int) -> None:
        try:
            async with side.turn(ID):
                await go_on.wait()
                order.append(number)
        except SubletError as error:
            refused.append(str(error.code))

    async with anyio.create_task_group() as group:
        for number in range(MAX_WAITING + 3):
            group.start_soon(request, number)
        await anyio.wait_all_tasks_blocked()
        assert side.busy(ID)
        with pytest.raises(SubletError) as no:
            await side.delete(ID)
        assert no.value.code is LocalCode.CONFLICT
        go_on.set()
    assert order == list(range(MAX_WAITING + 1))
    assert refused == ["UNAVAILABLE"] * 2
    assert not side.busy(ID)
    await side.delete(ID)
    assert await side.list() == []


def test_a_deletion_that_was_cut_short_leaves_nothing(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "sessions", Clock())
    left = tmp_path / "sessions" / ".deleted-x"
    left.mkdir(parents=True)
    (left / "session.json").write_text("{}")
    assert store.ids() == []
    store.sweep()
    assert not left.exists()


@pytest.mark.parametrize(
    "document",
    [
        {"version": "2.0.0", "bindings": {"iflow::coder::f-1": {"fingerSessionId": "f-1", "agentId": "coder",
         "provider": "iflow", "providerSessionId": "i-1", "updatedAt": "2026-02-01T00:00:00Z"}}},
        {"iflow::coder::f-1": {"providerSessionId": "i-1"}},
    ],
)  # fmt: skip
async def test_the_older_map_is_taken_over_and_left_alone(tmp_path: Path, document: dict[str, object]) -> None:
    file = tmp_path / "iflow-session-map.json"
    file.write_text(json.dumps(document))
    side = control(tmp_path, Events())
    for expected in (1, 0):
        older = read_older_map(file, "2026-03-01T00:00:00Z")
        assert older is not None
        assert await side.take_over(older) == expected
    [binding] = await side.bindings("f-1")
    assert (binding.agent_id, binding.provider, binding.provider_session_id) == ("coder", "iflow", "i-1")
    assert json.loads(file.read_text()) == document


async def test_the_oldest_map_names_the_default_agent_and_bad_entries_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "iflow-session-map.json"
    entries = {"f-1": {"iflowSessionId": "i-1"}, "f-2": "i-2", "../../etc": "i-3", "f-4": 5, "f-5": None}
    file.write_text(json.dumps({"version": "1", **entries}))
    older = read_older_map(file, "2026-03-01T00:00:00Z")
    assert older is not None
    assert {(b.finger_session_id, b.agent_id, b.provider_session_id) for b in older.bindings} == {
        ("f-1", "iflow-default", "i-1"),
        ("f-2", "iflow-default", "i-2"),
    }
    assert older.skipped == 3
    assert read_older_map(tmp_path / "absent", "") is None
    file.write_text("[]")
    with pytest.raises(SubletError) as no:
        read_older_map(file, "")
    assert no.value.code is LocalCode.INVALID_ARGUMENT
