"""What is mounted inside a lent directory: scan, export and audit leave it out alike, and nobody touches it.

The mount in these tests never answers, so a test that touched it would not end.
"""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncssh
import pytest

from sublet.disk.openat2 import DIRECTORY_PATH, choose_opener, open_beneath
from sublet.policy.limits import AdmissionLimits
from sublet.workspace.audit.snapshot import take
from sublet.workspace.confined import nested_mounts
from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.confined.nested_mounts import NestedMounts
from sublet.workspace.quota import Quota
from sublet.workspace.serving.served_lease import ServedLease
from sublet.workspace.view.admission import scan
from support.dead_mount import dead_mount
from support.sftp_client import CoreClient, export, lender, open_channel, string
from support.views import default_rules

NO_SUCH_FILE, DENIED = 2, 3
POINT = b"dir/other disk"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / os.fsdecode(POINT)).mkdir(parents=True)
    (root / "dir" / "file").write_text("content")
    (root / os.fsdecode(POINT) / "covered").write_text("beneath the mount")
    return root


@pytest.fixture
def mounted(workspace: Path) -> Iterator[Path]:
    with dead_mount(workspace / os.fsdecode(POINT)):
        yield workspace


def test_the_mounts_below_a_directory_are_known_without_touching_them(mounted: Path) -> None:
    for directory, inside in ((mounted, POINT.split(b"/")), (mounted / "dir", POINT.split(b"/")[1:])):
        root = os.open(directory, DIRECTORY_PATH)
        nested = NestedMounts(root)
        assert nested.covers(inside)
        assert nested.covers([*inside, b"x", b"y"])
        assert not nested.covers(inside[:-1])
        assert not nested.covers([*inside[:-1], b"file"])
        assert nested.lie_below(inside[:-1])
        assert not nested.lie_below(inside)
        nested.close()
        os.close(root)
        assert not nested.covers(inside)


def test_a_mount_that_comes_or_goes_is_noticed(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nested_mounts, "FRESH_SECONDS", 0.0)
    root = os.open(workspace, DIRECTORY_PATH)
    nested = NestedMounts(root)
    point = POINT.split(b"/")
    assert not nested.covers(point)
    with dead_mount(workspace / os.fsdecode(POINT)):
        assert nested.covers(point)
        (workspace / "dir").rename(workspace / "moved")
        try:
            assert nested.covers([b"moved", point[1]])
        finally:
            (workspace / "moved").rename(workspace / "dir")
    assert not nested.covers(point)
    os.close(root)


@pytest.mark.skipif(choose_opener() is not open_beneath, reason="this kernel has no openat2")
def test_the_kernel_refuses_to_go_into_a_mount_that_is_too_new_to_be_known(mounted: Path) -> None:
    root = os.open(mounted, DIRECTORY_PATH)
    for path in (POINT, POINT + b"/below"):
        with pytest.raises(OSError, match=os.strerror(errno.EXDEV)):
            open_beneath(root, path, DIRECTORY_PATH)
    os.close(root)


def test_admission_lists_it_and_goes_on(mounted: Path) -> None:
    admission = scan(mounted, default_rules(), AdmissionLimits())
    assert (admission.unmountable, admission.unmountable_count) == ((POINT.decode(),), 1)
    assert (admission.files, admission.hidden_count, admission.special_count) == (1, 0, 0)


def test_a_root_that_is_itself_mounted_is_lent_as_ever() -> None:
    memory = Path("/dev/shm")
    if not memory.is_mount():
        pytest.skip("there is no mount at hand")
    with tempfile.NamedTemporaryFile(dir=memory) as file:
        fs = ConfinedFs(ConfinedFs.open_root(memory), default_rules(), Quota(None, None))
        assert fs.lstat([os.fsencode(Path(file.name).name)]).st_ino == os.fstat(file.fileno()).st_ino
        fs.close()


def test_no_operation_of_a_client_reaches_it(mounted: Path) -> None:
    lease = ServedLease(export(mounted, _key()), ThreadPoolExecutor(), mounted.parent)
    client = CoreClient(lease.new_session())
    path = b"/workspace/" + POINT
    assert sorted(client.listing(b"/workspace/dir")) == [b".", b"..", b"file"]
    for below in (b"", b"/covered", b"/a/b"):
        assert client.ask(7, string(path + below)).status == NO_SUCH_FILE
        assert client.ask(17, string(path + below)).status == NO_SUCH_FILE
        assert client.ask(19, string(path + below)).status == NO_SUCH_FILE
        assert client.ask(11, string(path + below)).status == NO_SUCH_FILE
        assert client.open(path + below, 1).status == NO_SUCH_FILE
        for flags in (2, 2 | 8, 2 | 8 | 32):
            assert client.open(path + below, flags).status == DENIED
        attributes = b"\0\0\0\4\0\0\1\xff"
        assert client.ask(9, string(path + below) + attributes).status == NO_SUCH_FILE
        for kind in (13, 14, 15):
            assert client.ask(kind, string(path + below) + attributes).status == DENIED
        for old, new in ((path + below, b"/workspace/x"), (b"/workspace/dir/file", path + below)):
            assert client.ask(18, string(old) + string(new)).status == DENIED
            assert client.extended(b"posix-rename@openssh.com", string(old) + string(new)).status == DENIED
            assert client.extended(b"hardlink@openssh.com", string(old) + string(new)).status == DENIED
        assert client.ask(20, string(b"file") + string(path + below)).status == DENIED
    assert client.ask(18, string(b"/workspace/dir") + string(b"/workspace/moved")).status == DENIED
    assert client.ask(20, string(b"other disk") + string(b"/workspace/dir/link")).status == 0
    assert client.ask(17, string(b"/workspace/dir/link")).status == NO_SUCH_FILE
    assert client.ask(7, string(b"/workspace/dir/file")).kind == 105
    lease.close()


@pytest.mark.anyio
async def test_the_loop_goes_on_whatever_a_client_asks_of_it(mounted: Path) -> None:
    async with lender(mounted) as lent, lent.connect() as connection:
        channel = await open_channel(connection)
        async with asyncio.timeout(10):
            assert (await channel.ask(7, string(b"/workspace/" + POINT))).status == NO_SUCH_FILE
            assert (await channel.ask(7, string(b"/workspace/dir/file"))).kind == 105


def test_an_audit_leaves_it_out_and_takes_nothing_beneath_for_deleted(workspace: Path) -> None:
    rules = default_rules()
    before = take(workspace, rules, {}, b"salt", lambda _: None).manifest
    assert sorted(before) == [b".", b"dir", b"dir/file", POINT, POINT + b"/covered"]
    with dead_mount(workspace / os.fsdecode(POINT)):
        assert sorted(take(workspace, rules, {}, b"salt", lambda _: None).manifest) == [b".", b"dir", b"dir/file"]
        during = take(workspace, rules, before, b"salt", lambda _: None)
        assert during.manifest.keys() == before.keys()
        assert during.unread == []


def _key() -> asyncssh.SSHKey:
    return asyncssh.generate_private_key("ssh-ed25519")
