"""Panels as the daemon drives them: checks in the real sandbox, ends that are written down, and what a kill leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from sublet.daemon.api.delegation_views import ChangeSet, ResultView
from sublet.daemon.api.federation import FoundAgent
from sublet.daemon.api.panels import ApplyMember, CreatePanel, OnePanel, PanelView, WaitForPanel
from sublet.daemon.api.results import Applied, ApplyResult
from sublet.daemon.panels import runs, views
from sublet.daemon.panels.checks import MAX_CHECK_OUTPUT_CHARS, CheckEnd, Checks
from sublet.daemon.panels.runs import PanelRuns
from sublet.daemon.panels.service import PanelParts, PanelService
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.panel_parts import PanelPart
from sublet.daemon.storage.records import DelegationRecord
from sublet.daemon.storage.resource_log import PANEL
from sublet.daemon.storage.store import Store
from sublet.policy.decision import Action, Subject
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.lifecycle import DelegationState
from sublet.protocol.panels import PASSED_FIRST, SPENT, MemberState
from sublet.workspace.sandbox.bubblewrap import BubblewrapSandbox, Unsandboxed
from support.decisions import gatekeeper
from support.full_records import full_delegation

pytestmark = pytest.mark.anyio
HUMAN = Subject("human")


class Daemon:
    """What panels are driven on: a real journal, and delegations that end when the test says so."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.ended: dict[str, anyio.Event] = {}
        self.cancelled: dict[str, str] = {}
        self.discarded: list[str] = []
        self.removed: list[str] = []
        self.codes: dict[str, int | None] = {}
        self.checking: dict[str, anyio.Event] = {}
        self.refuses: dict[int, SubletError] = {}
        self.holds: dict[int, anyio.Event] = {}
        self.applying = anyio.Event()
        self.applies = anyio.Event()
        self.applied: list[str] = []
        self.asked: list[Any] = []
        self.runs = self.make()
        self.service = PanelService(
            PanelParts(
                gate=gatekeeper(journal),
                journal=journal,
                admission=cast("Any", self),
                delegator=cast("Any", self),
                results=cast("Any", self),
                runs=self.runs,
                find=self.find,
            )
        )

    def make(self) -> PanelRuns:
        return PanelRuns(self.journal, *cast("Any", (self, self, self, self)))

    def find(self, to: str, wanted: int, caller: Subject) -> list[FoundAgent]:
        return [FoundAgent(address=f"a@n{n}", peer=f"n{n}", agent_id="a", why="it can") for n in range(wanted)]

    # Admission and delegator

    async def admit(self, request: Any, caller: Subject) -> Any:
        self.asked.append(request)
        await self.service._gate.ask(caller, Action.DELEGATION_CREATE, request.peer)
        return request

    async def begin(self, request: Any, caller: Subject, panel: PanelPart) -> Any:
        if panel.index in self.refuses:
            raise self.refuses[panel.index]
        planned = panel.members[panel.index]
        first = full_delegation().model_dump()
        first |= {"id": planned.delegation_id, "state": "created", "change_set": None, "settled": False, "result": None}
        first |= {"request": request.model_dump(), "panel": panel.model_dump(), "error": None}
        record = DelegationRecord.model_validate(first | {"caller": "human:", "generation": 1, "expires_at": None})
        await self.journal.save_delegation(record)
        self.ended[record.id] = anyio.Event()
        if panel.index in self.holds:  # it goes on whether or not its caller waits for the answer
            with anyio.fail_after(5):
                await self.holds[panel.index].wait()
        return record.view(0)

    async def ask_to_write(self, caller: Subject, delegation_id: str) -> None:
        return

    async def workspaces(self, delegation_id: str) -> list[str]:
        return []

    async def apply(self, request: ApplyResult, who: str) -> Applied:
        self.applying.set()
        with anyio.fail_after(5):
            await self.applies.wait()
        self.applied.append(request.delegation_id)
        counts = ChangeSet(status="applied")
        record = await self.journal.require_delegation(request.delegation_id)
        await self.journal.save_delegation(record.model_copy(update={"change_set": counts}))
        return Applied(delegation_id=request.delegation_id, change_set=counts)

    async def cancel(self, delegation_id: str, why: str) -> None:
        if delegation_id not in self.ended:
            raise SubletError(LocalCode.NOT_FOUND, "there is no such delegation")
        self.cancelled[delegation_id] = why
        self.ended[delegation_id].set()

    async def view(self, delegation_id: str) -> Any:
        view = (await self.journal.require_delegation(delegation_id)).view(0)
        done = self.ended[delegation_id].is_set() and delegation_id not in self.cancelled
        state = DelegationState.COMPLETED if done else DelegationState.CANCELLED
        changes = {"settled": self.ended[delegation_id].is_set(), "state": state, "result": None}
        if done:
            counts = ChangeSet.model_validate({"status": "pending", "added": 1, "changed": 0, "deleted": 0})
            changes["result"] = ResultView(final_summary="done", change_set=counts)
        return view.model_copy(update=changes)

    async def wait(self, delegation_id: str, timeout: float) -> Any:
        await self.ended[delegation_id].wait()
        return await self.view(delegation_id)

    # Results, staging and checks

    async def note(self, delegation_id: str, changed: Callable[[DelegationRecord], DelegationRecord]) -> None:
        await self.journal.save_delegation(changed(await self.journal.require_delegation(delegation_id)))

    def discard(self, key: str) -> None:
        self.removed.append(key)

    def copy(self, key: str, target: Path, rules: object) -> None:
        self.checking.setdefault(key, anyio.Event())

    def require(self) -> None:
        return

    async def run(self, command: str, seconds: float, copy: Callable[[Path], None]) -> CheckEnd:
        copy(Path("/nowhere"))
        key = [*self.checking][-1]
        code = self.codes.get(key)
        if code is None:
            await anyio.sleep_forever()
        return CheckEnd(code, "", f"{command} said so")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as group:
            group.start_soon(self.runs.serve)
            await until(lambda: self.runs._tasks.open)
            yield
            group.cancel_scope.cancel()

    async def create(self, **more: Any) -> PanelView:
        asked = {"workspace_dir": "/w", "to": "capability:x", "members": 3, "prompt": "mend", **more}
        return await self.service.create(CreatePanel.model_validate(asked), HUMAN)

    async def over(self, panel: PanelView) -> PanelView:
        await self.runs.ready()
        await self.runs.wait(panel.panel_id, 20)
        await until(lambda: self.runs.core_of(panel.panel_id) is None)
        return await self.service.get(OnePanel(panel_id=panel.panel_id), HUMAN)

    async def held(self) -> list[str]:
        return [one.owner for one in await self.journal.resources.open_resources() if one.kind == PANEL]


