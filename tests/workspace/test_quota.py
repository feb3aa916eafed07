"""The quota as a whole: whatever is asked of the server, what it counts is what is on the disk, and within bounds."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import struct
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.export import LeaseUsage
from sublet.workspace.quota import Quota, QuotaMet, TreeSize
from sublet.workspace.sftp.core import SftpCore
from sublet.workspace.sftp.handles import HandleBudget, Handles
from sublet.workspace.view.export_view import WritableView
from support.budgets import examples
from support.sftp_client import NO_ATTRIBUTES, CoreClient, PathRules, attributes, string

MAX_BYTES, MAX_FILES, MAX_FILE_BYTES = 3000, 6, 1200
READ, WRITE, APPEND, CREAT, TRUNC, EXCL = 1, 2, 4, 8, 16, 32
NAMES = [b"old", b"twin", b"a", b"b", b"c", b"d", b"d/x", b"d/y", b"e", b"link"]
names = st.sampled_from(NAMES)
sizes = st.just(0) | st.integers(0, 1400)


def tree_size(statuses: Iterable[os.stat_result]) -> TreeSize:
    """Return the size of a tree from the status of every name below its root, as ``Quota`` counts it."""
    names = total = 0
    seen: set[tuple[int, int]] = set()
    for status in statuses:
        names += 1
        if not stat.S_ISREG(status.st_mode):
            continue
        if status.st_nlink > 1:
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
        total += status.st_size
    return TreeSize(total, names)


def statuses(root: Path) -> list[os.stat_result]:
    """Return the status of every name below ``root``."""
    return [path.lstat() for path in root.rglob("*")]


class QuotaMachine(RuleBasedStateMachine):
    """Two sessions of one lease do anything to a small tree.

    The model is the disk itself: names below the root, and the bytes of every file that a name or an open handle keeps.
    """

    def __init__(self) -> None:
        super().__init__()
        self.base = Path(tempfile.mkdtemp(prefix="quota"))
        self.root = self.base / "root"
        self.root.mkdir()
        (self.root / "old").write_bytes(b"o" * 500)
        (self.root / "large").write_bytes(b"l" * 5000)
        os.link(self.root / "old", self.root / "twin")
        self.before = tree_size(statuses(self.root))
        self.met: list[QuotaMet] = []
        self.quota = Quota(MAX_BYTES, MAX_FILES, MAX_FILE_BYTES, self.met.append)
        self.fs = WritableFs(ConfinedFs.open_root(self.root), PathRules(), self.quota, lambda _: None)
        view, budget = WritableView({"workspace": self.fs}, {}), HandleBudget(8)
        self.clients = [CoreClient(SftpCore(view, LeaseUsage(), Handles(budget), lambda: True)) for _ in range(2)]
        self.handles: list[tuple[CoreClient, bytes, int]] = []
        """Session, wire name, and a descriptor of our own on the same file, to look at it once it has no name."""

    def teardown(self) -> None:
        for client in self.clients:
            client.core.close()
        for _, _, fd in self.handles:
            os.close(fd)
        gone = tree_size(statuses(self.root))
        assert self.quota.bytes == gone.bytes - self.before.bytes
        self.fs.close()
        shutil.rmtree(self.base)

    def path(self, name: bytes) -> bytes:
        return string(b"/workspace/" + name)

    @rule(
        name=st.sampled_from([*NAMES, b"large"]),
        flags=st.sampled_from([READ, WRITE, READ | WRITE, WRITE | APPEND]),
        more=st.sampled_from([0, CREAT, CREAT | TRUNC, TRUNC, CREAT | EXCL]),
        session=st.integers(0, 1),
    )
    def open(self, name: bytes, flags: int, more: int, session: int) -> None:
        client = self.clients[session]
        answer = client.open(b"/workspace/" + name, flags | (more if flags & WRITE else 0))
        if answer.kind == 102:
            self.handles.append((client, answer.handle, os.open(os.path.join(bytes(self.root), name), os.O_RDONLY)))

    @rule(which=st.integers(0, 7), offset=sizes, size=sizes)
    def write(self, which: int, offset: int, size: int) -> None:
        if self.handles:
            client, handle, fd = self.handles[which % len(self.handles)]
            before = os.fstat(fd).st_size
            answer = client.write(handle, b"w" * size, offset)
            if answer.status != 0:
                assert os.fstat(fd).st_size == before, "what was refused is not there in part"

    @rule(which=st.integers(0, 7), size=sizes)
    def resize_open(self, which: int, size: int) -> None:
        if self.handles:
            client, handle, _ = self.handles[which % len(self.handles)]
            client.ask(10, string(handle) + attributes(size=size))

    @rule(name=names, size=sizes)
    def resize(self, name: bytes, size: int) -> None:
        self.clients[0].ask(9, self.path(name) + attributes(size=size))

    @rule(name=st.just(b"large"), size=st.integers(0, 6000))
    def resize_large(self, name: bytes, size: int) -> None:
        self.clients[0].ask(9, self.path(name) + attributes(size=size))

    @rule(which=st.integers(0, 7))
    def close(self, which: int) -> None:
        if self.handles:
            client, handle, fd = self.handles.pop(which % len(self.handles))
            os.close(fd)
            assert client.ask(4, string(handle)).status == 0

    @rule(name=names)
    def remove(self, name: bytes) -> None:
        self.clients[0].ask(13, self.path(name))

    @rule(name=st.sampled_from([b"d", b"e"]))
    def mkdir(self, name: bytes) -> None:
        self.clients[1].ask(14, self.path(name) + NO_ATTRIBUTES)

    @rule(name=st.sampled_from([b"d", b"e"]))
    def rmdir(self, name: bytes) -> None:
        self.clients[0].ask(15, self.path(name))

    @rule(old=names, new=names, replace=st.booleans())
    def rename(self, old: bytes, new: bytes, replace: bool) -> None:
        if replace:
            self.clients[0].extended(b"posix-rename@openssh.com", self.path(old) + self.path(new))
        else:
            self.clients[0].ask(18, self.path(old) + self.path(new))

    @rule(name=names, leads_to=names)
    def symlink(self, name: bytes, leads_to: bytes) -> None:
        self.clients[0].ask(20, string(leads_to) + self.path(name))

    @rule(old=names, new=names)
    def hardlink(self, old: bytes, new: bytes) -> None:
        self.clients[0].extended(b"hardlink@openssh.com", self.path(old) + self.path(new))

    @invariant()
    def what_is_counted_is_what_is_there_and_within_bounds(self) -> None:
        now = statuses(self.root)
        nameless = {(s.st_dev, s.st_ino): s.st_size for _, _, fd in self.handles if (s := os.fstat(fd)).st_nlink == 0}
        assert self.quota.files == tree_size(now).files - self.before.files <= MAX_FILES
        held = tree_size(now).bytes + sum(nameless.values())
        assert self.quota.bytes == held - self.before.bytes <= MAX_BYTES
        large = (self.root / "large").stat()
        assert large.st_size <= 5000
        others = [s.st_size for s in now if stat.S_ISREG(s.st_mode) and s.st_ino != large.st_ino]
        assert max([0, *others, *nameless.values()]) <= MAX_FILE_BYTES

    @invariant()
    def what_is_told_is_what_is_left(self) -> None:
        answer = self.clients[0].extended(b"statvfs@openssh.com", string(b"/"))
        size, fragment, blocks, free, available, files, inodes, usable, *_ = struct.unpack(">11Q", answer.body)
        assert size == fragment == 512
        assert available == free == (MAX_BYTES - self.quota.bytes) // size <= blocks
        assert inodes == usable == MAX_FILES - self.quota.files <= files


TestQuota = QuotaMachine.TestCase
TestQuota.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


def served(root: Path, quota: Quota) -> tuple[CoreClient, WritableFs]:
    """Return a session on ``root`` and its file system, to be closed."""
    fs = WritableFs(ConfinedFs.open_root(root), PathRules(), quota, lambda _: None)
    core = SftpCore(WritableView({"workspace": fs}, {}), LeaseUsage(), Handles(HandleBudget(8)), lambda: True)
    return CoreClient(core), fs


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("only root can make a small disk")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_loses_nothing_that_was_acknowledged(small_disk: Path) -> None:
    quota = Quota(1 << 30, 1000, 1 << 30)
    client, fs = served(small_disk, quota)
    handle = client.open(b"/workspace/big", READ | WRITE | CREAT).handle
    piece, acknowledged = bytes(range(256)) * 40, 0
    while (answer := client.write(handle, piece, acknowledged)).status == 0:
        acknowledged += len(piece)

    assert answer.status == 14  # no space, which is another thing than no quota
    assert 100_000 < acknowledged < 256 * 1024
    there = (small_disk / "big").read_bytes()
    assert there[:acknowledged] == (piece * 30)[:acknowledged]
    assert quota.bytes == len(there)
    assert quota.met is None
    told = struct.unpack(">11Q", client.extended(b"statvfs@openssh.com", string(b"/")).body)
    assert told[4] * told[0] < len(piece)
    assert client.ask(13, string(b"/workspace/big")).status == 0
    client.core.close()
    assert (quota.bytes, quota.files) == (0, 0)
    fs.close()


def test_a_name_that_is_there_is_no_matter_of_the_quota(tmp_path: Path) -> None:
    """A program that takes a lock file, or makes a directory that is there, adds nothing."""
    (tmp_path / "lock").touch()
    (tmp_path / "d").mkdir()
    quota = Quota(None, 0)
    client, fs = served(tmp_path, quota)

    exists = client.open(b"/workspace/lock", WRITE | CREAT | EXCL).status
    assert exists == client.ask(14, string(b"/workspace/d") + NO_ATTRIBUTES).status == 4
    assert quota.met is None
    assert client.ask(14, string(b"/workspace/e") + NO_ATTRIBUTES).status == 15
    assert quota.met == QuotaMet("max_files", 0)
    client.core.close()
    fs.close()


def test_a_file_larger_than_a_file_may_grow_can_be_written_and_cut(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"l" * 5000)
    quota = Quota(None, None, 1000)
    client, fs = served(tmp_path, quota)
    handle = client.open(b"/workspace/large", WRITE).handle

    assert client.write(handle, b"new", 4000).status == 0
    assert client.write(handle, b"new", 4999).status == 15
    assert client.ask(10, string(handle) + attributes(size=2000)).status == 0
    assert client.ask(10, string(handle) + attributes(size=2001)).status == 15
    assert quota.bytes == -3000
    client.core.close()
    fs.close()


def test_to_write_nothing_far_behind_the_end_adds_nothing(tmp_path: Path) -> None:
    quota = Quota(1000, None, 1000)
    client, fs = served(tmp_path, quota)
    handle = client.open(b"/workspace/f", WRITE | CREAT).handle

    assert client.write(handle, b"", 5000).status == 0
    assert quota.bytes == (tmp_path / "f").stat().st_size == 0
    client.core.close()
    fs.close()


def test_a_disk_without_room_counts_as_a_bound_met_and_other_failures_do_not() -> None:
    told: list[QuotaMet] = []
    quota = Quota(None, 0, None, told.append)
    for code in (errno.EIO, errno.EACCES, errno.EFBIG):
        quota.failed(OSError(code, os.strerror(code)))
    assert told == []
    with pytest.raises(OSError, match="quota") as refusal:
        quota.add_file()
    quota.failed(refusal.value)
    assert told == [QuotaMet("max_files", 0)], "our own word is no failure of the disk"
    quota.failed(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert told[1:] == [QuotaMet("disk", 0)]
    assert quota.met == told[0], "the first is what the work ends with"
    fresh = Quota()
    fresh.failed(OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)))
    assert fresh.met == QuotaMet.of("disk", 0)
    assert "disk is full" in fresh.met.error().message
