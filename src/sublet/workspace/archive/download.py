"""Packs the view for one transfer of the archive transport, on the delegator's side (DESIGN 4.6).

All of it blocks on the disk: each step is called in a thread, one at a time. A transfer has descriptors of its own, so
that a lease may end, and close its view, while a step is under way; the step after it is not begun.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Final

from sublet.workspace.archive.tree_pack import TreePacker
from sublet.workspace.export import ViewRules
from sublet.workspace.view.export_view import META
from sublet.workspace.view.walk import Budget

MAX_ENTRIES: Final = 1_000_000
"""Names in one transfer; what may be lent at all is bounded more tightly by admission."""
MAX_SECONDS: Final = 3_600.0


@dataclass(slots=True)
class Branch:
    """One directory of the view: a descriptor of its root that belongs to the transfer, and who may see what.

    ``copies`` are contents under hidden names, by the path below the directory, whose own directory is in the view.
    """

    name: bytes
    root_fd: int
    rules: ViewRules
    copies: Mapping[tuple[bytes, ...], bytes] = field(default_factory=dict)


class Download:
    """The whole view as a tar stream, made step by step.

    Args:
        branches: the directories; closed with it.
        meta: the files of ``/meta`` by name.
        modified_ns: what ``/meta`` has as its time.
    """

    def __init__(self, branches: list[Branch], meta: Mapping[bytes, bytes], modified_ns: int) -> None:
        self._branches = branches
        self._packer = TreePacker(Budget(MAX_ENTRIES, MAX_SECONDS))
        self._pieces = self._stream(meta, modified_ns)

    def step(self) -> bytes | None:
        """Return the next piece, or None at the end.

        Raises:
            OSError, WalkOverrunError, TreeChanged: the stream can't be completed.
        """
        return next(self._pieces, None)

    def halt(self) -> None:
        """Come to an end soon, where a step is under way. Idempotent, from any thread."""

    def close(self) -> None:
        """Close everything."""
        self._pieces.close()
        for branch in self._branches:
            os.close(branch.root_fd)
        self._branches = []

    def _stream(self, meta: Mapping[bytes, bytes], modified_ns: int) -> Generator[bytes]:
        yield b"".join(self._packer.files(META, meta, modified_ns))
        for branch in self._branches:
            yield from self._packer.tree(branch.name, branch.root_fd, branch.rules)
            yield b"".join(self._packer.copies(branch.name, branch.copies, modified_ns))
        yield self._packer.end()