async def until(holds: Callable[[], object]) -> None:
    with anyio.fail_after(20):
        while not holds():
            await anyio.sleep(0.005)


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Daemon]:
    store = await Store.open(tmp_path / "sublet.db")
    yield Daemon(Journal(store))
    await store.close()


async def test_all_are_waited_for_and_how_each_ended_is_on_the_disk(daemon: Daemon) -> None:
    async with daemon.running():
        panel = await daemon.create(check="make")
        assert await daemon.held() == [panel.panel_id]
        assert panel.members[0].delegation_id == "dlg_" + panel.panel_id.removeprefix("pnl_")
        assert [one.state for one in panel.members] == [MemberState.WORKING] * 3
        first, second, third = (one.delegation_id for one in panel.members)
        with pytest.raises(SubletError, match="not over"):
            await daemon.service.apply(ApplyMember(panel_id=panel.panel_id, member=1), HUMAN)
        daemon.codes = {first: 0, second: 3}
        daemon.ended[first].set()
        await until(lambda: first in daemon.checking)
        daemon.ended[second].set()
        await daemon.cancel(third, "its lease")
        found = await daemon.over(panel)
        assert [(one.state, one.exit_code) for one in found.members] == [
            (MemberState.PASSED, 0),
            (MemberState.FAILED, 3),
            (MemberState.NONE, None),
        ]
        assert found.members[1].check_output == "make said so"
        assert set(daemon.removed) == {panel.panel_id, first, second, third}
        assert await daemon.held() == []
        with pytest.raises(SubletError, match="3 members"):
            await daemon.service.apply(ApplyMember(panel_id=panel.panel_id, member=4), HUMAN)
        with pytest.raises(SubletError) as unknown:
            await daemon.service.get(OnePanel(panel_id="pnl_" + "0" * 32), HUMAN)
        assert unknown.value.code == LocalCode.NOT_FOUND


