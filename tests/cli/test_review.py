"""Results that are looked at before they count: what people see, what scripts read, and the exit statuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sublet.cli.app import run
from sublet.daemon.api.delegation_views import ChangeSet, ErrorView, ResultView
from sublet.daemon.api.delegations import CreateDelegation
from sublet.daemon.api.results import ApplyResult
from sublet.protocol.lifecycle import DelegationState
from support.fake_control import (
    CHANGES,
    CONFLICT,
    ID,
    FakeControl,
    applied,
    completed,
    delegation,
    lines,
    reviewed,
    undone,
    views,
)

STAGED = {"result_mode": "staged", "result": ResultView(final_summary="Done.", change_set=CHANGES)}


def call(control: FakeControl, capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """Run a command and return its status and what it printed on both streams."""
    status = run(argv, session=control.session())
    out, err = capsys.readouterr()
    return status, out, err


def body(control: FakeControl, capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, Any]:
    """Run a command with ``--json`` and return its status and its object."""
    status, out, err = call(control, capsys, *argv, "--json")
    assert err == ""
    return status, json.loads(out)


def test_delegate_says_that_nothing_is_applied_yet_and_what_to_type(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl(views=views(completed(**STAGED)))

    status, out, err = call(control, capsys, "delegate", ".", "Do it.", "--to", "bob", "--staged")

    assert status == 0
    assert f"✓ completed · after 12 s · bob · a copy, read-write · {ID}" in lines(out)
    assert "staged result  not applied yet · 1 added, 1 changed · +4 \u22121 lines" in lines(out)
    assert lines(err)[-3:] == [
        f"Look at it:  sublet review {ID}",
        f"Apply it:    sublet apply {ID}",
        f"Drop it:     sublet discard {ID}",
    ]
    request = control.requests[0]
    assert isinstance(request, CreateDelegation)
    assert (request.result_mode, request.result_branch) == ("staged", None)


def test_scripts_find_the_counts_in_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl(views=views(completed(**STAGED)))

    status, found = body(control, capsys, "delegate", ".", "Do it.", "--to", "bob", "--staged")

    assert status == 0
    changes = found["result"]["change_set"]
    assert (changes["added"], changes["changed"], changes["deleted"], changes["status"]) == (1, 1, 0, "pending")


def test_what_became_of_the_branch_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    for told, words in (({"branch": "bob/work"}, "on branch bob/work"), ({"branch_error": "no"}, "on no branch: no")):
        result = ResultView(final_summary="", change_set=CHANGES.model_copy(update=told))
        control = FakeControl(views=views(completed(result_mode="staged", result=result)))
        assert words in call(control, capsys, "output", ID)[1]


def test_a_branch_is_asked_for_with_the_delegation(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl(views=views(completed(**STAGED)))

    body(control, capsys, "delegate", ".", "Do it.", "--to", "bob", "--result-branch", "bob/work")

    request = control.requests[0]
    assert isinstance(request, CreateDelegation)
    assert (request.result_mode, request.result_branch) == ("staged", "bob/work")


def test_what_was_done_until_a_failure_is_shown_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    kept = ResultView(final_summary="", change_set=ChangeSet(added=2))
    error = ErrorView(code="EXPIRED", message="the lease ended")
    control = FakeControl(
        views=views(delegation(DelegationState.EXPIRED, error=error, result=kept, result_mode="staged"))
    )

    status, out, err = call(control, capsys, "delegate", ".", "Do it.", "--to", "bob", "--staged")

    assert status == 7
    assert "staged result  not applied yet · 2 added" in lines(out)
    assert f"Look at it:  sublet review {ID}" in err
    assert "bob says" not in out


def test_review_prints_the_patch_alone_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl()

    status, out, err = call(control, capsys, "review", ID)

    assert (status, out) == (0, control.review.patch)
    assert lines(err) == [f"Apply it:  sublet apply {ID}", f"Drop it:   sublet discard {ID}"]


def test_review_says_what_stands_in_the_way(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl(
        review=reviewed(conflicts=[CONFLICT], mass_deletion=True, unread=["locked\x1b[2J"], patch_truncated=True)
    )

    _, out, err = call(control, capsys, "review", ID)

    assert out == control.review.patch
    assert lines(err)[:7] == [
        f"The patch was cut; all of it: sublet review {ID} --patch FILE",
        "1 conflict",
        "src/calc.py  you and the executor changed the same lines",
        "yours  · /src/project/src/calc.py",
        "theirs · /state/theirs/calc.py",
        "it would delete most of the directory, which apply refuses without --allow-mass-deletion",
        r"could not be read, so is not part of it: locked\x1b[2J",
    ]


def test_review_lists_files_only_where_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl()

    _, out, _ = call(control, capsys, "review", ID, "--stat")

    assert lines(out) == [
        "changed  src/calc.py  +1 \u22121  merges with your changes",
        "added    notes.md        +3",
        "staged result  not applied yet · 1 added, 1 changed · +4 \u22121 lines",
    ]
    assert control.requests == [{"review": ID, "patch": False}]


def test_review_as_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    _, found = body(FakeControl(), capsys, "review", ID)

    assert found["delegation_id"] == ID
    assert found["change_set"]["status"] == "pending"
    assert [file["outcome"] for file in found["files"]] == ["merged", "clean"]
    assert found["patch"].startswith("--- a/src/calc.py")


def test_the_whole_patch_goes_to_a_new_file_only(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    control = FakeControl(whole_patch=b"GIT binary patch\n\xff\x00")
    file = tmp_path / "result.patch"

    status, found = body(control, capsys, "review", ID, "--patch", str(file))
    assert (status, found) == (0, {"delegation_id": ID, "file": str(file), "bytes": 19})
    assert file.read_bytes() == control.whole_patch

    status, found = body(control, capsys, "review", ID, "--patch", str(file))
    assert (status, found["error"]["code"]) == (1, "CONFLICT")
    status, found = body(control, capsys, "review", ID, "--patch", str(tmp_path / "no" / "such"))
    assert (status, found["error"]["code"]) == (1, "UNAVAILABLE")


def test_apply_says_what_was_done_and_how_to_take_it_back(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl()

    status, out, err = call(control, capsys, "apply", ID)

    assert (status, lines(out)) == (0, ["✓ applied 2 changes", "src/calc.py", "notes.md"])
    assert lines(err) == [f"Take it back:  sublet undo {ID}"]
    assert control.requests == [ApplyResult(delegation_id=ID)]


def test_conflicts_have_a_status_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl(applied=applied(applied=[], conflicts=[CONFLICT], change_set=CHANGES, undo=None))

    status, out, err = call(control, capsys, "apply", ID)

    assert status == 8
    assert lines(out)[:2] == ["✗ nothing was applied", "1 conflict"]
    assert lines(err) == [f"Apply the rest:  sublet apply {ID} --partial"]

    status, found = body(control, capsys, "apply", ID)
    assert (status, found["applied"], found["conflicts"][0]["path"]) == (8, [], "src/calc.py")


def test_options_of_apply_reach_the_daemon(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl(applied=applied(applied=[], branch="bob/work", commit="a" * 40, undo=None))

    status, out, _ = call(control, capsys, "apply", ID, "--branch", "bob/work")

    assert (status, lines(out)) == (0, ["✓ branch bob/work  at aaaaaaaaaaaa; your files are as they were"])
    call(control, capsys, "apply", ID, "--partial", "--allow-mass-deletion")
    assert control.requests == [
        ApplyResult(delegation_id=ID, branch="bob/work"),
        ApplyResult(delegation_id=ID, partial=True, allow_mass_deletion=True),
    ]


def test_discard_and_undo(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl()

    status, found = body(control, capsys, "discard", ID)
    assert (status, found["discarded"], found["change_set"]["status"]) == (0, True, "discarded")
    assert lines(call(control, capsys, "undo", ID)[1])[0] == "✓ took back 2 changes"
    status, found = body(control, capsys, "undo", ID)
    assert (status, found["undone"], found["conflicts"]) == (0, ["src/calc.py", "notes.md"], [])

    control.undone = undone(conflicts=[CONFLICT])
    assert call(control, capsys, "undo", ID)[0] == 8


def test_the_list_says_what_waits_for_a_review(capsys: pytest.CaptureFixture[str]) -> None:
    done = ResultView(final_summary="", change_set=CHANGES.model_copy(update={"status": "applied"}))
    control = FakeControl(listed=[completed(**STAGED), completed(result_mode="staged", result=done)])

    _, out, _ = call(control, capsys, "ls", "--all")

    assert ["to review" in line for line in lines(out)] == [False, True, False]


def test_a_closed_result_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl(review=reviewed(change_set=CHANGES.model_copy(update={"status": "applied"})))
    assert lines(call(control, capsys, "review", ID)[2]) == [f"It is applied. Take it back:  sublet undo {ID}"]

    control.review = reviewed(change_set=CHANGES.model_copy(update={"status": "partly_applied"}))
    assert "in part. Take that back:" in call(control, capsys, "review", ID)[2]
    control.review = reviewed(change_set=CHANGES.model_copy(update={"status": "undone"}), conflicts=[CONFLICT])
    assert lines(call(control, capsys, "review", ID)[2])[-1] == f"It was taken back. Apply it again:  sublet apply {ID}"
    assert "1 conflict" in call(control, capsys, "review", ID)[2]
    control.review = reviewed(change_set=CHANGES.model_copy(update={"status": "discarded"}), patch="")
    assert lines(call(control, capsys, "review", ID)[2]) == ["It is discarded."]


def test_nothing_is_offered_that_would_do_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    nothing = ChangeSet()
    view = completed(result_mode="staged", result=ResultView(final_summary="Done.", change_set=nothing))
    control = FakeControl(
        views=views(view),
        review=reviewed(change_set=nothing, files=[], patch=""),
        applied=applied(applied=[], change_set=nothing),
        undone=undone(undone=[], change_set=nothing),
    )

    assert lines(call(control, capsys, "output", ID)[2]) == [f"Drop it:  sublet discard {ID}"]
    assert lines(call(control, capsys, "review", ID)[2])[1:] == [f"Drop it:  sublet discard {ID}"]
    assert call(control, capsys, "apply", ID)[2] == ""
    assert lines(call(control, capsys, "undo", ID)[1]) == ["✓ there was nothing to take back"]


def test_the_next_step_is_one_that_works(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl(review=reviewed(mass_deletion=True))
    assert f"Apply it:  sublet apply {ID} --allow-mass-deletion" in lines(call(control, capsys, "review", ID)[2])

    on_branch = CHANGES.model_copy(update={"branch": "bob/repair"})
    view = completed(result_mode="staged", result=ResultView(final_summary="Done.", change_set=on_branch))
    assert "Take it:  git merge bob/repair" in lines(call(FakeControl(views=views(view)), capsys, "output", ID)[2])
