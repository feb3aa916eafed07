"""What stays in queues, caches and lists of the workspace, and the odd loop that nothing else runs through."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast
from unittest.mock import patch

import asyncssh

from attacks.kit.lease import opened
from attacks.kit.view_lease import served
from attacks.probe import CostProbe, FailureProbe, KeptProbe, Probe, Reason
from attacks.probes.paths import nested_groups
from sublet.disk import openat2
from sublet.disk.removal import remove_tree
from sublet.disk.set_aside import MAX_TOLD, SetAside
from sublet.workspace.archive import client
from sublet.workspace.archive.wire import MAX_REFUSED, Frame, Refused, Report, frame, pack_report
from sublet.workspace.audit.path_tree import PathTree
from sublet.workspace.audit.snapshot import _is_below
from sublet.workspace.confined.copy_up import QUICK_BYTES
from sublet.workspace.serving.slow_work import SlowWork
from sublet.workspace.view import compiled, rules
from sublet.workspace.view.admission import _pattern
from support.noise import noise
from support.sftp_client import NO_ATTRIBUTES, string
from support.views import default_rules

NAME_CHARS = 4_000
PACKET = 16 << 10


class Channel:
    """A channel that a lender sends through, which counts how often it had to wait."""

    paused = False

    def pause_reading(self) -> None:
        """Make the lender wait."""
        self.paused = True

    def resume_reading(self) -> None:
        """Let the lender send."""
        self.paused = False


@contextmanager
def tiny_frames() -> Iterator[object]:
    """A lender that sends empty frames for as long as it is let, to an executor that takes none."""
    channel, session = Channel(), client._Session(lambda: None)
    session.channel = cast("asyncssh.SSHClientChannel[bytes]", channel)
    packet = frame(Frame.DATA) * (PACKET // len(frame(Frame.DATA)))
    with patch.object(client, "MAX_WAITING_BYTES", 4 * PACKET):
        for _ in range(5):
            assert not channel.paused
            session.data_received(packet, None)
        assert channel.paused, "nothing makes it wait"
        yield None
        while session.has_frame:
            session.take()
        assert not channel.paused


@contextmanager
def much_set_aside() -> Iterator[object]:
    """A state in which far more is torn than is told."""
    place = Path(tempfile.mkdtemp(prefix="probe-lasting-"))
    aside = SetAside(place)
    for number in range(3 * MAX_TOLD):
        aside.keep(f"row {number}", b"{", "it is torn")
    try:
        yield aside
    finally:
        shutil.rmtree(place)


@contextmanager
def slow_peers() -> Iterator[object]:
    """Many peers, each of whom has a few things done that take long."""
    slow = SlowWork()
    peers = [slow.one_by_one() for _ in range(300)]
    done = [peer.submit(bytes, 1_000) for peer in peers for _ in range(4)]
    for future in done:
        future.result(60)
    yield slow
    slow.shutdown()


@contextmanager
def flags_asked_for() -> Iterator[object]:
    """An executor that opens a file with every flag that there is."""
    openat2._how.cache_clear()
    with opened() as lease:
        (lease.root / "f").touch()
        for flags in range(1 << 9):
            lease.client.ask(3, string(b"/workspace/f") + flags.to_bytes(4, "big") + NO_ATTRIBUTES)
            lease.client.ask(11, string(b"/workspace"))
        yield None


@contextmanager
def rules_without_end() -> Iterator[object]:
    """Leases whose rules all differ, more than are kept compiled."""
    compiled.compiled.cache_clear()
    for number in range(2 * compiled.KEPT_COMPILED):
        rules.Rules([f"hidden{number}-{name}" for name in range(10)], [f"locked{number}/*"], [])
    assert compiled.compiled.cache_info().currsize <= compiled.KEPT_COMPILED
    yield None


@contextmanager
def groups_in_groups() -> Iterator[object]:
    """A program that leaves groups in its group."""
    place = Path(tempfile.mkdtemp(prefix="probe-lasting-"))
    nested_groups(place)
    yield place
    remove_tree(place)


def refusals(size: int) -> Report:
    """Return a report of about ``size`` bytes, which no frame holds."""
    count = min(MAX_REFUSED, size // NAME_CHARS)
    return Report(refused=[Refused(name="n" * NAME_CHARS, reason="r")] * count, refused_count=count)


async def a_large_copy_fails() -> None:
    """The file that a large file with another name is copied to is taken away meanwhile: the name elsewhere is safe."""
    await asyncio.to_thread(_write_large)


def _write_large() -> None:
    place = Path(tempfile.mkdtemp(prefix="probe-lasting-")).resolve()
    try:
        (place / "lent").mkdir()
        content = noise(QUICK_BYTES + 1)
        for number in range(6):
            (place / f"outside{number}").write_bytes(content)
            os.link(place / f"outside{number}", place / "lent" / f"{number}")
        with served(place / "lent", default_rules()) as lease:
            for number in range(6):
                assert lease.put(b"%d" % number, b"mine") == 0
            assert lease.waited > 0
        for number in range(6):
            assert (place / f"outside{number}").read_bytes() == content
            assert (place / "lent" / f"{number}").read_bytes() == b"mine" + content[4:]
    finally:
        shutil.rmtree(place)


_ASKED_OF_PROGRAMS = (
    "workspace.requirements:_prove_sandbox",
    "workspace.requirements:_ask_sshfs",
    "workspace.sandbox.bubblewrap:_knows_size",
    "workspace.sandbox.git_sandbox:_of_git",
    "workspace.sandbox.git_sandbox:_why_not",
    "workspace.staging.overlay:_tried",
)

PROBES: Sequence[Probe] = (
    KeptProbe(
        name="archive: empty frames of a lender",
        covers=("workspace.archive.client:_Session.data_received", "workspace.archive.client:_Session.take"),
        attack=tiny_frames,
        bound=256 << 10,
    ),
    KeptProbe(
        name="disk: much that is set aside",
        covers=("disk.set_aside:SetAside.__init__", "disk.set_aside:SetAside.keep"),
        attack=much_set_aside,
        bound=2 << 20,
    ),
    KeptProbe(
        name="sftp: slow work of many peers",
        covers=("workspace.serving.slow_work:_OneByOne.__init__", "workspace.serving.slow_work:_OneByOne._next"),
        attack=slow_peers,
        bound=8 << 20,
    ),
    KeptProbe(
        name="sftp: all flags",
        covers=("disk.openat2:_how",),
        attack=flags_asked_for,
        bound=4 << 20,
    ),
    KeptProbe(
        name="view: rules of leases without end",
        covers=("workspace.view.compiled:compiled",),
        attack=rules_without_end,
        bound=8 << 20,
        left=8 << 20,  # they stay for the next lease with the same rules
    ),
    KeptProbe(
        name="sandbox: groups in groups",
        covers=("workspace.sandbox.cgroups:Cgroups.close",),
        attack=groups_in_groups,
        bound=1 << 20,
    ),
    CostProbe(
        name="archive: a report of long names",
        covers=("workspace.archive.wire:pack_report",),
        make=refusals,
        run=pack_report,
        size=MAX_REFUSED * NAME_CHARS // 2,
    ),
    CostProbe(
        name="audit: a name far below",
        covers=("workspace.audit.snapshot:_is_below",),
        make=lambda size: (b"a/" * (size // 2), PathTree([(b"a/" * (size // 2) + b"b", True)])),
        run=lambda made: _is_below(*made),
    ),
    CostProbe(
        name="view: a path as a pattern",
        covers=("workspace.view.admission:_pattern",),
        make=lambda size: (b"[*?" * (size // 3),),
        run=_pattern,
    ),
    FailureProbe(
        name="view: large files that have names elsewhere",
        covers=("workspace.confined.changing:ChangingFs._copied.copy", "workspace.confined.copy_up:Copy.put"),
        throw=a_large_copy_fails,
    ),
    Reason(
        name="sandbox: what programs of this machine answered",
        covers=_ASKED_OF_PROGRAMS,
        why="the keys are where the machine's own programs and state lie, and eight answers are kept at most",
    ),
    Reason(
        name="helpers: programs of our own",
        covers=("workspace.mount.stuck_reads_helper:main", "workspace.staging.overlay_helper:main"),
        why="each is a process that does one thing and ends, within a deadline of the one that has started it",
    ),
    Reason(
        name="mount: waiting until a link is quiet",
        covers=("workspace.mount.channel:MountChannel.fail_reads.hush",),
        why="it waits under a deadline for an event, and does nothing else",
    ),
)
