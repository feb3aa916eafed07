"""Results that are reviewed before they count: real daemons, real mounts of private copies, real kills (DESIGN 4.7)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sublet.daemon.api.delegation_fields import OneDelegation, OneWithPatch
from sublet.daemon.api.delegations import CANCEL_DELEGATION
from sublet.daemon.api.results import (
    APPLY_RESULT,
    DISCARD_RESULT,
    REVIEW_RESULT,
    UNDO_RESULT,
    Applied,
    ApplyResult,
    Undone,
)
from sublet.daemon.control.client import ControlClient
from sublet.protocol.errors import LocalCode, SubletError
from support.daemons import Daemon, two_daemons, wait_for
from support.leases import ask, begin, delegate, events, finish, restart, tree, view, wait_state

PARTS = "".join(f"line {number}\n" for number in range(1, 10))
WORK = (
    "sed -i 's/line 2/LINE 2/' text; echo new > new; : > empty; chmod +x tool; rm old; mkdir -p sub && echo in > sub/x"
)


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Daemon]]:
    with two_daemons(tmp_path_factory.mktemp("staged")) as pair:
        yield pair


@pytest.fixture
def lender(daemons: tuple[Daemon, Daemon]) -> Daemon:
    return daemons[0]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a directory to lend."""
    root = tmp_path / "project"
    root.mkdir()
    for name, content in {"text": PARTS, "old": "old\n", "tool": "#!/bin/sh\n", "kept": "kept\n"}.items():
        (root / name).write_text(content)
    return root


def staged(daemon: Daemon, directory: Path, script: str, *options: str) -> dict[str, Any]:
    return delegate(daemon, directory, script, "--staged", *options)


def apply(daemon: Daemon, delegation_id: str, **options: Any) -> Applied:
    return ask(daemon, lambda client: client.call(APPLY_RESULT, ApplyResult(delegation_id=delegation_id, **options)))


def undo(daemon: Daemon, delegation_id: str) -> Undone:
    return ask(daemon, lambda client: client.call(UNDO_RESULT, OneDelegation(delegation_id=delegation_id)))


def refused(daemon: Daemon, question: Callable[[ControlClient], Awaitable[object]]) -> SubletError:
    with pytest.raises(SubletError) as no:
        ask(daemon, question)
    return no.value


def status_of(daemon: Daemon, delegation_id: str) -> str | None:
    result = view(daemon, delegation_id).result
    return result.change_set.status if result is not None and result.change_set is not None else None


def test_nothing_changes_before_it_is_applied_and_it_can_be_taken_back(lender: Daemon, project: Path) -> None:
    before = tree(project)

    ended = staged(lender, project, WORK)

    assert (ended["state"], ended["error"]) == ("completed", None)
    assert tree(project) == before
    changes = ended["result"]["change_set"]
    assert {key: changes[key] for key in ("added", "changed", "deleted", "renamed", "mode_changed", "status")} == {
        "added": 3,
        "changed": 1,
        "deleted": 1,
        "renamed": 0,
        "mode_changed": 1,
        "status": "pending",
    }
    assert sorted(ended["audit"]["added"]) == ["empty", "new", "sub/x"]
    found = ended["delegation_id"]

    patch = lender.run("review", found).stdout
    assert "-line 2\n+LINE 2\n" in patch
    assert tree(project) == before

    # The person goes on working meanwhile, elsewhere in the same file too.
    (project / "text").write_text(PARTS.replace("line 8", "mine 8"))
    (project / "mine").write_text("mine\n")
    review = lender.json("review", found)
    assert (review["conflicts"], review["mass_deletion"]) == ([], False)
    assert {file["path"]: file["outcome"] for file in review["files"]}["text"] == "merged"

    applied = lender.json("apply", found)

    assert sorted(applied["applied"]) == ["empty", "new", "old", "sub/x", "text", "tool"]
    assert (applied["conflicts"], applied["change_set"]["status"]) == ([], "applied")
    assert (project / "text").read_text() == PARTS.replace("line 2", "LINE 2").replace("line 8", "mine 8")
    assert (project / "empty").read_bytes() == b""
    assert os.access(project / "tool", os.X_OK)
    assert not (project / "old").exists()
    assert (project / "mine").read_text() == "mine\n"

    twice = lender.json("apply", found, check=(1,))
    assert twice["error"]["code"] == "CONFLICT"
    dropped = lender.json("discard", found, check=(1,))
    assert dropped["error"]["code"] == "CONFLICT"

    undone = lender.json("undo", found)

    assert (undone["conflicts"], undone["change_set"]["status"]) == ([], "undone")
    assert tree(project) == {**before, "text": PARTS.replace("line 8", "mine 8").encode(), "mine": b"mine\n"}
    assert not os.access(project / "tool", os.X_OK)
    assert lender.json("undo", found, check=(1,))["error"]["code"] == "CONFLICT"
    actions = [event.data for event in events(lender, found) if event.kind == "delegation_review"]
    assert [data["action"] for data in actions] == ["apply", "undo"]


