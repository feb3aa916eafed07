"""Bounds and words of AWCP messages for those that handle none: to import the messages builds all their models."""

from __future__ import annotations

from typing import Literal, TypeAlias

MAX_PROMPT_CHARS = 200_000
MAX_DESCRIPTION_CHARS = 500
MAX_TTL_SECONDS = 7 * 24 * 3600

MAX_RESOURCES = 16
"""Directories that one delegation may lend."""
MAX_PATTERNS = 200
"""Include, exclude, reveal and unlock patterns of one request, each kind counted alone."""
MAX_FOLLOW_UPS = 64
"""Follow-ups of one delegation, over all its time."""

AccessMode: TypeAlias = Literal["ro", "rw"]
ResultMode: TypeAlias = Literal["live", "staged"]
"""Whether the executor writes into the directory itself, or into a copy whose changes are reviewed (DESIGN 4.7)."""
GitMode: TypeAlias = Literal["hidden", "ro", "rw"]
"""How much of ``.git`` the executor sees (DESIGN 4.6)."""
TransportName: TypeAlias = Literal["sshfs", "archive", "git"]
"""How the workspace travels (AWCP 4.1 ``requirements.transport``, DESIGN 4.6)."""
TransportWish: TypeAlias = Literal[TransportName, "auto"]
"""What a delegator may ask for: one transport, or the best that both sides have."""

DEMAND = r"^(?:[a-z][a-z0-9_]{0,63}|(?:cwd_only|allow_network|allow_exec)=(?:true|false))$"
"""A demand on the executor's sandbox; ``protocol.demands`` tells what it means."""
