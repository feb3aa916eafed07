"""Serves the operations of ``api.tokens``."""

from __future__ import annotations

from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.tokens import CREATE_TOKEN, LIST_TOKENS, REVOKE_TOKEN, CreateToken, OneToken, TokenView
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.operations.table import serves
from sublet.daemon.peering.tokens import TokenStore
from sublet.policy.decision import Subject


class TokenService:
    """Makes bearer tokens for plain A2A clients, and takes them back."""

    def __init__(self, gate: Gatekeeper, tokens: TokenStore) -> None:
        self._gate = gate
        self._tokens = tokens

    @serves(CREATE_TOKEN)
    async def create_token(self, request: CreateToken, caller: Subject) -> TokenView:
        return await self._tokens.create(request.name, request.ttl_seconds)

    @serves(LIST_TOKENS)
    async def list_tokens(self, request: Nothing, caller: Subject) -> list[TokenView]:
        return self._tokens.list()

    @serves(REVOKE_TOKEN)
    async def revoke_token(self, request: OneToken, caller: Subject) -> TokenView:
        return await self._tokens.revoke(request.name)
