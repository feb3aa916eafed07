"""What the MCP face is given by the composition root."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sublet.daemon.api.call_api import CallApi
from sublet.daemon.operations.calling import Calls
from sublet.policy.decision import Subject
from sublet.tasks import Services


@dataclass(frozen=True, slots=True)
class McpContext:
    """What the MCP face acts by, and where it listens.

    Args:
        called_by: returns what a caller can ask the daemon; each operation asks policy about them.
        calls: stands before what a person may have to approve.
        identify: returns the agent of this daemon to which a process belongs, if any; raises ``ProcessLookupError``
            where nobody can tell.
        version: of Sublet, in words.
        runtime_dir: holds the socket.
        services: keeps what the face runs for as long as it lives.
        web_page: returns where the web page is, None where it is switched off.
    """

    called_by: Callable[[Subject], Calls]
    calls: CallApi
    identify: Callable[[int], Subject | None]
    version: str
    runtime_dir: Path
    services: Services
    web_page: Callable[[], str | None]
