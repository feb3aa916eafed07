"""What an executor's git had begun in the delegator's repository when the lease ended: locks and drafts stay there.

The delegator's own git refuses to work where a lock is, and does not say whose it is. So what the lease itself made is
removed, and nothing else: what counts is the very file, and not its name.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from sublet.protocol.text import clean_name
from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.own_names import OwnNames
from sublet.workspace.quota import Quota
from sublet.workspace.view.rules import Rules

MAX_TOLD: Final = 100
"""Files of one directory that are told of which could not be removed; the others are counted."""


def remove_drafts(root: Path, own: OwnNames) -> list[str]:
    """Remove the locks and drafts that a lease made in the repository of ``root``, once its access is cut. It blocks.

    Args:
        root: the directory that was lent, a real path.
        own: what the lease made.

    Returns:
        Of each that could not be removed, its name with the reason, as text that is safe to show.
    """
    rules = Rules((), (), (), git="rw")
    paths = [path for path in own.paths() if rules.draft(path.split(b"/"))]
    if not paths:
        return []
    try:
        tree = WritableFs(ConfinedFs.open_root(root), rules, Quota(), lambda _: None, own=own)
    except OSError as exc:
        return _told([(path, exc) for path in paths])
    failed: list[tuple[bytes, OSError]] = []
    try:
        # What lies in a directory goes before it.
        for path in sorted(paths, key=lambda path: path.count(b"/"), reverse=True):
            try:
                _remove(tree, tuple(path.split(b"/")))
            except FileNotFoundError:
                continue
            except OSError as exc:
                failed.append((path, exc))
    finally:
        tree.close()
    return _told(failed)


def _remove(tree: WritableFs, parts: tuple[bytes, ...]) -> None:
    if not tree.has_own(parts):
        return  # somebody else has put another in its place
    if stat.S_ISDIR(tree.lstat(parts).st_mode):
        tree.rmdir(parts)
    else:
        tree.remove(parts)


def _told(failed: list[tuple[bytes, OSError]]) -> list[str]:
    lines = [
        f"{clean_name(path)}: the agent's git left it, and it could not be removed "
        f"({os.strerror(exc.errno or 0)}); remove it yourself, or your own git may refuse to work"
        for path, exc in failed[:MAX_TOLD]
    ]
    if (more := len(failed) - MAX_TOLD) > 0:
        lines.append(f"and {more} more locks or drafts of the agent's git")
    return lines
