"""Operations on the web page: links that log a browser in, each good once and for a short time."""

from __future__ import annotations

from typing import Annotated, Protocol

from pydantic import BaseModel, ConfigDict, Field

from sublet.daemon.api.base import Request
from sublet.daemon.api.operation import Asks, Operation
from sublet.policy.decision import Action

DEFAULT_LINK_SECONDS = 120
MAX_LINK_SECONDS = 3600


class CreateWebLogin(Request):
    """How long the link is valid, in seconds."""

    ttl_seconds: Annotated[int, Field(ge=1, le=MAX_LINK_SECONDS)] = DEFAULT_LINK_SECONDS


class WebLogin(BaseModel):
    """A login link. ``url`` holds its secret behind the #, which no browser sends to anybody; ``page`` is without."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    url: Annotated[str, Field(repr=False)]
    page: str
    expires_at: str


class WebLoginCheck(Protocol):
    """Checks login links, as the web page does for whoever knocks."""

    def redeem(self, text: str) -> None:
        """Use up the link whose secret ``text`` is.

        Raises:
            SubletError: ``TOKEN_INVALID``, in the same words for an unknown, used or expired one; ``UNAVAILABLE``
                where too many unknown ones were tried.
        """


CREATE_WEB_LOGIN = Operation(
    "web.login",
    "POST",
    "/v1/web-logins",
    CreateWebLogin,
    WebLogin,
    asks=Asks(Action.WEB_LOGIN),
    summary="Make a login link.",
    status=201,
)
