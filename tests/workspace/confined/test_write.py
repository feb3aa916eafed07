"""Where no rule says anything, a lent directory is changed as the system itself would change one that is alike."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from sublet.disk.openat2 import rename_noreplace
from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.confined.write import WritableFs
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
