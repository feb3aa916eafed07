"""Change sets: the baseline is what the executor saw, the result what it did, and both survive the view."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.changes.change_set import ChangeSets
from sublet.workspace.staging import copy as staging_copy_module
from sublet.workspace.staging.copy import copy_content
from sublet.workspace.staging.overlay import why_no_overlay
from sublet.workspace.staging.private_views import Staging
from sublet.workspace.view.rules import DEFAULT_HIDDEN, DEFAULT_LOCKED, Rules
from support.staged import KEY, StagedBench, read_tree, write


@pytest.fixture
def bench(tmp_path: Path) -> StagedBench:
    return StagedBench(tmp_path)


def test_the_baseline_is_the_copy_and_not_the_directory(bench: StagedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is written while it is copied: the merge base is what the executor saw of it."""
    bench.write("busy", "first\n")

    def slow(source: int, target: int, size: int) -> bool:
        shared = copy_content(source, target, size)
        bench.write("busy", "second\n")
        return shared

    monkeypatch.setattr(staging_copy_module, "copy_content", slow)
    with bench.work() as view:
        assert (view / "busy").read_text() == "first\n"
        write(view, "other", "o")
    assert {f.shown for f in bench.changes.get(KEY).files} == {"other"}
    bench.applier.apply(KEY, bench.rules)
    assert read_tree(bench.root) == {"busy": "second\n", "other": "o"}


def test_the_view_is_gone_once_it_is_sealed_and_the_result_is_found_by_the_next_process(bench: StagedBench) -> None:
    bench.write("a", "a")
    with bench.work() as view:
        write(view, "a", "b")
    assert bench.staging.keys() == []
    assert not view.exists()
    again = ChangeSets(bench.state, bench.auditor, Staging(bench.state))
    assert again.get(KEY) == bench.changes.get(KEY)
    assert again.all_keys() == [KEY]


def test_a_view_can_be_sealed_after_a_crash(bench: StagedBench) -> None:
    bench.write("a", "a")
    write(bench.begin(), "a", "b")
    again = ChangeSets(bench.state, bench.auditor, Staging(bench.state))
    with pytest.raises(SubletError):
        again.get(KEY)
    sealed, _ = again.seal(KEY, bench.rules)
    assert [f.shown for f in sealed.files] == ["a"]


def test_the_audit_says_the_same_and_lays_all_of_it_at_the_executor(bench: StagedBench) -> None:
    bench.write("a", "1\n")
    bench.write("b", "2\n")
    with bench.work() as view:
        write(view, "a", "one\n")
        (view / "b").unlink()
    assert bench.report is not None
    assert bench.report.counts == {"changed": 1, "deleted": 1}
    assert {f.by for f in bench.report.files} == {"executor"}
    assert (bench.report.lines_added, bench.report.lines_deleted) == (1, 2)


def test_a_view_without_baseline_or_nothing_at_all_is_told(bench: StagedBench) -> None:
    bench.staging.open(KEY, bench.root, bench.rules, want="copy")
    for key in (KEY, "dlg_other"):
        with pytest.raises(SubletError) as caught:
            bench.changes.seal(key, bench.rules)
        assert caught.value.code is LocalCode.NOT_FOUND


def test_a_record_that_is_torn_is_told(bench: StagedBench) -> None:
    with bench.work() as view:
        write(view, "a", "b")
    for torn in (b"{", b"[]", json.dumps({"key": KEY}).encode()):
        (bench.changes.directory(KEY) / "change-set.json").write_bytes(torn)
        with pytest.raises(SubletError) as caught:
            bench.changes.get(KEY)
        assert caught.value.code is LocalCode.UNAVAILABLE
    bench.changes.discard(KEY)


def test_special_files_in_a_view_are_never_part_of_the_result(bench: StagedBench) -> None:
    bench.write("a", "a")
    with bench.work() as view:
        os.mkfifo(view / "pipe")
        write(view, "a", "b")
    applied = bench.applier.apply(KEY, bench.rules, partial=True)
    assert [(c.shown, c.kind) for c in applied.conflicts] == [("pipe", "refused")]
    assert read_tree(bench.root) == {"a": "b"}


def test_a_repository_that_is_shown_is_no_part_of_the_result(bench: StagedBench) -> None:
    bench.rules = Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, [], git="rw")
    bench.write(".git/HEAD", "ref: refs/heads/main\n")
    bench.write("a", "a")
    with bench.work() as view:
        assert (view / ".git/HEAD").exists()
        write(view, ".git/refs/heads/new", "0" * 40)
        write(view, "a", "b")
    assert [f.shown for f in bench.changes.get(KEY).files] == ["a"]
    bench.applier.apply(KEY, bench.rules)
    assert read_tree(bench.root) == {".git/HEAD": "ref: refs/heads/main\n", "a": "b"}


def test_through_an_overlay_only_the_executors_changes_count(bench: StagedBench) -> None:
    """The person goes on working in the directory, which shows through, and is not laid at the executor's door."""
    reason = why_no_overlay(bench.state)
    if reason:
        pytest.skip(reason)
    for path in ("a", "mine", "gone", "mine-gone", "d/x"):
        bench.write(path, "base\n")
    bench.write(".env", "secret")
    view = bench.staging.open(KEY, bench.root, bench.rules, want="overlay")
    bench.changes.begin(view, bench.rules)
    inside = Path(f"/proc/self/fd/{view.open_root()}")
    write(inside, "a", "theirs\n")
    write(inside, "new/n", "n\n")
    (inside / "gone").unlink()
    (inside / "d/x").unlink()
    (inside / "d").rmdir()
    bench.write("mine", "mine\n")
    bench.write("mine-new/m", "m\n")
    (bench.root / "mine-gone").unlink()
    sealed = bench.seal()
    assert {f.shown: f.change for f in sealed.files} == {
        "a": "changed",
        "d/x": "deleted",
        "gone": "deleted",
        "new/n": "added",
    }
    assert bench.applier.apply(KEY, bench.rules).conflicts == ()
    assert read_tree(bench.root) == {
        ".env": "secret",
        "a": "theirs\n",
        "mine": "mine\n",
        "mine-new/m": "m\n",
        "new/n": "n\n",
    }
    assert not (bench.root / "d").exists()
