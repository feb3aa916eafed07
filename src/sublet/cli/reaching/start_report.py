"""What a daemon in the background tells of its start, to whoever waits for it, and where its log is."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from sublet.protocol.errors import SubletError

if TYPE_CHECKING:
    from sublet.daemon.api.daemon import StatusView
    from sublet.daemon.config.paths import Home

REPORT = "--report-fd"
"""The option of `up` that tells a daemon in the background where to say how its start went."""
LOG_NAME = "daemon.log"


def log_path(home: Home) -> str:
    """Return where a detached daemon writes its log."""
    return f"{home.state_dir}/{LOG_NAME}"


class Reporter:
    """Tells whoever started this daemon in the background how that went, once.

    Args:
        descriptor: writing end of the caller's pipe; None where nobody waits.
    """

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        if descriptor is not None:
            os.set_inheritable(descriptor, False)

    @property
    def waiting(self) -> bool:
        """Whether somebody still waits to be told."""
        return self._descriptor is not None

    def ready(self, status: StatusView) -> None:
        """Tell that the daemon is ready to work."""
        self._send({"status": status.model_dump(mode="json")})

    def failed(self, error: SubletError) -> None:
        """Tell why the daemon did not come up."""
        self._send({"error": error.as_json()})

    def _send(self, body: dict[str, object]) -> None:
        if self._descriptor is None:
            return
        try:
            os.write(self._descriptor, json.dumps(body).encode() + b"\n")
        except OSError:
            return  # nobody listens any more; the log has it as well
        finally:
            os.close(self._descriptor)
            self._descriptor = None
