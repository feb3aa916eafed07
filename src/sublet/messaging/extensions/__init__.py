"""The extensions of the specification, each in a file (ezagent 5)."""

from __future__ import annotations

from typing import Final

from sublet.messaging.engine.declaration import Declaration
from sublet.messaging.extensions.reactions import REACTIONS

EXTENSIONS: Final[tuple[Declaration, ...]] = (REACTIONS,)
