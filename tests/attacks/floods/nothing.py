"""No flood at all, to compare the others with."""

from __future__ import annotations

import anyio

from attacks.flood import Flood, Target


async def idle(target: Target) -> None:
    """Do nothing."""
    await anyio.sleep_forever()


FLOODS = (Flood(name="nothing", who="nobody", covers=(), run=idle),)
