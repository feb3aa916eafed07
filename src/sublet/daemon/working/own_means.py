"""What this machine can do of an executor's work: by which transports, how reached, and how much it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sublet.daemon.net.addresses import is_loopback
from sublet.policy.limits import AdmissionLimits
from sublet.workspace.archive.tar_format import TarLimits
from sublet.workspace.requirements import require_sandbox, require_transport
from sublet.workspace.sandbox.git_sandbox import GitSandbox

NAMES_FOR_EACH_FILE: Final = 2
"""An archive names directories as well, and limits of what is lent count files: as many directories are let in."""


class OwnMeans:
    """Tells what an INVITE may ask for here.

    Args:
        address: returns host and port where our data plane listens.
        git: runs git on repositories that others may have written.
        sandboxed: whether agents are confined.
        bounds: returns how much may be lent from here by now, and so how much is taken of others.
    """

    def __init__(
        self,
        address: Callable[[], tuple[str, int]],
        git: GitSandbox,
        bounds: Callable[[], AdmissionLimits],
        *,
        sandboxed: bool,
    ) -> None:
        self._address = address
        self._git = git
        self._bounds = bounds
        self._sandboxed = sandboxed

    def reverse_port(self, source_host: str) -> int | None:
        """Return the port at which a delegator can dial us: one on loopback is out of reach from elsewhere."""
        host, port = self._address()
        return port if is_loopback(source_host) or not is_loopback(host) else None

    def require(self, transport: str) -> None:
        """Return if this machine can do an executor's work with that transport.

        Raises:
            SubletError: ``DEP_MISSING``.
        """
        require_transport(transport)
        if transport == "git":
            self._git.check()
        if self._sandboxed:
            require_sandbox()

    def unpacked_limits(self) -> TarLimits:
        """Return how much a delegator's archive may hold: as much as may be lent from here."""
        bounds = self._bounds()
        return TarLimits(NAMES_FOR_EACH_FILE * bounds.max_files, bounds.max_total_bytes, bounds.max_file_bytes)
