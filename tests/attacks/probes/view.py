"""Probes of what is shown, hidden, locked and moved: rules, links, second names, directories that hold something."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from attacks.kit.view_lease import served
from attacks.probe import CostProbe, FailureProbe, KeptProbe
from sublet.disk.openat2 import choose_opener
from sublet.workspace import own_names as own_names_of
from sublet.workspace.archive.tree_pack import AllVisible
from sublet.workspace.birth import Identity
from sublet.workspace.confined.copy_up import Copy, copy_link
from sublet.workspace.confined.held import HeldBelow, check_below
from sublet.workspace.confined.later import NotKnownYet
from sublet.workspace.confined.nested_mounts import NestedMounts
from sublet.workspace.confined.shared import SharedFiles
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.folding import may_fold
from sublet.workspace.mount.relay import SftpRelay
from sublet.workspace.own_names import OwnNames
from sublet.workspace.quota import Quota
from sublet.workspace.sftp.wire import MAX_PACKET
from sublet.workspace.view.patterns import fold
from sublet.workspace.view.walk import Budget, open_root, walk
from sublet.workspace.viewpath import link_stays
from support.sftp_client import INIT, frame, string
from support.views import default_rules


def base() -> Path:
    """Return a new directory; what runs in it removes it."""
    return Path(tempfile.mkdtemp(prefix="probe-view-")).resolve()


def tree_of(size: int) -> Path:
    """Return a directory with files of several names, one of them hidden, and links, ``size`` bytes of names in all."""
    root = base()
    (root / "d").mkdir()
    (root / ".env").write_text("SECRET")
    for number in range(max(2, size // 64)):
        place = root / "d" / f"{number % 7}"
        place.mkdir(exist_ok=True)
        name = place / f"{number:056}"
        name.touch()
        os.link(name, root / f"{number:060}")
        (place / f"l{number}").symlink_to("../x")
    return root


def look_over(root: Path) -> None:
    fd = open_root(root)
    try:
        shared = SharedFiles(fd, default_rules(), NestedMounts(fd), choose_opener(), lambda *_: False)
        name = (b"d", b"0", b"%056d" % 0)
        status = (root / os.fsdecode(b"/".join(name))).lstat()
        assert not shared.shows_hidden(status, name, patient=True)
        assert shared.stays_inside(status, name, patient=True)
        assert sum(1 for _ in walk(fd, default_rules(), Budget(1_000_000, 60)))
    finally:
        os.close(fd)
        shutil.rmtree(root)


def moved(root: Path) -> None:
    fs = WritableFs(open_root(root), default_rules(), Quota(), lambda _: None)
    try:
        fs.rename([b"d"], [b"e"], replace=False)
        fs.rename([b"e"], [b"d"], replace=False)
    finally:
        fs.close()
        shutil.rmtree(root)


async def exchanged_link() -> None:
    """What lies there in place of the link that was looked at stays as it is, and nothing is left beside it."""
    root = base()
    fd = os.open(root, os.O_PATH)
    try:
        os.symlink("looked-at", root / "l")
        os.link(root / "l", root / "outer", follow_symlinks=False)
        status = os.stat(root / "l", follow_symlinks=False)
        copy_link(fd, b"l", status)
        assert os.stat(root / "outer", follow_symlinks=False).st_nlink == 1
        with pytest.raises(OSError, match="Stale"):
            copy_link(fd, b"l", status)
        assert {name.name: os.readlink(name) for name in root.iterdir()} == {"l": "looked-at", "outer": "looked-at"}
    finally:
        os.close(fd)
        shutil.rmtree(root)


def names_of(size: int) -> bytes:
    return ("\uff0e" * (size // 3)).encode()


def relayed(target: bytes) -> SftpRelay:
    """Return what has taken a READLINK's answer from a lender."""
    relay = SftpRelay()
    relay.from_client(memoryview(INIT))
    relay.from_server([frame(2, 3, b"")[:9]])
    relay.from_client(memoryview(frame(19, 1, string(b"/a/b"))))
    relay.from_server([frame(104, 1, b"\0\0\0\1" + string(target) + string(b"") + b"\0\0\0\0")])
    return relay


