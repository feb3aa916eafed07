"""The audit: it sees what changed, whatever an executor does to hide it, and leaves the workspace as it is."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.workspace.audit import auditor as auditor_module
from sublet.workspace.audit import manifest as manifest_module
from sublet.workspace.audit import reporting, shadow_git
from sublet.workspace.audit import snapshot as snapshot_module
from sublet.workspace.audit.auditor import Auditor
from sublet.workspace.audit.reporting import AuditResult
from sublet.workspace.audit.shadow_git import PLAIN, SYMLINK, ShadowGit, mask, unmask
from sublet.workspace.export import ViewRules
from sublet.workspace.view import walk as walk_module
from sublet.workspace.view.rules import Rules
from support.views import default_rules


class Bench:
    """A workspace with its auditor."""

    def __init__(self, base: Path) -> None:
        self.root = base / "workspace"
        self.root.mkdir()
        self.state = base / "state"
        self.auditor = Auditor(self.state)
        self.rules: ViewRules = default_rules()
        self.snapshot = ""

    def write(self, path: str | bytes, content: str | bytes = "") -> Path:
        target = self.root / os.fsdecode(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
        return target

    def begin(self) -> str:
        self.snapshot = self.auditor.baseline(self.root, self.rules)
        return self.snapshot

    def end(self, touched: Collection[bytes] = (), *, overflow: bool = False) -> AuditResult:
        return self.auditor.result(self.snapshot, self.root, self.rules, touched, overflow)

    def patch(self, report: AuditResult) -> reporting.Patch:
        return self.auditor.patch(self.root, report.baseline, report.result)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def changes(report: AuditResult) -> dict[str, str]:
    return {f.shown: f.change for f in report.files}


def tree_state(root: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Everything about a tree but access times: mode, inode, modification time and content of each name."""
    state = {}
    for path in [root, *root.rglob("*")]:
        info = path.lstat()
        content = os.readlink(path).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        state[str(path)] = (info.st_mode, info.st_ino, info.st_mtime_ns, content)
    return state


def git(*arguments: str, cwd: Path) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=e@localhost", "-c", "init.defaultBranch=main"]
    return subprocess.run(["git", *identity, *arguments], cwd=cwd, check=True, capture_output=True, text=True).stdout


def test_added_changed_deleted_and_mode(bench: Bench) -> None:
    bench.write("changed.txt", "one\ntwo\nthree\n")
    bench.write("deleted.txt", "gone\n")
    bench.write("tool", "#!/bin/sh\n")
    bench.write("same.txt", "same\n")
    bench.begin()
    bench.write("changed.txt", "one\n2\nthree\nfour\n")
    (bench.root / "deleted.txt").unlink()
    (bench.root / "tool").chmod(0o755)
    bench.write("new/added.txt", "a\nb\n")
    report = bench.end()
    assert changes(report) == {
        "changed.txt": "changed",
        "deleted.txt": "deleted",
        "new/added.txt": "added",
        "tool": "mode",
    }
    assert report.counts == {"changed": 1, "deleted": 1, "added": 1, "mode": 1}
    assert (report.lines_added, report.lines_deleted) == (4, 2)
    lines = {f.shown: (f.lines_added, f.lines_deleted) for f in report.files}
    assert lines["changed.txt"] == (2, 1)
    assert report.named("added") == ["new/added.txt"]
    patch = bench.patch(report)
    assert "-two\n+2\n" in patch.text
    assert "old mode 100644\nnew mode 100755" in patch.text
    assert not patch.truncated


def test_nothing_changed(bench: Bench) -> None:
    bench.write("a", "a")
    snapshot = bench.begin()
    report = bench.end()
    assert report.result == snapshot
    assert report.files == ()
    assert bench.patch(report).text == ""
    assert bench.begin() == snapshot


def test_an_empty_workspace(bench: Bench) -> None:
    bench.begin()
    bench.write("a", "a")
    assert changes(bench.end()) == {"a": "added"}


