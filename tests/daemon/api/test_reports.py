"""What peers say and audits find, as users see it; and output, which is bounded whatever a peer prints."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.daemon.api.audit_models import MAX_BRIEF_NAMES, AuditReport, FileChange
from sublet.daemon.api.listing import MAX_LIST_BYTES
from sublet.daemon.api.reports import (
    MAX_LISTED_FILES,
    MAX_NAMES_BYTES,
    audit_view,
    failed_result,
    refusal,
    result_view,
    with_accounts,
)
from sublet.daemon.storage import output_log
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.output_log import MAX_TAIL_BYTES, OutputLog
from sublet.daemon.storage.store import Store
from sublet.protocol.errors import ErrorCode
from sublet.protocol.messages import Done, DoneExtension, Error, ErrorExtension
from sublet.protocol.text import MAX_SUMMARY_CHARS
from sublet.workspace.audit.comparing import ChangedDirectory, ChangedFile
from sublet.workspace.audit.reporting import AuditResult
from sublet.workspace.kept.account import Account


def test_a_refusal_keeps_its_code_and_is_marked_as_the_peers() -> None:
    error = Error(
        delegation_id="dlg_1", code=ErrorCode.MOUNT_FAILED, message="no\r\nlink\x1b[2J", hint="try\u202e again"
    )
    told = refusal(error, "bob")
    assert (told.code, told.message, told.hint) == (ErrorCode.MOUNT_FAILED, "bob: no link", "try again")


def test_what_a_failed_agent_printed_keeps_its_lines_and_loses_what_steers_a_terminal() -> None:
    said = ErrorExtension(exit_code=1, reason="failed", output_tail="Traceback\n  \x1b[31mline 3\u202e")
    error = Error(delegation_id="dlg_1", code=ErrorCode.TASK_FAILED, message="exit code 1", sublet=said)
    end = refusal(error, "bob").agent_end
    assert end is not None
    shown = failed_result(end)
    assert (shown.final_summary, shown.exit_code) == ("Traceback\n  line 3", 1)


@given(st.text(max_size=200), st.lists(st.text(min_size=1, max_size=50), max_size=5), st.text(max_size=200))
def test_nothing_of_a_result_steers_a_terminal(summary: str, highlights: list[str], notes: str) -> None:
    done = Done(
        delegation_id="dlg_1",
        final_summary=summary,
        highlights=highlights,
        notes=notes,
        sublet=DoneExtension(exit_code=3),
    )
    view = result_view(done)
    for text in (view.final_summary, view.notes, *view.highlights):
        assert not any(ord(char) < 32 and char not in "\n\t" for char in text)
        assert "\u202e" not in text
    assert view.exit_code == 3
    assert view.untrusted


def test_a_long_summary_is_cut_and_says_so() -> None:
    view = result_view(Done(delegation_id="dlg_1", final_summary="x" * (MAX_SUMMARY_CHARS + 1)))
    assert len(view.final_summary) <= MAX_SUMMARY_CHARS
    assert "more characters cut" in view.final_summary


def test_an_audit_lists_what_changed_and_is_bounded() -> None:
    files = tuple(
        ChangedFile(b"file%05d\x1b" % number, "added", "executor", 1, 0) for number in range(MAX_LISTED_FILES + 1)
    )
    found = AuditResult(
        "a" * 40, "b" * 40, files, {"added": 20_000}, unaudited=((b"\xff", "unreadable"),), lines_added=7
    )
    view = audit_view({"workspace": found})
    assert len(view.files) == MAX_LISTED_FILES
    assert len(view.added) == MAX_LISTED_FILES + 1
    assert view.truncated
    assert view.counts == {"added": 20_000}
    assert view.lines_added == 7
    assert "\x1b" not in view.files[0].path
    assert view.unaudited == ["\\xff"]


def test_the_name_of_the_directory_leads_where_there_are_several() -> None:
    one = AuditResult("a", "b", (ChangedFile(b"x", "added", "executor", 1, 0),), {"added": 1}, lines_added=1)
    other = ChangedFile(b"x", "changed", "other", 2, 1)
    two = AuditResult("a", "b", (other,), {"changed": 1, "added": 2}, lines_added=2, lines_deleted=1)
    view = audit_view({"workspace": one, "docs": two}, failed=["data"])
    assert [(file.path, file.by) for file in view.files] == [("workspace/x", "executor"), ("docs/x", "other")]
    assert (view.added, view.changed, view.by_others) == (["workspace/x"], ["docs/x"], ["docs/x"])
    assert view.counts == {"added": 3, "changed": 1}
    assert (view.lines_added, view.lines_deleted) == (3, 1)
    assert view.unaudited == ["data/"]


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    store = await Store.open(tmp_path / "sublet.db")
    yield Journal(store)
    await store.close()


async def told(journal: Journal) -> list[tuple[object, object, object]]:
    events = (await journal.events.events_after(0, "dlg_1")).events
    return [(event.data["stream"], event.data["text"], event.data["dropped_chars"]) for event in events]


@pytest.mark.anyio
async def test_output_is_cleaned_and_counted(journal: Journal) -> None:
    log = OutputLog(journal, "dlg_1")
    assert await log.append("stdout", "one\x1b]0;title\x07\n") == b"one\n"
    assert await log.append("stderr", "two\n", 5) == b"one\ntwo\n"
    assert await told(journal) == [("stdout", "one\n", 0), ("stderr", "two\n", 5)]


@pytest.mark.anyio
@pytest.mark.parametrize(("events", "chars"), [(2, 1 << 20), (5_000, 25)])
async def test_output_beyond_the_bounds_is_announced_once_and_not_kept(
    journal: Journal, events: int, chars: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_log, "MAX_OUTPUT_EVENTS", events)
    monkeypatch.setattr(output_log, "MAX_OUTPUT_CHARS", chars)
    log = OutputLog(journal, "dlg_1")
    for number in range(10):
        await log.append("stdout", f"{number:09d}\n")
    kept = await told(journal)
    assert [stream for stream, _, _ in kept] == ["stdout", "stdout", "note"]
    assert "not kept" in str(kept[-1][1])


@pytest.mark.anyio
async def test_the_tail_is_whole_characters_within_its_bound(journal: Journal) -> None:
    log = OutputLog(journal, "dlg_1")
    tail = b""
    for _ in range(3):
        tail = await log.append("stdout", "é€𐍈" * 5_000)
    assert len(tail) <= MAX_TAIL_BYTES
    assert len(tail) > MAX_TAIL_BYTES - 4
    assert tail.decode().endswith("é€𐍈")


def test_a_report_in_a_list_counts_all_and_names_the_first_files() -> None:
    names = [f"file_{number}" for number in range(10_000)]
    files = [FileChange(path=name, change="added") for name in names[:1_000]]
    report = AuditReport(added=names, counts={"added": 10_000}, files=files)
    brief = report.brief()
    assert brief.added == names[:MAX_BRIEF_NAMES]
    assert brief.files == files[:MAX_BRIEF_NAMES]
    assert brief.counts == {"added": 10_000}
    assert brief.truncated
    assert not report.truncated
    assert brief.brief() == brief
    small = AuditReport(added=["one"], counts={"added": 1})
    assert small.brief() == small


def test_what_a_report_lists_is_bounded_in_bytes_too() -> None:
    """A name may have 4 KiB, and each of its bytes may be shown as four characters."""
    path = b"\x01" * 4_000
    paths = [b"%04d" % number + path for number in range(MAX_LISTED_FILES)]
    found = AuditResult(
        "a" * 40,
        "b" * 40,
        tuple(ChangedFile(one, "added", "other", 1, 0) for one in paths),
        {"added": len(paths)},
        unaudited=tuple((one, "unreadable") for one in paths),
        directories=tuple(ChangedDirectory(one, "added", "executor", None, 0o755) for one in paths),
    )
    account = Account(tuple((one, None) for one in paths), tuple(paths), tuple(paths))
    view = with_accounts(
        audit_view({"workspace": found}, marks={"workspace": paths}, bring={"workspace": paths}),
        {"workspace": account},
        several=False,
    )
    lists = view.model_dump(mode="json")
    assert all(lists[name] for name in ("files", "directories", "unaudited", "others_edits", "not_kept", "index_marks"))
    sizes = {name: len(json.dumps(told)) for name, told in lists.items() if isinstance(told, list)}
    by_kind = {"added", "by_others"}
    assert {name for name, size in sizes.items() if size > 2 * MAX_LIST_BYTES} <= by_kind
    assert all(sizes[name] <= 2 * MAX_NAMES_BYTES for name in by_kind)
    assert view.truncated
    assert view.unaudited_count == len(paths)
