"""What is chosen to go along, what is unlocked, and what is shown of a repository: by names alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.policy.limits import AdmissionLimits
from sublet.protocol.bounds import GitMode
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.workspace.export import LentDirectory
from sublet.workspace.view.admission import scan, scan_all
from sublet.workspace.view.rules import DEFAULT_HIDDEN, DEFAULT_LOCKED, Rules
from support.views import default_rules

NAMES = st.sampled_from([b"a", b"src", b"x.py", b"docs", b"gen", b".env", b".git", b".GIT", b"config", b"hooks"])
PATHS = st.lists(NAMES, min_size=1, max_size=4)


def parts(path: str) -> list[bytes]:
    return path.encode().split(b"/")


def choosing(include: list[str], exclude: list[str], git: GitMode = "hidden", unlocked: tuple[str, ...] = ()) -> Rules:
    return Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, [], unlocked=unlocked, include=include, exclude=exclude, git=git)


@pytest.mark.parametrize(
    ("include", "path", "seen"),
    [
        (["*.py"], "src/a.py", "any"),
        (["*.py"], "src/a.txt", "directory"),
        (["*.py"], "a.py/inside.txt", "any"),
        (["*.PY"], "a.py", "directory"),
        (["/src"], "src/deep/a", "any"),
        (["src/**"], "src/deep/a", "any"),
        (["/src"], "lib", "none"),
        (["docs/api"], "docs", "directory"),
        (["docs/api"], "docs/api/x", "any"),
        (["docs/api"], "docs/other", "none"),
        (["docs/api"], "x/docs/api", "none"),
        (["**/api/x"], "a/b/api/x", "any"),
        (["**/api/x"], "a/b", "directory"),
        (["*"], ".env", "none"),
        ([".env"], ".env", "none"),
    ],
)
def test_including(include: list[str], path: str, seen: str) -> None:
    rules = choosing(include, [])
    assert rules.hidden(parts(path)) is (seen == "none")
    if seen != "none":
        assert rules.directory_only(parts(path)) is (seen == "directory")


@pytest.mark.parametrize(
    ("exclude", "path", "hidden"),
    [
        (["node_modules"], "a/node_modules/x", True),
        (["node_modules"], "a/Node_Modules/x", True),
        (["/build"], "build/x", True),
        (["/build"], "a/build", False),
        (["*.log", "!keep.log"], "a/keep.log", False),
        (["*.log", "!keep.log"], "a/other.log", True),
        (["x", "!.env"], ".env", True),
    ],
)
def test_excluding(exclude: list[str], path: str, hidden: bool) -> None:
    assert choosing([], exclude).hidden(parts(path)) is hidden


def test_what_the_lender_left_out_is_told_from_what_is_secret() -> None:
    rules = choosing(["*.py"], ["gen"])
    assert rules.left_out(parts("gen/a.py"))
    assert not rules.left_out(parts("a.py"))
    assert default_rules().hidden(parts(".env"))
    assert not default_rules().left_out(parts(".env"))


def test_unlocking_is_exact_and_never_opens_a_repository() -> None:
    rules = choosing([], [], unlocked=(".vscode", "conf/.envrc", ".git", "HEAD"))
    assert not rules.locked(parts(".vscode/tasks.json"))
    assert rules.locked(parts(".VSCODE/tasks.json"))
    assert not rules.locked(parts("conf/.envrc"))
    assert rules.locked(parts(".envrc"))
    assert rules.locked(parts(".git/x"))
    assert rules.locked(parts("a/.GIT/hooks/x"))
    assert rules.locked(parts(".vscode/.envrc"))


@pytest.mark.parametrize(
    ("path", "there", "writable", "kept"),
    [
        (".git", True, False, False),
        (".git/HEAD", True, True, False),
        (".git/HEAD.lock", True, True, False),
        (".git/index", True, True, False),
        (".git/refs/heads/main", True, True, False),
        (".git/refs/heads/secret.pem", True, True, False),
        (".git/refs/heads", True, False, False),
        (".git/logs/HEAD", True, True, False),
        (".git/objects/ab/cdef", True, False, True),
        (f".git/objects/ab/{38 * '0'}", True, True, True),
        (f".git/objects/ab/{62 * '0'}", True, True, True),
        (f".git/objects/AB/{38 * '0'}", True, False, True),
        (".git/objects/ab", True, True, True),
        (".git/objects/ab/tmp_obj_1", True, True, False),
        (".git/objects/tmp_objdir-x/ab/cdef", True, True, False),
        (".git/objects/pack/p.pack", True, False, True),
        (".git/objects/pack/multi-pack-index", True, False, True),
        (".git/sharedindex.0", True, False, False),
        (".git/objects/info/packs", True, False, True),
        (".git/objects/info/alternates", False, False, False),
        (".git/objects/INFO/Alternates", False, False, False),
        (".git/objects/info/http-alternates", False, False, False),
        (".git/hooks/pre-commit", True, False, False),
        (".git/info/attributes", True, False, False),
        (".git/config", False, False, False),
        (".git/config.lock", False, False, False),
        (".git/CONFIG", False, False, False),
        (".git/config.worktree", False, False, False),
        (".git/commondir", False, False, False),
        (".git/gitdir", False, False, False),
        (".git/modules/x/config", False, False, False),
        (".git/worktrees/x/gitdir", False, False, False),
        (".git/FETCH_HEAD", False, False, False),
        (".git/rebase-merge/git-rebase-todo", False, False, False),
        (".git/sequencer/todo", False, False, False),
        (".git/remotes/origin", False, False, False),
        (".git/HEAD/x", False, False, False),
        (".GIT/HEAD", False, False, False),
        ("sub/.git/HEAD", False, False, False),
    ],
)
def test_a_repository_is_shown_by_a_list(path: str, there: bool, writable: bool, kept: bool) -> None:
    rules, reading = choosing(["*.py"], ["objects"], "rw"), choosing([], [], "ro")
    assert rules.hidden(parts(path)) is reading.hidden(parts(path)) is not there
    if there:
        assert rules.locked(parts(path)) is not writable
        assert reading.locked(parts(path))
        assert rules.kept(parts(path)) is kept
    assert default_rules().hidden(parts(path))


@given(PATHS, st.sampled_from(["ro", "rw"]))
def test_what_is_compared_file_by_file_never_has_the_repository(path: list[bytes], git: GitMode) -> None:
    rules = choosing([], [], git).without_repository()
    assert rules.hidden(path) is default_rules().hidden(path)
    assert not rules.bars_links(path)


@given(PATHS, st.lists(st.sampled_from(["*.py", "/src", "docs/a", "**/gen/x.py"]), min_size=1))
def test_the_way_to_what_is_seen_is_seen(path: list[bytes], include: list[str]) -> None:
    rules = choosing(include, [])
    if not rules.hidden(path) and not rules.directory_only(path):
        assert not any(rules.hidden(path[:end]) for end in range(1, len(path)))
    if rules.hidden(path):
        assert rules.hidden([*path, b"below.py"])


def test_the_scan_counts_what_goes_along_and_what_is_left_out(tmp_path: Path) -> None:
    for name in ("a.py", "b.txt", "gen/c.py", "sub/d.txt", "sub/e.py", ".env"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("12345")
    found = scan(tmp_path, choosing(["*.py"], ["gen"]), AdmissionLimits(on_sensitive="refuse"))
    assert (found.files, found.total_bytes, found.left_out, found.hidden) == (2, 10, 4, ())
    with pytest.raises(SubletError) as caught:
        scan(tmp_path, choosing([], ["gen"]), AdmissionLimits(on_sensitive="refuse"))
    assert caught.value.code is ErrorCode.SENSITIVE_FILES


def test_what_git_does_not_need_is_no_secret_of_the_lenders(tmp_path: Path) -> None:
    for name in (".git/config", ".git/modules/x", ".git/HEAD", "sub/.git"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = scan(tmp_path, choosing([], [], "ro"), AdmissionLimits(on_sensitive="refuse"))
    assert (found.hidden, found.files) == (("sub/.git",), 1)


def test_limits_hold_for_all_directories_together(tmp_path: Path) -> None:
    lent = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_bytes(b"x" * 60)
        (tmp_path / name / ".env").touch()
        lent.append(LentDirectory(name, tmp_path / name, "ro", default_rules()))
    found = scan_all(lent, AdmissionLimits(max_total_bytes=120))
    assert (found.total_bytes, found.files, found.hidden) == (120, 2, ("one/.env", "two/.env"))
    with pytest.raises(SubletError, match="together") as caught:
        scan_all(lent, AdmissionLimits(max_total_bytes=119))
    assert caught.value.code is ErrorCode.WORKSPACE_TOO_LARGE
    assert "two/" in caught.value.hint


def test_too_many_patterns_are_refused() -> None:
    with pytest.raises(SubletError) as caught:
        choosing(["x"] * 600, ["y"] * 600)
    assert caught.value.code is LocalCode.INVALID_ARGUMENT
