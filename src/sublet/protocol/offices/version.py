"""The version handshake of A2C-SMCP: each HTTP request names the client's protocol version (code 4008).

Below 1.0 two versions fit where major and minor are the same; from 1.0 on where the major is the same and the client's
minor is no later than the server's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sublet.protocol.canonical import JsonValue
from sublet.protocol.offices.names import BAD_REQUEST, VERSION_FIELD, VERSION_MISMATCH
from sublet.protocol.patterns import Pattern
from sublet.protocol.text import clean_line

MAX_SHOWN_CHARS: Final = 64
_VERSION = Pattern(r"(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})\Z")


@dataclass(frozen=True, slots=True)
class ProtocolVersion:
    """A version of A2C-SMCP, which is not that of a package that speaks it."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    def serves(self, client: ProtocolVersion) -> bool:
        """Tell whether a server of this version serves a client of version ``client``."""
        if self.major == 0:
            return (client.major, client.minor) == (0, self.minor)
        return client.major == self.major and client.minor <= self.minor

    @property
    def oldest(self) -> str:
        """The oldest client version that this server serves."""
        return f"{self.major}.{self.minor if self.major == 0 else 0}.0"

    @property
    def newest(self) -> str:
        """The newest client version that this server serves."""
        return f"{self.major}.{self.minor}.999"


def parse_version(text: str) -> ProtocolVersion:
    """Return the version that ``text`` is, ``MAJOR.MINOR.PATCH``.

    Raises:
        ValueError: it is none.
    """
    match = _VERSION.match(text)
    if match is None:
        raise ValueError("it is not MAJOR.MINOR.PATCH")
    return ProtocolVersion(int(match[1]), int(match[2]), int(match[3]))


def handshake_refusal(given: list[str], server: ProtocolVersion) -> dict[str, JsonValue] | None:
    """Return the body of the 400 that refuses a handshake, or None where the client is served.

    Args:
        given: what the query of the request says under ``a2c_version``.
        server: the version that this server announces.
    """
    if not given or not given[0]:
        return {"code": BAD_REQUEST, "message": f"Missing {VERSION_FIELD} query parameter"}
    shown = clean_line(given[0], MAX_SHOWN_CHARS)
    try:
        client = parse_version(given[0] if len(given) == 1 else "")
    except ValueError:
        return {"code": BAD_REQUEST, "message": f"Invalid {VERSION_FIELD}: {shown}"}
    if server.serves(client):
        return None
    return {
        "code": VERSION_MISMATCH,
        "message": "Protocol version mismatch",
        "server_version": str(server),
        "client_version": str(client),
        "min_supported": server.oldest,
        "max_supported": server.newest,
    }
