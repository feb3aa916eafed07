"""What is always there: Identity, Room, Timeline and Message (ezagent 4), delivery, control, the node, search,
what is gone for good, and the keys of sealed rooms."""

from __future__ import annotations

from typing import Final

from sublet.messaging.builtins.control import CONTROLS
from sublet.messaging.builtins.delivery import DELIVERY
from sublet.messaging.builtins.identity import IDENTITY
from sublet.messaging.builtins.message import MESSAGE
from sublet.messaging.builtins.node import NODE
from sublet.messaging.builtins.purge import PURGE
from sublet.messaging.builtins.room import ROOM
from sublet.messaging.builtins.sealing import SEALS
from sublet.messaging.builtins.search import SEARCH
from sublet.messaging.builtins.timeline import TIMELINE

BUILT_INS: Final = (IDENTITY, ROOM, TIMELINE, MESSAGE, DELIVERY, CONTROLS, NODE, SEARCH, PURGE, SEALS)
