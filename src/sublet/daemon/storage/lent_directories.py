"""The directories of a delegation as its record says: by which rules each is seen, and where its results are kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sublet.daemon.api.delegations import CreateDelegation
from sublet.daemon.storage.records import DelegationRecord
from sublet.protocol.bounds import GitMode
from sublet.workspace.export import WORKSPACE, LentDirectory
from sublet.workspace.view.rules import DEFAULT_CARRIED, DEFAULT_HIDDEN, DEFAULT_LOCKED, Rules


def lent_directories(record: DelegationRecord) -> tuple[LentDirectory, ...]:
    """Return the directories of ``record``, with the rules that its request asks for.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for a bad pattern.
    """
    request = record.request
    return tuple(
        LentDirectory(lent.name, Path(lent.path), lent.access_mode, directory_rules(request, lent.name, request.git))
        for lent in record.resources
    )


def directory_rules(
    request: CreateDelegation,
    name: str,
    git: GitMode,
    locked: Sequence[str] = (),
    hidden: Sequence[str] = (),
    *,
    folds: bool = False,
) -> Rules:
    """Return the rules of one directory; ``include`` and ``writable`` narrow the one to work in only."""
    return Rules(
        (*DEFAULT_HIDDEN, *hidden),
        (*DEFAULT_LOCKED, *locked),
        request.reveal,
        carried=DEFAULT_CARRIED,
        unlocked=request.unlock,
        include=request.include if name == WORKSPACE else (),
        exclude=request.exclude,
        writable=request.writable if name == WORKSPACE else (),
        only_adds=request.no_delete,
        git=git,
        folds=folds,
    )


def staged_keys(record: DelegationRecord) -> dict[str, str]:
    """Return, by the name of the directory, under which keys its private view and its change set are kept.

    Staged is what was asked for with writing, whatever ACCEPT has left of it; else the directory to work in.
    """
    request = record.request
    names = [resource.name for resource in request.resources if resource.access_mode == "rw"]
    if request.access_mode == "rw" or not names:
        names.insert(0, WORKSPACE)
    return {name: record.id if name == WORKSPACE else f"{record.id}.{name}" for name in names}


def owner_of(key: str) -> str:
    """Return the delegation to which a private view or a change set belongs."""
    return key.partition(".")[0]
