"""The directories of a delegation: which are asked for, and which of their names the executor sees (DESIGN 4.6)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sublet.daemon.models import CreateDelegation
from sublet.daemon.records import DelegationRecord, ResourceRecord
from sublet.protocol.bounds import AccessMode
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.workspace.model import META, WORKSPACE, LentDirectory
from sublet.workspace.rules import DEFAULT_HIDDEN, DEFAULT_LOCKED, Rules


def asked_for(request: CreateDelegation) -> list[ResourceRecord]:
    """Return every directory of ``request``, the one to work in first, with its path as it was given.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for a name that is taken.
    """
    found = [ResourceRecord(name=WORKSPACE, path=request.workspace_dir, access_mode=request.access_mode)]
    taken = {WORKSPACE, META}
    for resource in request.resources:
        if resource.name in taken:
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                f"a directory can't be called {resource.name!r} here: the name is taken",
                f"{WORKSPACE!r} is the directory to work in and {META!r} tells about the task; choose another name.",
            )
        taken.add(resource.name)
        found.append(ResourceRecord(**resource.model_dump()))
    return found


def check_apart(resources: Sequence[ResourceRecord]) -> None:
    """Refuse directories of which one is or holds another: it would have two names, two modes and two sets of rules.

    Args:
        resources: with real paths.

    Raises:
        SubletError: ``WORKSPACE_INVALID``.
    """
    for number, one in enumerate(resources):
        for other in resources[:number]:
            paths = Path(one.path), Path(other.path)
            if paths[0].is_relative_to(paths[1]) or paths[1].is_relative_to(paths[0]):
                raise SubletError(
                    ErrorCode.WORKSPACE_INVALID,
                    f"the directories {other.name!r} and {one.name!r} are the same, or one lies in the other",
                    "Lend directories that lie apart, or the outer one alone.",
                )


def widest(resources: Sequence[ResourceRecord]) -> AccessMode:
    """Return ``rw`` where any of ``resources`` is lent for writing."""
    return "rw" if any(resource.access_mode == "rw" for resource in resources) else "ro"


def lent_directories(record: DelegationRecord) -> tuple[LentDirectory, ...]:
    """Return what the lease of ``record`` serves, with the rules that its request asks for.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for a bad pattern.
    """
    rules = Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, record.request.reveal)
    return tuple(
        LentDirectory(resource.name, Path(resource.path), resource.access_mode, rules) for resource in record.resources
    )
