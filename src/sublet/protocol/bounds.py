"""Bounds and words of AWCP messages for those that handle none: to import the messages builds all their models."""

from __future__ import annotations

from typing import Literal, TypeAlias

MAX_PROMPT_CHARS = 200_000
MAX_DESCRIPTION_CHARS = 500
MAX_TTL_SECONDS = 7 * 24 * 3600

AccessMode: TypeAlias = Literal["ro", "rw"]
