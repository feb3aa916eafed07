"""What our HTTP servers rely on in uvicorn beyond its documentation, looked at before one is made.

There is no public way to bound a connection as ``http_connection`` does. So where another version lacks a part, no
server is started without its bounds: the daemon says so, and ``sublet doctor`` too.
"""

from __future__ import annotations

from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from sublet.protocol.errors import LocalCode, SubletError

CONNECTION_PARTS: Final = (
    "app_state", "client", "config", "conn", "connections", "connection_lost", "connection_made", "cycle",
    "data_received", "handle_websocket_upgrade", "loop", "on_response_complete", "pause_writing", "resume_writing",
    "send_400_response", "shutdown", "timeout_keep_alive", "timeout_keep_alive_task", "transport",
)  # fmt: skip
SERVER_PARTS: Final = (
    "capture_signals", "config", "main_loop", "on_tick", "server_state", "should_exit", "shutdown",
    "startup",
)  # fmt: skip


def missing() -> list[str]:
    """Return the parts that this version of uvicorn lacks, by their names; nothing is the usual case."""
    return [*_missing(H11Protocol, CONNECTION_PARTS), *_missing(uvicorn.Server, SERVER_PARTS)]


def check() -> None:
    """Do nothing where all is there.

    Raises:
        SubletError: ``UNAVAILABLE``: a part is not.
    """
    if lacking := missing():
        raise SubletError(
            LocalCode.UNAVAILABLE,
            f"uvicorn {uvicorn.__version__} lacks what bounds our connections: {', '.join(lacking)}",
            "Install the version that requirements.lock names.",
        )


def _missing(kind: type, names: tuple[str, ...]) -> list[str]:
    init: Any = kind.__init__  # type: ignore[misc] # only looked at
    made = {*dir(kind), *init.__code__.co_names}
    return [f"{kind.__name__}.{name}" for name in names if name not in made]
