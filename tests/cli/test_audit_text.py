"""What people see of directories, permissions and what the audit could not look at, by every command."""

from __future__ import annotations

import json

import pytest

from sublet.cli.app import run
from sublet.daemon.api.audit_models import AuditReport, DirectoryChange, FileChange, OthersEdit
from sublet.daemon.api.delegation_views import ChangeSet, ResultView
from sublet.daemon.api.results import Applied, Review, ReviewedDirectory, Undone
from support.fake_control import ID, FakeControl, completed, lines, views

REPORT = AuditReport(
    files=[FileChange(path="key", change="mode", mode_before="0644", mode_after="0600")],
    mode_changed=["key"],
    counts={"mode": 1},
    directories=[
        DirectoryChange(path="empty/", change="added", mode_after="0755"),
        DirectoryChange(path="gone/", change="deleted", mode_before="0700", by="other"),
        DirectoryChange(path="d\x1b[2J/", change="mode", mode_before="0755", mode_after="0777"),
    ],
    directory_counts={"added": 1, "deleted": 1, "mode": 1},
    unaudited=["deep/d"],
    unaudited_why=["deep/d (nested deeper than 200 directories)"],
    unaudited_count=1,
    patch="diff --directory empty/\nnew directory mode 0755\n",
)


def call(control: FakeControl, capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """Run a command and return its status and what it printed on both streams."""
    status = run(argv, session=control.session())
    out, err = capsys.readouterr()
    return status, out, err


def test_audit_shows_directories_permissions_and_what_it_did_not_look_at(capsys: pytest.CaptureFixture[str]) -> None:
    out = lines(call(FakeControl(audit=REPORT), capsys, "audit", ID)[1])
    assert "mode  key  0644 to 0600" in out
    assert "made  empty/" in out
    assert "removed  gone/  (not by the executor)" in out
    assert "mode  d\\x1b[2J/  0755 to 0777" in out
    assert "not looked at  deep/d (nested deeper than 200 directories)" in out
    assert out[-1].endswith("directories: 1 made, 1 removed, 1 with another mode · 1 not looked at")


def test_only_directories_are_a_change_too(capsys: pytest.CaptureFixture[str]) -> None:
    only = AuditReport(directories=REPORT.directories[:1], directory_counts={"added": 1})
    out = lines(call(FakeControl(audit=only), capsys, "audit", ID)[1])
    assert out == ["made  empty/", "directories: 1 made"]


def test_what_was_not_looked_at_is_told_where_nothing_else_changed(capsys: pytest.CaptureFixture[str]) -> None:
    only = AuditReport(unaudited=["deep/d"])
    assert lines(call(FakeControl(audit=only), capsys, "audit", ID)[1]) == ["not looked at  deep/d", "1 not looked at"]


def test_diff_says_what_was_not_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = call(FakeControl(audit=REPORT), capsys, "diff", ID)
    assert (status, out) == (0, REPORT.patch)
    assert "not looked at  deep/d (nested deeper than 200 directories)" in lines(err)


def test_the_end_of_a_delegation_counts_what_was_not_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    out = call(FakeControl(views=views(completed(audit=REPORT))), capsys, "output", ID)[1]
    assert "1 not looked at" in " ".join(out.split())
    assert "made  empty/" in lines(out)


def test_json_has_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(call(FakeControl(audit=REPORT), capsys, "audit", ID, "--json")[1])
    assert found["directories"][0] == {
        "path": "empty/",
        "change": "added",
        "by": "executor",
        "mode_before": None,
        "mode_after": "0755",
    }
    assert found["unaudited_why"] == ["deep/d (nested deeper than 200 directories)"]


def test_a_staged_result_of_directories_alone_is_no_empty_one(capsys: pytest.CaptureFixture[str]) -> None:
    changes = ChangeSet(directories_added=1, directories_mode_changed=1)
    assert not changes.is_empty
    review = Review(
        delegation_id=ID,
        workspace_dir="/w",
        change_set=changes,
        directories=[
            ReviewedDirectory(path="empty/", change="added", mode_after="0755", outcome="clean"),
            ReviewedDirectory(path="d/", change="mode", mode_before="0755", mode_after="0700", outcome="conflict"),
            ReviewedDirectory(path="gone/", change="deleted", mode_before="0755", outcome="stays"),
        ],
        unread=["shut"],
        unread_why=["shut (Permission denied)"],
        unread_count=1,
    )
    status, out, err = call(FakeControl(review=review), capsys, "review", ID, "--stat")
    assert status == 0
    assert lines(out)[:3] == [
        "made  empty/",
        "mode  d/  0755 to 0700  conflict",
        "removed  gone/  stays, since it holds something else",
    ]
    assert "directories: 1 made, 1 with another mode" in lines(out)[-1]
    assert f"Apply it:  sublet apply {ID}" in err
    assert "could not be read, so is not part of it: shut (Permission denied)" in lines(err)


def test_apply_and_undo_list_directories(capsys: pytest.CaptureFixture[str]) -> None:
    changes = ChangeSet(directories_added=1, status="applied")
    applied = Applied(delegation_id=ID, applied=["empty/"], change_set=changes, undo=ID)
    assert "empty/" in lines(call(FakeControl(applied=applied), capsys, "apply", ID)[1])
    undone = Undone(delegation_id=ID, undone=["empty/"], change_set=changes)
    out = lines(call(FakeControl(undone=undone), capsys, "undo", ID)[1])
    assert "nothing to take back" not in out[0]
    assert "empty/" in out


def test_a_branch_says_what_git_cannot_carry(capsys: pytest.CaptureFixture[str]) -> None:
    applied = Applied(
        delegation_id=ID,
        change_set=ChangeSet(directories_added=1),
        branch="work",
        commit="0" * 40,
        left_out=["empty/: a directory without files, added"],
    )
    out = lines(call(FakeControl(applied=applied), capsys, "apply", ID, "--branch", "work")[1])
    assert "empty/: a directory without files, added" in out


def test_a_report_of_the_first_version_is_still_shown(capsys: pytest.CaptureFixture[str]) -> None:
    kept = {"added": ["f"], "counts": {"added": 1}, "files": [{"path": "f", "change": "added"}], "unaudited": ["x"]}
    report = AuditReport.model_validate(kept)
    out = lines(call(FakeControl(audit=report), capsys, "audit", ID)[1])
    assert out[-1] == "1 added · +0 \u22120 lines · 1 not looked at"
    assert ResultView.model_validate({"final_summary": "", "change_set": {"added": 1}}).change_set == ChangeSet(added=1)


BESIDE = AuditReport(
    counts={"changed": 1},
    changed=["f"],
    others_edits=[
        OthersEdit(path="f", kept="/state/changes/x/kept/0"),
        OthersEdit(path="g\x1b", overwritten=False),
        OthersEdit(path="h"),
    ],
    not_kept=["h"],
    patch="",
)


@pytest.mark.parametrize("command", ["audit", "diff", "output"])
def test_edits_of_others_and_what_can_not_be_taken_back_are_told(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    control = FakeControl(audit=BESIDE, views=views(completed(audit=BESIDE)))
    _, out, err = call(control, capsys, command, ID)
    said = " ".join((out + err).split())
    assert "edited by somebody else, too f (overwritten; kept as /state/changes/x/kept/0)" in said
    assert "edited by somebody else, too g\\x1b (that edit is in the directory)" in said
    assert "edited by somebody else, too h (overwritten, and not kept)" in said
    assert "can't be taken back h" in said
