"""Signs who called whom, where an agent of ours calls another by a plain A2A message."""

from __future__ import annotations

import asyncio
import time
from typing import cast

from sublet.daemon.peering.identity import Identity
from sublet.protocol.canonical import JsonValue
from sublet.protocol.chain import address
from sublet.protocol.signed_chain import CHAIN_KEY, sign_chain
from sublet.supervisor.job import Job
from sublet.supervisor.providers import SignChain


def chain_signer(identity: Identity) -> SignChain:
    """Return what signs the chains of calls that agents make by plain A2A messages, with this daemon's key."""

    def sign(agent_id: str, job: Job, text: str, *, recipient: str) -> dict[str, JsonValue]:
        rest = job.remaining_seconds
        if job.deadline is not None:
            rest = job.deadline.at - asyncio.get_running_loop().time()
        own = address(agent_id, identity.node_id)
        chain = job.chain.called_by(own, lease_id=job.delegation_id, ttl=max(0.0, rest))
        signed = sign_chain(chain, text, identity.key, recipient=recipient, at=int(time.time()))
        return {CHAIN_KEY: cast("JsonValue", signed)}

    return sign
