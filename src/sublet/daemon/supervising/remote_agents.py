"""Speaks with agents elsewhere for agents of type ``a2a``: finds the peer, signs the chain of calls, passes text on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from sublet.daemon.ports.peer_link import PeerAddress, TextLink
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ids import fingerprint
from sublet.supervisor.a2a_config import A2aConfig
from sublet.supervisor.job import Job
from sublet.supervisor.providers import SignChain
from sublet.supervisor.remote_agent import RemoteNews


class PairedAndPublic:
    """Implements ``RemoteAgents``.

    Args:
        link: speaks A2A.
        find: how to call the paired peer of a name.
        sign: signs the chain of a call.
    """

    def __init__(self, link: TextLink, find: Callable[[str], PeerAddress | None], sign: SignChain) -> None:
        self._link = link
        self._find = find
        self._sign = sign

    async def ask(
        self, target: A2aConfig, agent_id: str, job: Job, *, token: str, context: str | None
    ) -> AsyncGenerator[RemoteNews, None]:
        """``RemoteAgents.ask``."""
        if target.peer is not None:
            peer = self._find(target.peer)
            if peer is None:
                raise SubletError(
                    LocalCode.PEER_UNKNOWN,
                    f"{target.peer}, which agent {agent_id} stands for, is no peer that can be called from here",
                    "Pair with it: run `sublet pair` there and `sublet peers add LINK` here.",
                )
            metadata = self._sign(agent_id, job, job.prompt, recipient=fingerprint(peer.public_key))
            said = self._link.say(peer, job.prompt, metadata, context)
        else:
            said = self._link.say_at(target.url or "", token, job.prompt, context)
        async with aclosing(said) as pieces:
            async for piece in pieces:
                yield RemoteNews(piece.text, piece.context)
