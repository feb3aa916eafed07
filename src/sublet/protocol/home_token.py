"""By what a daemon's home is told from a copy of it: a token of its own, which its daemon says in what it signs.

A home that finds itself in another place, on another machine say, takes a new token and goes on naming the one that it
had. So whoever meets both knows which is the elder, and that the other came from it.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final

from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.patterns import Pattern

MAX_ELDERS: Final = 8
MAX_CHARS: Final = (MAX_ELDERS + 1) * 17
OWN_HOME: Final = "sublet doctor --own-home"
"""Makes a copied home a daemon of its own."""
_TOKEN: Final = Pattern(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class HomeToken:
    """A home's token, and those that it had before, the newest first."""

    token: str
    elders: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """The token as it is said."""
        return ".".join((self.token, *self.elders))

    def moved(self) -> HomeToken:
        """Return the token of this home in another place."""
        return HomeToken(new_token(), (self.token, *self.elders)[:MAX_ELDERS])

    def comes_from(self, other: HomeToken) -> bool:
        """Tell whether this home was the other one before it came to another place."""
        return other.token in self.elders


def new_token() -> str:
    """Return a token that no home has."""
    return secrets.token_hex(8)


def parse_home(said: object) -> HomeToken | None:
    """Return what a daemon has said of its home; None where it has said nothing, or nothing that can be."""
    if not isinstance(said, str) or len(said) > MAX_CHARS:
        return None
    tokens = said.split(".")
    if len(tokens) > MAX_ELDERS + 1 or not all(_TOKEN.fullmatch(one) for one in tokens):
        return None
    return HomeToken(tokens[0], tuple(tokens[1:]))


def is_copy() -> SubletError:
    """Return what the daemon of a copied home is told by who has noticed that the other one runs as well."""
    return SubletError(
        LocalCode.HOME_COPIED,
        "this is a copy of a home whose daemon runs as well, with the same key, so it is not let in",
        f"Make it a daemon of its own, which pairs anew: sublet down, then {OWN_HOME}",
    )
