"""What Sublet uses of its libraries beyond what they promise, and what is lost where another version lacks it.

Each part is used in one module, which does without it or refuses. A test finds all of them in the code and compares
them with the table in ``docs/dependencies.md``.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sublet.daemon.health import stalls
from sublet.daemon.net import uvicorn_parts
from sublet.protocol import re2_engine
from sublet.workspace.ssh import inner, tuning


@dataclass(frozen=True, slots=True)
class PrivateParts:
    """Private parts of one library that serve one purpose.

    Args:
        package: as it is installed; ``python`` for the interpreter itself.
        missing: returns what this version lacks, by name.
        lost: what a person loses then.
        harmless: whether all works without them, only slower or with less to see.
    """

    package: str
    missing: Callable[[], list[str]]
    lost: str
    harmless: bool = True


def _relay_parts() -> list[str]:
    lacking = []
    for module, name in (("_json", "make_scanner"), ("_json", "encode_basestring_ascii"), ("_socket", "socket")):
        try:
            found = hasattr(importlib.import_module(module), name)
        except ImportError:
            found = False
        if not found:
            lacking.append(f"{module}.{name}")
    return lacking


ALL: Final = (
    PrivateParts("asyncssh", tuning.missing, "transfers are slower"),
    PrivateParts("asyncssh", inner.missing, "some bounds on what a peer makes us keep are not held", harmless=False),
    PrivateParts("google-re2", re2_engine.missing, "patterns take longer"),
    PrivateParts("uvicorn", uvicorn_parts.missing, "no HTTP server starts", harmless=False),
    PrivateParts("python", stalls.missing, "times in which the daemon stands still are not measured"),
    PrivateParts("python", _relay_parts, "`sublet mcp` starts more slowly"),
)


def fallen_back(parts: tuple[PrivateParts, ...] = ALL) -> list[tuple[PrivateParts, str]]:
    """Return the parts that are not there, each with a sentence about it."""
    found = []
    for part in parts:
        if lacking := part.missing():
            version = "" if part.package == "python" else f" {importlib.metadata.version(part.package)}"
            found.append((part, f"{part.package}{version} lacks {', '.join(lacking)}: {part.lost}"))
    return found
