"""What people read of attach, work, prune and reload, and how they are told of the end."""

from __future__ import annotations

import stat
from collections import deque
from pathlib import Path

import pytest

from sublet.cli.app import run
from sublet.cli.rendering import notify as notify_module
from sublet.daemon.api.assignments import AssignmentView
from sublet.daemon.api.delegation_fields import OneDelegation
from sublet.daemon.api.delegation_views import DelegationView
from sublet.daemon.api.events import EventPage, ReadEvents
from sublet.protocol.canonical import JsonValue
from sublet.protocol.events import Event, EventKind
from sublet.protocol.lifecycle import AssignmentState, DelegationState
from support.fake_control import AT, ID, FakeControl, completed, delegation, printed


def call(control: FakeControl, capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """Run a command and return its status and what it printed on both streams."""
    status = run(argv, session=control.session())
    out, err = capsys.readouterr()
    return status, out, err


def test_attach_begins_with_the_last_lines_and_ends_as_the_work_does(capsys: pytest.CaptureFixture[str]) -> None:
    running = delegation(DelegationState.RUNNING, remaining_seconds=90)
    control = FakeControl(
        views=deque([running, delegation(DelegationState.ERROR)]),
        events=[printed(number, f"line {number}\n") for number in range(1, 6)],
    )
    status, out, err = call(control, capsys, "attach", ID, "--lines", "2")
    assert status == 1
    assert "error" in out
    assert [line for line in err.splitlines() if "│" in line] == ["bob │ line 4", "bob │ line 5"]
    assert "1 min 30 s left" in err


def test_at_the_end_nobody_waits_for_words_that_do_not_come(capsys: pytest.CaptureFixture[str]) -> None:
    waited: list[tuple[bool, float]] = []

    class Late(FakeControl):
        """Prints its last words after the poll that the end is seen by."""

        ended = False

        async def events_since(self, request: ReadEvents) -> EventPage:
            waited.append((self.ended, request.timeout))
            return await super().events_since(request)

        async def get_status(self, request: OneDelegation) -> DelegationView:
            view = await super().get_status(request)
            if not self.ended and view.state is DelegationState.COMPLETED:
                self.ended = True
                self.events.append(printed(1, "last words\n"))
            return view

    running = delegation(DelegationState.RUNNING)
    control = Late(views=deque([running, running, running, completed()]))
    status, _, err = call(control, capsys, "output", ID, "--follow")

    assert status == 0
    assert "bob │ last words" in err.splitlines()
    assert [timeout for ended, timeout in waited if ended and timeout > 0] == []
    assert [timeout for ended, timeout in waited if not ended and timeout > 0] != []


def test_others_changes_are_told_and_can_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    data: dict[str, JsonValue] = {"changes": [{"path": "a\x1b[2Jb\n✓ completed", "change": "added"}], "more": 3}
    control = FakeControl(
        views=deque([delegation(DelegationState.RUNNING), completed()]),
        events=[Event(seq=1, at=AT, kind=EventKind.WORKSPACE_CHANGED, delegation_id=ID, data=data)],
    )
    status, _, err = call(control, capsys, "output", ID, "--follow")
    assert status == 0
    assert "\x1b" not in err
    told = [line for line in err.splitlines() if line.startswith("not by the executor")]
    assert len(told) == 2
    assert told[1] == "not by the executor: and 3 more"


def test_less_time_than_asked_for_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    view = completed(ttl_seconds=60, requested_ttl_seconds=7200)
    _, out, _ = call(FakeControl(views=deque([view])), capsys, "output", ID)
    assert "2 h 00 min asked for, 1 min 00 s granted" in out


def test_work_for_others_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    work = AssignmentView(
        delegation_id=ID,
        state=AssignmentState.ERROR,
        peer="ann",
        agent="shell",
        description="do\x1b[1m it",
        access_mode="ro",
        created_at=AT,
        updated_at=AT,
        outcome="limit",
    )
    _, out, _ = call(FakeControl(work=[work]), capsys, "work", "--all")
    assert out.splitlines()[1].split()[1:5] == ["error", "(limit)", "ann", "shell"]
    assert "\x1b" not in out
    _, out, err = call(FakeControl(), capsys, "work")
    assert out == ""
    assert "sublet work --all" in err


def test_prune_says_what_would_go_and_what_went(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl()
    _, out, _ = call(control, capsys, "prune", "--dry-run", "--older-than", "7d", "--max-bytes", "1M")
    assert "/home/ann/api" in out
    assert "Would remove 1 delegation, 2 assignments, 1 audit repository, 30 events: 5.0 MiB." in out
    asked = {"dry_run": True, "older_than_seconds": 604_800, "max_bytes": 1 << 20}
    assert control.requests == [{"prune": asked}]
    _, out, _ = call(FakeControl(), capsys, "prune")
    assert out == "Removed 1 delegation, 2 assignments, 1 audit repository, 30 events: 5.0 MiB.\n"


def test_reload_says_what_is_in_force(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(FakeControl(), capsys, "reload")
    assert out == "There is no /c/agent.json.\nThere is no /c/policy.json.\nOffered: shell.\n"


def test_a_notice_is_for_those_who_wait(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "told"
    program = tmp_path / "notify-send"
    program.write_text(f'#!/bin/sh\necho "$*" >{told}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    arguments = ("delegate", str(tmp_path), "--to", "bob", "x", "--notify")
    assert call(FakeControl(), capsys, *arguments)[0] == 0
    assert told.read_text().startswith("--app-name=sublet -- bob: completed ")
    status, _, err = call(FakeControl(), capsys, *arguments, "--background")
    assert status == 2
    assert "hooks.notify" in err


def test_without_a_desktop_the_terminal_is_asked_and_nothing_in_the_words_steers_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    view = completed(description="x\x1b]0;owned\x07y")
    notify_module.notify(view)
    assert capsys.readouterr().err == "", "no terminal, no bell"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    notify_module.notify(view)
    said = capsys.readouterr().err
    assert said.startswith("\x1b]9;bob: completed: x")
    assert said.endswith("\a\a")
    assert (said.count("\x1b"), said.count("\a")) == (1, 2)


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (DelegationState.RUNNING, ""),
        (DelegationState.COMPLETED, "It was over already (completed), so nothing was stopped."),
        (DelegationState.CANCELLED, "It was over already (cancelled), so nothing was stopped."),
        (DelegationState.EXPIRED, "It was over already (expired), so nothing was stopped."),
    ],
)
def test_cancel_says_where_all_was_over_already(
    capsys: pytest.CaptureFixture[str], state: DelegationState, told: str
) -> None:
    status, _, err = call(FakeControl(views=deque([delegation(state)])), capsys, "cancel", ID)
    assert (status, err.strip()) == (0, told)


def test_what_is_nearly_the_beginning_of_an_id_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = call(FakeControl(listed=[delegation()]), capsys, "cancel", "0123457")
    assert status == 1
    assert "there is no delegation '0123457', did you mean 'dlg_0123456'?" in err
