"""The directories of a delegation: which are asked for, and which of their names the executor sees (DESIGN 4.6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from sublet.daemon.api.delegations import CreateDelegation
from sublet.daemon.storage.lent_directories import directory_rules
from sublet.daemon.storage.records import DelegationRecord, ResourceRecord
from sublet.protocol.bounds import AccessMode
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.messages import LentResource
from sublet.workspace.export import META, WORKSPACE, LentDirectory
from sublet.workspace.folding import may_fold
from sublet.workspace.git.repository import NO_REPOSITORY, look_at
from sublet.workspace.view.led_to import guarded


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
    for number, lent in enumerate(resources):
        for other in resources[:number]:
            paths = Path(lent.path), Path(other.path)
            if paths[0].is_relative_to(paths[1]) or paths[1].is_relative_to(paths[0]):
                raise SubletError(
                    ErrorCode.WORKSPACE_INVALID,
                    f"the directories {other.name!r} and {lent.name!r} are the same, or one lies in the other",
                    "Lend directories that lie apart, or the outer one alone.",
                )


def widest(resources: Sequence[ResourceRecord]) -> AccessMode:
    """Return ``rw`` where any of ``resources`` is lent for writing."""
    return "rw" if any(resource.access_mode == "rw" for resource in resources) else "ro"


def limited(record: DelegationRecord, mode: AccessMode) -> tuple[ResourceRecord, ...]:
    """Return the directories with no more access than the whole lease has."""
    if mode == "rw":
        return record.resources
    return tuple(lent.model_copy(update={"access_mode": "ro"}) for lent in record.resources)


def offered(record: DelegationRecord) -> list[LentResource]:
    """Return what INVITE says of the directories: nothing where there is one, which every peer finds at its place."""
    if len(record.resources) == 1:
        return []
    return [LentResource(name=lent.name, access_mode=lent.access_mode) for lent in record.resources]


def revealed(request: CreateDelegation) -> list[str]:
    """Return what ``request`` wants to show of what is hidden, for policy to decide; the repository is such a name."""
    return [*request.reveal, *([".git"] if request.git != "hidden" else [])]


def unlocked(request: CreateDelegation) -> list[str]:
    """Return what ``request`` wants writable of what is locked, for policy to decide."""
    return [*request.unlock, *([".git"] if request.git == "rw" else [])]


def prepared(
    resources: Sequence[LentDirectory], request: CreateDelegation
) -> tuple[tuple[LentDirectory, ...], list[str]]:
    """Return ``resources`` as they can be served: with the repository as far as it can be shown.

    What links and the configuration of repositories lead to is guarded. It blocks: call it in a thread.

    Raises:
        SubletError: as ``guarded``.

    Returns:
        The directories, and where ``.git`` stays hidden although it was asked for, with the reason.
    """
    served: list[LentDirectory] = []
    hidden: list[str] = []
    for lent in resources:
        repository = look_at(lent.path)
        git = repository.shown(request.git)
        if git != request.git and (repository.why_hidden != NO_REPOSITORY or lent.name == WORKSPACE):
            hidden.append(f"{lent.name}: {repository.why_hidden}")
        rules_of = partial(directory_rules, request, lent.name, git, folds=may_fold(lent.path))
        rules = guarded(lent.path, rules_of)
        copies = repository.copies or {} if git != "hidden" else {}
        served.append(replace(lent, rules=rules, copies=copies))
    return tuple(served), hidden
