"""What scripts rely on: one JSON object on stdout, all its keys, the exit status, and nothing mixed in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sublet.cli.app import run
from sublet.daemon.api.audit_models import AuditReport
from sublet.daemon.api.daemon import Check
from sublet.daemon.api.delegation_views import ErrorView
from sublet.daemon.api.delegations import CreateDelegation
from sublet.protocol.errors import ErrorCode, LocalCode
from sublet.protocol.lifecycle import DelegationState
from support.fake_control import ID, FakeControl, completed, delegation, peer, printed, unavailable, views

RELIED_ON = {"delegation_id", "state", "result", "error", "hidden", "audit"}


def call(control: FakeControl, capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, Any]:
    """Run a command with ``--json`` and return its status and the only object that it printed."""
    status = run([*argv, "--json"], session=control.session())
    printed_out, said = capsys.readouterr()
    assert said == "", "nothing but JSON is printed for scripts"
    assert printed_out.count("\n") == 1
    return status, json.loads(printed_out)


def test_delegate_prints_the_end_with_every_key(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    control = FakeControl(views=views(delegation(), delegation(), completed()), events=[printed(1, "noise\n")])

    status, body = call(control, capsys, "delegate", str(tmp_path), "Do it.", "--to", "bob", "--ro", "--ttl", "2m")

    assert status == 0
    assert body.keys() >= RELIED_ON
    assert body["state"] == "completed"
    assert body["result"]["final_summary"] == "All tests pass now."
    assert (body["audit"]["added"], body["audit"]["changed"], body["audit"]["deleted"]) == (
        ["notes.md"],
        ["src/calc.py"],
        [],
    )
    assert body["hidden"] == [".env"]
    request = control.requests[0]
    assert isinstance(request, CreateDelegation)
    assert (request.workspace_dir, request.access_mode, request.ttl_seconds) == (str(tmp_path), "ro", 120)


@pytest.mark.parametrize(
    ("view", "status"),
    [
        (delegation(DelegationState.CANCELLED), 6),
        (delegation(DelegationState.EXPIRED), 7),
        (delegation(DelegationState.ERROR, error=ErrorView(code="DECLINED", message="no")), 5),
        (delegation(DelegationState.ERROR, error=ErrorView(code="TASK_FAILED", message="no")), 1),
        (delegation(DelegationState.ERROR, error=ErrorView(code="SOMETHING_NEW", message="no")), 1),
        (delegation(DelegationState.ERROR), 1),
    ],
)
def test_only_completed_work_exits_with_zero(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, view: object, status: int
) -> None:
    control = FakeControl(views=views(view))  # type: ignore[arg-type]

    assert call(control, capsys, "delegate", str(tmp_path), "Do it.", "--to", "bob")[0] == status


def test_background_returns_the_handle_at_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    control = FakeControl(views=views(delegation(DelegationState.CREATED)))

    status, body = call(control, capsys, "delegate", str(tmp_path), "Do it.", "--to", "bob", "--background")

    assert (status, body["delegation_id"], body["state"]) == (0, ID, "created")
    assert body["result"] is body["error"] is body["audit"] is None


def test_an_error_is_one_object_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, body = call(FakeControl(failure=unavailable()), capsys, "delegate", str(tmp_path), "Do it.", "--to", "bob")

    assert status == 4
    assert body.keys() >= RELIED_ON
    assert (body["delegation_id"], body["state"]) == (None, "error")
    assert body["error"] == {
        "code": "DAEMON_UNAVAILABLE",
        "message": "no daemon is running",
        "hint": "Start it: sublet up --detach",
        "from_peer": False,
        "retry_after_seconds": None,
    }


@pytest.mark.parametrize(
    "argv",
    [
        ["bogus"],
        ["ls", "--bogus"],
        ["delegate"],
        ["delegate", ".", "x", "--to", "bob", "--ttl", "soon"],
        ["delegate", ".", "x", "--to", "bob", "--ttl", "999999d"],
        ["delegate", ".", "", "--to", "bob"],
        ["delegate", "", "x", "--to", "bob"],
        ["delegate", "bad\udcff", "x", "--to", "bob"],
        ["allow", ""],
        ["allow", "bad\udcff", "--remove"],
        ["cancel", ""],
        ["peers", "add", "link", "--name", "Bob!"],
        ["allow", "--remove"],
        ["up", "--a2a", "nowhere"],
        ["up", "--agent", "/does/not/exist"],
        ["policy"],
    ],
)
def test_wrong_use_is_an_object_and_status_2(capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    status, body = call(FakeControl(), capsys, *argv)

    assert status == 2
    assert body["error"]["code"] == "INVALID_ARGUMENT"
    assert body["error"]["message"]


def test_output_carries_state_and_pieces(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl(events=[printed(1, "one\n"), printed(5, "two\n")])

    status, body = call(control, capsys, "output", ID)

    assert status == 0
    assert [piece["text"] for piece in body["output"]] == ["one\n", "two\n"]
    assert (body["state"], body["output_truncated"]) == ("completed", False)


def test_output_is_bounded_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl(events=[printed(n, str(n) * 300_000) for n in range(1, 6)])

    body = call(control, capsys, "output", ID)[1]

    assert [piece["seq"] for piece in body["output"]] == [3, 4, 5]
    assert body["output_truncated"] is True


def test_lists_are_objects_with_one_list(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl(listed=[delegation()], peers=[peer()], roots=["/src"])

    assert call(control, capsys, "ls")[1]["delegations"][0]["delegation_id"] == ID
    assert call(control, capsys, "peers", "list")[1]["peers"][0]["name"] == "bob"
    assert call(control, capsys, "allow")[1] == {"lend_roots": ["/src"]}
    assert control.requests[0] == {"limit": 50, "active": True}


def test_audit_and_cancel(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl(audit=AuditReport(added=["a"], patch="diff"))

    body = call(control, capsys, "audit", ID)[1]
    assert (body["delegation_id"], body["added"], body["deleted"], body["patch"]) == (ID, ["a"], [], None)
    assert call(control, capsys, "audit", ID, "--patch")[1]["patch"] == "diff"
    assert call(control, capsys, "diff", ID)[1]["patch"] == "diff"
    assert call(control, capsys, "cancel", ID)[1]["state"] == "cancelled"


def test_a_token_is_printed_when_made_and_never_again(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl()

    assert call(control, capsys, "token", "create", "ci", "--ttl", "1d")[1]["token"] == "secret-token"
    assert control.requests == [{"name": "ci", "ttl_seconds": 86_400}]
    assert call(control, capsys, "token", "list")[1]["tokens"][0]["token"] is None


def test_pairing_objects(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl()

    assert call(control, capsys, "pair")[1]["link"].startswith("sublet-pair:")
    assert call(control, capsys, "peers", "add", "link", "--name", "bob")[1]["name"] == "bob"


def test_doctor_fails_where_a_check_fails(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl(
        checks=[Check(name="git", ok=True, detail="2.39"), Check(name="sshfs", ok=False, detail="no")]
    )

    status, body = call(control, capsys, "doctor")

    assert (status, body["ok"], body["daemon"]) == (1, False, True)
    assert [check["name"] for check in body["checks"]] == ["git", "sshfs"]


def test_doctor_checks_the_machine_without_a_daemon(capsys: pytest.CaptureFixture[str]) -> None:
    body = call(FakeControl(failure=unavailable()), capsys, "doctor")[1]

    assert body["daemon"] is False
    assert {"sshfs", "git", "bubblewrap"} <= {check["name"] for check in body["checks"]}


def test_down_without_a_daemon_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(FakeControl(failure=unavailable()), capsys, "down") == (0, {"stopped": False, "pid": None})


def test_text_of_a_peer_can_not_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl(events=[printed(1, "\x1b]0;owned\x07\u202egnp.exe")])
    run(["output", ID, "--json"], session=control.session())

    raw = capsys.readouterr().out
    assert raw.isascii()
    assert "\x1b" not in raw
    assert json.loads(raw)["output"][0]["text"].endswith("gnp.exe")


def test_every_code_has_an_exit_status() -> None:
    from sublet.cli.errors import MEANING, Exit, exit_for

    assert {exit_for(code) for code in (*ErrorCode, *LocalCode)} <= set(MEANING) == set(Exit)
    assert all(exit_for(code) is not Exit.OK for code in (*ErrorCode, *LocalCode))
