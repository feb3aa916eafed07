"""What the web page is given by the composition root."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sublet.daemon.api.web_logins import WebLoginCheck
from sublet.daemon.operations.table import OperationTable


@dataclass(frozen=True, slots=True)
class WebContext:
    """What the page acts by, and where it listens.

    Args:
        operations: what the daemon can be asked.
        logins: who may log in.
        state_dir: private (0700); who is logged in is kept there.
        port: to listen on; 0 for any free one.
        chosen: whether somebody asked for that port: a default that is taken gives way.
    """

    operations: OperationTable
    logins: WebLoginCheck
    state_dir: Path
    port: int
    chosen: bool
