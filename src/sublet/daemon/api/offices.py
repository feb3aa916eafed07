"""Operations on offices: rooms in which one Agent uses the tools of Computers (A2C-SMCP)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sublet.daemon.api.base import Request, View
from sublet.daemon.api.operation import ANY_SEGMENT, Asks, Hides, Nothing, Operation, Segment
from sublet.policy.decision import Action
from sublet.protocol.offices.names import Role

OfficeName = Annotated[str, Segment(ANY_SEGMENT.fits, "name or id of an office", "See: sublet office list")]
MemberName = Annotated[str, Segment(ANY_SEGMENT.fits, "name of a member", "See: sublet office list")]


class CreateOffice(Request):
    """Name of the new office, for people and rules."""

    name: Annotated[str, Field(max_length=200)]


class OneOffice(Request):
    """Names an office, by its name or id."""

    office: OfficeName


class CreateOfficeToken(OneOffice):
    """For whom the token is: it lets in that role under that name, into that office alone.

    ``replace`` makes a token that this name has already useless, and ends its connection.
    """

    role: Role
    name: Annotated[str, Field(max_length=200)]
    replace: bool = False


class KickMember(OneOffice):
    """Whom to send away."""

    name: MemberName


class OfficeMember(View):
    """A name in an office: whether it is there now, and how many calls of it are under way."""

    name: str
    role: Role
    connected: bool
    calls: int = 0


class OfficeView(View):
    """An office, with all names that have a token."""

    office_id: str
    name: str
    created_at: str
    members: list[OfficeMember]


class OfficeList(View):
    """All there are, and where clients connect; without a URL where nothing is served."""

    offices: list[OfficeView]
    url: str | None = None
    certificate: str | None = None
    """PEM certificate by which the URL is known, where it has TLS."""


class OfficeToken(View):
    """A token, which is in this answer and in no other, and where to connect with it."""

    office_id: str
    role: Role
    name: str
    token: str
    url: str
    certificate: str | None = None
    """PEM certificate by which the URL is known, where it has TLS."""


class KickedMember(View):
    """Who was sent away, and whether it was there."""

    office_id: str
    name: str
    role: Role
    was_connected: bool


_OFFICES = "/v1/offices"
_OFFICE = f"{_OFFICES}/{{office}}"
_MANAGES = Asks(Action.OFFICE_MANAGE, "{office}")

CREATE_OFFICE = Operation(
    "offices.create",
    "POST",
    _OFFICES,
    CreateOffice,
    OfficeView,
    asks=Asks(Action.OFFICE_MANAGE, "{name}"),
    summary="Open an office. Nobody can join before there is a token.",
    status=201,
)
LIST_OFFICES = Operation(
    "offices.list",
    "GET",
    _OFFICES,
    Nothing,
    OfficeList,
    asks=Asks(Action.OFFICE_READ),
    summary="Return the offices with their members.",
    hides=Hides(Action.OFFICE_READ, "name", "offices"),
)
CREATE_OFFICE_TOKEN = Operation(
    "offices.token",
    "POST",
    f"{_OFFICE}/tokens",
    CreateOfficeToken,
    OfficeToken,
    asks=_MANAGES,
    summary="Make a token with which one Agent or Computer joins under its name.",
    status=201,
)
KICK_OFFICE_MEMBER = Operation(
    "offices.kick",
    "DELETE",
    f"{_OFFICE}/members/{{name}}",
    KickMember,
    KickedMember,
    asks=_MANAGES,
    summary="Make a member's token useless and end its connection, at once.",
)
CLOSE_OFFICE = Operation(
    "offices.close",
    "DELETE",
    _OFFICE,
    OneOffice,
    OfficeView,
    asks=_MANAGES,
    summary="Close an office: all its tokens become useless, and its members' connections end.",
)
