"""Bounds that policy sets for every lease, whoever asks (AWCP 6.2, DESIGN 4.1, 4.4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from sublet.protocol.bounds import MAX_TTL_SECONDS, AccessMode
from sublet.protocol.errors import LocalCode, SubletError

MIB: Final = 1024 * 1024
MAX_FILES: Final = 300_000
"""No policy lets more be lent or added: the audit of a lease reads all names of both."""


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """What may be lent. Sizes are apparent bytes, as a remote walk would read them.

    ``on_sensitive`` says whether names that rules hide are left out of the view or make the scan refuse.
    """

    max_total_bytes: int = 2048 * MIB
    max_files: int = 100_000
    max_file_bytes: int = 512 * MIB
    max_seconds: float = 10.0
    on_sensitive: Literal["hide", "refuse"] = "hide"

    def quota(self, max_total_bytes: int | None, max_files: int | None, max_file_bytes: int | None) -> AdmissionLimits:
        """Return the limits as a request narrows them, for what a lease may add; None takes the limit itself.

        Raises:
            SubletError: ``POLICY_DENIED`` for a bound above the limit, which a request can't widen.
        """
        return replace(
            self,
            max_total_bytes=_narrowed("max_total_bytes", self.max_total_bytes, max_total_bytes),
            max_files=_narrowed("max_files", self.max_files, max_files),
            max_file_bytes=_narrowed("max_file_bytes", self.max_file_bytes, max_file_bytes),
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """What no rule can exceed.

    ``max_ttl_seconds`` bounds a lease given or taken; ``slots`` the assignments that run here at once;
    ``access_modes`` what may be lent or accepted; ``admission`` the size of what is lent;
    ``require_enforced`` what an executor has to enforce before it is given any access.
    """

    max_ttl_seconds: int = MAX_TTL_SECONDS
    slots: int = 5
    access_modes: tuple[AccessMode, ...] = ("ro", "rw")
    admission: AdmissionLimits = AdmissionLimits()
    require_enforced: tuple[str, ...] = ()


def _narrowed(name: str, limit: int, wanted: int | None) -> int:
    if wanted is None or wanted <= limit:
        return limit if wanted is None else wanted
    raise SubletError(
        LocalCode.POLICY_DENIED,
        f"{name} is {wanted:,}, and policy allows a lease no more than {limit:,}",
        f"Ask for at most {limit}, or raise limits.admission.{name} in policy.json.",
    )
