"""A hostile executor that may write to the lender's repository (``--git rw``), on the files that git believes."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from attacks.kit.repository import index_of
from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.git.history import UNKNOWN, brought
from sublet.workspace.git.refs import MovedRef, moved, read_refs
from sublet.workspace.quota import Quota
from sublet.workspace.sandbox.git_sandbox import GitSandbox
from sublet.workspace.view.rules import DEFAULT_CARRIED, DEFAULT_HIDDEN, DEFAULT_LOCKED, Rules

RULES = Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, [], carried=DEFAULT_CARRIED, git="rw")
ONE, TWO = b"1" * 40, b"2" * 40


def git(cwd: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=e@localhost", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *identity, *arguments], cwd=cwd, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def one_commit(root: Path) -> Path:
    """Make a repository of the lender's with one file and one commit."""
    root.mkdir()
    git(root, "init", "-q")
    (root / "a").write_text("a\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    return root


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "lent"
    root.mkdir()
    git(root, "init", "-q")
    (root / "a").write_text("a")
    (root / ".envrc").write_text("the lender's own")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    return root


@pytest.fixture
def served(repository: Path) -> WritableFs:
    return WritableFs(ConfinedFs.open_root(repository), RULES, Quota(1 << 20, 100), lambda _: None)


def parts_of(name: str | bytes) -> tuple[bytes, ...]:
    return (b".git", *(os.fsencode(name).split(b"/")))


def give(served: WritableFs, name: str | bytes, content: bytes) -> None:
    """Put a file of the repository in place as git does: write a lock, and rename it."""
    lock = (*parts_of(name)[:-1], parts_of(name)[-1] + b".lock")
    file = served.open_write(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        file.write(content, 0)
        served.rename(lock, parts_of(name), replace=True)
        file.write(b"EVIL", 0)  # reaches nothing any more
    except OSError:
        served.remove(lock)
        raise
    finally:
        file.close()


def blob_of(repository: Path, content: str) -> str:
    done = subprocess.run(
        ["git", "hash-object", "-w", "--stdin"],
        cwd=repository,
        input=content,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    "path",
    [
        b".envrc",
        b"sub/.envrc",
        b".claude/settings.json",
        b".vscode/tasks.json",
        b".husky/pre-commit",
        b".env",
        b"nested/bare.git/hooks/post-checkout",
        b"nested/HEAD",
        b".CLAUDE/settings.json",
    ],
)
def test_a_name_that_is_hidden_or_locked_does_not_come_in_through_the_index(
    served: WritableFs, repository: Path, path: bytes
) -> None:
    before = (repository / ".git" / "index").read_bytes()
    evil = blob_of(repository, "touch owned")
    known = git(repository, "rev-parse", "HEAD:a")
    with pytest.raises(PermissionError):
        give(served, "index", index_of([(b"a", 0o100644, known), (path, 0o100755, evil)]))
    assert (repository / ".git" / "index").read_bytes() == before
    git(repository, "checkout", "--", ".")
    assert (repository / ".envrc").read_text() == "the lender's own"


def test_an_entry_of_the_lenders_own_stays_and_may_go_but_not_change_its_mode(
    served: WritableFs, repository: Path
) -> None:
    own, known = (git(repository, "rev-parse", f"HEAD:{name}") for name in (".envrc", "a"))
    with pytest.raises(PermissionError):
        give(served, "index", index_of([(b".envrc", 0o120000, own), (b"a", 0o100644, known)]))
    give(served, "index", index_of([(b".envrc", 0o100644, own), (b"a", 0o100644, known)]))
    give(served, "index", index_of([(b"a", 0o100644, known)]))
    assert git(repository, "ls-files") == "a"


@pytest.mark.parametrize(
    "name",
    [
        "refs/replace/" + "1" * 40,
        "refs/Replace/" + "1" * 40,
        "refs/heads/-x",
        "refs/tags/--upload-pack=x",
        "refs/heads/.x",
        "refs/heads/a..b",
        "refs/heads/a@{1}",
        "refs/heads/a:b",
        "refs/heads/a b",
        "refs/heads/\x1b[2J",
        "refs/heads/a\nb",
        "refs/heads/a\\b",
        "refs/heads/x.",
        "refs/heads/@",
    ],
)
def test_a_reference_that_git_would_not_make_or_that_replaces_objects_is_not_made(
    served: WritableFs, repository: Path, name: str
) -> None:
    before = git(repository, "for-each-ref")
    with pytest.raises(OSError, match=r"denied|No such"):
        give(served, name, ONE + b"\n")
    with pytest.raises(OSError, match=r"denied|No such|not a directory"):
        served.mkdir(parts_of(name), 0o755)
    assert git(repository, "for-each-ref") == before


@pytest.mark.parametrize("name", ["HEAD", "refs/heads/main", "refs/heads/new"])
@pytest.mark.parametrize(
    "content",
    [
        b"ref: ../../outside\n",
        b"ref: config\n",
        b"ref: HEAD\n",
        b"ref: refs/heads/../../../x\n",
        b"ref: refs/replace/" + ONE,
        b"ref: refs/heads/a\x1bb\n",
        b"ref: refs/heads/a\nref: refs/heads/b\n",
        ONE[:-1] + b"\n",
        ONE + b" x\n",
        b"",
        b"\0" * 40,
        b"f" * 5000,
    ],
)
def test_a_reference_points_to_an_object_or_below_refs(
    served: WritableFs, repository: Path, name: str, content: bytes
) -> None:
    head = git(repository, "rev-parse", "HEAD")
    with pytest.raises(OSError, match=r"denied|too large"):
        give(served, name, content)
    assert git(repository, "rev-parse", "HEAD") == head
    assert git(repository, "symbolic-ref", "HEAD") == "refs/heads/main"


@pytest.mark.parametrize(
    "line",
    [
        ONE + b" refs/replace/" + TWO,
        ONE + b" refs/heads/a..b",
        ONE + b" HEAD",
        ONE + b" ../x",
        ONE + b" refs/heads/\x1b[2J",
        b"x refs/heads/b",
        b"^x",
        b"-" + ONE,
    ],
)
def test_packed_references_hold_what_git_would_pack(served: WritableFs, repository: Path, line: bytes) -> None:
    with pytest.raises(PermissionError):
        give(served, "packed-refs", b"# pack-refs with: peeled fully-peeled sorted \n" + line + b"\n")
    assert not (repository / ".git" / "packed-refs").exists()


@pytest.mark.parametrize("packed", [False, True])
def test_a_replacement_of_the_lenders_own_is_packed_and_no_other_is(
    served: WritableFs, repository: Path, packed: bool
) -> None:
    first = git(repository, "rev-parse", "HEAD")
    git(repository, "commit", "-q", "--allow-empty", "-m", "second")
    second = git(repository, "rev-parse", "HEAD")
    git(repository, "replace", second, first)
    if packed:
        git(repository, "pack-refs", "--all")
    own = f"{first} refs/replace/{second}\n".encode()
    main = f"{second} refs/heads/main\n".encode()
    give(served, "packed-refs", main + own)
    with pytest.raises(PermissionError):
        give(served, "packed-refs", main + own + f"{second} refs/replace/{first}\n".encode())
    assert (repository / ".git" / "packed-refs").read_bytes() == main + own


@pytest.mark.parametrize(
    "name",
    [
        "info/grafts",
        "shallow",
        "modules/x/config",
        "worktrees/x/gitdir",
        "worktrees/x/index",
        "worktrees/x/index.lock",
        "worktrees/x/config.worktree",
        "info/sparse-checkout",
        "info/attributes",
        "fsmonitor--daemon.ipc",
        "sharedindex." + "1" * 40,
        "commondir",
        "gitdir",
        "config.worktree",
        "objects/info/alternates",
        "objects/info/http-alternates",
        "objects/info/commit-graph",
        "objects/info/commit-graphs/commit-graph-chain",
        "objects/pack/multi-pack-index",
        "objects/pack/pack-" + "1" * 40 + ".bitmap",
        "objects/pack/pack-" + "1" * 40 + ".idx",
        "objects/Info/alternates",
        "refs",
        "reftable/tables.list",
        "rebase-merge/git-rebase-todo",
        "sequencer/todo",
        "hooks/post-checkout",
        "FETCH_HEAD",
    ],
)
def test_no_other_file_that_git_obeys_is_made(served: WritableFs, repository: Path, name: str) -> None:
    made = repository / ".git" / name
    there = made.exists()
    for above in list(made.relative_to(repository / ".git").parents)[-2::-1]:
        try:
            served.mkdir(parts_of(str(above)), 0o755)
        except OSError:
            continue
    with pytest.raises(OSError, match=r"denied|No such|not a directory|Is a directory"):
        served.open_write(parts_of(name), os.O_WRONLY | os.O_CREAT, 0o644)
    with pytest.raises(OSError, match=r"denied|No such|not a directory|Is a directory"):
        give(served, name, b"x")
    served.open_write(parts_of("objects/tmp_x"), os.O_WRONLY | os.O_CREAT, 0o644).close()
    with pytest.raises(OSError, match=r"denied|No such|exists|not a directory|Is a directory"):
        served.rename(parts_of("objects/tmp_x"), parts_of(name), replace=True)
    assert made.exists() is there


def test_ordinary_work_goes_on(served: WritableFs, repository: Path) -> None:
    head = git(repository, "rev-parse", "HEAD").encode()
    served.mkdir(parts_of("refs/heads/feature"), 0o755)
    give(served, "refs/heads/feature/one", head + b"\n")
    give(served, "HEAD", b"ref: refs/heads/feature/one\n")
    served.mkdir(parts_of("refs/notes"), 0o755)
    give(served, "refs/notes/commits", head + b"\n")
    give(served, "packed-refs", b"# pack-refs with: peeled \n" + head + b" refs/tags/v1\n^" + head + b"\n")
    served.remove(parts_of("refs/heads/feature/one"))
    served.rmdir(parts_of("refs/heads/feature"))
    assert git(repository, "for-each-ref", "--format=%(refname)").split() == [
        "refs/heads/main",
        "refs/notes/commits",
        "refs/tags/v1",
    ]


def commit_of(repository: Path, files: dict[str, str], parent: str) -> str:
    """Make a commit of files by plumbing alone, as an executor can: no file is written."""
    lines = "".join(f"100755 blob {blob_of(repository, content)}\t{name}\n" for name, content in files.items())
    argv = ["git", "mktree"]
    tree = subprocess.run(argv, cwd=repository, input=lines, capture_output=True, text=True, check=True).stdout.strip()
    return git(repository, "commit-tree", "-m", "evil", "-p", parent, tree)


@pytest.mark.parametrize("ref", ["refs/heads/main", "refs/heads/new", "refs/tags/v1"])
def test_names_that_a_checkout_would_bring_are_told_beside_the_reference(repository: Path, ref: str) -> None:
    before = read_refs(repository)
    first = git(repository, "rev-parse", "HEAD")
    evil = commit_of(repository, {".envrc": "touch owned", ".env": "x", "a": "a", "fine": "f"}, first)
    git(repository, "update-ref", ref, evil)
    refs = moved(before, read_refs(repository))
    assert brought(repository, refs, RULES, GitSandbox()) == [b".env", b".envrc"]
    same = commit_of(repository, {".envrc": "touch owned", ".env": "x"}, evil)
    git(repository, "symbolic-ref", "HEAD", "refs/heads/side")
    git(repository, "update-ref", "refs/heads/side", same)
    refs = moved(before, read_refs(repository))
    assert brought(repository, refs, RULES, GitSandbox()) == [b".env", b".envrc"]


def test_a_new_branch_of_what_is_checked_out_brings_nothing(repository: Path) -> None:
    before = read_refs(repository)
    git(repository, "switch", "-qc", "topic")
    git(repository, "commit", "-q", "--allow-empty", "-m", "second")
    git(repository, "tag", "v1")
    assert brought(repository, moved(before, read_refs(repository)), RULES, GitSandbox()) == []


def test_what_can_not_be_looked_into_is_told_as_unknown(repository: Path, tmp_path: Path) -> None:
    first = git(repository, "rev-parse", "HEAD").encode()
    refs = [MovedRef(b"refs/heads/main", first, b"3" * 40)]
    assert brought(repository, refs, RULES, GitSandbox()) == [UNKNOWN]
    assert brought(repository, refs, RULES, GitSandbox(program=str(tmp_path / "none"))) == [UNKNOWN]
    assert brought(repository, [MovedRef(b"refs/heads/x", first, b"")], RULES, GitSandbox()) == []
    git(repository, "commit", "-q", "--allow-empty", "-m", "second")
    good = git(repository, "rev-parse", "HEAD").encode()
    assert brought(repository, [MovedRef(b"refs/heads/main", first, good)], RULES, GitSandbox()) == []


def evil_split_index(repository: Path, place: Path, blob: str) -> bytes:
    """Return an index that takes the lender's shared part, and puts another ``.envrc`` in place of the one in it."""
    shutil.copytree(repository, place)
    git(place, "config", "splitIndex.maxPercentChange", "100")
    git(place, "update-index", "--cacheinfo", f"100755,{blob},.envrc")
    content = (place / ".git" / "index").read_bytes()
    assert b"link" in content
    assert b".envrc" not in content
    return content


def test_a_split_index_brings_no_locked_name_in_place_of_one_of_the_shared_part(
    served: WritableFs, repository: Path, tmp_path: Path
) -> None:
    git(repository, "update-index", "--split-index")
    before = (repository / ".git" / "index").read_bytes()
    evil = blob_of(repository, "touch owned")
    with pytest.raises(PermissionError):
        give(served, "index", evil_split_index(repository, tmp_path / "copy", evil))
    assert (repository / ".git" / "index").read_bytes() == before
    git(repository, "checkout", "--", ".")
    assert (repository / ".envrc").read_text() == "the lender's own"


def test_an_old_shared_part_brings_back_nothing(served: WritableFs, repository: Path) -> None:
    git(repository, "update-index", "--split-index")
    old = (repository / ".git" / "index").read_bytes()
    (repository / ".envrc").write_text("mended")
    git(repository, "add", ".envrc")
    with pytest.raises(PermissionError):
        give(served, "index", old)
    known, old_blob = git(repository, "rev-parse", "HEAD:a"), git(repository, "rev-parse", "HEAD:.envrc")
    with pytest.raises(PermissionError):
        give(served, "index", index_of([(b".envrc", 0o100644, old_blob), (b"a", 0o100644, known)]))
    assert git(repository, "show", ":.envrc") == "mended"


def test_where_the_lenders_index_is_split_a_whole_one_takes_its_place(served: WritableFs, repository: Path) -> None:
    git(repository, "update-index", "--split-index")
    listed = git(repository, "ls-files", "-s")
    own, known = (git(repository, "rev-parse", f"HEAD:{name}") for name in (".envrc", "a"))
    give(served, "index", index_of([(b".envrc", 0o100644, own), (b"a", 0o100644, known)]))
    assert git(repository, "ls-files", "-s") == listed


@pytest.mark.parametrize("path", [b".e", b"sub/", b".claud"])
def test_a_directory_in_the_index_stands_for_nothing(served: WritableFs, repository: Path, path: bytes) -> None:
    """Git would take such an entry apart, and put the names in its tree behind its own: ``.e`` and ``nvrc``."""
    tree = subprocess.run(
        ["git", "mktree"],
        cwd=repository,
        input=f"100755 blob {blob_of(repository, 'touch owned')}\tnvrc\n",
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    with pytest.raises(PermissionError):
        give(served, "index", index_of([(path, 0o040000, tree)]))


@pytest.mark.parametrize("kind", [b"link", b"sdir", b"xxxx"])
def test_an_extension_that_git_needs_is_not_taken(served: WritableFs, repository: Path, kind: bytes) -> None:
    known = git(repository, "rev-parse", "HEAD:a")
    content = index_of([(b"a", 0o100644, known)])[:-20] + kind + bytes(4)
    with pytest.raises(PermissionError):
        give(served, "index", content + hashlib.sha1(content, usedforsecurity=False).digest())


@pytest.mark.parametrize("kind", [b"FSMN", b"UNTR", b"TREE", b"EOIE", b"REUC", b"ZZZZ"])
def test_an_extension_that_says_what_is_unchanged_is_dropped(served: WritableFs, repository: Path, kind: bytes) -> None:
    known = git(repository, "rev-parse", "HEAD:a")
    content = index_of([(b"a", 0o100644, known)])
    more = content[:-20] + kind + b"\0\0\0\4evil"
    give(served, "index", more + hashlib.sha1(more, usedforsecurity=False).digest())
    assert (repository / ".git" / "index").read_bytes() == content


@pytest.mark.parametrize("name", ["index", "packed-refs"])
def test_a_link_of_the_lenders_is_not_replaced(served: WritableFs, repository: Path, tmp_path: Path, name: str) -> None:
    git(repository, "pack-refs", "--all")
    real = tmp_path / "real"
    content = (repository / ".git" / name).read_bytes()
    (repository / ".git" / name).rename(real)
    (repository / ".git" / name).symlink_to(real)
    with pytest.raises(PermissionError):
        give(served, name, content)
    assert (repository / ".git" / name).is_symlink()
    assert real.read_bytes() == content
    (repository / ".git" / name).unlink()
    with pytest.raises(OSError, match=r"denied|No such"):
        served.symlink(b"ORIG_HEAD", parts_of(name))


DRAFTS = [
    "index.lock",
    "HEAD.lock",
    "packed-refs.lock",
    "packed-refs.new",
    "refs/heads/main.lock",
    "next-index-12.lock",
    "next-index-12",
    "index.stash.12",
    "objects/tmp_obj_abc",
    "objects/11/tmp_obj_abc",
    "objects/pack/tmp_pack_abc",
    "objects/tmp_objdir-incoming-x/11/" + "1" * 38,
]


@pytest.mark.parametrize("name", DRAFTS)
def test_what_the_lenders_git_is_writing_is_changed_by_nobody_else(repository: Path, tmp_path: Path, name: str) -> None:
    """It gets its name without being looked at again: a commit waits so for its message, with a lock of the index."""
    told: list[str] = []
    served = WritableFs(
        ConfinedFs.open_root(repository),
        RULES,
        Quota(1 << 20, 100),
        lambda _: None,
        on_refused=lambda _, reason: told.append(reason),
    )
    file = repository / ".git" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"of the lender's git")
    mine = served.open_write(parts_of("COMMIT_EDITMSG"), os.O_WRONLY | os.O_CREAT, 0o644)
    mine.close()
    parts = parts_of(name)
    for attempt in (
        lambda: served.open_write(parts, os.O_WRONLY, 0o644),
        lambda: served.open_write(parts, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644),
        lambda: served.set_attributes(parts, size=0),
        lambda: served.set_attributes(parts, mode=0o777),
        lambda: served.set_modified(parts, 0),
        lambda: served.remove(parts),
        lambda: served.rename(parts, parts_of("ORIG_HEAD"), replace=True),
        lambda: served.rename(parts_of("COMMIT_EDITMSG"), parts, replace=True),
        lambda: served.link(parts, parts_of("ORIG_HEAD")),
    ):
        with pytest.raises(OSError, match=r"denied|No such"):
            attempt()
    assert file.read_bytes() == b"of the lender's git"
    if "objdir" in name:
        beside = (*parts[:-1], b"2" * 38)
        with pytest.raises(PermissionError):
            served.open_write(beside, os.O_WRONLY | os.O_CREAT, 0o644)
    assert any("your own git is writing it" in line for line in told) or "pack/" in name


@pytest.mark.parametrize("name", ["index.lock", "objects/tmp_obj_abc", "objects/tmp_objdir-incoming-x/y"])
def test_what_the_executors_git_is_writing_is_its_own_until_another_takes_its_place(
    served: WritableFs, repository: Path, name: str
) -> None:
    if "objdir" in name:
        served.mkdir(parts_of("objects/tmp_objdir-incoming-x"), 0o700)
    parts = parts_of(name)
    served.open_write(parts, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644).close()
    file = served.open_write(parts, os.O_WRONLY, 0o644)
    file.write(b"mine", 0)
    file.close()
    served.set_attributes(parts, mode=0o600, times=(1, 1))
    served.remove(parts)
    served.open_write(parts, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644).close()
    lock = repository / ".git" / name
    lock.unlink()
    lock.write_bytes(b"of the lender's git")
    with pytest.raises(PermissionError):
        served.open_write(parts, os.O_WRONLY, 0o644)


def test_drafts_have_a_bound(served: WritableFs) -> None:
    own = served._own
    for number in range(60):
        served.open_write(parts_of(f"objects/tmp_{number}"), os.O_WRONLY | os.O_CREAT, 0o644).close()
    assert not own.has_room([b"x" * 255] * 5_000)
    for number in range(60):
        served.remove(parts_of(f"objects/tmp_{number}"))
    for _ in range(3):
        give(served, "HEAD", b"ref: refs/heads/main\n")
    assert list(own.paths()) == []
