"""A plain message brings the chain of the call that it is, and only one that was signed for it."""

from __future__ import annotations

import time
from typing import Any

import pytest
from a2a.types import SendMessageRequest
from a2a.utils.errors import A2AError
from google.protobuf.json_format import ParseDict

from sublet.protocol.chain import Chain
from sublet.protocol.signed_chain import CHAIN_KEY, sign_chain
from support.a2a_world import TOKEN, World, context, text

pytestmark = pytest.mark.anyio
CHAIN = Chain(("coder@node-a", "team@node-b"), "lse_1", 30)


def asking(words: str, metadata: dict[str, Any]) -> SendMessageRequest:
    request = text(words)
    ParseDict(metadata, request.message.metadata)
    return request


async def sent(bob: World, request: SendMessageRequest) -> None:
    async with bob.rpc(TOKEN) as rpc:
        async for _ in rpc.send_message_streaming(request, context=context()):
            pass


async def test_who_called_is_told_to_the_agent(bob: World) -> None:
    bob.messages.gate.set()
    signed = sign_chain(CHAIN, "do it", bob.alice.key, recipient=bob.me.fingerprint, at=int(time.time()))
    await sent(bob, asking("do it", {CHAIN_KEY: signed}))
    await sent(bob, text("by a person"))
    assert bob.messages.chains == [CHAIN, Chain()]
    assert len(set(bob.messages.owners)) == 1
    # It counts once.
    with pytest.raises(A2AError, match="received before"):
        await sent(bob, asking("do it", {CHAIN_KEY: signed}))
    assert len(bob.messages.asked) == 2


@pytest.mark.parametrize("change", ["text", "recipient", "chain", "junk"])
async def test_what_was_not_signed_for_this_message_is_refused(bob: World, change: str) -> None:
    recipient = bob.alice.fingerprint if change == "recipient" else bob.me.fingerprint
    signed: Any = sign_chain(CHAIN, "do it", bob.alice.key, recipient=recipient, at=int(time.time()))
    if change == "chain":
        signed["chain"]["execution_chain"] = ["coder@node-a"]
    if change == "junk":
        signed = "no chain"
    with pytest.raises(A2AError, match="chain of callers"):
        await sent(bob, asking("do something else" if change == "text" else "do it", {CHAIN_KEY: signed}))
    assert bob.messages.asked == []
