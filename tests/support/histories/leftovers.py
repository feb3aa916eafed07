"""What is left of a room after a home went back: nobody else may have had anything of it but an invitation.

Rules: each daemon says for itself that it has nothing of a room; of one that can't say, or is down, it is not known,
and then nothing is excused. An invitation that waits holds the room's name and members, so the room comes back with it;
what was said in the room is in none. What the home itself still shows is left, too: that has to stay.
"""

from __future__ import annotations

from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.ids import RoomId
from support.histories.looking import look
from support.histories.promises import Shown
from support.histories.stage import NotRunning, Stage


async def left_of(stage: Stage, room: RoomId, back: int, daemons: int) -> list[Shown] | None:
    """Return what is left of a room at whoever went back and in invitations; None where others have more, or may have.

    Args:
        stage: where the daemons are.
        room: which one.
        back: the daemon whose home went back.
        daemons: how many there are.
    """
    left = list[Shown]()
    for who in range(daemons):
        if await stage.lacks(who, room):
            try:
                left += await _invitations(stage, who, room)
            except (SubletError, NotRunning):
                return None
        elif who == back and (own := await look(stage, who, room)) is not None:
            left.append(own)
        else:
            return None
    return left


async def is_nowhere(stage: Stage, room: RoomId, daemons: int) -> bool:
    """Tell whether no daemon has anything of a room, nor an invitation to it."""
    try:
        for who in range(daemons):
            if not await stage.lacks(who, room) or await _invitations(stage, who, room):
                return False
    except (SubletError, NotRunning):
        return False
    return True


async def _invitations(stage: Stage, who: int, room: RoomId) -> list[Shown]:
    """Return what an invitation that waits tells a daemon of a room, if there is one."""
    return [
        Shown([], one["name"], {member: {} for member in one["members"]}, {}, {}, {})
        for one in await stage.call(who, "invitations.list")
        if one["room_id"] == room and one["answer"] == "pending"
    ]
