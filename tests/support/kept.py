"""A live lease without daemons: a snapshot, a served tree that keeps, the account at the end, and taking it back."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection
from pathlib import Path

from sublet.workspace.audit.auditor import Auditor
from sublet.workspace.audit.comparing import compare
from sublet.workspace.audit.manifest import Manifest
from sublet.workspace.audit.reporting import AuditResult, author_of
from sublet.workspace.changes.apply import Applier
from sublet.workspace.changes.change_set import ChangeSets
from sublet.workspace.changes.taking_back import KEPT, make_taking_back
from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.export import ViewRules
from sublet.workspace.kept.account import Account, settle
from sublet.workspace.kept.budget import KeptBudget
from sublet.workspace.kept.keeper import CLOCK_NS, OverwriteKeeper
from sublet.workspace.kept.log import begin, open_place
from sublet.workspace.quota import Quota
from sublet.workspace.staging.private_views import Staging
from sublet.workspace.staging.staged_result import Applied
from sublet.workspace.view.admission import AdmissionLimits
from support.views import default_rules

KEY = "lease"
_PAUSE_SECONDS = 0.0005
"""Shorter than the tick of the clock of any file system, so that nobody waits longer than for that."""


class LiveLease:
    """One lease of ``root`` for writing.

    Args:
        state: the state directory.
        root: what is lent.
        rules: by default those that hide and lock what is hidden and locked everywhere.
        budget: what may be kept.
        patient: whether large files are copied at once.
    """

    def __init__(
        self,
        state: Path,
        root: Path,
        rules: ViewRules | None = None,
        budget: KeptBudget | None = None,
        *,
        patient: bool = True,
    ) -> None:
        self.root = root
        self.rules = default_rules() if rules is None else rules
        self.budget = budget or KeptBudget()
        self.patient = patient
        self.auditor = Auditor(state)
        self.changes = ChangeSets(state, self.auditor, Staging(state, AdmissionLimits))
        self.kept = self.changes.directory(KEY) / KEPT
        self.touched: set[bytes] = set()
        self.refused: list[str] = []
        found: list[Manifest] = []
        begin_ns = time.time_ns()
        self.snapshot = self.auditor.baseline(root, self.rules, found.append)
        self.before = found[0]
        stamps = (record.stamp for record in self.before.values())
        begin(self.kept, begin_ns, {stamp.inode for stamp in stamps if stamp is not None})
        self.result: AuditResult | None = None
        self.open()

    def open(self) -> None:
        """Serve the directory, also once more after ``close`` or without it, as a process that was killed does."""
        self.keeper = OverwriteKeeper(open_place(self.kept), self.rules, self.budget)
        self.fs = WritableFs(
            ConfinedFs.open_root(self.root),
            self.rules,
            Quota(),
            lambda parts: self.touched.add(b"/".join(parts)),
            patient=self.patient,
            on_refused=lambda _, reason: self.refused.append(reason),
            keeper=self.keeper,
        )

    def write(self, path: str, content: bytes, *, flags: int = os.O_WRONLY | os.O_CREAT | os.O_TRUNC) -> None:
        """Write a file whole, as a program of the executor's does."""
        file = self.fs.open_write(path.encode().split(b"/"), flags, 0o644)
        try:
            file.write(content, 0)
        finally:
            file.close()

    def end(self) -> Account:
        """End the lease and look at what it left."""
        self.fs.close()
        result = self.auditor.result(self.snapshot, self.root, self.rules, self.touched, overflow=False)
        self.result = result
        after = self.auditor.manifest(self.root, result.result)
        found = compare(self.before, after, author_of(self.touched, overflow=False))
        changed = [file.path for file in found.files if file.by == "executor"]
        return settle(self.kept, self.root, self.touched, False, self.before, changed)

    def take_back(self) -> Applied:
        """Take back what the lease did."""
        assert self.result is not None
        make_taking_back(self.changes, KEY, self.root, self.snapshot, self.result.result)
        return Applier(self.changes).take_back([KEY])[KEY]


def picture(root: Path, leave: Collection[str] = ()) -> dict[str, tuple[object, ...]]:
    """Return all of a tree but its times: what each name is, its permissions, and what it holds."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        name, status = str(path.relative_to(root)), path.lstat()
        if name in leave:
            continue
        mode = stat.S_IMODE(status.st_mode)
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        elif path.is_dir():
            found[name] = ("directory", mode)
        else:
            found[name] = ("file", mode, path.read_bytes())
    return found


def tick(directory: Path) -> None:
    """Return once the clock of a file system has moved on, so that what is changed next has another time."""
    probe = directory / ".tick"
    probe.touch()
    first = probe.stat().st_ctime_ns
    while probe.stat().st_ctime_ns == first:
        time.sleep(_PAUSE_SECONDS)
        os.utime(probe)
    probe.unlink()


def settled(root: Path) -> None:
    """Return once no file of a tree is so young that it might change within the tick of a clock that lags."""
    youngest = max((path.lstat().st_ctime_ns for path in root.rglob("*")), default=0)
    while (left := youngest + 2 * CLOCK_NS - time.time_ns()) >= 0:
        time.sleep(left / 1e9)
