"""``DaemonApi`` for who may do what with whom: peers, tokens, directories that may be lent (DESIGN 4.2, 9)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from sublet.daemon.api.base import MAX_PAGE
from sublet.daemon.api.delegation_views import DelegationView, SandboxView
from sublet.daemon.api.peer_models import AddPeer, Directory, PairLink, PeerView, TokenView
from sublet.daemon.control.service_parts import PartOfService
from sublet.daemon.gatekeeper import looked_up, who
from sublet.daemon.lending.lend_roots import real_directory
from sublet.daemon.operations.asking import operations
from sublet.policy.model import Action, Resource, Subject


@operations
class PeerService(PartOfService):
    """What may be done with peers, tokens and lend roots; each operation asks policy first."""

    async def directory(self, caller: Subject) -> Directory:
        """``DaemonApi.directory``."""
        await self._parts.gate.ask(caller, Action.DELEGATION_READ, "*")
        peers = self._with_sandboxes(await self._parts.peer_directory(), await self._declared())
        return Directory(
            node_id=self._parts.node_id,
            peers=[
                self._usable(peer, caller)
                for peer in peers
                if not self._parts.gate.hides(caller, Action.DELEGATION_CREATE, peer.name)
            ],
            lend_roots=sorted({*caller.roots, *self._parts.lend_roots.paths()}),
        )

    async def _declared(self) -> list[DelegationView]:
        """Return the delegations in which peers declared how they hold an agent, the newest first."""
        views = await self._parts.delegator.list(limit=MAX_PAGE, active=False)
        return [view for view in views if view.sandbox_profile is not None]

    def _with_sandboxes(self, peers: Sequence[PeerView], declared: Sequence[DelegationView]) -> Iterator[PeerView]:
        for peer in peers:
            said: dict[str | None, SandboxView | None] = {}
            for view in declared:
                # What came before was said by another peer of this name, or may have been.
                if view.peer == peer.name and view.created_at >= peer.paired_at:
                    said.setdefault(view.agent, view.sandbox_profile)
            agents = []
            for number, agent in enumerate(peer.agents):
                # Who names no agent gets the first.
                sandbox = said.get(agent.id, said.get(None) if number == 0 else None)
                agents.append(agent.model_copy(update={"sandbox": sandbox}))
            yield peer.model_copy(update={"agents": agents})

    async def create_pair_link(self, caller: Subject, *, ttl_seconds: int = 600) -> PairLink:
        """``DaemonApi.create_pair_link``."""
        await self._parts.gate.ask(caller, Action.PEER_PAIR, "*")
        return await self._parts.pairing.create_link(ttl_seconds)

    async def add_peer(self, request: AddPeer, caller: Subject) -> PeerView:
        """``DaemonApi.add_peer``."""
        await self._parts.gate.ask(caller, Action.PEER_PAIR, request.name)
        return await self._parts.pairing.add(request.link, request.name)

    async def list_peers(self, caller: Subject) -> list[PeerView]:
        """``DaemonApi.list_peers``."""
        await self._parts.gate.ask(caller, Action.PEER_MANAGE, "*")
        return [peer.view() for peer in self._parts.peers.list()]

    async def remove_peer(self, name: str, caller: Subject) -> PeerView:
        """``DaemonApi.remove_peer``."""
        await self._parts.gate.ask(caller, Action.PEER_MANAGE, name)
        peer = await self._parts.peers.remove(name)
        why = f"the peer was removed by {who(caller)}"
        await self._parts.delegator.end_peer(peer.public_key, why)
        await self._parts.executor.end_peer(peer.fingerprint, why)
        return peer.view()

    async def create_token(self, name: str, ttl_seconds: int | None, caller: Subject) -> TokenView:
        """``DaemonApi.create_token``."""
        await self._parts.gate.ask(caller, Action.TOKEN_MANAGE, name)
        return await self._parts.tokens.create(name, ttl_seconds)

    async def list_tokens(self, caller: Subject) -> list[TokenView]:
        """``DaemonApi.list_tokens``."""
        await self._parts.gate.ask(caller, Action.TOKEN_MANAGE, "*")
        return self._parts.tokens.list()

    async def revoke_token(self, name: str, caller: Subject) -> TokenView:
        """``DaemonApi.revoke_token``."""
        await self._parts.gate.ask(caller, Action.TOKEN_MANAGE, name)
        return await self._parts.tokens.revoke(name)

    async def list_lend_roots(self, caller: Subject) -> list[str]:
        """``DaemonApi.list_lend_roots``."""
        await self._parts.gate.ask(caller, Action.LEND_ROOT_MANAGE, "*")
        return self._parts.lend_roots.paths()

    async def add_lend_root(self, path: str, caller: Subject) -> list[str]:
        """``DaemonApi.add_lend_root``."""
        await self._parts.gate.ask(caller, Action.LEND_ROOT_MANAGE, path, path=path)
        real = await looked_up(real_directory, path)
        await self._parts.gate.ask(caller, Action.LEND_ROOT_MANAGE, real, path=real)
        await self._parts.gate.ask(caller, Action.WORKSPACE_LEND, real, path=real)
        return await self._parts.lend_roots.add(real)

    async def remove_lend_root(self, path: str, caller: Subject) -> list[str]:
        """``DaemonApi.remove_lend_root``."""
        await self._parts.gate.ask(caller, Action.LEND_ROOT_MANAGE, path, path=path)
        return await self._parts.lend_roots.remove(await looked_up(os.path.realpath, path))

    def _usable(self, peer: PeerView, caller: Subject) -> PeerView:
        if not peer.usable:
            return peer
        decision = self._parts.policy.decide(caller, Action.DELEGATION_CREATE, Resource(peer.name))
        return peer if decision.allowed else peer.model_copy(update={"usable": False, "why_not": decision.reason})
