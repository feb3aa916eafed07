"""A result as a branch or a patch of the lender's repository, whose own settings run nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.workspace.audit.snapshot import MAX_STORED_BYTES
from sublet.workspace.changes.branch import export_branch
from sublet.workspace.changes.export import export_patch
from support.noise import noise
from support.staged import KEY, Snapshot, StagedBench, Tree, make_tree, read_tree, tree_state, write


@pytest.fixture
def bench(tmp_path: Path) -> StagedBench:
    return StagedBench(tmp_path)


def git(cwd: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=e@localhost", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *identity, *arguments], cwd=cwd, check=True, capture_output=True)
    return done.stdout.decode("utf-8", "surrogateescape").strip()


def commit_all(root: Path) -> None:
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")


def files_of(root: Path, revision: str) -> dict[str, str]:
    """Mode and content of each file of a commit."""
    found = {}
    for line in git(root, "ls-tree", "-r", "-z", revision).split("\0")[:-1]:
        meta, path = line.split("\t", 1)
        mode, _, object_id = meta.split()
        found[path] = f"{mode} {git(root, 'cat-file', 'blob', object_id)}"
    return found


def work_tree(root: Path) -> Snapshot:
    return {path: found for path, found in tree_state(root).items() if path.partition("/")[0] != ".git"}


BASE: Tree = {"changed": "one", "gone": "g", "file": "becomes a directory", "dir/a": "a", "dir/b": "b", "same": "s"}
RESULT: Tree = {"changed": "two", "file/in": "i", "dir": ("exec", "now a file"), "same": "s", "link": ("link", "same")}


def test_a_branch_has_the_result_and_nothing_else_moves(bench: StagedBench) -> None:
    make_tree(bench.root, BASE)
    commit_all(bench.root)
    with bench.work() as view:
        make_tree(view, RESULT)
    write(bench.root, "staged", "by the person")
    git(bench.root, "add", "staged")
    write(bench.root, "same", "not committed")
    before = (git(bench.root, "status", "--porcelain"), git(bench.root, "rev-parse", "HEAD"), work_tree(bench.root))
    commit = export_branch(bench.changes, KEY, bench.rules, "sublet/result", "What bob did\n").commit
    after = (git(bench.root, "status", "--porcelain"), git(bench.root, "rev-parse", "HEAD"), work_tree(bench.root))
    assert after == before
    assert git(bench.root, "rev-parse", "sublet/result") == commit
    assert git(bench.root, "rev-parse", "sublet/result^") == before[1]
    assert git(bench.root, "log", "-1", "--format=%s", "sublet/result") == "What bob did"
    assert files_of(bench.root, "sublet/result") == {
        "changed": "100644 two",
        "file/in": "100644 i",
        "dir": "100755 now a file",
        "same": "100644 s",
        "link": "120000 same",
    }
    assert bench.changes.get(KEY).status == "pending"
    git(bench.root, "fsck", "--strict")


def test_a_branch_of_a_directory_below_the_top_of_its_repository(bench: StagedBench) -> None:
    top = bench.root.parent / "lent"
    bench.write("top", "t")
    bench.write("sub/a", "a")
    commit_all(top)
    inner = StagedBench(bench.state)
    inner.root = top / "sub"
    with inner.work() as view:
        write(view, "a", "A")
        write(view, "b", "b")
    export_branch(inner.changes, KEY, inner.rules, "result", "m")
    assert files_of(top, "result") == {"top": "100644 t", "sub/a": "100644 A", "sub/b": "100644 b"}


def test_a_branch_of_a_repository_without_commits(bench: StagedBench) -> None:
    git(bench.root, "init", "-q")
    with bench.work() as view:
        write(view, "a", "a")
    commit = export_branch(bench.changes, KEY, bench.rules, "result", "m").commit
    assert files_of(bench.root, commit) == {"a": "100644 a"}


def test_no_branch_is_overwritten_and_no_name_becomes_an_option(bench: StagedBench) -> None:
    bench.write("a", "a")
    commit_all(bench.root)
    with bench.work() as view:
        write(view, "a", "b")
    head = git(bench.root, "rev-parse", "HEAD")
    current = git(bench.root, "branch", "--show-current")
    for branch, code in {
        current: LocalCode.CONFLICT,
        "-D": LocalCode.INVALID_ARGUMENT,
        "--help": LocalCode.INVALID_ARGUMENT,
        "a..b": LocalCode.INVALID_ARGUMENT,
        "../x": LocalCode.INVALID_ARGUMENT,
        "x.lock": LocalCode.INVALID_ARGUMENT,
        "a b": LocalCode.INVALID_ARGUMENT,
        "": LocalCode.INVALID_ARGUMENT,
        "n" * 201: LocalCode.INVALID_ARGUMENT,
    }.items():
        with pytest.raises(SubletError) as caught:
            export_branch(bench.changes, KEY, bench.rules, branch, "m")
        assert caught.value.code is code, branch
    assert git(bench.root, "rev-parse", "HEAD") == head
    assert git(bench.root, "for-each-ref", "--format=%(refname)") == f"refs/heads/{current}"


def test_nothing_of_the_repository_runs(bench: StagedBench, tmp_path: Path) -> None:
    bench.write("a", "a")
    bench.write(".gitattributes", "* filter=evil\n")
    commit_all(bench.root)
    trap = tmp_path / "ran"
    script = bench.root / ".git/evil"
    script.write_text(f"#!/bin/sh\ntouch {trap}\ncat\n")
    script.chmod(0o755)
    for hook in ("reference-transaction", "post-index-change", "pre-commit", "post-commit"):
        (bench.root / ".git/hooks").mkdir(exist_ok=True)
        (bench.root / ".git/hooks" / hook).symlink_to(script)
    for name in ("core.fsmonitor", "filter.evil.clean", "filter.evil.process", "gpg.program", "core.editor"):
        git(bench.root, "config", name, str(script))
    git(bench.root, "config", "commit.gpgSign", "true")
    trap.unlink(missing_ok=True)
    with bench.work() as view:
        write(view, "a", "b")
    export_branch(bench.changes, KEY, bench.rules, "result", "m")
    assert not trap.exists()
    assert files_of(bench.root, "result")["a"] == "100644 b"


def test_what_is_never_applied_is_on_no_branch_either(bench: StagedBench) -> None:
    bench.write("a", "a")
    commit_all(bench.root)
    with bench.work() as view:
        write(view, ".vscode/tasks.json", "evil")
        (view / "out").symlink_to("/etc")
        write(view, "a", "b")
    export_branch(bench.changes, KEY, bench.rules, "result", "m")
    assert files_of(bench.root, "result") == {"a": "100644 b"}


def test_a_directory_in_no_repository_has_no_branches(bench: StagedBench) -> None:
    bench.write("a", "a")
    with bench.work() as view:
        write(view, "a", "b")
    with pytest.raises(SubletError) as caught:
        export_branch(bench.changes, KEY, bench.rules, "result", "m")
    assert caught.value.code is ErrorCode.WORKSPACE_INVALID


def test_git_applies_the_patch(bench: StagedBench, tmp_path: Path) -> None:
    make_tree(bench.root, {**BASE, "renamed": "a longer text\n" * 9, "bin": "\0\1\2"})
    with bench.work() as view:
        make_tree(view, {**RESULT, "new name": "a longer text\n" * 9, "bin": "\0\3\4", "empty": ""})
        after = read_tree(view)
    patch = tmp_path / "result.patch"
    patch.write_bytes(export_patch(bench.changes, KEY))
    assert b"rename from renamed\nrename to new name\n" in patch.read_bytes()
    git(bench.root, "apply", str(patch))
    assert read_tree(bench.root) == after
    shown = bench.changes.patch(KEY).text
    assert "rename from renamed" in shown
    assert "Binary files a/bin and b/bin differ" in shown


def test_no_patch_is_made_of_what_snapshots_only_name(bench: StagedBench) -> None:
    bench.write("large", noise(MAX_STORED_BYTES + 1))
    with bench.work() as view:
        (view / "large").unlink()
        write(view, "a", "a")
    with pytest.raises(SubletError, match=r"large is larger than 4 MiB"):
        export_patch(bench.changes, KEY)


def with_submodule(bench: StagedBench, tmp_path: Path) -> str:
    """Commit a repository with a submodule ``lib`` in the lent directory, and return the submodule's commit."""
    library = tmp_path / "library"
    make_tree(library, {"s": "1\n"})
    commit_all(library)
    bench.write("top", "t")
    commit_all(bench.root)
    git(bench.root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "lib")
    git(bench.root, "commit", "-q", "-m", "submodule")
    return git(bench.root / "lib", "rev-parse", "HEAD")


