"""Directories and permissions between two daemons: by mount, by copy, by git, live and staged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from attacks.kit.audited_lease import names_of
from sublet.daemon.api.delegation_fields import OneDelegation, OneWithPatch
from sublet.daemon.api.results import APPLY_RESULT, REVIEW_RESULT, UNDO_RESULT, ApplyResult
from support.daemons import Daemon, two_daemons
from support.leases import ask, delegate, view

WORK = "mkdir empty; rmdir gone; mv old new; chmod 700 kept; chmod 600 f"


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Daemon]]:
    with two_daemons(tmp_path_factory.mktemp("audited")) as pair:
        yield pair


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name in ("gone", "old/inner", "kept"):
        (root / name).mkdir(parents=True)
    (root / "f").write_text("f")
    (root / "private").write_text("old\n")
    (root / "private").chmod(0o600)
    return root


@pytest.mark.parametrize("transport", ["sshfs", "archive"])
def test_what_was_done_to_directories_and_modes_is_reported(
    daemons: tuple[Daemon, Daemon], project: Path, transport: str
) -> None:
    ended = delegate(daemons[0], project, WORK, "--transport", transport)
    assert ended["error"] is None
    audit = ended["audit"]
    assert {one["path"]: one["change"] for one in audit["directories"]} == {
        "empty/": "added",
        "gone/": "deleted",
        "kept/": "mode",
        "new/": "added",
        "new/inner/": "added",
        "old/": "deleted",
        "old/inner/": "deleted",
    }
    assert audit["directory_counts"] == {"added": 3, "deleted": 3, "mode": 1}
    assert audit["mode_changed"] == ["f"]
    assert audit["by_others"] == []
    assert audit["unaudited"] == []
    assert (project / "kept").stat().st_mode & 0o777 == 0o700
    assert (project / "f").stat().st_mode & 0o777 == 0o600


def test_a_staged_result_is_reviewed_applied_and_taken_back(daemons: tuple[Daemon, Daemon], project: Path) -> None:
    before = names_of(project)
    ended = delegate(daemons[0], project, WORK, "--staged")
    found = ended["delegation_id"]
    changes = ended["result"]["change_set"]
    assert [changes[f"directories_{kind}"] for kind in ("added", "deleted", "mode_changed")] == [3, 3, 1]
    review = ask(daemons[0], lambda client: client.call(REVIEW_RESULT, OneWithPatch(delegation_id=found, patch=True)))
    assert {one.path: one.outcome for one in review.directories} == dict.fromkeys(
        ("empty/", "gone/", "kept/", "new/", "new/inner/", "old/", "old/inner/"), "clean"
    )
    assert "diff --directory empty/" in (review.patch or "")
    assert names_of(project) == before
    applied = ask(daemons[0], lambda client: client.call(APPLY_RESULT, ApplyResult(delegation_id=found)))
    assert set(applied.applied) >= {"empty/", "gone/", "kept/", "f"}
    assert names_of(project)[b"kept"][1] == 0o700
    undone = ask(daemons[0], lambda client: client.call(UNDO_RESULT, OneDelegation(delegation_id=found)))
    assert sorted(undone.undone) == sorted(applied.applied)
    assert names_of(project) == before


def test_by_git_a_file_keeps_the_permissions_that_git_does_not_know(
    daemons: tuple[Daemon, Daemon], project: Path
) -> None:
    ended = delegate(daemons[0], project, "echo new > private; mkdir -p made; echo x > made/x", "--transport", "git")
    assert ended["error"] is None
    assert ended["left_behind"] == []
    assert (project / "private").read_text() == "new\n"
    assert (project / "private").stat().st_mode & 0o777 == 0o600
    assert [one["path"] for one in ended["audit"]["directories"]] == ["made/"]
    # What git can't carry stays as it is: directories without files are no deletion.
    assert (project / "gone").is_dir()


def test_an_agent_cannot_shut_a_mounted_directory_and_is_told(daemons: tuple[Daemon, Daemon], project: Path) -> None:
    ended = delegate(daemons[0], project, "chmod 311 kept || echo shut-refused; echo x > kept/tool")
    found = view(daemons[0], ended["delegation_id"])
    assert found.audit is not None
    assert found.audit.added == ["kept/tool"]
    assert found.audit.unaudited == []
    assert found.result is not None
    assert "shut-refused" in found.result.final_summary