async def test_the_stop_rule_a_cancel_and_the_time_of_agents_end_who_works_and_tell_why(daemon: Daemon) -> None:
    async with daemon.running():
        panel = await daemon.create(check="make", stop="first_pass")
        first, second, third = (one.delegation_id for one in panel.members)
        daemon.codes = {first: 0}
        daemon.ended[second].set()
        await until(lambda: second in daemon.checking)
        daemon.ended[first].set()
        found = await daemon.over(panel)
        assert [one.state for one in found.members] == [MemberState.PASSED, MemberState.READY, MemberState.NONE]
        assert daemon.cancelled == {third: PASSED_FIRST}

        panel = await daemon.create(max_agent_seconds=1)
        found = await daemon.over(panel)
        assert {daemon.cancelled[one.delegation_id] for one in panel.members} == {SPENT}
        assert found.agent_seconds >= 1

        panel = await daemon.create()
        found = await daemon.service.cancel(OnePanel(panel_id=panel.panel_id), HUMAN)
        assert {daemon.cancelled[one.delegation_id] for one in panel.members} == {"cancelled by human"}
        assert {one.state for one in found.members} == {MemberState.NONE}


async def test_a_panel_begins_whole_or_not_at_all_and_once_for_one_key(daemon: Daemon) -> None:
    async with daemon.running():
        daemon.refuses = {1: SubletError(LocalCode.UNAVAILABLE, "too much is under way")}
        with pytest.raises(SubletError, match="under way"):
            await daemon.create()
        assert len(daemon.cancelled) == 1
        assert await daemon.held() == []
        daemon.refuses = {}
        panel = await daemon.create(idempotency_key="k")
        assert (await daemon.create(idempotency_key="k")).panel_id == panel.panel_id
        with pytest.raises(SubletError, match="another request"):
            await daemon.create(idempotency_key="k", prompt="something else")
        assert {one.result_mode for one in daemon.asked} == {"staged"}
        await daemon.service.cancel(OnePanel(panel_id=panel.panel_id), HUMAN)


async def test_the_same_request_twice_at_once_makes_one_panel(daemon: Daemon) -> None:
    begin = daemon.begin

    async def once(request: Any, caller: Subject, panel: PanelPart) -> Any:
        """Begin a member as the delegator does, which knows keys: whoever has used one is told what was made."""
        if request.idempotency_key is not None and daemon.ended:
            return (await daemon.journal.require_delegation(next(iter(daemon.ended)))).view(0)
        return await begin(request, caller, panel)

    looked, known = 0, daemon.service._known

    async def at_once(request: CreatePanel, caller: Subject) -> PanelView | None:
        """Know of nothing when both look first."""
        nonlocal looked
        looked += 1
        return None if looked <= 2 else await known(request, caller)

    daemon.begin = once  # type: ignore[method-assign]
    daemon.service._known = at_once  # type: ignore[method-assign]
    daemon.holds[0] = anyio.Event()
    made: list[PanelView] = []

    async def create() -> None:
        made.append(await daemon.create(idempotency_key="k"))

    async with daemon.running():
        async with anyio.create_task_group() as group:
            group.start_soon(create)
            await until(lambda: daemon.ended)
            group.start_soon(create)
            await until(lambda: daemon.removed)
            daemon.holds[0].set()
        assert len({one.panel_id for one in made}) == 1
        assert await daemon.held() == [made[0].panel_id]
        assert daemon.cancelled == {}, "the members of the first are left alone"
        assert len(daemon.ended) == 3
        await daemon.service.cancel(OnePanel(panel_id=made[0].panel_id), HUMAN)


