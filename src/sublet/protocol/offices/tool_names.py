"""Under which names a Computer shows its MCP servers and their tools (A2C-SMCP 0.3, "BundleID").

A server has an id made of its name, or of how it is started where nothing of its name is left. A tool is exposed as
``ID__TOOL``; which one that is stands in a table, and is never read from the name.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from typing import Final

from sublet.protocol.patterns import Pattern

SEPARATOR: Final = "__"
_OTHER: Final = Pattern(r"[^A-Za-z0-9_-]")
_SEVERAL: Final = Pattern(r"_+")
_DIGEST_BYTES: Final = 8


def bundle_id(name: str, argv: Sequence[str], env: Mapping[str, str]) -> str:
    """Return the id of a server that is a program.

    Args:
        name: what its owner calls it.
        argv: how it is started.
        env: variables that it is given of its own.
    """
    made = _SEVERAL.sub("_", _OTHER.sub("_", name)).strip("_-")
    if made:
        return made
    listed = struct.pack(">I", len(argv) - 1) + b"".join(map(_field, argv[1:]))
    variables = [_field(key) + _field(value) for key, value in sorted(env.items())]
    whole = _field("stdio") + _field(argv[0]) + listed + struct.pack(">I", len(variables)) + b"".join(variables)
    return f"bundle_{hashlib.sha256(whole).digest()[:_DIGEST_BYTES].hex()}"


def exposed_name(server: str, tool: str) -> str:
    """Return the name under which a tool of the server with the id ``server`` is shown."""
    return f"{server}{SEPARATOR}{tool}"


def _field(text: str) -> bytes:
    encoded = text.encode("utf-8", "surrogateescape")
    return struct.pack(">I", len(encoded)) + encoded
