"""Whatever a hostile executor does: hidden and locked content is neither shown nor moved nor changed.

What is not writable counts as locked, and in a lease that only adds no name of the lender's goes.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from attacks.kit.view_lease import Lease, served
from sublet.workspace.export import ViewRules
from sublet.workspace.view.rules import DEFAULT_HIDDEN, DEFAULT_LOCKED, Rules
from support.budgets import examples
from support.sftp_client import attributes, string

NAMES = ("a", "b", "c.txt", ".env", "x.pem", ".claude", ".envrc", "HEAD", ".aws", ".git")
WRITE, CREAT, TRUNC, EXCL = 2, 8, 16, 32
MARK = b"of the lender"

paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
rules = st.builds(
    Rules,
    st.just(DEFAULT_HIDDEN),
    st.just(DEFAULT_LOCKED),
    st.sampled_from([[], ["x.pem"]]),
    exclude=st.sampled_from([[], ["c.txt"], ["/a/b"]]),
    writable=st.sampled_from([[], [], ["a"], ["b/*.txt", "**/.aws"], ["a/b", "HEAD"]]),
    only_adds=st.sampled_from([False, False, True]),
)
trees = st.lists(paths, min_size=1, max_size=12)
links = st.lists(st.tuples(paths, paths), max_size=3)
operation = st.sampled_from(
    ("put", "truncate", "new", "remove", "rmdir", "mkdir", "rename", "over", "link", "mode", "size", "times", "symlink")
)
operations = st.lists(st.tuples(operation, paths, paths), min_size=1, max_size=25)


def build(root: Path, files: list[str], names: list[tuple[str, str]]) -> None:
    for number, name in enumerate(files):
        place = root / name
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            if not place.exists():
                place.write_bytes(MARK + b" %d" % number)
        except (FileExistsError, NotADirectoryError):
            continue
    for old, new in names:
        try:
            if (root / old).is_file():
                (root / new).parent.mkdir(parents=True, exist_ok=True)
                os.link(root / old, root / new)
        except (FileExistsError, NotADirectoryError):
            continue


def guarded(root: Path, chosen: ViewRules) -> dict[bytes, tuple[int, int, bytes | None]]:
    """Return what must stay, by its name: mode, inode and content of what is hidden or locked."""
    found: dict[bytes, tuple[int, int, bytes | None]] = {}
    for top, directories, files in os.walk(os.fsencode(root)):
        for name in (*directories, *files):
            path = os.path.join(top, name)
            parts = os.path.relpath(path, os.fsencode(root)).split(b"/")
            if chosen.hidden(parts) or chosen.locked(parts):
                status = os.lstat(path)
                content: bytes | None = None
                if stat.S_ISLNK(status.st_mode):
                    content = os.readlink(path)
                elif stat.S_ISREG(status.st_mode):
                    content = Path(os.fsdecode(path)).read_bytes()
                found[b"/".join(parts)] = status.st_mode, status.st_ino, content
    return found


def named(root: Path) -> dict[bytes, int]:
    """Return what kind of thing is there, by its name."""
    found: dict[bytes, int] = {}
    for top, directories, files in os.walk(os.fsencode(root)):
        for name in (*directories, *files):
            path = os.path.join(top, name)
            found[os.path.relpath(path, os.fsencode(root))] = stat.S_IFMT(os.lstat(path).st_mode)
    return found


def act(lease: Lease, what: str, one: str, other: str) -> None:
    old, new = one.encode(), other.encode()
    path = string(b"/workspace/" + old)
    if what in ("put", "truncate", "new"):
        lease.put(
            old, b"of the executor", {"put": WRITE, "truncate": WRITE | CREAT | TRUNC, "new": WRITE | CREAT}[what]
        )
    elif what == "remove":
        lease.remove(old)
    elif what == "rmdir":
        lease.ask(15, path)
    elif what == "mkdir":
        lease.mkdir(old)
    elif what in ("rename", "over"):
        lease.rename(old, new, posix=what == "over")
    elif what == "link":
        lease.link(old, new)
    elif what == "symlink":
        lease.ask(20, string(b"a") + path)
    else:
        changed = {"mode": attributes(mode=0o777), "size": attributes(size=1), "times": attributes(times=(1, 1))}[what]
        lease.ask(9, path + changed)


def shown(lease: Lease, name: bytes, depth: int = 4) -> dict[bytes, bytes]:
    """Return every file that the lease shows, with its content."""
    found: dict[bytes, bytes] = {}
    opened = lease.ask(11, string(b"/workspace/" + name))
    if opened.kind != 102:
        opened_file = lease.open(b"/workspace/" + name, 1)
        if opened_file.kind == 102:
            found[name] = lease.data(opened_file.handle)
            lease.close(opened_file.handle)
        return found
    lease.close(opened.handle)
    if depth:
        for below in lease.names(name):
            found |= shown(lease, name + b"/" + below if name else below, depth - 1)
    return found


@seed(12)
@settings(max_examples=examples(60), deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(rules=rules, files=trees, names=links, outer=st.lists(paths, max_size=2), asked=operations)
def test_hidden_and_locked_content_stays_where_and_what_it_is(
    rules: Rules, files: list[str], names: list[tuple[str, str]], outer: list[str], asked: list[tuple[str, str, str]]
) -> None:
    base = Path(tempfile.mkdtemp(prefix="view-property-"))
    try:
        root = base / "lent"
        root.mkdir()
        build(root, files, names)
        for number, name in enumerate(outer):
            if (root / name).is_file():
                os.link(root / name, base / f"outer{number}")
        outside = {path.name: (path.read_bytes(), path.stat().st_mode) for path in base.iterdir() if path.is_file()}
        before, lenders = guarded(root, rules), named(root)
        secret = {content for parts, (_, _, content) in before.items() if rules.hidden(parts.split(b"/"))} - {None}
        with served(root, rules) as lease:
            for what, one, other in asked:
                act(lease, what, one, other)
                assert not secret & set(shown(lease, b"").values())
            own = set(lease.own())
        after = guarded(root, rules)
        if rules.only_adds():
            assert named(root).items() >= lenders.items()
        assert {name: held for name, held in after.items() if name not in own} == before
        now = {path.name: (path.read_bytes(), path.stat().st_mode) for path in base.iterdir() if path.is_file()}
        assert now == outside
    finally:
        shutil.rmtree(base)