async def test_whoever_goes_away_while_a_panel_begins_leaves_no_member_at_work(daemon: Daemon) -> None:
    daemon.holds[1] = anyio.Event()
    async with daemon.running():
        async with anyio.create_task_group() as group:
            group.start_soon(daemon.create)
            await until(lambda: len(daemon.ended) == 2)
            group.cancel_scope.cancel()
        assert daemon.cancelled.keys() == daemon.ended.keys()
        assert await daemon.held() == []


async def test_a_panel_that_is_only_begun_is_running_and_a_cancel_of_it_is_not_lost(daemon: Daemon) -> None:
    daemon.holds[2] = anyio.Event()
    async with daemon.running(), anyio.create_task_group() as group:
        group.start_soon(daemon.create)
        await until(lambda: len(daemon.ended) == 3)
        (panel_id,) = await daemon.held()
        assert (await daemon.service.get(OnePanel(panel_id=panel_id), HUMAN)).state == "running"
        with pytest.raises(SubletError, match="not over"):
            await daemon.service.apply(ApplyMember(panel_id=panel_id, member=1), HUMAN)
        await daemon.service.cancel(OnePanel(panel_id=panel_id), HUMAN)
        daemon.holds[2].set()
        await until(lambda: len(daemon.cancelled) == 3)
        assert {*daemon.cancelled.values()} == {"cancelled by human"}


async def test_no_more_panels_begin_at_once_than_may(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "MAX_PANELS", 1)
    daemon.holds[0] = anyio.Event()
    async with daemon.running(), anyio.create_task_group() as group:
        group.start_soon(daemon.create)
        await until(lambda: daemon.ended)
        with pytest.raises(SubletError, match="at most 1"):
            await daemon.create()
        group.cancel_scope.cancel()


async def test_who_waits_for_the_end_is_told_it_is_over_once_it_is(daemon: Daemon) -> None:
    may_remove = anyio.Event()

    async def slowly(panel_id: str, members: object) -> None:
        await may_remove.wait()

    async with daemon.running():
        panel = await daemon.create()
        daemon.runs.let_go = slowly  # type: ignore[method-assign]
        for one in panel.members:
            daemon.ended[one.delegation_id].set()
        await until(lambda: daemon.runs._runs[panel.panel_id].over.is_set())
        asked = WaitForPanel(panel_id=panel.panel_id, timeout=20)
        told: list[PanelView] = []

        async def wait() -> None:
            told.append(await daemon.service.wait(asked, HUMAN))

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.sleep(0.02)
            may_remove.set()
        assert [one.state for one in told] == ["over"]


async def test_one_result_of_a_panel_is_applied(daemon: Daemon) -> None:
    async with daemon.running():
        panel = await daemon.create()
        for one in panel.members:
            daemon.ended[one.delegation_id].set()
        await daemon.over(panel)
        second = ApplyMember(panel_id=panel.panel_id, member=2)
        async with anyio.create_task_group() as group:
            group.start_soon(daemon.service.apply, ApplyMember(panel_id=panel.panel_id, member=1), HUMAN)
            await daemon.applying.wait()
            with pytest.raises(SubletError, match="being applied"):
                await daemon.service.apply(second, HUMAN)
            daemon.applies.set()
        with pytest.raises(SubletError, match="member 1 is applied already"):
            await daemon.service.apply(second, HUMAN)
        assert daemon.applied == [panel.members[0].delegation_id]


