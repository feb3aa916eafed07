"""Which options of a delegation can be had together, and which transports INVITE offers (AWCP 4.1, DESIGN 4.6, 4.7).

All that options forbid each other stands here. The service asks before it looks anything up, so that a request is
refused for what it says and not for what the disk holds; the core judges what ACCEPT chose among the transports.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sublet.daemon.api.delegations import CreateDelegation
from sublet.daemon.lending.lent_resources import asked_for, widest
from sublet.protocol.bounds import TransportName
from sublet.protocol.errors import LocalCode, SubletError

_BEST_FIRST: Final[tuple[TransportName, ...]] = ("sshfs", "archive")


def check_options(request: CreateDelegation) -> None:
    """Refuse options that can't be had together, or of which one would have no effect.

    Raises:
        SubletError: ``INVALID_ARGUMENT``.
    """
    unfit = [*_unfit_terms(request), *_unfit_staging(request)]
    if request.transport != "auto" and (why := _unfit_for(request.transport, request)) is not None:
        unfit.append(why)
    if unfit:
        raise unfit[0]


def offered_transports(request: CreateDelegation) -> tuple[TransportName, ...]:
    """Return what is offered to the executor, the best first.

    Args:
        request: one that ``check_options`` let pass.
    """
    if request.transport != "auto":
        return (request.transport,)
    return tuple(name for name in _BEST_FIRST if _unfit_for(name, request) is None)


def _unfit_terms(request: CreateDelegation) -> Iterator[SubletError]:
    """Yield terms that could not hold, or would have no effect."""
    if request.writable and request.access_mode == "ro":
        yield _term("writable", "the directory is lent for reading only", "Leave out --ro: the rest is read-only.")
    if request.no_delete and widest(asked_for(request)) == "ro":
        yield _term("no_delete", "nothing is lent for writing", "Leave out --no-delete, or lend it without --ro.")
    if request.no_delete and request.git == "rw":
        yield _term(
            "no_delete", "git replaces files of the repository by others with every commit", "Leave out --git rw."
        )


def _unfit_staging(request: CreateDelegation) -> Iterator[SubletError]:
    """Yield what can't be had in a private copy, and what can be had in one alone."""
    if request.result_branch is not None and request.result_mode != "staged":
        yield _invalid(
            "only a staged result can be put on a branch: result_branch needs result_mode staged",
            "Delegate with result_mode staged, or leave out result_branch.",
        )
    if request.result_mode == "staged" and request.git == "rw":
        # Commits in a copy can't be merged file by file.
        yield _invalid(
            "a staged lease can't have the repository for writing: what is committed in a copy could not be merged",
            "Ask for git=ro and commit the result yourself once it is applied, or delegate without staging.",
        )
    if request.result_mode == "staged" and request.watch:
        yield _invalid(
            "a staged delegation works in a copy, which nobody else changes, so there is nothing to watch",
            "Leave out --watch or --staged.",
        )


def _unfit_for(transport: TransportName, request: CreateDelegation) -> SubletError | None:
    """Return why ``request`` can't be carried out by ``transport``, or None."""
    if request.no_delete and transport != "sshfs":
        return _term(
            "no_delete",
            f"transport {transport} brings changed files back as new ones in the place of the old",
            "Delegate with --transport sshfs, live or staged.",
        )
    if transport == "git" and request.git != "hidden":
        return _invalid(
            f"transport git gives the agent a repository of its own, so yours can't be had with it (git={request.git})",
            "Leave git=… out, or delegate by sshfs, or by archive with git=ro: these show the repository itself.",
        )
    if transport == "archive" and request.git == "rw":
        # The archive is made from a copy, of which the same holds as of a staged one.
        return _invalid(
            f"transport {transport} can't bring back a repository: commits could not be merged file by file",
            "Ask for git=ro and commit the result yourself, or delegate with --transport sshfs.",
        )
    return None


def _term(term: str, why: str, hint: str) -> SubletError:
    return _invalid(f"{term} can't be had here: {why}", hint)


def _invalid(message: str, hint: str) -> SubletError:
    return SubletError(LocalCode.INVALID_ARGUMENT, message, hint)
