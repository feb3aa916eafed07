"""The private views of staged delegations: made, found again after a crash, and removed (DESIGN 4.7, 4.10).

A view is a copy that shares blocks where the file system can, else a plain copy up to ``MAX_PLAIN_COPY_BYTES``, else an
overlay where the machine offers one. A copy comes before an overlay, since the delegator works on in the directory.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, Literal

from sublet.disk.durable import write_durably
from sublet.disk.plain_file import read_plain
from sublet.disk.removal import remove_tree
from sublet.disk.set_aside import SetAside
from sublet.policy.limits import MIB, AdmissionLimits
from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.export import ViewRules
from sublet.workspace.staging.copy import PlainCopyTooLargeError, copy_tree, shares_blocks
from sublet.workspace.staging.overlay import holds, mount_overlay, why_no_overlay
from sublet.workspace.staging.staged_result import OverlayRoot, StagedView, StagingKind, checked_key, is_key, no_result

MAX_PLAIN_COPY_BYTES: Final = 1024 * MIB
"""Beyond it an overlay, where there is one, is made instead of a copy that shares nothing."""
MAX_RECORD_BYTES: Final = 64 << 10
MAX_VIEWS: Final = 256
"""Views kept at once, whatever their size."""


class Staging:
    """The views below one state directory. Every method blocks: call it in a thread.

    Args:
        state_dir: private directory of the daemon.
        limits: bounds of what is copied, asked each time.
        aside: takes what is no view, or can't be removed.
    """

    def __init__(
        self,
        state_dir: Path,
        limits: Callable[[], AdmissionLimits] = AdmissionLimits,
        aside: SetAside | None = None,
    ) -> None:
        self.aside = aside or SetAside(state_dir)
        self._state_dir = state_dir
        self._home = state_dir / "staged"
        self._limits = limits
        self._mounted: dict[str, StagedView] = {}
        self._lock = threading.Lock()
        self._sharing = threading.Lock()

    def open(
        self,
        key: str,
        root: Path,
        rules: ViewRules,
        *,
        want: Literal["copy", "overlay"] | None = None,
        shared: str | None = None,
    ) -> StagedView:
        """Make the view of one delegation.

        Args:
            key: the delegation's id, or ``ID.RESOURCE`` for one resource of several.
            root: the real path of the directory.
            rules: what is exported of it; a copy holds exactly that, and an overlay needs them at every access.
            want: a kind to insist on; None for the best that there is.
            shared: key of the one copy from which this view and others are made, always by copying: whoever comes first
                makes it, with the same rules, and ``discard`` removes it.

        Raises:
            SubletError: ``CONFLICT`` where there is one already or there are too many, ``WORKSPACE_*`` and
                ``UNAVAILABLE`` as ``copy_tree``, ``DEP_MISSING`` as ``mount_overlay``.
        """
        private = self._home / checked_key(key)
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if len(os.listdir(self._home)) >= MAX_VIEWS:
            raise SubletError(
                LocalCode.CONFLICT,
                f"there are {MAX_VIEWS} staged views already",
                "Review and apply or discard some; `sublet ls` names them.",
            )
        try:
            private.mkdir(mode=0o700)
        except FileExistsError:
            raise SubletError(
                LocalCode.CONFLICT, f"{key} has a staged view already", "Discard it first, or use another id."
            ) from None
        try:
            source = root if shared is None else self._shared(shared, root, rules)
            return self._make(key, root, rules, private, want if shared is None else "copy", source)
        except BaseException:
            self.discard(key)
            raise

    def find(self, key: str) -> StagedView | None:
        """Return the view that ``open`` has made, also in an earlier process; None where there is none that is whole.

        Raises:
            SubletError: ``DEP_MISSING`` or ``WORKSPACE_NOT_FOUND`` for an overlay that can't be mounted again.
        """
        private = self._home / checked_key(key)
        with self._lock:
            if key in self._mounted:
                return self._mounted[key]
            record = _record(private)
            if record is None:
                return None
            root, kind = record
            if kind != "overlay":
                return StagedView(key, root, kind, private / "view")
            return self._mount(key, root, private)

    def is_own_change(self, view: StagedView, path: bytes) -> bool:
        """Tell whether what differs at ``path`` was made in the view, and not in the directory below an overlay."""
        return view.kind != "overlay" or holds(self._home / view.key, path)

    def discard(self, key: str) -> None:
        """Remove a view and all that was written into it. Removing twice is no error."""
        private = self._home / checked_key(key)
        with self._lock:
            view = self._mounted.pop(key, None)
        if view is not None:
            view.close()
        with contextlib.suppress(FileNotFoundError):
            (private / "record.json").unlink()
        remove_tree(private)

    def close(self) -> None:
        """Let go of all overlays; what was written into them stays, and ``find`` mounts them again."""
        with self._lock:
            while self._mounted:
                self._mounted.popitem()[1].close()

    def keys(self) -> list[str]:
        """Return the keys of all views, the half made ones included."""
        return self.aside.names(self._home, is_key)

    def reap(self, keep: Collection[str]) -> list[str]:
        """Remove the views whose keys are not in ``keep``, and those that a crash left half made; return their keys.

        For a start alone, when none is open: they are taken out of the way, and removed later.
        """
        gone = [key for key in self.keys() if key not in keep or _record(self._home / key) is None]
        for key in gone:
            self.aside.remove_later(self._home / key)
        return gone

    def _make(
        self,
        key: str,
        root: Path,
        rules: ViewRules,
        private: Path,
        want: Literal["copy", "overlay"] | None,
        source: Path,
    ) -> StagedView:
        if want != "overlay":
            bound = MAX_PLAIN_COPY_BYTES if want is None and not why_no_overlay(self._state_dir) else None
            try:
                shared = copy_tree(source, private / "view", rules, self._limits(), bound)
            except PlainCopyTooLargeError:
                remove_tree(private / "view")
            else:
                kind: StagingKind = "reflink" if shared else "copy"
                _write_record(private, root, kind)
                return StagedView(key, root, kind, private / "view")
        with self._lock:
            view = self._mount(key, root, private)
        _write_record(private, root, "overlay")
        return view

    def copy(self, key: str, target: Path, rules: ViewRules) -> None:
        """Copy what is in a view into the new directory ``target``.

        Raises:
            SubletError: ``NOT_FOUND`` where there is none that is a copy, else as ``copy_tree``.
        """
        view = self.find(key)
        if view is None or view.path is None:
            raise no_result(key)
        copy_tree(view.path, target, rules, self._limits())

    def _shared(self, key: str, root: Path, rules: ViewRules) -> Path:
        """Return where the shared copy lies, made where nobody has made it yet."""
        private = self._home / checked_key(key)
        with self._sharing:
            if _record(private) is None:
                remove_tree(private)  # one that a crash left half made
                private.mkdir(mode=0o700)
                try:
                    self._make(key, root, rules, private, "copy", root)
                except BaseException:
                    self.discard(key)
                    raise
        return private / "view"

    def _mount(self, key: str, root: Path, private: Path) -> StagedView:
        view = StagedView(key, root, "overlay", None, OverlayRoot(mount_overlay(root, private)))
        self._mounted[key] = view
        return view


def describe_kinds(state_dir: Path) -> str:
    """Return, for a person, how private views are made whose changes go to ``state_dir``, which exists; it is tried.

    Raises:
        OSError: nothing can be written there.
    """
    if shares_blocks(state_dir):
        return "copies that share blocks (reflink) of directories on the same file system, else plain copies"
    reason = why_no_overlay(state_dir)
    if reason:
        return f"plain copies; {reason}"
    return f"plain copies up to {MAX_PLAIN_COPY_BYTES // MIB:,} MiB, overlays beyond that"


def _write_record(private: Path, root: Path, kind: StagingKind) -> None:
    write_durably(private / "record.json", json.dumps({"root": str(root), "kind": kind}).encode())


def _record(private: Path) -> tuple[Path, StagingKind] | None:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        found = json.loads(read_plain(private / "record.json", MAX_RECORD_BYTES, follow=False))
        kind: StagingKind = found["kind"]
        if kind in ("reflink", "copy", "overlay"):
            return Path(found["root"]), kind
    return None
