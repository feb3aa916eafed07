"""Whatever a daemon was doing when it died, the next one ends it truthfully and holds nothing of it."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sublet.daemon.api.audit_models import AuditReport
from sublet.daemon.api.delegation_views import ConditionView, ErrorView, ResultView
from sublet.daemon.api.delegations import CreateDelegation
from sublet.daemon.lending.recovery import end_interrupted, release_held
from sublet.daemon.process.leftovers import clear
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.records import AssignmentRecord, DelegationRecord
from sublet.daemon.storage.store import Store
from sublet.daemon.working.recovery import end_assignments
from sublet.disk.set_aside import SetAside
from sublet.protocol.lifecycle import (
    ASSIGNMENT_TABLE,
    DELEGATION_TABLE,
    AssignmentState,
    DelegationState,
    is_terminal,
)
from sublet.workspace.audit.auditor import Auditor
from sublet.workspace.export import LeaseUsage
from sublet.workspace.mount.mounts import Mounts
from sublet.workspace.view.rules import DEFAULT_HIDDEN, DEFAULT_LOCKED, Rules
from support.budgets import examples
from support.lender import trees
from support.scripted_link import accept
from support.worker import invite

pytestmark = pytest.mark.anyio

S = DelegationState
WAY = (S.CREATED, S.INVITED, S.ACCEPTED, S.STARTED, S.RUNNING)
RULES = Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, [])
UNKNOWN = {"workspace": "0" * 40}
KINDS = ("lease", "lock", "remote_task", "view", "slot", "process", "mount")
PAST, FUTURE = "2020-01-01T00:00:00.000Z", "2100-01-01T00:00:00.000Z"


class Machine:
    """What survives the daemon: its state directory and the directory it has lent."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.project = root / "project"
        self.project.mkdir()
        (self.project / "hello.txt").write_text("hi\n")
        self.auditor = Auditor(root / "state")
        self.mounts = Mounts(root / "mounts")
        self.scratch = root / "scratch"

    def record(self, name: str, **changes: object) -> DelegationRecord:
        return DelegationRecord.model_validate(
            {
                "id": name,
                "caller": "human:",
                "request": CreateDelegation(workspace_dir=str(self.project), peer="bob", prompt="p"),
                "peer": "bob",
                "agent": None,
                "resources": [{"name": "workspace", "path": str(self.project), "access_mode": "rw"}],
                "description": "p",
                "access_mode": "rw",
                "ttl_seconds": 60,
                "quota": {"max_total_bytes": 1, "max_files": 1, "max_file_bytes": 1},
                "created_at": PAST,
                "updated_at": PAST,
                **changes,
            }
        )

    def assignment(self, name: str, **changes: object) -> AssignmentRecord:
        asked = invite(name)
        return AssignmentRecord.model_validate(
            {
                "id": name,
                "peer": "alice",
                "peer_fingerprint": "SHA256:x",
                "agent": "default",
                "invite": asked,
                "accept": accept(asked),
                "mount_point": str(self.mounts.root / name),
                "created_at": PAST,
                "updated_at": PAST,
                **changes,
            }
        )

    async def recover(self, journal: Journal) -> None:
        known = trees(self.root / "state", journal, self.auditor)
        await asyncio.to_thread(clear, self.scratch, SetAside(self.root / "state"))
        await end_assignments(journal, [self.mounts])
        await release_held(journal, known)
        while records := await journal.list_settled(settled=False):
            for record in records:
                await end_interrupted(record, journal, known, lambda: LeaseUsage(touched_overflow=True))


async def write(journal: Journal, record: DelegationRecord) -> None:
    """Write ``record`` by the transitions that lead to its state."""
    way = WAY[: WAY.index(record.state) + 1] if record.state in WAY else (*WAY, record.state)
    for state in way:
        await journal.save_delegation(record.model_copy(update={"state": state}))


@st.composite
def deaths(draw: st.DrawFn) -> dict[str, object]:
    """A delegation as a daemon that died at any point has left it."""
    state = draw(st.sampled_from(list(S)))
    begun = state not in WAY or WAY.index(state) >= WAY.index(S.STARTED)
    over = is_terminal(DELEGATION_TABLE, state)
    result = draw(st.booleans()) if state is S.RUNNING else state is S.COMPLETED
    return {
        "state": state,
        "expires_at": draw(st.sampled_from([PAST, FUTURE])) if begun else None,
        "snapshots": {"workspace": name} if begun and (name := draw(st.sampled_from(["real", "unknown", ""]))) else {},
        "audit": AuditReport(added=["before.txt"]) if over and draw(st.booleans()) else None,
        "result": ResultView(final_summary="done") if result else None,
        "error": ErrorView(code="CANCELLED", message="cancelled") if over and not result else None,
        "condition": draw(st.none() | st.just(ConditionView(kind="ending", detail="auditing"))),
        "settled": over and draw(st.booleans()),
    }


@settings(max_examples=examples(60), deadline=None)
@given(
    death=deaths(),
    held=st.lists(st.sampled_from(KINDS), max_size=4),
    assignment=st.none() | st.sampled_from(list(AssignmentState)),
)
def test_every_death_is_told_truthfully(
    death: dict[str, object], held: list[str], assignment: AssignmentState | None
) -> None:
    with tempfile.TemporaryDirectory(prefix="sublet-test-") as root:
        asyncio.run(_die_and_recover(Machine(Path(root)), death, held, assignment))


