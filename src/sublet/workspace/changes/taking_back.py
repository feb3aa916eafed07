"""The change set that takes a live lease back: from what it left to what was there before (DESIGN 4.12).

It is made when somebody asks for it, and merged with the directory as any other: what nobody has changed since becomes
what it was, text that was changed elsewhere is merged, and what can't be is a conflict.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Final

from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.audit.blob_reader import BlobReader
from sublet.workspace.audit.reporting import MAX_NUMSTAT_BYTES
from sublet.workspace.changes import record as change_record
from sublet.workspace.changes.befores import Befores, LeftByLease
from sublet.workspace.changes.change_set import ChangeSets
from sublet.workspace.changes.record import ChangeRecord
from sublet.workspace.changes.tree import Tree
from sublet.workspace.kept.account import written
from sublet.workspace.kept.log import load

KEPT: Final = "kept"
"""Directory beside a change set that keeps what a live lease overwrote."""


def make_taking_back(changes: ChangeSets, key: str, root: Path, baseline: str, result: str) -> None:
    """Make the change set that takes back what a live lease did in one directory.

    The caller holds the directory's lock.

    Args:
        changes: keeps it under ``key``.
        key: that of the directory in the lease.
        root: the directory.
        baseline: the snapshot before the lease.
        result: the one after it.

    Raises:
        SubletError: ``NOT_FOUND`` where what is needed for it is not kept any more; ``UNAVAILABLE`` where it can't be
            read or made.
    """
    directory = changes.directory(key)
    try:
        lease = LeftByLease(
            load(directory / KEPT),
            written(directory / KEPT),
            changes.auditor.manifest(root, baseline),
            changes.auditor.manifest(root, result),
        )
        with Tree(root, changes.auditor.salt(root)) as tree, changes.auditor.repository(root) as git:
            renamed = git.renames(result, baseline, limit=MAX_NUMSTAT_BYTES) if baseline != result else {}
            with BlobReader(git) as blobs, Befores(directory, directory / KEPT, lease, blobs, tree) as befores:
                entries = [
                    dataclasses.replace(entry, renamed_from=renamed.get(entry.path)) for entry in befores.entries()
                ]
                befores.finish()
    except FileNotFoundError:
        if baseline == result:
            raise SubletError(LocalCode.NOT_FOUND, f"{key} changed nothing", "There is nothing to undo.") from None
        raise SubletError(
            LocalCode.NOT_FOUND,
            f"what {key} overwrote is not kept",
            f"It was pruned, or lent by a version that kept nothing. See: sublet diff {key}",
        ) from None
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else type(exc).__name__
        raise SubletError(
            LocalCode.UNAVAILABLE,
            f"what {key} overwrote can't be read: {reason}",
            "Look at the state directory: sublet doctor",
        ) from None
    directories = lease.directories()
    change_record.save(
        directory,
        ChangeRecord(
            key=key,
            root=root,
            baseline=result,
            result=baseline,
            baseline_files=sum(1 for record in lease.after.values() if not record.is_directory),
            entries=tuple(entries),
            directories=directories,
            counts=change_record.count(entries, directories),
        ),
    )
