"""Has the rooms here again that were agreed to, where the database has lost them; on the engine's thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sublet.messaging.ports.agreed import KeepsAgreed
from sublet.messaging.ports.invitation_store import Answer, Invitation
from sublet.messaging.ports.store import Store
from sublet.messaging.rooms.here import RoomsHere


class AgreedParts(Protocol):
    """The parts of the engine that know what is here and what was answered."""

    @property
    def answered(self) -> list[Callable[[Invitation], None]]: ...

    @property
    def here(self) -> RoomsHere: ...

    @property
    def now_ms(self) -> Callable[[], int]: ...

    @property
    def store(self) -> Store: ...


def keep_agreed(engine: AgreedParts, agreed: KeepsAgreed | None) -> None:
    """Want the rooms that were agreed to and that the database has lost, and keep what is agreed to from now on."""
    if agreed is None:
        return
    store = engine.store
    answers = [one for one in store.invitations.all() if one.answer is not Answer.PENDING]
    found = agreed.begin(engine.here.ids, answers, engine.now_ms())
    for room_id in found.rooms:
        if store.removal.is_forgotten(room_id):
            agreed.let_go(room_id)
        else:
            engine.here.want(room_id)
    if found.answers:
        with store.transaction():
            for one in found.answers:
                store.invitations.put(one)
    engine.here.agreed.append(agreed.taken_up)
    engine.here.let_go.append(agreed.let_go)
    engine.answered.append(agreed.answered)
