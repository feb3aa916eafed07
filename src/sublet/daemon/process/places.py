"""Where the faces of a daemon are reached."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from sublet.daemon.process.kept_face import Place


@dataclass(frozen=True, slots=True)
class Places:
    """Where the faces are reached; empty until each has started. The web page may be switched off."""

    a2a: Place
    mcp: Place
    control: Place
    web: Place | None

    def web_page(self) -> str | None:
        """Return where the web page is, None where it is switched off."""
        return self.web.address if self.web is not None else None

    def a2a_port(self) -> int | None:
        """Return the port in the address by which we are reached."""
        return urlsplit(self.a2a.address).port
