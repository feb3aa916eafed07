"""The extensions of the specification, each in a file (ezagent 5)."""

from __future__ import annotations

from typing import Final

from sublet.messaging.declaring.declaration import Declaration
from sublet.messaging.extensions.channels import CHANNELS
from sublet.messaging.extensions.collab import COLLABORATIVE
from sublet.messaging.extensions.cross_room import CROSS_ROOM_REF
from sublet.messaging.extensions.drafts import USER_DRAFTS
from sublet.messaging.extensions.media import MEDIA_FILES
from sublet.messaging.extensions.moderation import MODERATED
from sublet.messaging.extensions.mutable import MUTABLES
from sublet.messaging.extensions.presence import PRESENCES
from sublet.messaging.extensions.profile import PROFILES
from sublet.messaging.extensions.reactions import REACTIONS
from sublet.messaging.extensions.read_receipts import RECEIPTS
from sublet.messaging.extensions.reply_to import REPLY_TO
from sublet.messaging.extensions.threads import THREADS
from sublet.messaging.extensions.watch import WATCHES

EXTENSIONS: Final[tuple[Declaration, ...]] = (
    REACTIONS,
    REPLY_TO,
    CROSS_ROOM_REF,
    CHANNELS,
    THREADS,
    WATCHES,
    MODERATED,
    RECEIPTS,
    PROFILES,
    MUTABLES,
    COLLABORATIVE,
    PRESENCES,
    USER_DRAFTS,
    MEDIA_FILES,
)