async def _die_and_recover(
    machine: Machine, death: dict[str, object], held: list[str], assignment: AssignmentState | None
) -> None:
    if death["snapshots"] == {"workspace": "real"}:
        death = {**death, "snapshots": {"workspace": machine.auditor.baseline(machine.project, RULES)}}
    elif death["snapshots"]:
        death = {**death, "snapshots": UNKNOWN}
    (machine.project / "new.txt").write_text("new\n")
    before = machine.record("dlg_1", **death)
    store = await Store.open(machine.root / "sublet.db")
    journal = Journal(store)
    await write(journal, before)
    for kind in held:
        await journal.resources.acquire("dlg_1", kind, {})
    if assignment is not None:
        await _write_assignment(journal, machine.assignment("dlg_2"), assignment)
    (machine.scratch / "dlg_2").mkdir(parents=True)
    machine.mounts.reserve("dlg_2")
    await store.close()

    store = await Store.open(machine.root / "sublet.db")
    journal = Journal(store)
    await machine.recover(journal)
    after = await journal.load_delegation("dlg_1")
    assert after is not None
    _check(before, after)
    if assignment is not None:
        ended = await journal.load_assignment("dlg_2")
        assert ended is not None
        assert is_terminal(ASSIGNMENT_TABLE, ended.state)
        assert (ended.state is AssignmentState.COMPLETED) == (assignment is AssignmentState.COMPLETED)
    # What a peer has to be told stays until it is.
    untold = before.settled and "remote_task" in held
    assert {one.kind for one in await journal.resources.open_resources()} == ({"remote_task"} if untold else set())
    assert list(machine.scratch.iterdir()) == []
    assert list(machine.mounts.root.iterdir()) == []
    # The next start finds nothing to do.
    newest = await journal.events.newest_event()
    await machine.recover(journal)
    assert await journal.events.newest_event() == newest
    assert await journal.load_delegation("dlg_1") == after
    await store.close()


def _check(before: DelegationRecord, after: DelegationRecord) -> None:
    assert after.terminal
    assert after.settled
    if before.settled:
        assert after == before
        return
    assert after.condition is None
    assert after.generation == before.generation + 1
    if before.terminal:
        assert (after.state, after.error, after.result) == (before.state, before.error, before.result)
    elif before.result is not None:
        assert (after.state, after.result, after.error) == (S.COMPLETED, before.result, None)
    elif before.expires_at == PAST:
        assert after.state is S.EXPIRED
    else:
        assert after.state is S.ERROR
        assert after.error is not None
        assert after.error.code == "TASK_FAILED"
    if before.audit is not None:
        assert after.audit == before.audit
    elif before.expires_at is None or not before.snapshots:
        assert after.audit is None
    elif before.snapshots == UNKNOWN:
        assert after.audit is None
        assert after.audit_error is not None
    else:
        assert after.audit is not None
        # Nobody knows any more who has changed it, so it counts as the executor's.
        assert (after.audit.added, after.audit.by_others) == (["new.txt"], [])


async def _write_assignment(journal: Journal, record: AssignmentRecord, last: AssignmentState) -> None:
    ways = {
        AssignmentState.PENDING: (),
        AssignmentState.ACTIVE: (AssignmentState.ACTIVE,),
        AssignmentState.COMPLETED: (AssignmentState.ACTIVE, AssignmentState.COMPLETED),
        AssignmentState.ERROR: (AssignmentState.ERROR,),
    }
    for state in (AssignmentState.PENDING, *ways[last]):
        await journal.save_assignment(record.model_copy(update={"state": state}))


async def test_more_than_a_page_is_recovered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path)
    store = await Store.open(tmp_path / "sublet.db")
    journal = Journal(store)
    pages = journal.list_settled, journal.list_assignments
    monkeypatch.setattr(journal, "list_settled", lambda *, settled: pages[0](settled=settled, limit=2))
    monkeypatch.setattr(journal, "list_assignments", lambda *, active: pages[1](active=active, limit=2))
    for number in range(5):
        await write(journal, machine.record(f"dlg_{number}"))
        await _write_assignment(journal, machine.assignment(f"dlg_a{number}"), AssignmentState.ACTIVE)
    await machine.recover(journal)
    monkeypatch.undo()
    assert await journal.list_settled(settled=False) == []
    assert await journal.list_delegations(active=True) == []
    assert await journal.list_assignments(active=True) == []
    ended = await journal.load_assignment("dlg_a0")
    assert ended is not None
    assert ended.outcome == "crashed"
    await store.close()


async def test_a_directory_that_is_gone_does_not_keep_the_daemon_from_starting(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    snapshot = machine.auditor.baseline(machine.project, RULES)
    (machine.project / "hello.txt").unlink()
    machine.project.rmdir()
    store = await Store.open(tmp_path / "sublet.db")
    journal = Journal(store)
    await write(journal, machine.record("dlg_1", state=S.RUNNING, expires_at=FUTURE, snapshots={"workspace": snapshot}))
    await machine.recover(journal)
    record = await journal.load_delegation("dlg_1")
    assert record is not None
    assert record.settled
    assert record.audit_error is not None
    await store.close()