async def test_what_a_kill_leaves_is_gone_on_with(daemon: Daemon) -> None:
    async with daemon.running():
        panel = await daemon.create(check="make", stop="first_pass")
        first, second, third = (one.delegation_id for one in panel.members)
        daemon.codes = {first: 4}
        daemon.ended[first].set()
        await until(lambda: first in daemon.checking)
        daemon.ended[second].set()
        await until(lambda: second in daemon.checking)
        with anyio.fail_after(20):  # the check of the second is under way, how the first ended is written down
            while (record := await daemon.journal.load_delegation(first)) is not None:
                if record.panel is not None and record.panel.outcome is not None:
                    break
                await anyio.sleep(0.005)
    assert await daemon.held() == [panel.panel_id]
    daemon.checking.clear()
    daemon.codes[second] = 0
    parts = daemon.service._parts
    daemon.runs = daemon.make()
    daemon.service = PanelService(replace(parts, runs=daemon.runs))
    async with daemon.running():
        found = await daemon.over(panel)
    assert [one.state for one in found.members] == [MemberState.FAILED, MemberState.PASSED, MemberState.NONE]
    assert daemon.cancelled == {third: PASSED_FIRST}
    assert [*daemon.checking] == [second], "what was checked is not checked again, what was not is"


async def test_what_was_killed_before_its_first_member_leaves_nothing(daemon: Daemon) -> None:
    await daemon.runs.hold("pnl_" + "1" * 32)
    async with daemon.running():
        with anyio.fail_after(20):
            while await daemon.held():
                await anyio.sleep(0.005)
    assert daemon.removed == ["pnl_" + "1" * 32]


def test_a_member_whose_end_could_not_be_written_down_is_not_shown_at_work_for_ever() -> None:
    record = full_delegation().model_copy(update={"settled": True})
    view = record.view(0).model_copy(update={"state": DelegationState.CANCELLED})
    assert views._unwritten(record, view, over=True) is MemberState.NONE
    counts = ResultView(final_summary="done", change_set=ChangeSet(status="pending"))
    done = view.model_copy(update={"state": DelegationState.COMPLETED, "result": counts})
    assert views._unwritten(record, done, over=True) is MemberState.READY
    assert views._unwritten(record, done, over=False) is MemberState.WORKING


def made(path: Path) -> None:
    path.mkdir()
    (path / "answer.txt").write_text("good")


async def test_a_check_sees_the_result_alone_without_network_and_within_its_time(tmp_path: Path) -> None:
    checks = Checks(cast("Any", BubblewrapSandbox()), tmp_path / "scratch")
    checks.require()
    (tmp_path / "secret").write_text("of somebody else")
    network = "test $(wc -l < /proc/net/route) -le 1 && grep good answer.txt && echo x > made"
    passed = await checks.run(network, 20, made)
    assert (passed.exit_code, passed.output.strip()) == (0, "good"), passed
    long = await checks.run(
        f"i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); done; cat {tmp_path}/secret", 20, made
    )
    assert long.exit_code not in (0, None)
    assert "line 299" in long.output
    assert len(long.output) <= MAX_CHECK_OUTPUT_CHARS
    late = await checks.run("sleep 30", 0.5, made)
    assert (late.exit_code, "time" in late.reason) == (None, True)
    assert [*(tmp_path / "scratch").iterdir()] == []


async def test_without_a_sandbox_nothing_is_checked(tmp_path: Path) -> None:
    checks = Checks(cast("Any", Unsandboxed()), tmp_path)
    with pytest.raises(SubletError, match="without a sandbox"):
        checks.require()
    half = SimpleNamespace(enforced=frozenset({"cwd_only"}))
    with pytest.raises(SubletError, match="sandbox"):
        Checks(cast("Any", half), tmp_path).require()
    end = await checks.run("touch /tmp/never", 5, made)
    assert (end.exit_code, "sandbox" in end.reason) == (None, True)