def test_d04_a_submodule_stays_one_on_a_branch_and_changes_in_it_wait(bench: StagedBench, tmp_path: Path) -> None:
    commit = with_submodule(bench, tmp_path)
    with bench.work() as view:
        write(view, "lib/s", "1\n2\n")
        write(view, "lib/new", "n")
        write(view, "top", "T")
    exported = export_branch(bench.changes, KEY, bench.rules, "work", "m")
    assert git(bench.root, "ls-tree", "work", "lib") == f"160000 commit {commit}\tlib"
    assert git(bench.root, "show", "work:top") == "T"
    assert sorted(line.partition(":")[0] for line in exported.left_out) == ["lib/new", "lib/s"]
    assert all("in the submodule lib" in line for line in exported.left_out)
    assert bench.changes.get(KEY).status == "pending"
    bench.applier.apply(KEY, bench.rules)
    assert bench.read("lib/s") == "1\n2\n"
    git(bench.root, "fsck", "--strict")


def test_d04_a_submodule_that_was_removed_stays_on_the_branch(bench: StagedBench, tmp_path: Path) -> None:
    commit = with_submodule(bench, tmp_path)
    with bench.work() as view:
        (view / "lib" / "s").unlink()
        write(view, "top", "T")
    exported = export_branch(bench.changes, KEY, bench.rules, "work", "m")
    assert git(bench.root, "ls-tree", "work", "lib") == f"160000 commit {commit}\tlib"
    assert [line.partition(":")[0] for line in exported.left_out] == ["lib/s"]


