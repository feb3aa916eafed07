"""A hostile executor at the real SFTP core of one lease, and the audit of what it did."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sublet.workspace.audit.auditor import Auditor
from sublet.workspace.audit.reporting import AuditResult
from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.export import LeaseUsage, ViewRules
from sublet.workspace.quota import Quota
from sublet.workspace.sftp.core import SftpCore
from sublet.workspace.sftp.handles import HandleBudget, Handles
from sublet.workspace.view.export_view import WritableView
from support.sftp_client import CoreClient, attributes, string
from support.views import default_rules

READ, WRITE, CREAT, TRUNC = 1, 2, 8, 16
OK = 0
PIECE = 64 * 1024
"""Bytes of one WRITE."""


class Executor:
    """Sends the requests of a hostile executor; every method returns the status that it was answered with."""

    def __init__(self, client: CoreClient) -> None:
        self.client = client

    def write(self, path: bytes, content: bytes, mode: int | None = None) -> int:
        """Write a file whole."""
        attrs = attributes(mode=mode) if mode is not None else attributes()
        opened = self.client.open(self._at(path), WRITE | CREAT | TRUNC, attrs)
        if opened.status is not None:
            return opened.status
        written = [
            self._code(self.client.write(opened.handle, content[at : at + PIECE], at).status)
            for at in range(0, len(content), PIECE)
        ]
        self.client.ask(4, string(opened.handle))
        return max(written, default=OK)

    def chmod(self, path: bytes, mode: int) -> int:
        """Send SETSTAT with a mode."""
        return self._status(9, string(self._at(path)) + attributes(mode=mode))

    def fchmod(self, path: bytes, mode: int) -> int:
        """Send FSETSTAT with a mode."""
        opened = self.client.open(self._at(path), READ)
        if opened.status is not None:
            return opened.status
        done = self._status(10, string(opened.handle) + attributes(mode=mode))
        self.client.ask(4, string(opened.handle))
        return done

    def touch(self, path: bytes, seconds: int) -> int:
        """Send SETSTAT with times."""
        return self._status(9, string(self._at(path)) + attributes(times=(seconds, seconds)))

    def mkdir(self, path: bytes, mode: int = 0o755) -> int:
        """Send MKDIR."""
        return self._status(14, string(self._at(path)) + attributes(mode=mode))

    def rmdir(self, path: bytes) -> int:
        """Send RMDIR."""
        return self._status(15, string(self._at(path)))

    def remove(self, path: bytes) -> int:
        """Send REMOVE."""
        return self._status(13, string(self._at(path)))

    def rename(self, old: bytes, new: bytes) -> int:
        """Send the extended rename that replaces."""
        body = string(self._at(old)) + string(self._at(new))
        return self._code(self.client.extended(b"posix-rename@openssh.com", body).status)

    def link(self, old: bytes, new: bytes) -> int:
        """Send the extended request for a hard link."""
        body = string(self._at(old)) + string(self._at(new))
        return self._code(self.client.extended(b"hardlink@openssh.com", body).status)

    def symlink(self, target: bytes, path: bytes) -> int:
        """Send SYMLINK."""
        return self._status(20, string(target) + string(self._at(path)))

    def _status(self, kind: int, body: bytes) -> int:
        return self._code(self.client.ask(kind, body).status)

    @staticmethod
    def _code(status: int | None) -> int:
        assert status is not None
        return status

    @staticmethod
    def _at(path: bytes) -> bytes:
        return b"/workspace/" + path


class AuditedLease:
    """A lent directory with its audit; the lease lasts as long as ``work``."""

    def __init__(self, base: Path) -> None:
        self.root = base / "lent"
        self.root.mkdir()
        self.auditor = Auditor(base / "state")
        self.rules: ViewRules = default_rules()
        self._baseline = ""
        self._usage = LeaseUsage()

    def write(self, path: str, content: str = "", mode: int = 0o644) -> Path:
        """Make a file of the lender's with the directories above it."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
        target.chmod(mode)
        return target

    @contextmanager
    def work(self) -> Iterator[Executor]:
        """Record the directory, then serve it to an executor."""
        self._baseline = self.auditor.baseline(self.root, self.rules)
        touched = self._usage.touched["workspace"] = set()
        root_fd = ConfinedFs.open_root(self.root)
        fs = WritableFs(root_fd, self.rules, Quota(None, None), lambda parts: touched.add(b"/".join(parts)))
        view = WritableView({"workspace": fs}, {"task.json": b"{}"})
        core = SftpCore(view, self._usage, Handles(HandleBudget(64)), lambda: True)
        try:
            yield Executor(CoreClient(core))
        finally:
            core.close()
            view.close()

    def audit(self) -> AuditResult:
        """Return the audit's account of the lease."""
        touched = self._usage.touched["workspace"]
        return self.auditor.result(self._baseline, self.root, self.rules, touched, False)

    def patch(self, report: AuditResult) -> str:
        """Return the patch of ``report`` as text."""
        return self.auditor.patch(self.root, report.baseline, report.result).text


Account = dict[bytes, tuple[str, int | None, int | None]]
"""What changed, by path: how, and the permissions before and after."""


def account(report: AuditResult) -> tuple[Account, Account]:
    """Return what a report says of files and of directories."""
    files: Account = {f.path: (f.change, f.mode_before, f.mode_after) for f in report.files}
    return files, {d.path: (d.change, d.mode_before, d.mode_after) for d in report.directories}


Names = dict[bytes, tuple[str, int | None, bytes]]
"""Kind, permissions (None of links) and content of each name."""


def names_of(root: Path) -> Names:
    """Return everything below ``root``, found without any part of the product."""
    found: Names = {}
    for above, directories, files in os.walk(os.fsencode(root)):
        for name in (*directories, *files):
            path = os.path.join(above, name)
            status = os.lstat(path)
            key = os.path.relpath(path, os.fsencode(root))
            permissions = stat.S_IMODE(status.st_mode)
            if stat.S_ISDIR(status.st_mode):
                found[key] = ("directory", permissions, b"")
            elif stat.S_ISLNK(status.st_mode):
                found[key] = ("link", None, os.readlink(path))
            else:
                found[key] = ("file", permissions, Path(os.fsdecode(path)).read_bytes())
    return found


def plain_account(before: Names, after: Names) -> tuple[Account, Account]:
    """Return what a plain comparison of two trees finds, of files and of directories."""
    files: Account = {}
    directories: Account = {}
    for path in before.keys() | after.keys():
        old, new = before.get(path), after.get(path)
        for account_of, is_of in ((directories, _is_directory), (files, _is_file)):
            was, now = (one if one is not None and is_of(one) else None for one in (old, new))
            modes = (was[1] if was else None, now[1] if now else None)
            if was is None or now is None:
                if was is not now:
                    account_of[path] = ("deleted" if now is None else "added", *modes)
            elif (was[0], was[2]) != (now[0], now[2]):
                account_of[path] = ("changed", *modes)
            elif was[1] != now[1]:
                account_of[path] = ("mode", *modes)
    return files, directories


def _is_directory(name: tuple[str, int | None, bytes]) -> bool:
    return name[0] == "directory"


def _is_file(name: tuple[str, int | None, bytes]) -> bool:
    return name[0] != "directory"
