"""What the last process has left in private directories: out of the way at once, removed when there is time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from sublet.daemon.tasks.background import in_background
from sublet.disk.set_aside import SetAside

SWEEP_SECONDS: Final = 600.0
MOUNTS: Final = "mounts"
COPIES: Final = ("work", "clones")
"""Where, below the state directory, transports without a mount put the files that an agent works on."""
PROBES: Final = "overlay-probe-*"


def clear(scratch_root: Path, aside: SetAside) -> None:
    """Take all private directories and copies of agents out of the way, and what a killed probe of overlays left.

    Blocks for as long as it takes to rename them; ``SetAside.sweep`` removes them.
    """
    state_dir = scratch_root.parent
    aside.names(state_dir / MOUNTS)
    for path in state_dir.glob(PROBES):
        aside.remove_later(path)
    for root in (scratch_root, *(state_dir / copies for copies in COPIES)):
        for name in aside.names(root):
            aside.remove_later(root / name)


async def keep_swept(aside: SetAside) -> None:
    """Remove what is out of the way, from time to time, until cancelled; nobody waits for it."""
    while True:
        await in_background(aside.sweep)
        await asyncio.sleep(SWEEP_SECONDS)