def test_conflicts_leave_everything_as_it_is_unless_a_part_is_asked_for(lender: Daemon, project: Path) -> None:
    found = staged(lender, project, WORK)["delegation_id"]
    (project / "text").write_text(PARTS.replace("line 2", "mine 2"))
    before = tree(project)

    refused = lender.json("apply", found, check=(8,))

    assert (refused["applied"], refused["change_set"]["status"]) == ([], "pending")
    [conflict] = refused["conflicts"]
    assert (conflict["path"], conflict["yours"]) == ("text", str(project / "text"))
    assert Path(conflict["theirs"]).read_text() == PARTS.replace("line 2", "LINE 2")
    assert tree(project) == before

    part = lender.json("apply", found, "--partial", check=(8,))

    assert (part["change_set"]["status"], "new" in part["applied"]) == ("partly_applied", True)
    [conflict] = part["conflicts"]
    assert (project / "text").read_text() == PARTS.replace("line 2", "mine 2")
    assert Path(conflict["theirs"]).read_text() == PARTS.replace("line 2", "LINE 2")
    undo(lender, found)
    assert tree(project) == before


def test_two_leases_of_one_directory_run_at_once_and_are_applied_one_after_another(
    lender: Daemon, project: Path
) -> None:
    first = begin(lender, project, "sed -i 's/line 1$/first/' text; sleep 5", "--staged")
    second = begin(lender, project, "sed -i 's/line 9/second/' text; sleep 5", "--staged")
    for one in (first, second):
        wait_state(lender, one, "running")
    assert str(view(lender, first).state) == "running"
    for one in (first, second):
        assert str(finish(lender, one).state) == "completed"

    apply(lender, first)
    apply(lender, second)

    assert (project / "text").read_text() == PARTS.replace("line 1\n", "first\n").replace("line 9", "second")


def test_a_live_lease_keeps_others_from_writing_until_it_ends(lender: Daemon, project: Path) -> None:
    found = staged(lender, project, "echo new > new")["delegation_id"]
    live = begin(lender, project, "sleep 60")
    wait_state(lender, live, "running")

    no = refused(lender, lambda client: client.call(APPLY_RESULT, ApplyResult(delegation_id=found)))

    assert no.code is LocalCode.CONFLICT
    assert live in no.message
    assert not (project / "new").exists()
    ask(lender, lambda client: client.call(CANCEL_DELEGATION, OneDelegation(delegation_id=live)))
    finish(lender, live)
    assert apply(lender, found).applied == ["new"]


def test_a_dropped_result_is_gone(daemons: tuple[Daemon, Daemon], project: Path) -> None:
    lender, _ = daemons
    found = staged(lender, project, "echo new > new")["delegation_id"]
    running = begin(lender, project, "sleep 60", "--staged")
    wait_state(lender, running, "running")
    for one in (running, found):
        if one == found:
            assert lender.json("discard", found)["discarded"] is True
            assert status_of(lender, found) == "discarded"
        questions: list[Callable[[ControlClient], Awaitable[object]]] = [
            lambda client, one=one: client.call(APPLY_RESULT, ApplyResult(delegation_id=one)),  # type: ignore[misc]
            lambda client, one=one: client.call(DISCARD_RESULT, OneDelegation(delegation_id=one)),  # type: ignore[misc]
            lambda client, one=one: client.call(UNDO_RESULT, OneDelegation(delegation_id=one)),  # type: ignore[misc]
        ]
        for question in questions:
            assert refused(lender, question).code is LocalCode.CONFLICT
    assert not (project / "new").exists()
    ask(lender, lambda client: client.call(CANCEL_DELEGATION, OneDelegation(delegation_id=running)))
    finish(lender, running)


