"""Where the file of each well-known agent is. Each is an ``agent.json`` of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from sublet.supervisor.agent_config import DEFAULT_AGENT_FILE

_HERE: Final = Path(__file__).parent

WELL_KNOWN: Final[Mapping[str, Path]] = MappingProxyType(
    {
        **{name: _HERE / f"{name}.json" for name in ("claude", "codex", "gemini", "opencode")},
        "shell": DEFAULT_AGENT_FILE,
    }
)
"""The file of each, by its word."""
