"""Where no rule says anything, a lent directory is changed as the system itself would change one that is alike."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

import pytest

from sublet.disk.openat2 import rename_noreplace
from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.export import ViewRules
from sublet.workspace.quota import Quota
from support.sftp_client import PathRules

NAMES = (b"a", b"b", b"c")
FLAGS = (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND)
MORE = (0, os.O_CREAT, os.O_CREAT, os.O_TRUNC, os.O_CREAT | os.O_TRUNC, os.O_CREAT | os.O_EXCL)
MODES = (0o600, 0o644, 0o755, 0o4777, 0o711)
ROOM = 1 << 30

Parts = tuple[bytes, ...]
Tree = dict[Parts, tuple[object, ...]]


def below(root: bytes) -> Iterator[Parts]:
    for top, directories, files in os.walk(root):
        for name in (*directories, *files):
            yield tuple(os.path.relpath(os.path.join(top, name), root).split(b"/"))


def tree(root: bytes) -> Tree:
    """Return kind, mode, size, links, and content or target of all that is there."""
    found: Tree = {}
    for parts in below(root):
        path = os.path.join(root, *parts)
        status = os.lstat(path)
        content: object = None
        if stat.S_ISLNK(status.st_mode):
            content = os.readlink(path)
        elif stat.S_ISREG(status.st_mode):
            content = (Path(os.fsdecode(path)).read_bytes(), status.st_nlink)
        times = status.st_mtime if status.st_mtime < 1000 else None  # as somebody has set them
        found[parts] = status.st_mode, content, times
    return found


def sizes(root: bytes) -> tuple[int, int]:
    """Return bytes and names, files with several names once."""
    statuses = [os.lstat(os.path.join(root, *parts)) for parts in below(root)]
    files = {status.st_ino: status.st_size for status in statuses if stat.S_ISREG(status.st_mode)}
    return sum(files.values()), len(statuses)


def seen(fs: ConfinedFs, parts: Parts = ()) -> Iterator[tuple[Parts, os.stat_result]]:
    """Return all that the view shows."""
    directory = fs.open_directory(parts)
    entries = list(directory.entries())
    directory.close()
    for name, status in entries:
        yield (*parts, name), status
        if stat.S_ISDIR(status.st_mode):
            yield from seen(fs, (*parts, name))


@dataclass
class Twins:
    """A lent directory, and one that is alike."""

    lent: bytes
    plain: bytes
    fs: WritableFs
    quota: Quota
    random: Random
    told: list[Parts] = field(default_factory=list)

    def path(self) -> Parts:
        return tuple(self.random.choice(NAMES) for _ in range(self.random.choice((1, 1, 2, 2, 3))))

    def at(self, parts: Sequence[bytes]) -> bytes:
        return os.path.join(self.plain, *parts)

    def by_link(self, parts: Parts) -> bool:
        """Tell whether a link is on the way."""
        return any(os.path.islink(self.at(parts[:end])) for end in range(1, len(parts)))

    def put(self) -> tuple[list[Parts], Callable[[], None], Callable[[], set[Parts]]]:
        parts, mode = self.path(), self.random.choice(MODES)
        flags = self.random.choice(FLAGS) | self.random.choice(MORE)
        data, offset = self.random.choice((b"", b"x", b"longer")), self.random.choice((0, 0, 3))

        def ours() -> None:
            file = self.fs.open_write(parts, flags, mode)
            try:
                if data:
                    file.write(data, offset)
                if flags & os.O_RDWR:
                    size = file.stat().st_size
                    assert file.read(size + 1, 0) == os.pread(file.fd, size + 1, 0)
            finally:
                file.close()

        def plain() -> set[Parts]:
            made = not os.path.lexists(self.at(parts))
            fd = os.open(self.at(parts), flags | os.O_NOFOLLOW, mode & 0o777)
            os.pwrite(fd, data, offset)
            os.close(fd)
            return {parts} if made or data or flags & os.O_TRUNC else set()

        return [parts], ours, plain

    def simple(self) -> tuple[list[Parts], Callable[[], None], Callable[[], set[Parts]]]:
        parts, mode = self.path(), 0o700 | self.random.choice(MODES)
        target = self.random.choice(NAMES)
        at = self.at(parts)
        choices: list[tuple[Callable[[], None], Callable[[], None]]] = [
            (lambda: self.fs.remove(parts), lambda: os.unlink(at)),
            (lambda: self.fs.rmdir(parts), lambda: os.rmdir(at)),
            (lambda: self.fs.mkdir(parts, mode), lambda: os.mkdir(at, mode & 0o777)),
            (lambda: self.fs.mkdir(parts, mode), lambda: os.mkdir(at, mode & 0o777)),
            (lambda: self.fs.symlink(target, parts), lambda: os.symlink(target, at)),
        ]
        ours, plain = self.random.choice(choices)

        def did() -> set[Parts]:
            plain()
            return {parts}

        return [parts], ours, did

    def pair(self) -> tuple[list[Parts], Callable[[], None], Callable[[], set[Parts]]]:
        old, new, what = self.path(), self.path(), self.random.choice(("link", "rename", "replace"))

        def ours() -> None:
            if what == "link":
                self.fs.link(old, new)
            else:
                self.fs.rename(old, new, replace=what == "replace")

        def plain() -> set[Parts]:
            if what == "link":
                if os.path.isdir(self.at(old)) or os.path.islink(self.at(old)):
                    raise IsADirectoryError(errno.ELOOP if os.path.islink(self.at(old)) else errno.EISDIR, "")
                os.link(self.at(old), self.at(new))
                return {new}
            if what == "replace":
                os.rename(self.at(old), self.at(new))
            else:
                fd = os.open(self.plain, os.O_PATH)
                try:
                    rename_noreplace(fd, b"/".join(old), fd, b"/".join(new))
                finally:
                    os.close(fd)
            return {old, new}

        return [old, new], ours, plain

    def attributes(self) -> tuple[list[Parts], Callable[[], None], Callable[[], set[Parts]]]:
        parts, follow = self.path(), self.random.random() < 0.5
        size = self.random.choice((None, None, 0, 2, 9))
        mode = self.random.choice((None, 0o700, 0o4755, 0o711))
        times = self.random.choice((None, (7, 8), (100, 200)))

        def ours() -> None:
            self.fs.set_attributes(parts, size=size, mode=mode, times=times, follow=follow)

        def plain() -> set[Parts]:
            at = self.at(parts)
            os.lstat(at)
            led = at
            if follow and os.path.islink(at):
                led = os.path.realpath(at, strict=True)
            if size is not None:
                fd = os.open(led, os.O_WRONLY | os.O_NOFOLLOW)
                os.ftruncate(fd, size)
                os.close(fd)
            if mode is not None:
                if os.path.islink(led):
                    raise OSError(errno.EOPNOTSUPP, "")
                os.chmod(led, mode & 0o777)
            if times is not None:
                os.utime(led, times=times, follow_symlinks=False)
            place = tuple(os.path.relpath(led, self.plain).split(b"/"))
            return {place} if (size, mode, times) != (None, None, None) else set()

        return [parts], ours, plain


@pytest.fixture
def twins(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Twins]:
    lent, plain = (os.fsencode(tmp_path / name) for name in ("lent", "plain"))
    for root in (lent, plain):
        os.makedirs(os.path.join(root, b"a/b"))
        Path(os.fsdecode(os.path.join(root, b"a/c"))).write_bytes(b"content")
        os.symlink(b"a", os.path.join(root, b"c"))
    before = os.umask(0)
    quota, told = Quota(ROOM, ROOM), list[Parts]()
    fs = WritableFs(
        ConfinedFs.open_root(tmp_path / "lent"), PathRules(), quota, lambda parts: told.append(tuple(parts))
    )
    yield Twins(lent, plain, fs, quota, Random(request.node.name), told)
    fs.close()
    os.umask(before)


def code_of(action: Callable[[], object]) -> int | None:
    try:
        action()
    except OSError as exc:
        return exc.errno
    return None


@pytest.mark.parametrize("seed", range(16))
def test_the_same_requests_leave_the_same_tree_and_are_counted_and_told(twins: Twins, seed: int) -> None:
    fds = len(os.listdir("/proc/self/fd"))
    start = sizes(twins.plain)
    for _ in range(60):
        make = twins.random.choice((twins.put, twins.put, twins.simple, twins.simple, twins.pair, twins.attributes))
        paths, ours, plain = make()
        twins.told.clear()
        before = tree(twins.lent)
        code = code_of(ours)
        if any(twins.by_link(parts) for parts in paths):
            assert code is not None
            assert tree(twins.lent) == before
            continue
        expected, told = None, set[Parts]()
        try:
            told = plain()
        except OSError as exc:
            expected = exc.errno
        what = (make.__name__, paths, code, expected)
        assert (code is None) == (expected is None), what
        if make.__name__ != "attributes" or expected is None:
            alike = {errno.ENOENT, errno.ENOTDIR} if make.__name__ == "pair" else set()  # which name is looked at first
            assert code == expected or {code, expected} == alike, what
            assert tree(twins.lent) == tree(twins.plain), what
        if expected is None:
            assert set(twins.told) == told, what
        now = sizes(twins.lent)
        assert (twins.quota.bytes, twins.quota.files) == (now[0] - start[0], now[1] - start[1]), what
    shown = dict(seen(twins.fs))
    assert set(shown) == set(tree(twins.lent))
    for parts, status in shown.items():
        path = os.path.join(twins.lent, *parts)
        assert os.path.samestat(status, os.lstat(path))
        assert twins.fs.lstat(parts) == os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            assert twins.fs.readlink(parts) == os.readlink(path)
    assert len(os.listdir("/proc/self/fd")) == fds


# One by one


Make = Callable[..., WritableFs]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[WritableFs] = []

    def lend(rules: ViewRules | None = None, quota: Quota | None = None, **more: object) -> WritableFs:
        told: list[Parts] = []
        fs = WritableFs(
            ConfinedFs.open_root(tmp_path),
            rules or PathRules(),
            quota or Quota(ROOM, ROOM),
            lambda parts: told.append(tuple(parts)),
            **more,  # type: ignore[arg-type]
        )
        made.append(fs)
        return fs

    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "dir").mkdir()
    (tmp_path / "link").symlink_to("file")
    yield lend
    for fs in made:
        fs.close()


@pytest.mark.parametrize("umask", [0, 0o022, 0o077, 0o777])
def test_what_is_made_has_the_mode_that_is_asked_for_whatever_the_umask(tmp_path: Path, make: Make, umask: int) -> None:
    before = os.umask(umask)
    try:
        fs = make()
        for number, mode in enumerate((0o644, 0o7777, 0o000, 0o321)):
            fs.open_write([b"f%d" % number], os.O_WRONLY | os.O_CREAT, mode).close()
            fs.mkdir([b"d%d" % number], mode)
            assert stat.S_IMODE((tmp_path / f"f{number}").stat().st_mode) == mode & 0o777 | 0o400
            assert stat.S_IMODE((tmp_path / f"d{number}").stat().st_mode) == mode & 0o777 | 0o500
    finally:
        os.umask(before)


def test_a_twin_goes_on_when_the_first_is_closed(make: Make) -> None:
    quota = Quota(ROOM, ROOM)
    fs = make(quota=quota)
    twin = fs.twin()
    fs.close()
    twin.mkdir([b"new"], 0o700)
    assert quota.files == 1
    assert twin.lstat([b"file"]).st_size == 7
    twin.close()
    assert code_of(lambda: twin.lstat([])) == errno.EBADF


def test_a_time_is_set_to_the_nanosecond_a_links_own(tmp_path: Path, make: Make) -> None:
    fs = make(PathRules(locked=(b"dir",)))
    for name in ("file", "link"):
        fs.set_modified([name.encode()], 1_234_567_891)
        assert (tmp_path / name).lstat().st_mtime_ns == (tmp_path / name).lstat().st_atime_ns == 1_234_567_891
    assert (tmp_path / "file").stat().st_mtime_ns == 1_234_567_891
    assert code_of(lambda: fs.set_modified([b"dir"], 1)) == errno.EACCES
    assert code_of(lambda: fs.set_modified([b"none"], 1)) == errno.ENOENT


def test_modes_that_hide_from_the_audit_are_refused(tmp_path: Path, make: Make) -> None:
    fs = make()
    for name, mode in ((b"file", 0o277), (b"dir", 0o677), (b"dir", 0o377)):
        before = os.lstat(tmp_path / os.fsdecode(name)).st_mode
        assert code_of(lambda name=name, mode=mode: fs.set_attributes([name], mode=mode)) == errno.EACCES  # type: ignore[misc]
        assert os.lstat(tmp_path / os.fsdecode(name)).st_mode == before
    assert code_of(lambda: fs.set_attributes([b"link"], mode=0o600, follow=False)) == errno.EOPNOTSUPP
    fs.set_attributes([b"link"], mode=0o640)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


@pytest.mark.parametrize("rules", [PathRules(hidden=(b"dir", b"file")), PathRules(locked=(b"dir", b"file"))])
def test_what_rules_shut_is_changed_by_nothing(tmp_path: Path, make: Make, rules: PathRules) -> None:
    quota, denied = Quota(ROOM, ROOM), list[object]()
    fs = make(rules, quota, on_refused=lambda *what: denied.append(what))
    before = tree(os.fsencode(tmp_path))
    actions: list[Callable[[], object]] = []
    for name in ([b"file"], [b"dir"], [b"dir", b"new"]):
        flags = (os.O_WRONLY, os.O_WRONLY | os.O_CREAT, os.O_RDWR | os.O_TRUNC, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        actions += [partial(fs.open_write, name, one, 0o600) for one in flags]
        actions += [
            partial(fs.remove, name),
            partial(fs.rmdir, name),
            partial(fs.mkdir, name, 0o700),
            partial(fs.symlink, b"x", name),
            partial(fs.set_attributes, name, size=1, follow=False),
            partial(fs.set_attributes, name, mode=0o777, follow=False),
            partial(fs.set_attributes, name, times=(1, 1), follow=False),
            partial(fs.set_modified, name, 1),
            partial(fs.link, name, [b"free"]),
            partial(fs.link, [b"link"], name),
            partial(fs.rename, name, [b"free"], replace=True),
            partial(fs.rename, [b"link"], name, replace=True),
            partial(fs.rename, [b"link"], name, replace=False),
        ]
    for action in actions:
        denied.clear()
        assert code_of(action) == errno.EACCES, action
        assert len(denied) == 1, action
    assert tree(os.fsencode(tmp_path)) == before
    assert (quota.bytes, quota.files) == (0, 0)


def test_quotas_end_what_grows_and_nothing_else(tmp_path: Path, make: Make) -> None:
    quota = Quota(10, 2, max_file_bytes=9)
    fs = make(quota=quota)
    file = fs.open_write([b"new"], os.O_RDWR | os.O_CREAT, 0o600)
    file.write(b"123456789", 0)
    grow: list[Callable[[], object]] = [
        partial(file.write, b"0", 9),
        partial(file.truncate, 10),
        partial(fs.set_attributes, [b"file"], size=9),
    ]
    for action in grow:
        assert code_of(action) == errno.EDQUOT
    assert (quota.bytes, quota.files, (tmp_path / "new").stat().st_size) == (9, 1, 9)
    file.write(b"x" * 9, 0)
    file.write(b"", 100)
    file.truncate(3)
    file.write(b"45", 3)
    assert (quota.bytes, (tmp_path / "new").read_bytes()) == (5, b"xxx45")
    fs.set_attributes([b"file"], size=9)
    assert quota.bytes == 7
    fs.symlink(b"file", [b"second"])
    more: list[Callable[[], object]] = [
        partial(fs.mkdir, [b"third"], 0o700),
        partial(fs.symlink, b"file", [b"third"]),
        partial(fs.link, [b"file"], [b"third"]),
        partial(fs.open_write, [b"third"], os.O_WRONLY | os.O_CREAT, 0o600),
    ]
    for action in more:
        assert code_of(action) == errno.EDQUOT
        assert not os.path.lexists(tmp_path / "third")
    fs.rename([b"second"], [b"third"], replace=False)
    fs.remove([b"third"])
    fs.mkdir([b"third"], 0o700)
    file.close()
    assert quota.files == 2