def own_names(size: int) -> OwnNames:
    own = OwnNames()
    made = Identity(1, 2, 3)
    for number in range(size // 32):
        own.made((b"a", b"%d" % (number % 9), b"%020d.pem" % number), made)
    for number in range(size // 32):
        own.moved((b"a", b"%d" % (number % 9)), (b"b", b"%d" % (number % 9)))
        own.moved((b"b", b"%d" % (number % 9)), (b"a", b"%d" % (number % 9)))
    for path in list(own.paths()):
        own.gone(path.split(b"/"))
    return own


def replayed(size: int) -> None:
    again = OwnNames()
    for number in range(size // 32):
        path = b"a/%d/%020d.pem" % (number % 9, number)
        again.replay("made", b"1:2:3 " + path)
        again.replay("moved", path + b"//" + path + b"x")
        again.replay("gone", path + b"x")
    assert not again


def copied(size: int) -> None:
    root = base()
    try:
        (root / "f").write_bytes(b"x" * size)
        status = (root / "f").stat()
        fd = os.open(root, os.O_RDONLY)
        Copy(fd, b"f", status, size).put(b"f", status)
        assert not may_fold(root)
    finally:
        shutil.rmtree(root)


@contextmanager
def many_own_names() -> Iterator[object]:
    """An executor that makes as many hidden names as it may, and asks for hidden and denied ones without end."""
    root = base()
    (root / "lent").mkdir()
    held: list[Any] = []
    bound = patch.object(own_names_of, "MAX_OWN_BYTES", 1 << 17)
    with bound, served(root / "lent", default_rules(), memory=root / "memory") as lease:
        for number in range(400):
            lease.put(b"%0200d.pem" % number, b"")
            lease.mkdir(b"%0200d.envrc.code-workspace" % number)
            lease.link(b"%0200d.pem" % number, b"x%d" % number)
        held.append(lease.lease.export.lease_id)
        assert len(lease.denied) <= 100
    try:
        yield held
    finally:
        shutil.rmtree(root)


@contextmanager
def many_directories() -> Iterator[object]:
    """An executor that has many large directories looked through."""
    root = base()
    for number in range(6):
        place = root / "lent" / f"d{number}"
        place.mkdir(parents=True)
        for inner in range(300):
            (place / f"{inner:0200}").mkdir()
    with served(root / "lent", default_rules()) as lease:
        for number in range(6):
            assert lease.rename(b"d%d" % number, b"m%d" % number) == 0
    try:
        yield root
    finally:
        shutil.rmtree(root)


async def vanishing() -> None:
    """A directory goes while it is looked at, and a copy is not wanted any more."""
    root = base()
    (root / "d").mkdir()
    fs = WritableFs(open_root(root), default_rules(), Quota(), lambda _: None, patient=False)
    (root / "f").write_text("x")
    os.link(root / "f", root / "g")
    try:
        fs.lstat([b"f"])
    except NotKnownYet as unknown:
        shutil.rmtree(root)
        unknown.learn()
    with suppress(FileNotFoundError):
        fs.lstat([b"f"])
    fs.close()
    private = base()
    ours = WritableFs(open_root(private), AllVisible(), Quota(), lambda _: None, private=True)
    ours.mkdir([b"a"], 0o777)
    ours.close()
    shutil.rmtree(private)


def held_by(root: Path) -> None:
    fd = os.open(root, os.O_RDONLY)
    try:
        below = HeldBelow(default_rules(), lambda *_: False, None).below(fd, [b"d"], patient=True)
        check_below(below, [b"d"], [b"e"])
    finally:
        os.close(fd)
        shutil.rmtree(root)


PROBES = (
    CostProbe(
        name="view: files with several names",
        covers=(
            "workspace.confined.shared:SharedFiles.shows_hidden",
            "workspace.confined.shared:SharedFiles.stays_inside",
            "workspace.confined.shared:SharedFiles._learn",
            "workspace.confined.shared:SharedFiles._look_over",
            "workspace.confined.shared:SharedFiles._leads",
            "workspace.confined.shared:SharedFiles._verdict",
            "workspace.confined.shared:SharedFiles._all_shown",
            "workspace.confined.descend:descend",
            "workspace.view.walk:walk",
            "workspace.view.walk:_list",
            "workspace.view.walk:open_root",
        ),
        make=tree_of,
        run=look_over,
    ),
    CostProbe(
        name="view: a directory that is moved",
        covers=(
            "workspace.confined.held:HeldBelow.below",
            "workspace.confined.held:HeldBelow._look",
            "workspace.confined.held:HeldBelow._list",
            "workspace.confined.held:HeldBelow.followed",
            "workspace.confined.moving:MovingFs.rename",
        ),
        make=tree_of,
        run=moved,
    ),
    CostProbe(
        name="view: what a directory holds",
        covers=("workspace.confined.held:HeldBelow._holds", "workspace.confined.held:_climb"),
        make=tree_of,
        run=held_by,
    ),
    CostProbe(
        name="view: a name in other letters",
        covers=("workspace.view.patterns:fold", "workspace.view.patterns:module"),
        make=names_of,
        run=fold,
    ),
    CostProbe(
        name="view: where a link leads",
        covers=("workspace.viewpath:link_stays",),
        make=lambda size: b"../" * (size // 6) + b"a/" * (size // 4),
        run=lambda target: link_stays(10**6, target),
    ),
    CostProbe(
        name="mount: what a lender says of a link",
        covers=("workspace.mount.relay:_leads_inside", "workspace.mount.relay:SftpRelay._depth"),
        make=lambda size: b"a/" * (size // 2),
        run=relayed,
        most=MAX_PACKET // 2,
    ),
    CostProbe(
        name="view: names of a lease's own",
        covers=(
            "workspace.own_names:OwnNames.made",
            "workspace.own_names:OwnNames.moved",
            "workspace.own_names:OwnNames.gone",
            "workspace.own_names:OwnNames.paths",
            "workspace.own_names:OwnNames._cut",
            "workspace.own_names:OwnNames._forget",
        ),
        make=lambda size: size,
        run=own_names,
    ),
    CostProbe(
        name="view: a lease's own names of an earlier process",
        covers=("workspace.own_names:OwnNames.replay", "workspace.birth:Identity.read"),
        make=lambda size: size,
        run=replayed,
    ),
    CostProbe(
        name="view: a copy of a file with names elsewhere",
        covers=(
            "workspace.confined.copy_up:Copy.__init__",
            "workspace.confined.copy_up:Copy.put",
            "workspace.confined.copy_up:Copy.discard",
            "workspace.confined.copy_up:_made",
            "workspace.confined.copy_up:_change_places",
            "workspace.file_copy:copy_content",
            "workspace.folding:may_fold",
        ),
        make=lambda size: size,
        run=copied,
    ),
    KeptProbe(
        name="view: hidden names without end",
        covers=(
            "workspace.own_names:OwnNames.has_room",
            "workspace.serving.served_lease:ServedLease._denied",
            "workspace.serving.served_lease:ServedLease._own",
            "workspace.serving.lease_memory:LeaseMemory.own",
        ),
        attack=many_own_names,
        bound=4 << 20,
    ),
    KeptProbe(
        name="view: directories without end",
        covers=("workspace.confined.held:HeldBelow._keep", "workspace.confined.held:HeldBelow._answer"),
        attack=many_directories,
        bound=4 << 20,
    ),
    FailureProbe(
        name="view: a link with names elsewhere that somebody exchanges",
        covers=("workspace.confined.copy_up:copy_link",),
        throw=exchanged_link,
    ),
    FailureProbe(
        name="view: what is looked at goes away",
        covers=("workspace.confined.later:need", "workspace.confined.changing:ChangingFs.close"),
        throw=vanishing,
    ),
)
