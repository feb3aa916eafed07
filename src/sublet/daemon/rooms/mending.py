"""Mends the database of rooms where no daemon runs, as its daemon would at its next start."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sublet.daemon.config.config_file import MessagingConfig
from sublet.daemon.peering.identity import load_identity

if TYPE_CHECKING:
    from sublet.messaging.mending.mend import Mended

_AGENT_KEY: Final = "entity-agent-"


def mend_rooms(
    state_dir: Path, settings: MessagingConfig, set_aside: Callable[[str, bytes, str], object]
) -> tuple[Mended, list[str]]:
    """Look at everything that rooms keep, mend it, and return what was done and what is to be known. Blocks.

    The caller holds the instance lock.

    Args:
        state_dir: private directory of the daemon.
        settings: which extensions there are.
        set_aside: keeps bytes that were damaged.

    Raises:
        SubletError: ``UNAVAILABLE``: there is no room for it, or the keys can't be read.
    """
    from sublet.daemon.rooms.entities import load_entities
    from sublet.daemon.rooms.messaging import registry_of
    from sublet.daemon.storage.state import ROOM_STORE
    from sublet.messaging.mending.healing import Healing

    keys = state_dir / "keys"
    agents = [path.stem.removeprefix(_AGENT_KEY) for path in sorted(keys.glob(f"{_AGENT_KEY}*.key"))]
    entities = load_entities(keys, load_identity(keys), agents)
    healing = Healing(state_dir / ROOM_STORE, lambda: time.time_ns() // 1_000_000, set_aside)
    done = healing.mend(registry_of(settings.extensions), entities, everything=True)
    return done, healing.remarks()
