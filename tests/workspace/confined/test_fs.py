"""The confined file system under attack, with openat2 and with the walk that replaces it."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from sublet.disk.openat2 import Opener, choose_opener, open_beneath, walk_beneath
from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.export import ViewRules
from sublet.workspace.quota import Quota
from sublet.workspace.view import walk
from sublet.workspace.viewpath import link_stays, split
from support.sftp_client import PathRules
from support.views import default_rules

MakeFs = Callable[..., WritableFs]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace beside a directory that must stay out of reach."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    workspace = tmp_path / "workspace"
    (workspace / "src" / "deep").mkdir(parents=True)
    (workspace / "src" / "a.py").write_text("print()\n")
    (workspace / "src" / "deep" / "b").write_text("b")
    return workspace


@pytest.fixture(params=["openat2", "walk"])
def opener(request: pytest.FixtureRequest) -> Opener:
    """Both ways to open directories."""
    if request.param == "walk":
        return walk_beneath
    if choose_opener() is not open_beneath:
        pytest.skip("this kernel has no openat2")
    return open_beneath


@pytest.fixture
def touched() -> list[bytes]:
    """What the file system says it changed."""
    return []


@pytest.fixture
def make_fs(root: Path, opener: Opener, touched: list[bytes]) -> Iterator[MakeFs]:
    """Make writable file systems on ``root``."""
    made: list[WritableFs] = []

    def make(rules: ViewRules | None = None, quota: Quota | None = None) -> WritableFs:
        fs = WritableFs(
            ConfinedFs.open_root(root),
            rules or PathRules(),
            quota or Quota(None, None),
            lambda parts: touched.append(b"/".join(parts)),
            opener,
        )
        made.append(fs)
        return fs

    yield make
    for fs in made:
        fs.close()


def code_of(action: Callable[[], object]) -> int | None:
    """Return the error number of ``action``, None where it succeeds."""
    try:
        result = action()
    except OSError as exc:
        return exc.errno
    if hasattr(result, "close"):
        result.close()
    return None


def open_descriptors() -> int:
    """Return how many descriptors this process has."""
    return len(os.listdir("/proc/self/fd"))


def put(fs: WritableFs, path: bytes, data: bytes, flags: int = os.O_WRONLY | os.O_CREAT, offset: int = 0) -> None:
    """Write a file through the confined file system."""
    file = fs.open_write(split(path), flags, 0o644)
    try:
        file.write(data, offset)
    finally:
        file.close()


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        (b"", []),
        (b"/", []),
        (b"/a//b/./c/", [b"a", b"b", b"c"]),
        (b"/../../etc/passwd", [b"etc", b"passwd"]),
        (b"a/b/../../../../c", [b"c"]),
    ],
)
def test_paths_never_climb_above_the_root(path: bytes, parts: list[bytes]) -> None:
    assert split(path) == parts


def test_a_nul_byte_is_refused() -> None:
    assert code_of(lambda: split(b"a\0b")) == errno.EINVAL


@pytest.mark.parametrize(
    ("depth", "target", "stays"),
    [
        (0, b"a", True),
        (0, b"a/b", True),
        (0, b"..", False),
        (0, b"/etc/passwd", False),
        (0, b"", False),
        (1, b"../a", True),
        (1, b"./../a", True),
        (1, b"../../a", False),
        (2, b"s/s/../../../../x", False),
        (2, b"a/../b", False),
    ],
)
def test_link_targets(depth: int, target: bytes, stays: bool) -> None:
    assert link_stays(depth, target) is stays


def test_reads_and_lists_what_is_there(make_fs: MakeFs) -> None:
    fs = make_fs()
    file = fs.open_read([b"src", b"a.py"])
    assert file.read(100, 0) == b"print()\n"
    file.close()
    directory = fs.open_directory([b"src"])
    assert {name for name, _ in directory.entries()} == {b"a.py", b"deep"}
    directory.close()
    assert stat.S_ISDIR(fs.lstat([]).st_mode)


def test_links_that_leave_are_neither_read_nor_followed(root: Path, make_fs: MakeFs) -> None:
    fs = make_fs()
    (root / "absolute").symlink_to(root.parent / "outside")
    (root / "relative").symlink_to("../outside")
    (root / "src" / "loop").symlink_to("loop")
    (root / "self").symlink_to(".")
    (root / "sly").symlink_to("self/self/../../outside")
    before = open_descriptors()
    for link in (b"absolute", b"relative", b"sly"):
        assert stat.S_ISLNK(fs.lstat([link]).st_mode)
        assert code_of(partial(fs.readlink, [link])) == errno.EACCES
        assert code_of(partial(fs.stat, [link])) == errno.EACCES
        for action in (
            partial(fs.lstat, [link, b"secret"]),
            partial(fs.open_read, [link, b"secret"]),
            partial(fs.open_directory, [link]),
            partial(fs.open_write, [link, b"new"], os.O_WRONLY | os.O_CREAT, 0o644),
            partial(fs.mkdir, [link, b"new"], 0o755),
            partial(fs.remove, [link, b"secret"]),
            partial(fs.rename, [link, b"secret"], [b"stolen"], replace=True),
            partial(fs.link, [link, b"secret"], [b"stolen"]),
            partial(fs.symlink, b"x", [link, b"new"]),
            partial(fs.set_attributes, [link, b"secret"], mode=0o777),
        ):
            assert code_of(action) in (errno.ELOOP, errno.ENOTDIR), action
    assert code_of(lambda: fs.stat([b"src", b"loop"])) == errno.ELOOP
    assert open_descriptors() == before
    assert sorted(os.listdir(root.parent / "outside")) == ["secret"]
    assert (root.parent / "outside" / "secret").read_text() == "secret"


def test_inner_links_are_followed_by_stat_only(root: Path, make_fs: MakeFs) -> None:
    fs = make_fs()
    fs.symlink(b"../src/a.py", [b"src", b"up"])
    fs.symlink(b"src/up", [b"via"])
    assert fs.readlink([b"via"]) == b"src/up"
    assert fs.stat([b"via"]).st_size == 8
    assert code_of(lambda: fs.open_read([b"via"])) == errno.ELOOP
    fs.set_attributes([b"via"], mode=0o600)
    assert stat.S_IMODE((root / "src" / "a.py").stat().st_mode) == 0o600


@pytest.mark.parametrize("target", [b"/etc/passwd", b"../outside", b"src/../../outside", b".."])
def test_links_that_would_leave_are_not_created(root: Path, make_fs: MakeFs, target: bytes) -> None:
    fs = make_fs()
    assert code_of(lambda: fs.symlink(target, [b"new"])) == errno.EACCES
    assert not os.path.lexists(root / "new")


def test_a_link_cannot_be_moved_up_until_it_leaves(root: Path, make_fs: MakeFs) -> None:
    fs = make_fs()
    fs.symlink(b"../../outside", [b"src", b"deep", b"link"])
    assert code_of(lambda: fs.rename([b"src", b"deep", b"link"], [b"link"], replace=True)) == errno.EACCES
    assert code_of(lambda: fs.rename([b"src", b"deep"], [b"deep"], replace=False)) == errno.EXDEV
    assert code_of(lambda: fs.link([b"src", b"deep", b"link"], [b"link"])) == errno.ELOOP
    fs.remove([b"src", b"deep", b"link"])
    fs.rename([b"src", b"deep"], [b"deep"], replace=False)
    assert (root / "deep" / "b").exists()


def test_a_directory_with_a_link_of_the_lender_that_leaves_anyway_can_be_moved(root: Path, make_fs: MakeFs) -> None:
    fs = make_fs()
    (root / "src" / "deep" / "python").symlink_to("/usr/bin/python3")
    fs.rename([b"src", b"deep"], [b"deep"], replace=False)
    assert (root / "deep" / "python").is_symlink()


def test_special_files_do_not_open_and_do_not_block(root: Path, make_fs: MakeFs) -> None:
    fs = make_fs()
    os.mkfifo(root / "fifo")
    names = [b"fifo", b"socket"]
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(root / "socket"))
        if os.geteuid() == 0:
            os.mknod(root / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
            names.append(b"null")
        for name in names:
            assert code_of(partial(fs.open_read, [name])) == errno.EACCES
            for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_CREAT, os.O_WRONLY | os.O_TRUNC):
                assert code_of(partial(fs.open_write, [name], flags, 0o644)) == errno.EACCES
            assert code_of(partial(fs.set_attributes, [name], size=0)) == errno.EACCES
            assert code_of(partial(fs.link, [name], [b"second"])) == errno.EACCES
    assert code_of(lambda: fs.open_read([b"src"])) == errno.EISDIR


def test_dangerous_mode_bits_are_stripped(root: Path, make_fs: MakeFs) -> None:
    fs = make_fs()
    file = fs.open_write([b"tool"], os.O_WRONLY | os.O_CREAT, 0o7777)
    file.set_mode(0o6755)
    file.close()
    fs.mkdir([b"dir"], 0o7755)
    fs.set_attributes([b"dir"], mode=0o7755)
    fs.set_attributes([b"src", b"a.py"], mode=0o4711)
    for name, mode in (("tool", 0o755), ("dir", 0o755), ("src/a.py", 0o711)):
        assert stat.S_IMODE((root / name).stat().st_mode) == mode


def test_hidden_names_do_not_exist_and_locked_ones_do_not_change(root: Path, make_fs: MakeFs) -> None:
    fs = make_fs(default_rules(revealed=(".git",)))
    (root / ".env").write_text("KEY=1")
    (root / ".envrc").write_text("export A=1")
    (root / ".git" / "hooks").mkdir(parents=True)
    (root / ".git" / "config").write_text("token")
    directory = fs.open_directory([])
    assert {name for name, _ in directory.entries()} == {b"src", b".envrc", b".git"}
    directory.close()
    assert code_of(lambda: fs.lstat([b".env"])) == errno.ENOENT
    assert code_of(lambda: fs.open_read([b".git", b"config"])) == errno.ENOENT
    for name in ([b".env"], [b".envrc"], [b".git", b"config"], [b".git", b"hooks", b"post-checkout"]):
        for action in (
            partial(fs.open_write, name, os.O_WRONLY | os.O_CREAT, 0o755),
            partial(fs.mkdir, name, 0o755),
            partial(fs.symlink, b"src", name),
            partial(fs.remove, name),
            partial(fs.rmdir, name),
            partial(fs.rename, [b"src", b"a.py"], name, replace=True),
            partial(fs.rename, name, [b"free"], replace=True),
            partial(fs.link, [b"src", b"a.py"], name),
            partial(fs.link, name, [b"free"]),
            partial(fs.set_attributes, name, mode=0o777, follow=False),
        ):
            assert code_of(action) == errno.EACCES
    file = fs.open_read([b".envrc"])
    assert file.read(100, 0) == b"export A=1"
    assert not hasattr(file, "write")
    file.close()


def test_names_do_not_escape_their_rules_with_a_directory_above(root: Path, make_fs: MakeFs) -> None:
    fs = make_fs(PathRules(hidden=(b"conf/secret",), locked=(b"tools/hooks",)))
    (root / "conf").mkdir()
    (root / "conf" / "secret").write_text("s")
    (root / "evil" / "hooks").mkdir(parents=True)
    assert code_of(lambda: fs.rename([b"conf"], [b"other"], replace=False)) == errno.EACCES
    assert code_of(lambda: fs.rename([b"evil"], [b"tools"], replace=False)) == errno.EACCES
    assert code_of(lambda: fs.symlink(b"evil", [b"tools"])) == errno.EACCES
    fs.symlink(b"conf", [b"alias"])
    assert code_of(lambda: fs.stat([b"alias", b"secret"])) in (errno.ELOOP, errno.ENOTDIR)
    fs.symlink(b"conf/secret", [b"short"])
    assert code_of(lambda: fs.stat([b"short"])) == errno.ENOENT


def test_changes_are_told_by_path(make_fs: MakeFs, touched: list[bytes]) -> None:
    fs = make_fs()
    put(fs, b"new", b"1")
    fs.open_write([b"src", b"a.py"], os.O_WRONLY, 0).close()
    fs.mkdir([b"d"], 0o755)
    fs.rename([b"new"], [b"d", b"moved"], replace=False)
    fs.set_attributes([b"d", b"moved"], mode=0o600)
    fs.set_attributes([b"src", b"a.py"])
    fs.remove([b"d", b"moved"])
    assert set(touched) == {b"new", b"d", b"d/moved"}


def test_a_change_of_owner_alone_succeeds_and_does_nothing(root: Path, make_fs: MakeFs) -> None:
    fs = make_fs()
    fs.set_attributes([b"src", b"a.py"])
    fs.set_attributes([], mode=0o700, times=(1, 1))
    assert code_of(lambda: fs.set_attributes([b"missing"])) == errno.ENOENT
    assert root.stat().st_mtime != 1


def test_rename_without_replacing_never_replaces(root: Path, make_fs: MakeFs) -> None:
    fs = make_fs()
    (root / "one").write_text("1")
    (root / "two").write_text("2")
    assert code_of(lambda: fs.rename([b"one"], [b"two"], replace=False)) == errno.EEXIST
    fs.rename([b"one"], [b"two"], replace=True)
    assert (root / "two").read_text() == "1"


def test_appends_go_to_the_end(root: Path, make_fs: MakeFs) -> None:
    quota = Quota(100, None)
    fs = make_fs(quota=quota)
    put(fs, b"log", b"abc")
    put(fs, b"log", b"def", os.O_WRONLY | os.O_APPEND)
    assert (root / "log").read_bytes() == b"abcdef"
    assert quota.bytes == 6


def test_quota_counts_what_is_added_net(root: Path, make_fs: MakeFs) -> None:
    quota = Quota(100, 10)
    fs = make_fs(quota=quota)
    put(fs, b"f", b"x" * 60)
    put(fs, b"f", b"y" * 60)
    assert (quota.bytes, quota.files) == (60, 1)
    assert code_of(lambda: put(fs, b"f", b"z" * 60, offset=50)) == errno.EDQUOT
    assert (root / "f").stat().st_size == 60
    put(fs, b"f", b"z", offset=99)  # sparse, and counted by its size
    assert quota.bytes == 100
    fs.set_attributes([b"f"], size=10)
    assert quota.bytes == 10
    assert code_of(lambda: fs.set_attributes([b"f"], size=101)) == errno.EDQUOT
    fs.link([b"f"], [b"g"])
    fs.remove([b"f"])
    assert (quota.bytes, quota.files) == (10, 1)
    put(fs, b"h", b"x" * 5)
    fs.rename([b"h"], [b"g"], replace=True)
    assert (quota.bytes, quota.files) == (5, 1)
    fs.open_write([b"g"], os.O_WRONLY | os.O_TRUNC, 0).close()
    assert quota.bytes == 0
    fs.remove([b"src", b"a.py"])
    assert (quota.bytes, quota.files) == (-8, 0)


def test_two_names_of_one_file_renamed_onto_each_other_both_stay(root: Path, make_fs: MakeFs) -> None:
    quota = Quota(100, 10)
    fs = make_fs(quota=quota)
    put(fs, b"f", b"x" * 60)
    fs.link([b"f"], [b"g"])
    fs.rename([b"f"], [b"g"], replace=True)
    assert (quota.bytes, quota.files) == (60, 2)
    assert sorted(os.listdir(root)) == ["f", "g", "src"]


def test_a_removed_file_counts_until_its_last_handle_closes(make_fs: MakeFs) -> None:
    quota = Quota(100, None)
    fs = make_fs(quota=quota)
    put(fs, b"f", b"x" * 60)
    first, second = fs.open_read([b"f"]), fs.open_read([b"f"])
    fs.remove([b"f"])
    assert code_of(lambda: put(fs, b"g", b"x" * 60)) == errno.EDQUOT
    first.close()
    assert quota.bytes == 60
    second.close()
    assert quota.bytes == 0
    put(fs, b"g", b"x" * 60)


def test_a_file_quota_stops_every_kind_of_name(make_fs: MakeFs) -> None:
    quota = Quota(None, 1)
    fs = make_fs(quota=quota)
    assert code_of(lambda: fs.mkdir([b"src"], 0o755)) == errno.EEXIST
    fs.mkdir([b"d"], 0o755)
    assert code_of(lambda: fs.mkdir([b"e"], 0o755)) == errno.EDQUOT
    assert code_of(lambda: fs.symlink(b"d", [b"e"])) == errno.EDQUOT
    assert code_of(lambda: fs.link([b"src", b"a.py"], [b"e"])) == errno.EDQUOT
    assert code_of(lambda: put(fs, b"e", b"")) == errno.EDQUOT
    fs.rmdir([b"d"])
    put(fs, b"e", b"")
    assert fs.statvfs()[5:8] == (1, 0, 0)


def test_statvfs_tells_what_the_quota_leaves(make_fs: MakeFs) -> None:
    quota = Quota(1 << 20, None)
    fs = make_fs(quota=quota)
    put(fs, b"f", b"x" * (1 << 19))
    size, _, blocks, free, available, *_ = fs.statvfs()
    assert (blocks * size, free * size, available * size) == (1 << 20, 1 << 19, 1 << 19)
    quota.bytes = 1 << 20
    assert fs.statvfs()[4] == 0


def test_a_short_write_is_continued(root: Path, make_fs: MakeFs, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = make_fs()
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real(fd, bytes(data)[:3], offset))
    put(fs, b"f", b"0123456789")
    assert (root / "f").read_bytes() == b"0123456789"


def test_a_write_that_fails_half_way_counts_its_part(make_fs: MakeFs, monkeypatch: pytest.MonkeyPatch) -> None:
    quota = Quota(100, None)
    fs = make_fs(quota=quota)
    real = os.pwrite

    def full(fd: int, data: bytes, offset: int) -> int:
        if offset:
            raise OSError(errno.ENOSPC, "no space")
        return real(fd, bytes(data)[:4], offset)

    monkeypatch.setattr(os, "pwrite", full)
    assert code_of(lambda: put(fs, b"f", b"0123456789")) == errno.ENOSPC
    assert quota.bytes == 4


def test_a_closed_root_serves_nothing(make_fs: MakeFs) -> None:
    fs = make_fs()
    fs.close()
    fs.close()
    for action in (
        lambda: fs.lstat([b"src"]),
        lambda: fs.lstat([]),
        lambda: fs.open_read([b"src", b"a.py"]),
        lambda: fs.mkdir([b"x"], 0o755),
        fs.statvfs,
    ):
        assert code_of(action) == errno.EBADF


def test_no_error_names_the_real_path(root: Path, make_fs: MakeFs) -> None:
    fs = make_fs()
    with pytest.raises(NotADirectoryError) as caught:
        fs.open_directory([b"src", b"a.py"])
    assert str(root) not in str(caught.value)


def exchange_forever(directory: Path, one: str, two: str, stop: threading.Event) -> None:
    """Swap two names as fast as the kernel can."""
    renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    fd = os.open(directory, os.O_RDONLY)
    try:
        while not stop.is_set():
            renameat2(fd, one.encode(), fd, two.encode(), 2)
    finally:
        os.close(fd)


def test_a_directory_that_is_swapped_for_a_link_never_leads_out(root: Path, make_fs: MakeFs) -> None:
    fs = make_fs()
    outside = root.parent / "outside"
    (root / "door").mkdir()
    (root / "door" / "secret").write_text("inside")
    (root / "trap").symlink_to("../outside")
    stop = threading.Event()
    swapper = threading.Thread(target=exchange_forever, args=(root, "door", "trap", stop))
    swapper.start()
    inside = 0
    refusals: set[int | None] = set()
    try:
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            try:
                file = fs.open_read([b"door", b"secret"])
                assert file.read(100, 0) == b"inside"
                file.close()
                inside += 1
                put(fs, b"door/new", b"1")
                fs.remove([b"door", b"new"])
            except OSError as exc:
                refusals.add(exc.errno)
    finally:
        stop.set()
        swapper.join()
    assert inside
    assert refusals
    assert refusals <= {errno.ELOOP, errno.ENOTDIR, errno.ENOENT, errno.EAGAIN}
    assert os.listdir(outside) == ["secret"]


def test_a_file_that_is_swapped_for_a_link_never_opens_the_target(root: Path, make_fs: MakeFs) -> None:
    fs = make_fs()
    (root / "file").write_text("inside")
    (root / "trap").symlink_to("../outside/secret")
    stop = threading.Event()
    swapper = threading.Thread(target=exchange_forever, args=(root, "file", "trap", stop))
    swapper.start()
    inside = 0
    refusals: set[int | None] = set()
    try:
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            try:
                file = fs.open_write([b"file"], os.O_RDWR, 0)
                assert file.read(100, 0) == b"inside"
                file.close()
                inside += 1
                fs.set_attributes([b"file"], mode=0o640, follow=False)
            except OSError as exc:
                refusals.add(exc.errno)
    finally:
        stop.set()
        swapper.join()
    assert inside
    assert refusals
    assert refusals <= {errno.ELOOP, errno.EOPNOTSUPP, errno.ESTALE}
    assert stat.S_IMODE((root.parent / "outside" / "secret").stat().st_mode) != 0o640


def test_the_walk_is_chosen_where_openat2_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(dir_fd: int, path: bytes, flags: int) -> int:
        raise OSError(errno.ENOSYS, "not here")

    monkeypatch.setattr("sublet.disk.openat2.open_beneath", missing)
    assert choose_opener.__wrapped__() is walk_beneath


@pytest.mark.parametrize("path", [b"..", b"src/..", b"../outside"])
def test_neither_opener_climbs(root: Path, opener: Opener, path: bytes) -> None:
    fd = os.open(root, os.O_PATH)
    try:
        if path == b"src/..":
            if opener is walk_beneath:
                assert code_of(lambda: os.close(opener(fd, path, os.O_PATH))) == errno.EXDEV
        else:
            assert code_of(lambda: os.close(opener(fd, path, os.O_PATH))) == errno.EXDEV
    finally:
        os.close(fd)


def test_a_root_that_a_link_has_replaced_is_not_opened(tmp_path: Path) -> None:
    lent, other = tmp_path / "parent" / "lent", tmp_path / "other"
    lent.mkdir(parents=True)
    (other / "lent").mkdir(parents=True)
    os.close(ConfinedFs.open_root(lent))

    (tmp_path / "parent").rename(tmp_path / "moved")
    (tmp_path / "parent").symlink_to(other)

    with pytest.raises(NotADirectoryError):
        ConfinedFs.open_root(lent)
    with pytest.raises(NotADirectoryError):
        walk.open_root(lent)
