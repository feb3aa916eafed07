"""Probes of what keeps the states that a live lease overwrites."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from attacks.probe import CostProbe, FailureProbe, KeptProbe, Probe
from sublet.protocol.errors import SubletError
from sublet.workspace.changes.apply import Applier
from sublet.workspace.changes.taking_back import make_taking_back
from sublet.workspace.confined.later import NotKnownYet
from sublet.workspace.kept import blocks as block_file
from sublet.workspace.kept import contents
from sublet.workspace.kept.blocks import Mark
from sublet.workspace.kept.budget import KeptBudget
from sublet.workspace.kept.keeper import OverwriteKeeper
from sublet.workspace.kept.log import KeptState, encode_state, load, open_place
from sublet.workspace.kept.signature import Signature
from support.kept import KEY, LiveLease

MEBIBYTE = 1 << 20


@contextmanager
def _lease(budget: KeptBudget | None = None, *, patient: bool = True) -> Iterator[LiveLease]:
    with tempfile.TemporaryDirectory() as base:
        root, state = Path(base, "root"), Path(base, "state")
        root.mkdir()
        state.mkdir()
        (root / "f").write_text("before\n")
        (root / "g").write_text("before\n")
        lease = LiveLease(state, root, budget=budget, patient=patient)
        yield lease
        lease.fs.close()


def _list_of(size: int) -> bytes:
    """Return a list of about ``size`` bytes, all of one path."""
    line = encode_state(KeptState(b"f", "unsure", 0o644, 0, (0, 0), 1, 0))
    return line * (size // len(line))


def _read_list(raw: bytes) -> None:
    with tempfile.TemporaryDirectory() as place:
        Path(place, "log").write_bytes(raw)
        load(Path(place)).befores()


@contextmanager
def _files_made() -> Iterator[LiveLease]:
    """A lease makes and rewrites more files than are remembered."""
    with _lease(KeptBudget(limit=MEBIBYTE)) as lease:
        for _ in range(2):
            for number in range(2_000):
                lease.write(f"new{number}", b"x" * 100)
        yield lease


async def _written_over() -> None:
    """Somebody else edits, the lease overwrites, ends, and is taken back."""
    with _lease() as lease:
        (lease.root / "f").write_text("of a person\n")
        os.symlink("f", lease.root / "link")
        (lease.root / "large").write_bytes(b"l" * (5 * MEBIBYTE))
        lease.write("f", b"theirs\n")
        lease.fs.remove((b"link",))
        lease.fs.rename((b"large",), (b"moved",), replace=True)
        lease.fs.rename((b"g",), (b"h",), replace=True)
        lease.end()
        lease.take_back()
        assert (lease.root / "f").read_text() == "of a person\n"


async def _copies_that_nobody_takes() -> None:
    """Large files change while they are copied, and the lease ends meanwhile."""
    with _lease(patient=False) as lease:
        large = lease.root / "large"
        large.write_bytes(b"l" * (2 * MEBIBYTE))
        for number in range(3):
            with suppress(NotKnownYet):
                try:
                    lease.write("large", b"theirs", flags=os.O_WRONLY | os.O_TRUNC)
                except NotKnownYet as unknown:
                    unknown.learn()
                    raise
            large.write_bytes(b"m" * (2 * MEBIBYTE + number + 1))
        assert len([path for path in lease.kept.iterdir() if path.name.isdecimal()]) <= 1


async def _no_room() -> None:
    """There is no room for what is overwritten."""
    with _lease(KeptBudget(limit=0)) as lease:
        (lease.root / "f").write_text("of a person\n")
        lease.write("f", b"theirs\n")
        assert lease.end().lost == (b"f",)
        assert [conflict.path for conflict in lease.take_back().conflicts] == [b"f"]


async def _states_that_are_gone() -> None:
    """What was kept is gone or broken when somebody wants it back."""
    with _lease() as lease:
        (lease.root / "f").write_text("of a person\n")
        lease.write("f", b"theirs\n")
        lease.end()
        (lease.kept / "0").unlink()
        assert lease.result is not None
        with suppress(SubletError):
            make_taking_back(lease.changes, KEY, lease.root, lease.snapshot, lease.result.result)
            Applier(lease.changes).take_back([KEY])
        assert (lease.root / "f").read_text() == "theirs\n"


async def _place_that_is_gone() -> None:
    """The directory that keeps is gone when a lease goes on."""
    with _lease() as lease:
        place = open_place(lease.kept)
        (lease.kept / "log").unlink()
        with suppress(SubletError):
            OverwriteKeeper(place, lease.rules, KeptBudget())


async def _blocks_of_large_files() -> None:
    """Large files whose blocks can't be shared are patched, also after a kill, damaged, edited and taken back."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(contents, "share_content", lambda *_: False)
        with _lease() as lease:
            for name in ("one", "two", "three"):
                (lease.root / name).write_bytes(b"l" * (6 * MEBIBYTE))
            for name in ("one", "two", "three"):
                file = lease.fs.open_write((name.encode(),), os.O_WRONLY, 0)
                file.write(b"theirs", 0)
                file.close()
            lease.open()
            lease.fs.rename((b"two",), (b"moved",), replace=True)
            file = lease.fs.open_write((b"moved",), os.O_WRONLY, 0)
            file.write(b"theirs", MEBIBYTE)
            file.close()
            (lease.root / "three").write_bytes(b"of a person" * MEBIBYTE)
            lease.write("three", b"theirs", flags=os.O_WRONLY)
            lease.end()
            for path in lease.kept.iterdir():
                if path.name.isdecimal():
                    path.unlink()  # made for people: undo builds it itself
            min(lease.kept.glob("*.blocks")).write_bytes(b"damaged")
            lease.take_back()
            assert (lease.root / "three").read_bytes() == b"of a person" * MEBIBYTE