def test_a_rename_is_a_deletion_and_an_addition(bench: Bench) -> None:
    bench.write("old", "content\n" * 50)
    bench.begin()
    (bench.root / "old").rename(bench.root / "new")
    report = bench.end()
    assert changes(report) == {"old": "deleted", "new": "added"}
    assert (report.lines_added, report.lines_deleted) == (50, 50)


def test_a_file_that_becomes_a_directory_and_back(bench: Bench) -> None:
    bench.write("x", "file")
    bench.write("y/inner", "inner")
    bench.begin()
    (bench.root / "x").unlink()
    bench.write("x/inner", "inner")
    (bench.root / "y" / "inner").unlink()
    (bench.root / "y").rmdir()
    bench.write("y", "file")
    assert changes(bench.end()) == {"x": "deleted", "x/inner": "added", "y/inner": "deleted", "y": "added"}


def test_links_are_recorded_and_never_followed(bench: Bench, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("outside")
    bench.write("plain", "same")
    (bench.root / "link").symlink_to("plain")
    bench.begin()
    (bench.root / "link").unlink()
    (bench.root / "link").symlink_to(secret)
    (bench.root / "plain").unlink()
    (bench.root / "plain").symlink_to("same")  # the content of the blob stays, its type does not
    (bench.root / "into").symlink_to(tmp_path)
    report = bench.end()
    assert changes(report) == {"link": "changed", "plain": "changed", "into": "added"}
    assert "outside" not in bench.patch(report).text


def test_binary_files_have_no_line_counts(bench: Bench) -> None:
    bench.write("b", b"\0\1")
    bench.begin()
    bench.write("b", b"\0\2")
    (changed,) = bench.end().files
    assert (changed.change, changed.lines_added, changed.lines_deleted) == ("changed", None, None)


def test_large_files_are_compared_but_not_stored(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_module, "MAX_STORED_BYTES", 1000)
    target = bench.write("big", b"a" * 5000)
    bench.write("same", b"c" * 5000)
    bench.begin()
    with target.open("r+b") as file:
        file.seek(4999)
        file.write(b"b")
    report = bench.end()
    assert changes(report) == {"big": "changed"}
    assert "aaaa" not in bench.patch(report).text


def test_a_sparse_file_of_terabytes_is_not_read(bench: Bench) -> None:
    bench.begin()
    target = bench.write("sparse")
    os.truncate(target, 1 << 42)
    report = bench.end()
    assert changes(report) == {"sparse": "added"}
    assert [path for path, _ in report.unaudited] == [b"sparse"]
    bench.begin()
    assert bench.end().files == ()
    with target.open("r+b") as file:
        file.write(b"x")
    assert changes(bench.end()) == {"sparse": "changed"}


def test_contents_are_read_for_a_limited_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.write("a", "a")
    bench.write("b", "b")
    bench.begin()
    bench.write("a", "changed")
    monkeypatch.setattr(snapshot_module, "MAX_READ_SECONDS", -1.0)
    report = bench.end()
    assert changes(report)["a"] == "changed"
    assert (b"a", "no time was left to read it, so only size and times are compared") in report.unaudited


def test_a_file_cannot_pose_as_the_stand_in_of_a_large_one(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the secret of the workspace, an executor can't write what the audit keeps in place of the file."""
    monkeypatch.setattr(snapshot_module, "MAX_STORED_BYTES", 1000)
    content = b"a" * 5000
    seen: list[bytes] = []
    taken = snapshot_module.take(bench.write("big", content).parent, bench.rules, {}, b"salt", seen.append)
    (stand_in,) = seen
    assert stand_in.startswith(b"\0sublet salt large 5000 ")
    bench.begin()
    bench.write("big", stand_in)
    assert changes(bench.end()) == {"big": "changed"}
    assert set(taken.manifest) == {b".", b"big"}


def test_names_with_odd_bytes(bench: Bench) -> None:
    names = [
        b"caf\xe9",
        b"new\nline",
        b'quo"te',
        b"back\\slash",
        b" lead",
        b"trail ",
        b"tab\t",
        b"-dash",
        b"\xff/\xfe",
        b"%x",
    ]
    for name in names:
        bench.write(name, "old\n")
    bench.begin()
    for name in names:
        bench.write(name, "new\n")
    report = bench.end()
    assert [f.path for f in report.files] == sorted(names)
    assert all((f.lines_added, f.lines_deleted) == (1, 1) for f in report.files)
    assert "new\\x0aline" in [f.shown for f in report.files]


def test_ignore_files_attributes_and_configuration_hide_nothing(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executor's tricks in the tree, and the user's own settings outside, have no say."""
    ran = tmp_path / "ran"
    home = tmp_path / "home"
    home.mkdir()
    (home / "ignore").write_text("*\n")
    (home / "attributes").write_text("* -diff filter=evil\n")
    (home / ".gitconfig").write_text(
        f'[filter "evil"]\n\tclean = touch {ran}; echo clean\n\trequired = true\n'
        f"[core]\n\texcludesFile = {home}/ignore\n\tattributesFile = {home}/attributes\n"
        f"\tfsmonitor = touch {ran}\n\thooksPath = {home}\n\tautocrlf = true\n"
        f"[diff]\n\texternal = touch {ran}\n"
    )
    for hook in ("post-commit", "reference-transaction", "post-index-change"):
        (home / hook).write_text(f"#!/bin/sh\ntouch {ran}\n")
        (home / hook).chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / ".gitconfig"))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", f"touch {ran}")
    monkeypatch.setenv("GIT_DIR", str(home))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(home))
    bench.write("code.py", "one\r\n")
    bench.begin()
    bench.write(".gitignore", "*\n")
    bench.write(".gitattributes", "* -diff -text filter=evil ident merge=binary\n")
    bench.write("sub/.gitignore", "*\n")
    bench.write("sub/hidden.py", "evil\n")
    bench.write("code.py", "two\r\n")
    report = bench.end()
    assert changes(report) == {
        ".gitignore": "added",
        ".gitattributes": "added",
        "sub/.gitignore": "added",
        "sub/hidden.py": "added",
        "code.py": "changed",
    }
    text = bench.patch(report).text
    assert "+evil\n" in text
    assert "-one\\x0d\n+two\\x0d\n" in text
    assert not ran.exists()


def test_a_nested_repository_hides_only_itself(bench: Bench) -> None:
    bench.write("nested/code.py", "one\n")
    bench.begin()
    bench.write("nested/code.py", "two\n")
    bench.write("nested/more.py", "more\n")
    git("init", "-q", ".", cwd=bench.root / "nested")
    git("add", "-A", cwd=bench.root / "nested")
    git("commit", "-q", "-m", "x", cwd=bench.root / "nested")
    bench.write("fake/.git", "gitdir: /elsewhere\n")
    bench.write("fake/code.py", "fake\n")
    assert changes(bench.end()) == {"nested/code.py": "changed", "nested/more.py": "added", "fake/code.py": "added"}


def test_names_that_git_itself_would_refuse(bench: Bench) -> None:
    """Newer versions of git don't take these in a tree; none of them may stop the audit or collide with another."""
    bench.rules = Rules([], [], [])
    bench.write(".git/config", "old\n")
    bench.write("sub/.GIT", "gitdir: x\n")
    bench.write(".gitmodules", "regular\n")
    bench.write("%.git/config", "other\n")
    bench.write("%.gitmodules", "percent\n")
    bench.begin()
    bench.write(".git/config", "new\n")
    (bench.root / ".gitmodules").unlink()
    (bench.root / ".gitmodules").symlink_to("elsewhere")
    bench.write("%.gitmodules", "changed\n")
    report = bench.end()
    assert changes(report) == {".git/config": "changed", ".gitmodules": "changed", "%.gitmodules": "changed"}
    assert changes(Bench.end(bench)) == changes(report)


component = st.one_of(
    st.builds(
        bytes.__add__, st.sampled_from([b"", b"%", b"%%"]), st.sampled_from([b".git", b".GIT", b".gitmodules", b"a"])
    ),
    st.binary(min_size=1, max_size=4).filter(lambda b: b"/" not in b and b"\0" not in b),
)


@given(st.lists(component, min_size=1, max_size=3), st.sampled_from([PLAIN, SYMLINK]))
def test_masking_is_undone_and_leaves_nothing_that_git_refuses(parts: list[bytes], mode: int) -> None:
    path = b"/".join(parts)
    masked = mask(path, mode)
    assert unmask(masked) == path
    *above, name = masked.lower().split(b"/")
    assert b".git" not in (*above, name)
    assert mode != SYMLINK or name != b".gitmodules"


def test_hidden_names_are_not_audited_and_not_stored(bench: Bench) -> None:
    bench.write(".env", "TOKEN=1")
    bench.begin()
    bench.write(".env", "TOKEN=2")
    assert bench.end().files == ()
    listing = git("ls-tree", "-r", bench.snapshot, cwd=next((bench.state / "shadows").iterdir()) / "git")
    assert listing == ""


@pytest.mark.parametrize("kind", ["none", "repository", "inside"])
def test_the_workspace_is_left_as_it_is(bench: Bench, tmp_path: Path, kind: str) -> None:
    bench.write("src/a.py", "one\n")
    (bench.root / "link").symlink_to("src")
    if kind == "inside":
        git("init", "-q", ".", cwd=tmp_path)
    if kind == "repository":
        git("init", "-q", ".", cwd=bench.root)
        git("add", "-A", cwd=bench.root)
        git("commit", "-q", "-m", "x", cwd=bench.root)
    before = tree_state(bench.root)
    bench.begin()
    report = bench.end()
    bench.patch(report)
    assert tree_state(bench.root) == before
    assert report.files == ()
    assert (bench.state / "shadows").stat().st_mode & 0o077 == 0


def test_who_did_it(bench: Bench) -> None:
    for path in ("executor.py", "person.py", "dir/a.py", "dir2/a.py"):
        bench.write(path, "old\n")
    bench.begin()
    for path in ("executor.py", "person.py", "dir2/a.py"):
        bench.write(path, "new\n")
    (bench.root / "dir").rename(bench.root / "moved")
    touched = {b"executor.py", b"dir", b"moved"}
    report = bench.end(touched)
    by = {f.shown: f.by for f in report.files}
    assert by == {
        "executor.py": "executor",
        "dir/a.py": "executor",
        "moved/a.py": "executor",
        "person.py": "other",
        "dir2/a.py": "other",
    }
    assert report.by_others == ["dir2/a.py", "person.py"]
    assert bench.end(touched, overflow=True).by_others == []


def test_a_change_that_puts_size_and_time_back_is_seen(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_module, "SETTLED_NS", -(10**18))  # trust every stamp at once
    target = bench.write("a", "one")
    before = target.stat()
    bench.begin()
    with target.open("r+") as file:
        file.write("two")
    os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert changes(bench.end()) == {"a": "changed"}


def test_a_young_file_is_read_again_and_a_settled_one_is_not(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.write("a", "one")
    read: list[int] = []
    content = snapshot_module._Reader._content

    def counted(self: snapshot_module._Reader, fd: int, path: bytes) -> manifest_module.Record:
        read.append(fd)
        return content(self, fd, path)

    monkeypatch.setattr(snapshot_module._Reader, "_content", counted)
    bench.begin()
    bench.end()
    assert len(read) == 2
    monkeypatch.setattr(snapshot_module, "SETTLED_NS", -(10**18))
    bench.begin()
    bench.end()
    assert len(read) == 3


def test_a_huge_patch_is_cut(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "MAX_PATCH_BYTES", 10_000)
    bench.begin()
    bench.write("log.txt", "line of some length\n" * 100_000)
    report = bench.end()
    patch = bench.patch(report)
    assert patch.truncated
    assert len(patch.text) == 10_000
    assert report.lines_added == 100_000


def test_a_report_is_bounded_but_its_counts_are_complete(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "MAX_REPORT_FILES", 3)
    bench.begin()
    for i in range(5):
        bench.write(f"f{i}", "x\n")
    report = bench.end()
    assert len(report.files) == 3
    assert report.truncated
    assert report.counts == {"added": 5}
    assert report.lines_added == 5


def test_a_patch_is_safe_to_show(bench: Bench) -> None:
    bench.begin()
    bench.write("evil\x1b[2J.txt", "\x1b]0;title\x07 \u202ereversed\ttab\n")
    text = bench.patch(bench.end()).text
    assert "\\x1b]0;title\\x07 \\u202ereversed\ttab" in text
    assert all(line.isprintable() for line in text.replace("\t", "").splitlines())


class Meddling(Rules):
    """Rules that remove a file while the tree is walked."""

    def __init__(self, root: Path) -> None:
        super().__init__([], [], [])
        self._root = root

    def hidden(self, parts: Sequence[bytes]) -> bool:
        if parts == (b"z", b"f"):  # its siblings are listed already
            (self._root / "a").unlink(missing_ok=True)
            (self._root / "z" / "f").unlink()
        return False


def test_a_file_that_vanishes_during_the_walk(bench: Bench) -> None:
    bench.write("a", "a")
    bench.write("z/f", "f")
    bench.write("z/g", "g")
    bench.rules = Meddling(bench.root)
    bench.begin()
    bench.rules = Rules([], [], [])
    assert "z/g" not in changes(bench.end())


def test_special_files_are_not_opened(bench: Bench) -> None:
    bench.write("pipe", "x")
    bench.begin()
    (bench.root / "pipe").unlink()
    os.mkfifo(bench.root / "pipe")
    assert changes(bench.end()) == {"pipe": "changed"}


def test_what_lies_too_deep_is_named_and_does_not_pass_for_deleted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("a/b/c/file", "x")
    bench.begin()
    monkeypatch.setattr(walk_module, "MAX_DEPTH", 2)
    report = bench.end()
    assert report.files == ()
    assert [path for path, _ in report.unaudited] == [b"a/b/c"]


def test_an_unreadable_file_is_named(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root can read all, so the refusal is made: opening the one file fails as it would for its owner."""
    bench.write("shut", "one")
    bench.begin()
    bench.write("shut", "two")
    real = os.open

    def refusing(path: str | bytes, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == b"shut":
            raise PermissionError(13, "Permission denied")
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refusing)
    report = bench.end()
    assert changes(report) == {"shut": "changed"}
    assert report.unaudited == ((b"shut", "Permission denied"),)


def test_bounds_of_the_walk(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.write("a")
    bench.write("b")
    monkeypatch.setattr(auditor_module, "MAX_LENT_ENTRIES", 1)
    with pytest.raises(SubletError) as caught:
        bench.begin()
    assert caught.value.code is LocalCode.UNAVAILABLE


def test_a_root_that_is_gone(bench: Bench) -> None:
    bench.begin()
    bench.root.rmdir()
    with pytest.raises(SubletError) as caught:
        bench.end()
    assert caught.value.code is LocalCode.UNAVAILABLE


def test_audits_of_one_workspace_may_overlap(bench: Bench) -> None:
    """Two leases with their own baselines, begun and ended by several threads at once."""
    for i in range(20):
        bench.write(f"f{i}", "old\n")
    first = bench.begin()
    bench.write("f0", "new\n")
    second = bench.begin()
    bench.write("f1", "new\n")
    results: list[AuditResult] = []

    def end(snapshot: str) -> None:
        results.append(Auditor(bench.state).result(snapshot, bench.root, bench.rules, set(), False))

    threads = [threading.Thread(target=end, args=(s,)) for s in (first, second) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = sorted((r.baseline == first, sorted(changes(r))) for r in results)
    assert found == [(False, ["f1"])] * 3 + [(True, ["f0", "f1"])] * 3


def test_a_lost_manifest_is_rebuilt_from_the_commit(bench: Bench) -> None:
    bench.write("a", "a\n")
    bench.write("b\udcff", "b\n")
    (bench.root / "link").symlink_to("a")
    snapshot = bench.begin()
    (shadow,) = (bench.state / "shadows").iterdir()
    manifest = shadow / "manifests" / snapshot
    manifest.write_bytes(manifest.read_bytes()[:-3])
    bench.write("a", "changed\n")
    assert changes(bench.end()) == {"a": "changed"}
    manifest.unlink()
    assert changes(bench.end()) == {"a": "changed"}


def test_old_manifests_go_and_packs_are_joined(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_module, "MAX_MANIFESTS", 2)
    monkeypatch.setattr(shadow_git, "MAX_PACKS", 3)
    first = bench.begin()
    for i in range(4):
        bench.begin()
        bench.write("a", str(i))
        bench.end()
    (shadow,) = (bench.state / "shadows").iterdir()
    assert len(list((shadow / "manifests").iterdir())) == 2
    assert len(list((shadow / "git" / "objects" / "pack").glob("*.pack"))) <= 3
    bench.snapshot = first
    assert changes(bench.end()) == {"a": "added"}


def test_forgetting(bench: Bench) -> None:
    bench.write("a", "a")
    bench.begin()
    bench.auditor.forget(bench.root)
    bench.auditor.forget(bench.root)
    assert list((bench.state / "shadows").iterdir()) == []
    with pytest.raises(SubletError) as caught:
        bench.end()
    assert caught.value.code is LocalCode.NOT_FOUND
    bench.begin()
    assert bench.end().files == ()


@pytest.mark.parametrize("snapshot", ["", "--output=/tmp/x", "0" * 64, "../head"])
def test_an_unknown_snapshot(bench: Bench, snapshot: str) -> None:
    bench.begin()
    bench.snapshot = snapshot
    with pytest.raises(SubletError) as caught:
        bench.end()
    assert caught.value.code is LocalCode.NOT_FOUND


def test_without_git(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(bench.state))
    with pytest.raises(SubletError) as caught:
        bench.begin()
    assert caught.value.code is ErrorCode.DEP_MISSING


def test_a_broken_repository_is_told(bench: Bench) -> None:
    bench.begin()
    (shadow,) = (bench.state / "shadows").iterdir()
    (shadow / "git" / "config").write_text("[broken\n")
    bench.write("a", "a")
    with pytest.raises(SubletError, match="audit's own repository") as caught:
        bench.begin()
    assert caught.value.code is LocalCode.INTERNAL


def test_a_newest_snapshot_whose_objects_were_lost_is_not_built_upon(bench: Bench) -> None:
    """Objects are not synced, so after a loss of power the head may name what is not there."""
    bench.write("a", "a\n")
    bench.begin()
    (shadow,) = (bench.state / "shadows").iterdir()
    for pack in (shadow / "git" / "objects" / "pack").iterdir():
        pack.unlink()
    bench.begin()
    bench.write("a", "b\n")
    report = bench.end()
    assert changes(report) == {"a": "changed"}
    assert "+b" in bench.patch(report).text


def test_git_is_asked_for_the_newest_snapshot_only_where_packs_came_or_went(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    holds = ShadowGit.holds

    def counted(git: ShadowGit, commit: str) -> bool:
        asked.append(commit)
        return holds(git, commit)

    monkeypatch.setattr(ShadowGit, "holds", counted)
    bench.write("a", "a\n")
    bench.begin()
    (shadow,) = (bench.state / "shadows").iterdir()
    packs = shadow / "git" / "objects" / "pack"
    bench.begin()
    assert len(asked) == 1, "the packs are too young"
    os.utime(packs, ns=(0, 0))
    bench.begin()
    bench.begin()
    assert len(asked) == 2
    for pack in packs.iterdir():
        pack.unlink()
    os.utime(packs, ns=(1, 1))
    bench.begin()
    assert len(asked) == 3
    bench.write("a", "b\n")
    assert "+b" in bench.patch(bench.end()).text


@pytest.mark.parametrize("kept", [0, 10, 31])
def test_a_damaged_secret_names_nothing(bench: Bench, kept: int) -> None:
    bench.begin()
    (shadow,) = (bench.state / "shadows").iterdir()
    (shadow / "salt").write_bytes((shadow / "salt").read_bytes()[:kept])
    with pytest.raises(SubletError, match="damaged") as caught:
        bench.begin()
    assert caught.value.code is LocalCode.UNAVAILABLE
