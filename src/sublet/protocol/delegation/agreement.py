"""What a delegator takes of an ACCEPT: the executor may take from what was proposed, never add to it (AWCP 4.2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath, PureWindowsPath

from sublet.protocol.bounds import AccessMode
from sublet.protocol.demands import unmet
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.messages import Accept
from sublet.protocol.text import clean_line


def narrowed(access_mode: AccessMode, ttl_seconds: int, accept: Accept) -> tuple[AccessMode, int]:
    """Return access and seconds as ACCEPT leaves them of what was proposed: never more (AWCP 4.2).

    Args:
        access_mode: as INVITE has proposed it.
        ttl_seconds: likewise, how long the lease is.
        accept: what the executor agrees to; a bound that it does not name is as proposed.
    """
    constraints = accept.remote_constraints
    mode = "ro" if constraints.accepted_access_mode == "ro" else access_mode
    return mode, min(ttl_seconds, constraints.max_ttl_seconds or ttl_seconds)


def check_mount_point(accept: Accept) -> None:
    """Refuse an ACCEPT that names no absolute path (AWCP 4.2); nothing here ever opens it.

    Raises:
        SubletError: ``MOUNTPOINT_DENIED``.
    """
    path = accept.remote_mount.mount_point
    if not PurePosixPath(path).is_absolute() and not PureWindowsPath(path).is_absolute():
        raise SubletError(
            ErrorCode.MOUNTPOINT_DENIED,
            "the executor named a mount point that is no absolute path",
            "Its mount root has to be configured as an absolute path.",
        )


def enforced_by(accept: Accept) -> list[str]:
    """Return what the executor says it enforces, cleaned for display."""
    return sorted({clean_line(item) for item in accept.sublet.sandbox_enforced})


def check_enforced(required: Iterable[str], accept: Accept, peer: str) -> None:
    """Refuse an executor that accepts without what was required, before it gets any access.

    Args:
        required: demands, as ``protocol.demands`` has them.
        accept: the executor's answer.
        peer: its name here.

    Raises:
        SubletError: ``DECLINED``, naming what is not enforced.
    """
    missing = unmet(required, accept.remote_constraints.sandbox_profile, accept.sublet.sandbox_enforced)
    if missing:
        raise SubletError(
            ErrorCode.DECLINED,
            f"{peer} accepted without enforcing what this delegation requires: {', '.join(missing)}; "
            "it was given no access",
            f"It enforces: {', '.join(enforced_by(accept)) or 'nothing'}. It declares: {_declared(accept)}. "
            "Require less, or delegate to another peer.",
        )


def check_transport(offered: Sequence[str], accept: Accept) -> None:
    """Refuse an executor that has chosen a transport which was not offered.

    Raises:
        SubletError: ``DEP_MISSING``.
    """
    if accept.sublet.transport not in offered:
        raise SubletError(
            ErrorCode.DEP_MISSING,
            f"the executor wants transport {clean_line(accept.sublet.transport, 40)!r}, and "
            f"{' or '.join(offered)} was offered",
            "Delegate with --transport sshfs to peers that know no other.",
        )


def resumable(accept: Accept | None) -> bool:
    """Tell whether work that was begun can go on under a new process: without any secret, in the same view.

    Every transport that ``check_transport`` lets pass goes on when its link comes back.
    """
    return accept is not None and accept.sublet.renewable and accept.remote_constraints.public_key is not None


def _declared(accept: Accept) -> str:
    profile = accept.remote_constraints.sandbox_profile
    if profile is None:
        return "nothing"
    return ", ".join(f"{name}={str(value).lower()}" for name, value in profile.model_dump().items())
