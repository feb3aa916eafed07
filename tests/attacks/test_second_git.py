"""A hostile executor on what the lender's git obeys beside configuration and hooks."""

from __future__ import annotations

from pathlib import Path

import pytest

from attacks.test_repository_rw import git, give, parts_of, repository, served
from sublet.workspace.confined.write import WritableFs

__all__ = ["repository", "served"]

NOTED = ["ORIG_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD"]


@pytest.mark.parametrize("name", NOTED)
@pytest.mark.parametrize("target", ["shallow", "info/grafts", "commondir", "refs/heads/other", "refs/replace/" + "1" * 40])
def test_what_git_notes_while_it_works_points_to_nothing(
    served: WritableFs, repository: Path, name: str, target: str
) -> None:
    git(repository, "branch", "other")
    with pytest.raises(PermissionError):
        give(served, name, f"ref: {target}\n".encode())
    (repository / "b").write_text("b")
    git(repository, "add", "b")
    git(repository, "commit", "-qm", "second")
    before = git(repository, "rev-parse", "other")
    git(repository, "reset", "-q", "--hard", "HEAD")
    assert git(repository, "rev-parse", "other") == before
    assert git(repository, "log", "--format=%s").split() == ["second", "first"]
    assert target == "refs/heads/other" or not (repository / ".git" / target).exists()


@pytest.mark.parametrize("name", NOTED)
def test_what_git_notes_while_it_works_is_not_written_in_place(served: WritableFs, repository: Path, name: str) -> None:
    head = git(repository, "rev-parse", "HEAD")
    give(served, name, f"{head}\n".encode())
    assert (repository / ".git" / name).read_text() == f"{head}\n"
    with pytest.raises(PermissionError):
        served.open_write(parts_of(name), 1, 0o644)
    served.remove(parts_of(name))
