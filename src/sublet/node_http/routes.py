"""What is asked of a node over HTTP, by the specification's names, and the bounds that both sides hold."""

from __future__ import annotations

from typing import Final

from sublet.federation.ports import What

EVENT_PATH: Final = "/_cis/v1/event/receive"
HEALTH_PATH: Final = "/_cis/v1/health"
SERVER_PATH: Final = "/_matrix/key/v2/server"
ROUTES: Final[dict[What, tuple[str, str]]] = {"event": ("POST", EVENT_PATH), "server": ("GET", SERVER_PATH)}
METHODS: Final = {EVENT_PATH: "POST", SERVER_PATH: "GET", HEALTH_PATH: "GET"}
MAX_ANSWER_BYTES: Final = 4 << 10
PROTOCOL_VERSION: Final = "1.0.0"