def _learned(action: Callable[[], None]) -> None:
    """Do what a session does: learn what is not known, and try again."""
    try:
        action()
    except NotKnownYet as unknown:
        unknown.learn()
        _learned(action)


async def _blocks_that_a_thread_keeps() -> None:
    """A cut that takes long is asked for, and given up: the lease ends, or somebody else edits meanwhile."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(contents, "share_content", lambda *_: False)
        for ending in ("edit", "close"):
            with _lease(patient=False) as lease:
                large = lease.root / "large"
                large.write_bytes(b"l" * (4 * MEBIBYTE))
                _learned(partial(lease.write, "large", b"theirs", flags=os.O_WRONLY))
                try:
                    lease.fs.set_attributes((b"large",), size=1)
                except NotKnownYet as unknown:
                    if ending == "edit":
                        large.write_bytes(b"m" * MEBIBYTE)
                        _learned(partial(lease.write, "large", b"theirs", flags=os.O_WRONLY))
                    else:
                        lease.fs.close()
                    unknown.learn()


def _records(size: int) -> bytes:
    """Return a file of blocks whose records are all of zeros."""
    with tempfile.TemporaryDirectory() as place:
        directory, source = os.open(place, os.O_RDONLY), os.open(place + "/source", os.O_RDWR | os.O_CREAT)
        count = size // 16
        os.ftruncate(source, block_file.BLOCK_BYTES * count)
        blocks = block_file.begin(directory, 0, block_file.BLOCK_BYTES * count, Mark(1, Signature(0, 0, 0)))
        for index in range(count):
            block_file.add(directory, blocks, source, index)
        os.close(source)
        os.close(directory)
        return Path(place, "0.blocks").read_bytes()


def _load_records(raw: bytes) -> None:
    with tempfile.TemporaryDirectory() as place:
        Path(place, "0.blocks").write_bytes(raw)
        directory = os.open(place, os.O_RDONLY)
        try:
            block_file.load(directory, 0)
        finally:
            os.close(directory)


PROBES: tuple[Probe, ...] = (
    CostProbe(
        name="keep: records of blocks",
        covers=("workspace.kept.blocks:load", "workspace.kept.blocks:_records"),
        make=_records,
        run=_load_records,
        size=4_096,
    ),
    FailureProbe(
        name="keep: blocks of large files",
        covers=(
            "workspace.kept.blocks:begin",
            "workspace.kept.blocks:add",
            "workspace.kept.blocks:sign",
            "workspace.kept.blocks:load",
            "workspace.kept.blocks:read_mark",
            "workspace.kept.blocks:restore",
            "workspace.kept.blocks:_write",
            "workspace.kept.contents:KeptContents._remove",
            "workspace.kept.account:_kept_as",
            "workspace.kept.rebuilding:FilesAsLeft.open",
            "workspace.changes.befores:Befores._rebuilt",
        ),
        throw=_blocks_of_large_files,
    ),
    FailureProbe(
        name="keep: blocks that a thread keeps",
        covers=("workspace.kept.contents:KeptContents._add_later", "workspace.kept.contents:KeptContents._remove"),
        throw=_blocks_that_a_thread_keeps,
    ),
    CostProbe(
        name="keep: a list of states",
        covers=("workspace.kept.log:load", "workspace.kept.log:Overwritten.befores"),
        make=_list_of,
        run=_read_list,
        size=64 << 10,
    ),
    KeptProbe(
        name="keep: files that a lease makes",
        covers=("workspace.kept.keeper:OverwriteKeeper.__init__", "workspace.kept.keeper:OverwriteKeeper.wrote"),
        attack=_files_made,
        bound=16 * MEBIBYTE,
    ),
    FailureProbe(
        name="keep: an edit of somebody else",
        covers=(
            "workspace.kept.contents:KeptContents._copy",
            "workspace.kept.contents:_highest",
            "workspace.confined.changing:ChangingFs._reading",
            "workspace.changes.befores:Befores.__init__",
            "workspace.changes.befores:Befores._made",
            "workspace.changes.befores:Befores._of_state",
            "workspace.changes.befores:Befores._stored",
            "workspace.changes.befores:Befores._stored_data.write",
        ),
        throw=_written_over,
    ),
    FailureProbe(
        name="keep: large files that change while they are copied",
        covers=("workspace.kept.contents:KeptContents._copy_later", "workspace.kept.contents:KeptContents.discard"),
        throw=_copies_that_nobody_takes,
    ),
    FailureProbe(
        name="keep: no room",
        covers=("workspace.kept.budget:KeptBudget.check",),
        throw=_no_room,
    ),
    FailureProbe(
        name="keep: what was kept is gone",
        covers=("workspace.changes.taking_back:make_taking_back",),
        throw=_states_that_are_gone,
    ),
    FailureProbe(
        name="keep: where it is kept is gone",
        covers=("workspace.kept.keeper:OverwriteKeeper.__init__", "workspace.kept.log:open_place"),
        throw=_place_that_is_gone,
    ),
)
