"""The names by which people know entities of rooms, as this daemon has them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from sublet.cli.rendering.entity_names import EntityNames

if TYPE_CHECKING:
    from sublet.daemon.control.client import ControlClient as Control


async def load_names(control: Control) -> EntityNames:
    """Return the names that this daemon knows."""
    from sublet.daemon.api.operation import Nothing
    from sublet.daemon.api.peers import LIST_PEERS
    from sublet.daemon.api.rooms import WHOAMI

    me = await control.call(WHOAMI, Nothing())
    peers = {peer.node_id: peer.name for peer in await control.call(LIST_PEERS, Nothing())}
    return EntityNames(me.entity_id, peers, whole=not sys.stdout.isatty())
