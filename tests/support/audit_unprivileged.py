"""Audits as another user, who is stopped by modes; exits 0 where all is right. Started by root with a directory."""

from __future__ import annotations

import codecs
import os
import sys
from pathlib import Path

import pytest

from attacks.kit.audited_lease import OK, AuditedLease
from sublet.protocol.errors import SubletError
from sublet.workspace.archive.tree_manifest import difference, survey
from sublet.workspace.bundles.exchange import GitExchange
from sublet.workspace.bundles.runs import GitRuns
from sublet.workspace.sandbox.git_sandbox import GitSandbox
from sublet.workspace.view.walk import Budget
from support.apply_unprivileged import NOBODY
from support.staged import KEY, StagedBench, write
from support.views import default_rules


def main() -> None:
    """Give up root, then be attacked."""
    codecs.lookup("ascii")  # which is loaded when it is first used, and this user may not be able to read Python's own
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    base = Path(sys.argv[1])
    live(base / "live")
    staged(base / "staged")
    archive(base / "archive")
    git(base / "git")


def live(base: Path) -> None:
    """A program is changed in a directory that is then shut."""
    base.mkdir()
    lease = AuditedLease(base)
    lease.write("bin/tool", "old", 0o755)
    with lease.work() as executor:
        assert executor.write(b"bin/tool", b"new") == OK
        assert executor.chmod(b"bin", 0o311) != OK
        assert executor.chmod(b"bin/tool", 0) != OK
    report = lease.audit()
    assert [(f.path, f.change) for f in report.files] == [(b"bin/tool", "changed")], report
    assert report.unaudited == ()
    # The lender itself may shut a directory meanwhile: what is in it is no deletion, and is told.
    with lease.work() as executor:
        assert executor.write(b"bin/tool", b"newer") == OK
        (lease.root / "bin").chmod(0o311)
    report = lease.audit()
    assert report.files == (), report
    assert [path for path, _ in report.unaudited] == [b"bin"]
    (lease.root / "bin").chmod(0o755)


def staged(base: Path) -> None:
    """Directories that nobody may write are made, removed, given other modes and taken back."""
    base.mkdir()
    bench = StagedBench(base)
    bench.write("read-only/f", "mine")
    (bench.root / "shut").mkdir(mode=0o555)
    (bench.root / "read-only").chmod(0o555)
    before = bench.state_of()
    with bench.work() as view:
        (view / "read-only").chmod(0o755)
        write(view, "read-only/g", "theirs")
        write(view, "made/f", "theirs")
        (view / "made").chmod(0o555)
        (view / "shut").chmod(0o755)
        (view / "shut").rmdir()
    assert bench.applier.apply(KEY, bench.rules).conflicts == ()
    assert (bench.root / "made").stat().st_mode & 0o777 == 0o555
    assert bench.read("read-only/g") == "theirs"
    assert not (bench.root / "shut").exists()
    assert bench.applier.undo(KEY).conflicts == ()
    assert bench.state_of() == before
    # What can't be written is named.
    bench = StagedBench(base)
    bench.changes.discard(KEY)
    with bench.work() as view:
        (view / "read-only").chmod(0o755)
        (view / "read-only/f").unlink()
        (view / "read-only").chmod(0o555)
    with pytest.raises(SubletError, match="read-only/f: Permission denied"):
        bench.applier.apply(KEY, bench.rules, allow_mass_deletion=True)


def archive(base: Path) -> None:
    """An agent shuts a directory and a file of its private tree."""
    (base / "bin").mkdir(parents=True)
    (base / "bin/tool").write_text("old")
    root = os.open(base, os.O_RDONLY)
    before = survey(b"w", root, Budget(100, 10), {}, {}, lambda: False)
    (base / "bin/tool").write_text("new")
    (base / "bin/tool").chmod(0)
    (base / "bin").chmod(0o311)
    after = survey(b"w", root, Budget(100, 10), before, {}, lambda: False)
    assert not [planned for planned in difference(before, after) if planned.kind == "deleted"]
    assert (b"w", b"bin", b"tool") in {planned.parts for planned in difference(before, after)}
    os.close(root)


def git(base: Path) -> None:
    """The same, where the tree travels by git."""
    tree = base / "tree"
    (tree / "bin").mkdir(parents=True)
    (tree / "bin/tool").write_text("old")
    exchange = GitExchange(base / "exchange", GitRuns(GitSandbox()))
    exchange.create()
    root = os.open(tree, os.O_RDONLY)
    parent = exchange.snapshot(root, default_rules(), Budget(100, 10)).commit
    (tree / "bin/tool").write_text("new")
    (tree / "bin/tool").chmod(0)
    (tree / "bin").chmod(0o311)
    result = exchange.result(root, default_rules(), Budget(100, 10), parent)
    assert result is not None
    taken = exchange.take(result, max_bytes=1 << 20, max_names=100, base=parent)
    result.close()
    assert [(change.path, change.mode) for change in taken.changes] == [(b"bin/tool", 0o100644)]
    os.close(root)


if __name__ == "__main__":
    main()
