"""The SDK's server, as one whose lists never change while it runs."""

from __future__ import annotations

from typing import Any

import mcp.types as t
from mcp.server import NotificationOptions
from mcp.server.lowlevel import Server

from sublet.mcp_server.session import HostSession


class FixedLists(Server[HostSession]):
    """A server that promises no notice of changed lists. By itself the SDK promises them to hosts of the 2026 era."""

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> t.ServerCapabilities:
        """``Server.get_capabilities``."""
        found = super().get_capabilities(
            notification_options, experimental_capabilities, extensions, protocol_version=protocol_version
        )
        for lists in (found.tools, found.resources, found.prompts):
            if lists is not None:
                lists.list_changed = False
        return found
