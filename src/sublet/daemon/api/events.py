"""Operations on events: what has happened, from a cursor on, and what happens now (SuperAgent 9.1, DESIGN 7)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sublet.daemon.api.base import MAX_PAGE, MAX_WAIT_SECONDS, Request, View
from sublet.daemon.api.operation import AsksInside, Feed, Operation
from sublet.policy.decision import Action
from sublet.protocol.events import Event, EventFilter, EventKind


class FollowEvents(Request):
    """Which events to tell: those after ``cursor`` that fit all that is given."""

    cursor: Annotated[int, Field(ge=0)] = 0
    delegation_id: Annotated[str, Field(max_length=64)] | None = None
    session_id: Annotated[str, Field(max_length=64)] | None = None
    kind: EventKind | None = None

    def only(self, *, sessions: bool) -> EventFilter:
        """Return which events these are; without ``sessions`` none that is a session's."""
        return EventFilter(
            delegation_id=self.delegation_id, session_id=self.session_id, kind=self.kind, sessions=sessions
        )


class ReadEvents(FollowEvents):
    """Which events to return, and how many seconds to wait for the first."""

    timeout: Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS)] = 0
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 100


class EventPage(View):
    """Events after a cursor; reading never consumes."""

    events: list[Event]
    cursor: int


_ASKS = AsksInside("which of the two depends on what the request names", (Action.DELEGATION_READ, Action.SESSION_READ))

READ_EVENTS = Operation(
    "events.read",
    "GET",
    "/v1/events/page",
    ReadEvents,
    EventPage,
    asks=_ASKS,
    summary="Return events after a cursor, waiting for the first one as long as the request says.",
)
FOLLOW_EVENTS = Feed(
    "events.follow",
    "GET",
    "/v1/events",
    FollowEvents,
    Event,
    asks=_ASKS,
    summary="Tell events after a cursor as they happen, without end. Policy is asked again for each page of them.",
)
