"""What a delegation requires the executor to enforce, and whether ACCEPT promises it (AWCP 7.2, DESIGN 4.9)."""

from __future__ import annotations

from collections.abc import Iterable

from sublet.protocol.demands import unmet
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.messages import Accept
from sublet.protocol.text import clean_line


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


def _declared(accept: Accept) -> str:
    profile = accept.remote_constraints.sandbox_profile
    if profile is None:
        return "nothing"
    return ", ".join(f"{name}={str(value).lower()}" for name, value in profile.model_dump().items())
