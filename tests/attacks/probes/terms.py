"""Probes of finer leases: what is remembered of a lease's own files, and asking what of a path may be changed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from attacks.kit.view_lease import served
from attacks.probe import CostProbe, KeptProbe
from sublet.workspace import own_names
from sublet.workspace.birth import Identity
from sublet.workspace.own_names import OwnNames
from sublet.workspace.view.rules import DEFAULT_HIDDEN, DEFAULT_LOCKED, Rules

MAX_KEPT = 1 << 16


def made_and_removed(size: int) -> None:
    own = OwnNames()
    for number in range(size // 32):
        own.born(Identity(1, number, 3))
        own.replay("born", b"1:%d:4" % number)
    for number in range(size // 32):
        assert own.bore(Identity(1, number, 3))
        own.dead(Identity(1, number, 3))
        own.replay("dead", b"1:%d:4" % number)
        assert not own.bore(Identity(1, number, 4))


def deep_path(size: int) -> tuple[Rules, list[bytes]]:
    rules = Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, [], writable=["src/*/x", "**/a/b", "c"])
    return rules, [b"a%d" % number for number in range(size // 64)]


@contextmanager
def files_without_end() -> Iterator[object]:
    """An executor that makes files without end in a lease that remembers what it made."""
    root = Path(tempfile.mkdtemp(prefix="terms-"))
    (root / "lent").mkdir()
    rules = Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, [], only_adds=True)
    try:
        with (
            patch.object(own_names, "MAX_BORN_BYTES", MAX_KEPT),
            served(root / "lent", rules, memory=root / "memory") as lease,
        ):
            for number in range(2 * MAX_KEPT // own_names._BORN_BYTES):
                lease.put(b"%d" % number, b"")
            assert lease.usage.own["workspace"]._born_bytes <= MAX_KEPT
        yield None
    finally:
        shutil.rmtree(root)


PROBES = (
    CostProbe(
        name="terms: files that a lease has made",
        covers=(
            "workspace.own_names:OwnNames.born",
            "workspace.own_names:OwnNames.bore",
            "workspace.own_names:OwnNames.dead",
        ),
        make=lambda size: size,
        run=made_and_removed,
    ),
    CostProbe(
        name="terms: what of a deep path may be changed",
        covers=("workspace.view.rules:Rules.read_only",),
        make=deep_path,
        run=lambda made: made[0].locked(made[1]),
    ),
    KeptProbe(
        name="terms: files without end in a lease that deletes nothing",
        covers=("workspace.own_names:OwnNames.born",),
        attack=files_without_end,
        bound=6 << 20,
    ),
)