def test_d04_a_result_of_which_nothing_can_be_on_a_branch_makes_none(bench: StagedBench, tmp_path: Path) -> None:
    with_submodule(bench, tmp_path)
    with bench.work() as view:
        write(view, "lib/s", "2\n")
    with pytest.raises(SubletError, match="nothing of the result can be on a branch: lib/s: it is in the submodule"):
        export_branch(bench.changes, KEY, bench.rules, "work", "m")
    assert git(bench.root, "branch", "--list", "work") == ""


def test_what_is_refused_is_told_beside_the_branch(bench: StagedBench) -> None:
    bench.write("a", "a")
    commit_all(bench.root)
    with bench.work() as view:
        write(view, "a", "A")
        write(view, ".envrc", "evil")
    exported = export_branch(bench.changes, KEY, bench.rules, "result", "m")
    assert [line.partition(":")[0] for line in exported.left_out] == [".envrc"]
    assert files_of(bench.root, "result") == {"a": "100644 A"}


def test_d10_a_linked_worktree_gets_its_branch(bench: StagedBench, tmp_path: Path) -> None:
    main = tmp_path / "main"
    make_tree(main, {"a": "a"})
    commit_all(main)
    (bench.root).rmdir()
    git(main, "worktree", "add", "-q", "-b", "side", str(bench.root))
    write(bench.root, "b", "b")
    git(bench.root, "add", "b")
    git(bench.root, "commit", "-q", "-m", "second")
    with bench.work() as view:
        write(view, "a", "A")
    commit = export_branch(bench.changes, KEY, bench.rules, "result", "m").commit
    assert git(main, "rev-parse", "result^") == git(main, "rev-parse", "side")
    assert files_of(main, commit) == {"a": "100644 A", "b": "100644 b"}


def test_a_repository_that_borrows_objects_gets_its_branch(bench: StagedBench, tmp_path: Path) -> None:
    other = tmp_path / "other:colon"
    make_tree(other, {"a": "a"})
    commit_all(other)
    bench.root.rmdir()
    git(tmp_path, "clone", "-q", "--shared", str(other), str(bench.root))
    with bench.work() as view:
        write(view, "a", "A")
    export_branch(bench.changes, KEY, bench.rules, "result", "m")
    assert files_of(bench.root, "result") == {"a": "100644 A"}


def test_a_repository_of_sha256_gets_its_branch(bench: StagedBench) -> None:
    bench.write("a", "a")
    git(bench.root, "init", "-q", "--object-format=sha256")
    git(bench.root, "add", "-A")
    git(bench.root, "commit", "-q", "-m", "first")
    with bench.work() as view:
        write(view, "a", "A")
    commit = export_branch(bench.changes, KEY, bench.rules, "result", "m").commit
    assert len(commit) == 64
    assert files_of(bench.root, "result") == {"a": "100644 A"}
    git(bench.root, "fsck", "--strict")
