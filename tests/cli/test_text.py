"""What people read: errors with a way on, a peer's words that can't pass for ours, diffs that hide nothing."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from sublet.cli.app import run
from sublet.cli.rendering.columns import Quoted
from sublet.cli.rendering.delegations import diff_text, headline, size, span, summary
from sublet.cli.rendering.live import LiveView
from sublet.cli.rendering.screen import Screen, Symbols
from sublet.daemon.api.audit_models import AuditReport, FileChange
from sublet.daemon.api.daemon import Check
from sublet.daemon.api.delegation_views import (
    ChangeSet,
    ConditionView,
    ErrorView,
    LeaseQuota,
    LeaseUsageView,
    ResultView,
)
from sublet.daemon.api.peers import AgentView
from sublet.protocol.bounds import MAX_PATTERNS
from sublet.protocol.lease_terms import MAX_TOOL_NAMES
from sublet.protocol.lifecycle import DelegationState
from support.fake_control import (
    ID,
    OTHER_ID,
    FakeControl,
    completed,
    delegation,
    lines,
    peer,
    printed,
    unavailable,
    views,
)

HOSTILE = "done \x1b[2J\x1b]0;owned\x07\u202egnp.exe\u200b\n✓ completed · bob"


def call(control: FakeControl, capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """Run a command and return its status and what it printed on both streams."""
    status = run(argv, session=control.session())
    out, err = capsys.readouterr()
    return status, out, err


def test_an_id_without_room_stands_on_a_line_of_its_own() -> None:
    for width, line in ((80, "\n  " + ID), (160, " · " + ID)):
        file = io.StringIO()
        Console(file=file, width=width, color_system=None).print(headline(delegation(), Symbols(fancy=True)))
        assert line in file.getvalue()


def test_an_error_says_what_why_and_what_next(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = call(FakeControl(failure=unavailable()), capsys, "ls")

    assert (status, out) == (4, "")
    assert lines(err) == ["error: no daemon is running  [DAEMON_UNAVAILABLE]", "Start it: sublet up --detach"]


def test_no_traceback_reaches_a_user(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl(views=views())  # answering from nothing breaks it

    status, out, err = call(control, capsys, "output", ID)
    assert (status, out) == (1, "")
    assert "Traceback" not in err
    assert "[INTERNAL]" in err
    assert "--debug" in err
    assert "daemon.log" in err

    assert "Traceback" in call(control, capsys, "--debug", "output", ID)[2]


def test_delegate_shows_the_end_on_stdout_and_the_way_there_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl(
        views=views(delegation(DelegationState.CREATED), delegation(), completed()),
        events=[printed(1, "running te"), printed(2, "sts\nok")],
    )
    status, out, err = call(control, capsys, "delegate", ".", "Do it.", "--to", "bob")

    assert status == 0
    assert lines(out) == [
        f"✓ completed · after 12 s · bob · read-write · {ID}",
        "changed  src/calc.py  +1 \u22121",
        "added    notes.md        +3",
        "hidden from bob  .env",
        "bob says (its own words, not checked)",
        "│ All tests pass now.",
    ]
    assert lines(err) == [
        f"{ID} created",
        "bob │ running tests",
        f"{ID} running",
        f"{ID} completed",
        "bob │ ok",
        f"every line: sublet diff {ID}",
    ]


def test_a_failure_shows_code_and_hint(capsys: pytest.CaptureFixture[str]) -> None:
    error = ErrorView(code="SENSITIVE_FILES", message="keys would be lent", hint="Lend a directory without them.")
    control = FakeControl(views=views(delegation(DelegationState.ERROR, error=error)))

    status, out, _ = call(control, capsys, "delegate", ".", "Do it.", "--to", "bob")

    assert status == 1
    assert "keys would be lent  [SENSITIVE_FILES]" in out
    assert "Lend a directory without them." in out


def test_a_failure_in_the_peers_words_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    error = ErrorView(code="DECLINED", message="bob: all slots are taken", from_peer=True)
    control = FakeControl(views=views(delegation(DelegationState.ERROR, error=error)))

    _, out, _ = call(control, capsys, "delegate", ".", "Do it.", "--to", "bob")

    assert "bob: all slots are taken  [DECLINED]  (the peer's own words, not checked)" in out


def test_an_audit_that_failed_is_no_empty_audit(capsys: pytest.CaptureFixture[str]) -> None:
    lost = ErrorView(code="UNAVAILABLE", message="the disk is full")
    control = FakeControl(views=views(completed(audit=None, audit_error=lost)))

    _, out, _ = call(control, capsys, "output", ID)

    assert "no audit  what changed is not known: the disk is full" in out


def test_words_of_a_peer_are_marked_on_every_line_and_steer_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    view = completed(result=ResultView(final_summary=f"{HOSTILE}\nwhich it had not printed"))
    control = FakeControl(views=views(view), events=[printed(1, HOSTILE + "\n")])
    _, out, _ = call(control, capsys, "output", ID)

    assert not set(out) & {"\x1b", "\x07", "\u202e", "\u200b"}
    forged = [line for line in lines(out) if "✓ completed · bob" in line and ID not in line]
    assert len(forged) == 2
    assert all("│ ✓" in line for line in forged)


def test_hostile_names_and_errors_are_shown_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    change = FileChange(path="a\x1b[31m\u202eb", change="added", lines_added=1)
    view = completed(
        audit=AuditReport(added=["x"], files=[change]),
        hidden=["\x1b[2Jsecret"],
        condition=None,
        error=ErrorView(code="TASK_FAILED\x1b[0m", message="no\x1b[2J\nerror: forged", hint="\x1b[2J"),
    )
    _, out, _ = call(FakeControl(views=views(view)), capsys, "output", ID)

    assert not set(out) & {"\x1b", "\u202e"}
    assert r"a\x1b[31m\u202eb" in out
    assert not any(line.startswith("error: forged") for line in lines(out))


def test_markup_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    view = completed(result=ResultView(final_summary="[red]x[/red] :smile: [/]"))

    assert "[red]x[/red] :smile: [/]" in call(FakeControl(views=views(view)), capsys, "output", ID)[1]


def test_diff_goes_unchanged_into_a_pipe(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    patch = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-\udcff\n+\x1b[31mred\n"
    run(["diff", ID], session=FakeControl(audit=AuditReport(patch=patch)).session())

    assert capfdbinary.readouterr().out == patch.encode("utf-8", "surrogateescape")


def test_diff_says_where_the_patch_was_cut(capsys: pytest.CaptureFixture[str]) -> None:
    report = AuditReport(patch="+a\n", patch_truncated=True)
    assert "was cut" in call(FakeControl(audit=report), capsys, "diff", ID)[2]
    assert "was cut" not in call(FakeControl(audit=AuditReport(patch="+a\n")), capsys, "diff", ID)[2]


def test_diff_on_a_terminal_writes_out_what_is_invisible() -> None:
    shown = diff_text("+a\tb\x1b[31m\u202e" + "c" * 2000 + "\n-x\n").plain

    assert shown == "+a\tb\\x1b[31m\\u202e" + "c" * 2000 + "\n-x\n"


def test_ids_may_be_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl(listed=[delegation(), delegation(delegation_id=OTHER_ID)])

    assert call(control, capsys, "cancel", "0123")[0] == 0
    assert call(control, capsys, "cancel", "dlg_fed")[0] == 0
    assert call(control, capsys, "cancel", "last")[0] == 0
    cancelled = [request["cancel"] for request in control.requests if isinstance(request, dict) and "cancel" in request]
    assert cancelled == [ID, OTHER_ID, ID]
    assert "[NOT_FOUND]" in call(control, capsys, "cancel", "abc")[2]
    assert call(control, capsys, "cancel", "dlg_")[0] == 2


def test_ls_is_a_table_that_a_pipe_gets_whole(capsys: pytest.CaptureFixture[str]) -> None:
    queued = ConditionView(kind="queued", detail="number 1 in the queue", position=1)
    control = FakeControl(
        listed=[delegation(description="x" * 150), delegation(DelegationState.INVITED, condition=queued)]
    )
    _, out, _ = call(control, capsys, "ls")

    head, first, second = lines(out)
    assert head.split() == ["id", "state", "peer", "mode", "age", "left", "task"]
    assert first.startswith(f"{ID}  running")
    assert first.endswith("x" * 150)
    assert "invited (queued)" in second


def test_lists_that_are_empty_say_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert "sublet ls --all" in call(FakeControl(), capsys, "ls")[2]
    assert "sublet pair" in call(FakeControl(), capsys, "peers", "list")[2]


def test_links_tokens_and_ids_stand_alone_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl(views=views(delegation(DelegationState.CREATED)))

    assert len(lines(call(control, capsys, "pair")[1])) == 1
    assert call(control, capsys, "token", "create", "ci")[1] == "secret-token\n"
    assert call(control, capsys, "delegate", ".", "x", "--to", "bob", "-b")[1] == f"{ID}\n"


def test_status_and_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    checks = [
        Check(name="git", ok=True, detail="git version 2.39"),
        Check(name="sshfs", ok=False, detail="sshfs is not on PATH", fix="apt install sshfs", required_for="mount"),
    ]
    control = FakeControl(checks=checks, peers=[peer()])

    out = call(control, capsys, "status")[1]
    assert "✓ running · pid 4242" in out
    assert "1 running, 3 completed" in out
    status, out, _ = call(control, capsys, "doctor")
    assert status == 1
    assert lines(out) == [
        "✓ git    git version 2.39",
        "✗ sshfs  sshfs is not on PATH  (needed for mount)",
        "apt install sshfs",
    ]
    assert "http://127.0.0.1:9642" in call(control, capsys, "peers", "show", "bob")[1]
    assert "no peer named 'eve' is paired (paired: bob)" in call(control, capsys, "peers", "show", "eve")[2]


def test_peers_are_shown_with_their_agents_and_whether_they_answer(capsys: pytest.CaptureFixture[str]) -> None:
    bob = peer().model_copy(update={"agents": [AgentView(id="reviewer", description="Reviews.")]})
    eve = peer("eve").model_copy(update={"usable": False, "why_not": "eve did not answer within 3 s"})
    control = FakeControl(peers=[bob, eve])

    listed = lines(call(control, capsys, "peers", "list")[1])
    assert any("bob" in line and "reviewer" in line and "yes" in line for line in listed)
    assert any("eve" in line and "no: eve did not answer" in line for line in listed)
    assert "reviewer" in call(control, capsys, "peers", "show", "bob")[1]
    assert "no: eve did not answer" in call(control, capsys, "peers", "show", "eve")[1]


def test_pairing_again_under_another_name_says_the_old_one(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl(was="bob")

    assert (
        "Paired with robert, which was bob until now."
        in call(control, capsys, "peers", "add", "link", "--name", "robert")[1]
    )


def test_the_live_view_shows_state_use_and_the_last_lines() -> None:
    view = LiveView(delegation(usage=LeaseUsageView(bytes_read=2048, operations=3, files_touched=1)), Screen())
    for number in range(12):
        view.event(printed(number, f"line {number} \x1b[31m\n"))
    text = io.StringIO()
    Console(file=text, width=80, force_terminal=True, color_system=None).print(view)

    shown = lines(text.getvalue())
    assert "running" in shown[0]
    assert "left" in shown[0]
    assert shown[1] == "read 2.0 KiB · wrote 0 B · 1 file touched"
    assert shown[3] == "│ line 4"
    assert shown[-1] == "│ line 11"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59.9, "59 s"), (245, "4 min 05 s"), (7800, "2 h 10 min"), (273_600, "3 d 4 h")]
)
def test_spans(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (2048, "2.0 KiB"), (200 << 20, "200 MiB"), (3 << 40, "3.0 TiB")]
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


def test_words_that_the_width_wraps_are_marked_on_every_line() -> None:
    text = io.StringIO()
    Console(file=text, width=30, color_system=None).print(Quoted("word " * 20 + "\n\tx" + "y" * 60, "  | "))

    shown = text.getvalue().splitlines()
    assert len(shown) > 6
    assert all(line.startswith("  | ") and len(line) <= 30 for line in shown)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ((".", ""), "the prompt must have 1 to"),
        ((".", "x", "--ttl", "900d"), "--ttl must be between 1 s and"),
        ((".", "x", "--resource", "Docs=."), "--resource takes NAME=DIR"),
    ],
)
def test_a_wrong_argument_is_named_as_the_person_knows_it(
    capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], says: str
) -> None:
    status, _, err = call(FakeControl(), capsys, "delegate", *argv, "--to", "bob")
    assert (status, says in err, "should" in err) == (2, True, False)


@pytest.mark.parametrize("option", ["--include", "--exclude", "--unlock", "--writable"])
def test_what_is_wrong_with_a_list_of_patterns_is_told_by_its_option(
    capsys: pytest.CaptureFixture[str], option: str
) -> None:
    status, _, err = call(FakeControl(), capsys, "delegate", ".", "x", "--to", "bob", option, "")
    assert (status, f"{option}: it is empty" in err) == (2, True), err
    many = [word for number in range(MAX_PATTERNS + 1) for word in (option, f"p{number}")]
    status, _, err = call(FakeControl(), capsys, "delegate", ".", "x", "--to", "bob", *many)
    assert (status, f"{option}: it should have at most {MAX_PATTERNS} items" in err) == (2, True), err


@pytest.mark.parametrize("option", ["--deny", "--only"])
def test_what_is_wrong_with_a_list_of_tools_is_told_by_its_option(
    capsys: pytest.CaptureFixture[str], option: str
) -> None:
    many = [word for number in range(MAX_TOOL_NAMES + 1) for word in (option, f"t{number}")]
    status, _, err = call(FakeControl(), capsys, "delegate", ".", "x", "--to", "bob", *many)
    assert (status, f"{option}: it should have at most {MAX_TOOL_NAMES} items" in err) == (2, True), err


def test_steering_says_what_was_agreed_to(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl()
    status, out, _ = call(control, capsys, "extend", ID, "--ttl", "10m")
    assert status == 0
    assert "has 10 min 00 s more" in out
    status, out, _ = call(control, capsys, "say", ID, "and the docs too", "--id", "k1")
    assert status == 0
    assert "has it as follow-up 1" in out
    assert control.requests[-2:] == [
        {"extend": ID, "seconds": 600},
        {"say": ID, "prompt": "and the docs too", "id": "k1"},
    ]
    for wrong in (["extend", ID], ["extend", ID, "--ttl", "1m", "--seconds", "60"], ["say", ID, " "]):
        assert call(control, capsys, *wrong)[0] == 2


@pytest.mark.parametrize(
    ("bytes_added", "files_added", "shown"),
    [
        (10, 1, ""),
        (512, 1, "quota  512 B of 1.0 KiB and 1 of 100 files added"),
        (-2048, 100, "quota  -2.0 KiB of 1.0 KiB and 100 of 100 files added"),
    ],
)
def test_the_quota_is_shown_once_a_good_part_of_it_is_used(bytes_added: int, files_added: int, shown: str) -> None:
    view = completed().model_copy(
        update={
            "quota": LeaseQuota(max_total_bytes=1024, max_files=100, max_file_bytes=1024),
            "usage": LeaseUsageView(operations=1, bytes_added=bytes_added, files_added=files_added),
        }
    )
    screen = Screen(as_json=False)
    console = Console(file=io.StringIO(), width=100)
    console.print(summary(view, screen.symbols))
    text = getattr(console.file, "getvalue")()  # noqa: B009 - it is the StringIO that was given
    assert (shown in text) if shown else ("quota" not in text)


def test_the_counts_of_an_audit_are_of_all_files_also_of_those_that_are_not_listed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    listed = [FileChange(path=f"f{n}", change="added") for n in range(100)]
    report = AuditReport(
        files=listed, added=[file.path for file in listed], counts={"added": 12_000, "mode": 3}, truncated=True
    )

    out = lines(call(FakeControl(audit=report), capsys, "audit", ID)[1])

    assert "and 11,963 more" in out
    assert out[-1] == "12,000 added · 3 with another mode · +0 \u22120 lines"


def test_into_a_pipe_no_line_ends_in_blanks_and_none_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (("status",), ("peers", "show", "bob"), ("audit", ID), ("ls",)):
        control = FakeControl(peers=[peer()], listed=[completed()])
        status, out, _ = call(control, capsys, *argv)
        assert status == 0
        assert [line for line in out.splitlines() if line != line.rstrip() or not line] == [], argv


def test_a_column_without_content_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    out = call(FakeControl(listed=[completed()]), capsys, "ls", "--all")[1]

    assert out.splitlines()[0].split() == ["id", "state", "peer", "mode", "age", "task"]


def test_what_a_copy_brought_back_is_no_staged_result(capsys: pytest.CaptureFixture[str]) -> None:
    brought = ChangeSet(added=1, lines_added=1, status="applied")
    view = completed(transport="archive", result=ResultView(final_summary="Done.", change_set=brought))

    out = lines(call(FakeControl(views=views(view)), capsys, "output", ID)[1])

    assert "brought back  applied · 1 added · +1 \u22120 lines" in out


def test_a_renamed_peer_is_told_by_both_names(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl(peers=[peer()])
    assert "bob is called robert here from now on." in call(control, capsys, "peers", "rename", "bob", "robert")[1]
    assert "'Bob!' is no peer name" in call(control, capsys, "peers", "rename", "bob", "Bob!")[2]


def test_links_tell_who_used_them(capsys: pytest.CaptureFixture[str]) -> None:
    out = call(FakeControl(), capsys, "peers", "links")[1]
    assert "by bob, " in out
    assert "by nobody, and can't be any more" in out
