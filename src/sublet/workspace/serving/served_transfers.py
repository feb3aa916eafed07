"""The transfers of one lease whose view travels as an archive: one at a time, with the lease's rules and quota."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import ExitStack
from pathlib import Path

from sublet.protocol.bounds import TransportName
from sublet.workspace.archive.download import Branch, Download
from sublet.workspace.archive.upload import Upload
from sublet.workspace.archive.wire import Report
from sublet.workspace.bundles.server import GitDownload, GitUpload
from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.export import LeaseUsage, Remembering
from sublet.workspace.quota import Quota
from sublet.workspace.sandbox.git_sandbox import GitSandbox
from sublet.workspace.view.export_view import Copies, ExportView
from sublet.workspace.viewpath import refused


class LeaseTransfers:
    """Begins transfers of a lease and counts them; implements ``archive_session.Transfers``.

    Args:
        trees: the open directories by name; transfers get descriptors of their own.
        view: the tree of the lease.
        copies: what is served in place of hidden files, by the name of the directory.
        quota: what the lease may add.
        usage: where the transfers are counted.
        is_live: tells whether the lease still holds.
        transport: ``archive``, or ``git``, whose streams hold bundles in place of the directories.
        threads: where transfers do their work.
        scratch: private directory for what git needs meanwhile.
        git: what git runs in.
        memory: keeps in mind for the next process whether all changes have come back.
    """

    def __init__(
        self,
        trees: Mapping[str, ConfinedFs],
        view: ExportView,
        copies: Mapping[str, Copies],
        quota: Quota,
        usage: LeaseUsage,
        is_live: Callable[[], bool],
        transport: TransportName,
        threads: Executor,
        scratch: Path,
        git: GitSandbox,
        memory: Remembering | None,
    ) -> None:
        self._trees = trees
        self._view = view
        self._copies = copies
        self._quota = quota
        self._usage = usage
        self._busy = False
        self._by_git = transport == "git"
        self._scratch = scratch
        self._git = git
        self._memory = memory
        self.threads = threads
        self.is_live = is_live

    def download(self) -> Download | GitDownload:
        """``Transfers.download``."""
        self._check_free()
        meta, modified_ns = self._view.meta_files, self._view.made_at * 1_000_000_000
        made: Download | GitDownload
        with ExitStack() as opened:
            branches = []
            for name, tree in self._trees.items():
                branches.append(Branch(name.encode(), tree.reopen(), tree.rules, self._copies[name]))
                opened.callback(os.close, branches[-1].root_fd)
            if self._by_git:
                made = GitDownload(branches, meta, modified_ns, self._scratch, self._git)
            else:
                made = Download(branches, meta, modified_ns)
            opened.pop_all()
        self._begin()
        return made

    def upload(self) -> Upload | GitUpload:
        """``Transfers.upload``."""
        self._check_free()
        writable = {name.encode(): tree for name, tree in self._trees.items() if isinstance(tree, WritableFs)}
        if not writable:
            raise refused(errno.EROFS)
        with ExitStack() as opened:
            trees: dict[bytes, WritableFs] = {}
            branches: list[Branch] = []
            for name, tree in writable.items():
                trees[name] = tree.twin()
                opened.callback(trees[name].close)
                if self._by_git:
                    branches.append(Branch(name, tree.reopen(), tree.rules))
                    opened.callback(os.close, branches[-1].root_fd)
            made: Upload | GitUpload
            if self._by_git:
                made = GitUpload(branches, trees, self._quota, self.is_live, self._scratch, self._git)
            else:
                made = Upload(trees, self._quota, self.is_live)
            opened.pop_all()
        self._begin()
        self._usage.returned = False
        self._usage.refused, self._usage.refused_count = [], 0
        if self._memory is not None:
            self._memory.returning()
        return made

    def sent(self, size: int) -> None:
        """``Transfers.sent``."""
        self._usage.bytes_read += size

    def received(self, size: int) -> None:
        """``Transfers.received``."""
        self._usage.bytes_written += size

    def failed(self, exc: OSError) -> None:
        """``Transfers.failed``."""
        self._quota.failed(exc)

    def returned(self, report: Report) -> None:
        """``Transfers.returned``."""
        self._usage.refused = [f"{one.name}: {one.reason}" for one in report.refused]
        self._usage.refused_count = report.refused_count
        self._usage.returned = True
        if self._memory is not None:
            # Before the executor hears of it: what it then calls done has come back for every later process, too.
            self._memory.returned(self._usage.refused, report.refused_count)

    def ended(self) -> None:
        """``Transfers.ended``."""
        self._busy = False

    def _begin(self) -> None:
        self._busy = True
        self._usage.operations += 1

    def _check_free(self) -> None:
        if self._busy:
            raise refused(errno.EBUSY)
