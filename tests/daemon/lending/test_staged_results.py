"""Staged delegations on the lender's side: what is served, what is kept of it, and what becomes of that."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from sublet.daemon.api.delegation_views import ChangeSet
from sublet.daemon.api.pruning import PruneRequest
from sublet.daemon.api.results import ApplyResult
from sublet.daemon.results import staged_results as results_module
from sublet.daemon.results.result_store import ResultStore
from sublet.daemon.results.staged_results import StagedResults
from sublet.daemon.storage.prune_stores import EndedDelegations, KeptResults, PruneStore
from sublet.daemon.storage.pruning import Pruning
from sublet.daemon.storage.store import Store
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.lifecycle import DelegationState
from sublet.protocol.messages import AcceptExtension
from sublet.workspace.changes.apply import Applier
from sublet.workspace.export import LeaseUsage
from sublet.workspace.staging.overlay import why_no_overlay
from support.lender import Lender, lender
from support.scripted_link import accepting, refusing

pytestmark = pytest.mark.anyio


def everything(delegation_id: str) -> ApplyResult:
    """Return the request to apply all of a result."""
    return ApplyResult(delegation_id=delegation_id)


@pytest.fixture
async def side(tmp_path: Path) -> AsyncIterator[Lender]:
    async with lender(tmp_path) as side:
        yield side


@asynccontextmanager
async def results_of(side: Lender) -> AsyncIterator[StagedResults]:
    """Serve the operations on results."""
    store = ResultStore(side.trees.changes, Applier(side.trees.changes))
    results = StagedResults(side.journal, side.locks, store)
    async with anyio.create_task_group() as group:
        group.start_soon(results.serve)
        await anyio.wait_all_tasks_blocked()
        yield results
        group.cancel_scope.cancel()


@pytest.fixture
async def results(side: Lender) -> AsyncIterator[StagedResults]:
    async with results_of(side) as results:
        yield results


def copy_of(side: Lender, delegation_id: str) -> Path:
    """Return where the executor of a delegation works."""
    view = side.trees.staging.find(delegation_id)
    assert view is not None
    assert view.path is not None
    return view.path


async def done(side: Lender, **more: object) -> str:
    """Return a delegation whose executor has changed a file and added another."""
    found = await side.running(result_mode="staged", **more)
    copy = copy_of(side, found)
    (copy / "hello.txt").write_text("hello\n")
    (copy / "new.txt").write_text("new\n")
    side.link.done(found)
    await side.settled(found)
    return found


async def changes_of(side: Lender, delegation_id: str) -> ChangeSet:
    record = await side.record(delegation_id)
    assert record.change_set is not None
    return record.change_set


async def refusal(call: object) -> SubletError:
    with pytest.raises(SubletError) as no:
        await call  # type: ignore[misc]
    return no.value


async def test_the_result_is_kept_and_nothing_else(side: Lender) -> None:
    found = await side.running(result_mode="staged")
    assert side.link.invites[0].sublet.result_mode == "staged"
    # It holds no directory, and what was taken is journalled.
    assert side.locks.holders() == ()
    assert {held.kind for held in await side.journal.resources.open_resources(found)} == {
        "view",
        "lease",
        "remote_task",
    }
    (copy_of(side, found) / "hello.txt").write_text("hello\n")
    side.link.done(found)

    view = await side.settled(found)

    assert (side.project / "hello.txt").read_text() == "hi\n"
    assert view.result is not None
    assert view.result.change_set == ChangeSet(changed=1, lines_added=1, lines_deleted=1)
    assert view.audit is not None
    assert view.audit.changed == ["hello.txt"]
    assert "+hello" in ((await side.delegator.audit(found, patch=True)).patch or "")
    assert side.trees.staging.keys() == []
    assert side.trees.changes.all_keys() == [found]


async def test_what_was_done_until_the_end_is_kept_whatever_the_end(side: Lender) -> None:
    found = await side.running(result_mode="staged")
    (copy_of(side, found) / "half.txt").write_text("half\n")
    await side.delegator.cancel(found, "enough")

    view = await side.settled(found)

    assert view.state is DelegationState.CANCELLED
    assert view.result is not None
    assert view.result.final_summary == ""
    assert view.result.change_set == ChangeSet(added=1, lines_added=1)


@pytest.mark.parametrize("transport", ["archive", "git"])
async def test_what_came_back_in_part_is_no_result(side: Lender, results: StagedResults, transport: str) -> None:
    side.link.answer = accepting(sublet=AcceptExtension(transport=transport))
    found = await side.running(result_mode="staged", transport=transport)
    (copy_of(side, found) / "half.txt").write_text("ha")  # as an upload that was cut leaves it
    side.link.done(found)

    view = await side.settled(found)

    assert view.state is DelegationState.ERROR
    assert view.error is not None
    assert "did not come back" in view.error.message
    assert view.result is None or view.result.change_set is None
    assert view.audit is None
    assert side.trees.staging.keys() == side.trees.changes.all_keys() == []
    with pytest.raises(SubletError, match="did not come back whole, so none of them was kept"):
        await results.review(found, patch=False)


async def test_what_ends_before_access_leaves_no_copy(side: Lender) -> None:
    side.link.answer = refusing(ErrorCode.DECLINED, "no")
    found = await side.create(result_mode="staged")
    view = await side.settled(found)
    assert view.result is None
    assert side.trees.staging.keys() == side.trees.changes.all_keys() == []


async def test_a_copy_that_comes_after_the_end_goes_at_once(side: Lender, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, go_on, gone = threading.Event(), threading.Event(), threading.Event()
    make, discard = side.trees.staging.open, side.trees.changes.discard

    def slow(*arguments: object, **more: object) -> object:
        asked.set()
        go_on.wait(10)
        return make(*arguments, **more)  # type: ignore[arg-type]

    def told(key: str) -> None:
        discard(key)
        gone.set()

    monkeypatch.setattr(side.trees.staging, "open", slow)
    monkeypatch.setattr(side.trees.changes, "discard", told)
    found = await side.create(result_mode="staged")
    await anyio.to_thread.run_sync(asked.wait, 10)
    await side.delegator.cancel(found, "enough")
    await side.settled(found)
    assert not gone.is_set()
    go_on.set()
    assert await anyio.to_thread.run_sync(gone.wait, 10)
    assert side.trees.staging.keys() == side.trees.changes.all_keys() == []


async def test_a_copy_waits_for_who_writes_and_then_holds_nobody_up(side: Lender) -> None:
    live = await side.running()
    staged = await side.create(result_mode="staged")
    with anyio.fail_after(10):
        while (condition := (await side.delegator.view(staged)).condition) is None:
            await anyio.sleep(0.01)
    assert condition.kind == "queued"
    side.link.done(live)
    side.link.progress(staged)
    await side.until(staged, "running")
    # Now both at once.
    again = await side.running()
    side.link.done(again)
    side.link.done(staged)
    await side.settled(staged)
    await side.settled(again)


async def test_a_branch_that_can_not_be_made_is_told_and_the_result_stays(side: Lender, results: StagedResults) -> None:
    found = await done(side, result_branch="bob/work")
    changes = await changes_of(side, found)
    assert changes.branch is None
    assert "in no git repository" in (changes.branch_error or "")
    assert (await results.apply(everything(found), "me")).change_set.status == "applied"


async def test_a_layer_serves_as_a_copy_does(side: Lender, monkeypatch: pytest.MonkeyPatch) -> None:
    (side.root / "state").mkdir(exist_ok=True)
    if reason := why_no_overlay(side.root / "state"):
        pytest.skip(reason)
    monkeypatch.setattr(side.trees.staging, "open", partial(side.trees.staging.open, want="overlay"))
    found = await side.running(result_mode="staged")
    view = side.trees.staging.find(found)
    assert view is not None
    assert view.kind == "overlay"
    tree = side.trees.of(await side.record(found))
    await tree.take_up()
    [lent] = tree.resources
    assert lent.open_root is not None
    root = lent.open_root()
    fd = os.open("hello.txt", os.O_WRONLY | os.O_TRUNC, dir_fd=root)
    os.write(fd, b"hello\n")
    os.close(fd)
    os.close(root)
    side.link.done(found)
    await side.settled(found)
    assert (side.project / "hello.txt").read_text() == "hi\n"
    assert await changes_of(side, found) == ChangeSet(changed=1, lines_added=1, lines_deleted=1)


async def test_several_directories_come_back_together(side: Lender, results: StagedResults, tmp_path: Path) -> None:
    docs, shown = tmp_path / "docs", tmp_path / "shown"
    for directory in (docs, shown):
        directory.mkdir()
        (directory / "page").write_text("page\n")
    resources = [
        {"name": "docs", "path": str(docs), "access_mode": "rw"},
        {"name": "shown", "path": str(shown), "access_mode": "ro"},
    ]
    found = await side.running(result_mode="staged", resources=resources)
    assert side.trees.staging.keys() == [found, f"{found}.docs"]
    (copy_of(side, found) / "hello.txt").write_text("hello\n")
    (copy_of(side, f"{found}.docs") / "page").write_text("new page\n")
    side.link.done(found)
    await side.settled(found)
    assert await changes_of(side, found) == ChangeSet(changed=2, lines_added=2, lines_deleted=2)

    # One conflict in one of them, and neither is touched.
    (docs / "page").write_text("mine\n")
    review = await results.review(found, patch=True)
    assert {file.path: file.outcome for file in review.files} == {
        "workspace/hello.txt": "clean",
        "docs/page": "conflict",
    }
    refused = await results.apply(everything(found), "me")
    assert (refused.applied, [conflict.path for conflict in refused.conflicts]) == ([], ["docs/page"])
    assert (side.project / "hello.txt").read_text() == "hi\n"

    (docs / "page").write_text("page\n")
    applied = await results.apply(everything(found), "me")
    assert sorted(applied.applied) == ["docs/page", "workspace/hello.txt"]
    assert (docs / "page").read_text() == "new page\n"
    undone = await results.undo(found, "me")
    assert (sorted(undone.undone), undone.change_set.status) == (["docs/page", "workspace/hello.txt"], "undone")
    assert (docs / "page").read_text() == "page\n"


async def test_what_was_staged_is_found_again_after_a_crash(tmp_path: Path) -> None:
    async with lender(tmp_path) as side:
        found = await side.running(result_mode="staged")
        (copy_of(side, found) / "half.txt").write_text("half\n")
        record = await side.record(found)
        # A tree of the next process finds the copy where it is, and takes the result out of it.
        tree = side.trees.of(record)
        await tree.take_up()
        assert [lent.open_root is not None for lent in tree.resources] == [True]
        news = await tree.report(record, LeaseUsage(touched_overflow=True))
        assert news["change_set"] == ChangeSet(added=1, lines_added=1)
        # Killed before that was written down, the one after that tells the same.
        assert await side.trees.of(record).report(record, LeaseUsage(touched_overflow=True)) == news
        gone = await refusal(side.trees.of(record).take_up())
        assert gone.code is LocalCode.NOT_FOUND
        side.link.done(found)
        view = await side.settled(found)
        assert view.audit is not None
        assert view.audit.added == ["half.txt"]


async def test_what_belongs_to_nobody_is_reaped(side: Lender) -> None:
    found = await done(side)
    rules = side.trees.of(await side.record(found)).resources[0].rules
    for key in ("dlg_gone", f"{found}.later"):
        view = side.trees.staging.open(key, side.project, rules)
        side.trees.changes.begin(view, rules)
    (side.root / "state" / "staged" / f"{found}.half").mkdir()

    await side.trees.reap()

    assert side.trees.staging.keys() == [f"{found}.later"]
    assert side.trees.changes.all_keys() == [found, f"{found}.later"]


async def test_nothing_else_is_done_with_a_result_meanwhile(
    side: Lender, results: StagedResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await done(side)
    store = results._store
    begun, go_on = threading.Event(), threading.Event()
    apply = store.apply

    def slow(*arguments: object) -> object:
        begun.set()
        go_on.wait(10)
        return apply(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "apply", slow)
    monkeypatch.setattr(results_module, "ANSWER_SECONDS", 0.05)
    late = await refusal(results.apply(everything(found), "me"))
    assert late.code is LocalCode.UNAVAILABLE
    assert begun.is_set()
    for call in (results.apply(everything(found), "me"), results.discard(found, "me"), results.undo(found, "me")):
        assert (await refusal(call)).code is LocalCode.CONFLICT
    # The directory is held meanwhile.
    assert [holder.owner for holder in side.locks.holders()] == [f"the result of {found}"]
    go_on.set()
    with anyio.fail_after(10):
        while (await changes_of(side, found)).status != "applied":
            await anyio.sleep(0.01)
    assert (side.project / "hello.txt").read_text() == "hello\n"


async def test_nothing_is_begun_while_the_daemon_stops(side: Lender) -> None:
    found = await done(side)
    async with results_of(side) as results:
        pass
    assert (await refusal(results.apply(everything(found), "me"))).code is LocalCode.UNAVAILABLE
    assert (side.project / "hello.txt").read_text() == "hi\n"


async def test_the_record_says_what_became_of_an_apply_that_was_cut_short(side: Lender, results: StagedResults) -> None:
    """Killed after the files were changed and before that was written down."""
    found = await done(side)
    record = await side.record(found)
    await side.journal.resources.acquire(found, "apply", {})
    results._store.apply(record, everything(record.id))
    assert (await changes_of(side, found)).status == "pending"

    await results.recover()

    assert (await changes_of(side, found)).status == "applied"
    assert (await results.undo(found, "me")).change_set.status == "undone"


async def test_a_result_goes_with_its_delegation_but_not_while_it_waits(side: Lender, results: StagedResults) -> None:
    found = await done(side)
    stores: list[PruneStore] = [EndedDelegations(side.journal), KeptResults(side.trees.changes)]
    pruning = Pruning(side.journal, stores)
    assert (await pruning.run(PruneRequest())).counts == {}
    running = await side.running(result_mode="staged")
    assert (await pruning.run(PruneRequest(pending=True, dry_run=True))).counts == {"delegations": 1, "results": 1}

    await results.apply(everything(found), "me")
    report = await pruning.run(PruneRequest())

    assert report.counts == {"delegations": 1, "results": 1}
    assert side.trees.changes.all_keys() == [running]
    assert (await refusal(results.review(found, patch=False))).code is LocalCode.NOT_FOUND
    side.link.done(running)
    assert (await side.settled(running)).state is DelegationState.COMPLETED


async def test_a_directory_that_is_gone_changes_nothing(side: Lender, results: StagedResults, tmp_path: Path) -> None:
    found = await done(side)
    side.project.rename(tmp_path / "elsewhere")
    assert (await refusal(results.apply(everything(found), "me"))).code in (
        LocalCode.UNAVAILABLE,
        ErrorCode.WORKSPACE_NOT_FOUND,
    )
    assert (await changes_of(side, found)).status == "pending"
    (tmp_path / "elsewhere").rename(side.project)
    assert (await results.apply(everything(found), "me")).change_set.status == "applied"


async def test_store_opens_with_what_was_kept(tmp_path: Path) -> None:
    async with lender(tmp_path) as side:
        found = await done(side)
    store = await Store.open(tmp_path / "sublet.db")
    await store.close()
    async with lender(tmp_path) as side, results_of(side) as results:
        await side.trees.reap()
        assert (await results.apply(everything(found), "me")).applied == ["hello.txt", "new.txt"]