def test_most_of_a_directory_goes_only_where_that_is_meant(lender: Daemon, project: Path) -> None:
    for number in range(60):
        (project / f"file{number}").write_text(f"{number}\n")
    before = tree(project)
    found = staged(lender, project, "rm -f file*")["delegation_id"]

    assert (
        ask(lender, lambda client: client.call(REVIEW_RESULT, OneWithPatch(delegation_id=found))).mass_deletion is True
    )
    no = lender.run("apply", found, check=(1,))

    assert "--allow-mass-deletion" in no.stderr
    assert tree(project) == before
    assert len(apply(lender, found, allow_mass_deletion=True).applied) == 60
    undo(lender, found)
    assert tree(project) == before


def test_what_was_done_until_a_failure_can_be_reviewed(lender: Daemon, project: Path) -> None:
    ended = staged(lender, project, "echo half > half; exit 3")

    assert (ended["state"], ended["error"]["code"]) == ("error", "TASK_FAILED")
    assert (ended["result"]["change_set"]["added"], ended["result"]["change_set"]["status"]) == (1, "pending")
    assert not (project / "half").exists()
    assert apply(lender, ended["delegation_id"]).applied == ["half"]


def test_reading_only_changes_nothing(lender: Daemon, project: Path) -> None:
    ended = staged(lender, project, "cat kept; echo x > new 2>/dev/null; true", "--ro")

    assert ended["state"] == "completed"
    assert ended["result"]["final_summary"] == "kept"
    assert ended["result"]["change_set"]["added"] == 0
    assert apply(lender, ended["delegation_id"]).applied == []


def test_a_result_becomes_a_branch_or_a_patch(lender: Daemon, project: Path, tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        who = ("-c", "user.name=x", "-c", "user.email=x@localhost")
        return subprocess.run(
            ["git", *who, *arguments], cwd=project, check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "-q", "-b", "main")
    git("add", "-A")
    git("commit", "-qm", "start")
    head = git("rev-parse", "HEAD")

    ended = staged(lender, project, WORK, "--result-branch", "bob/work")
    assert ended["result"]["change_set"]["branch"] == "bob/work"
    assert git("rev-parse", "bob/work^") == head
    assert git("show", "bob/work:new") == "new"
    assert (git("rev-parse", "HEAD"), git("status", "--porcelain")) == (head, "")

    file = tmp_path / "work.patch"
    lender.json("review", ended["delegation_id"], "--patch", str(file))
    git("apply", "--check", str(file))
    made = lender.json("apply", ended["delegation_id"], "--branch", "again")
    assert git("rev-parse", "again^{tree}") == git("rev-parse", "bob/work^{tree}")
    assert (made["branch"], made["commit"]) == ("again", git("rev-parse", "again"))
    assert made["change_set"]["status"] == "pending"
    taken = lender.json("apply", ended["delegation_id"], "--branch", "again", check=(1,))
    assert taken["error"]["code"] == "CONFLICT"
    assert lender.json("apply", ended["delegation_id"], "--branch", "-x", check=(2,))["error"]["code"] == (
        "INVALID_ARGUMENT"
    )


def test_a_killed_daemon_loses_no_result(daemons: tuple[Daemon, Daemon], project: Path) -> None:
    lender, _ = daemons
    before = tree(project)
    ended = staged(lender, project, "echo done > done")["delegation_id"]
    # It goes on while the lender is gone, as soon as its directory answers again.
    script = "echo half > half; echo written; sleep 2; until echo rest > rest; do sleep 0.5; done"
    running = begin(lender, project, script, "--staged")
    wait_for(lambda: any("written" in str(event.data.get("text")) for event in events(lender, running)), 30, "the work")
    lender.kill()

    restart(lender)

    assert tree(project) == before
    assert str(finish(lender, running).state) == "completed"
    review = ask(lender, lambda client: client.call(REVIEW_RESULT, OneWithPatch(delegation_id=running)))
    assert [(file.path, file.change) for file in review.files] == [("half", "added"), ("rest", "added")]
    assert tree(project) == before
    assert apply(lender, ended).applied == ["done"]
    lender.kill()
    restart(lender)
    assert status_of(lender, ended) == "applied"
    undo(lender, ended)
    assert "done" not in tree(project)
