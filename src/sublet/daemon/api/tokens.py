"""Operations on tokens: what lets plain A2A clients in."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sublet.daemon.api.base import Request, View
from sublet.daemon.api.operation import ANY_SEGMENT, Asks, Nothing, Operation, Segment
from sublet.policy.decision import Action

TokenName = Annotated[str, Segment(ANY_SEGMENT.fits, "name of a token", "See: sublet token list")]


class CreateToken(Request):
    """Name of the token, and how long it is valid: without a time, until it is revoked."""

    name: Annotated[str, Field(max_length=200)]
    ttl_seconds: int | None = None


class OneToken(Request):
    """A token, by its name."""

    name: TokenName


class TokenView(View):
    """A token for plain A2A clients; ``token`` is shown once, when it is made."""

    name: str
    created_at: str
    expires_at: str | None = None
    token: str | None = None


CREATE_TOKEN = Operation(
    "tokens.create",
    "POST",
    "/v1/tokens",
    CreateToken,
    TokenView,
    asks=Asks(Action.TOKEN_MANAGE, "{name}"),
    summary="Make a bearer token for a plain A2A client. Its secret is in this answer and in no other.",
    status=201,
)
LIST_TOKENS = Operation(
    "tokens.list",
    "GET",
    "/v1/tokens",
    Nothing,
    list[TokenView],
    asks=Asks(Action.TOKEN_MANAGE),
    summary="Return the tokens, without their secrets.",
)
REVOKE_TOKEN = Operation(
    "tokens.revoke",
    "DELETE",
    "/v1/tokens/{name}",
    OneToken,
    TokenView,
    asks=Asks(Action.TOKEN_MANAGE, "{name}"),
    summary="Make a token useless.",
)
