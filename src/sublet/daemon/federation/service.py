"""Serves the operations of ``api.federation``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from sublet.daemon.api.federation import (
    ASK_AGENT,
    BROADCAST,
    FIND_AGENT,
    LIST_ALL_AGENTS,
    LIST_BROADCASTS,
    LIST_NODES,
    AskAgent,
    Broadcast,
    BroadcastHeard,
    BroadcastSent,
    BroadcastView,
    FailedTask,
    FederatedAgentView,
    Find,
    FoundAgent,
    ListBroadcasts,
    NodeView,
    TaskAnswer,
    TaskBegun,
)
from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.sessions import AskAnswer, AskOutput
from sublet.daemon.federation.finding import Finding
from sublet.daemon.federation.settings_file import SettingsFile
from sublet.daemon.federation.work import AsksAgent, result_of
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.operations.table import serves
from sublet.federation.neighbours import Neighbour
from sublet.federation.node import Federation
from sublet.federation.ports import Asked, OwnAgent, Said
from sublet.federation.settings import PeerSettings, Settings
from sublet.federation.table import AgentEntry
from sublet.policy.decision import UNMATCHED, Action, Resource, Subject
from sublet.protocol.chain import Chain, check_call
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import Event, EventKind
from sublet.protocol.federation.addresses import AgentAddress, broadcast_room
from sublet.protocol.federation.errors import ADVICE, FederationCode, code_of
from sublet.protocol.federation.events import TaskResult, failure_result
from sublet.protocol.federation.statuses import AgentStatus
from sublet.protocol.text import clean_line
from sublet.protocol.times import rfc3339_of
from sublet.turns import Turns

PERSON = "human"
"""Who asks where no agent does, in addresses."""


class OverHttp(Protocol):
    """Knows how it stands with nodes that are reached over HTTP."""

    @property
    def address(self) -> str:
        """Where they reach this node; empty for nowhere."""

    @property
    def remark(self) -> str:
        """Why they do not, although it is switched on; empty where they do, or it is off."""

    def why_not(self, peer: PeerSettings) -> str:
        """Return why nothing is said to a node of federation.toml over HTTP; empty where something is."""


@dataclass(frozen=True, slots=True)
class FederationParts:
    """What the service is made of.

    Args:
        gate: asks policy.
        federation: knows the nodes.
        finding: finds agents by what a caller types.
        settings: as they are now.
        agents: ours that are offered now.
        ask: brings a text to an agent of ours.
        chain_of: who called until a caller.
        max_depth: how many agents may call one another in a row.
        wall: Unix seconds.
        said: returns the newest events of a kind.
        http: says how it stands with nodes over HTTP.
    """

    gate: Gatekeeper
    federation: Federation
    finding: Finding
    settings: SettingsFile
    agents: Callable[[], list[OwnAgent]]
    ask: AsksAgent
    chain_of: Callable[[Subject], Chain]
    max_depth: int
    wall: Callable[[], float]
    said: Callable[[EventKind, int], Awaitable[list[Event]]]
    http: OverHttp


class FederationService:
    """What may be asked of nodes, and of their agents."""

    def __init__(self, parts: FederationParts) -> None:
        self._parts = parts
        self._gate = parts.gate
        self._federation = parts.federation
        self._finding = parts.finding

    @serves(LIST_NODES)
    async def nodes(self, request: Nothing, caller: Subject) -> list[NodeView]:
        settings = self._parts.settings.now()
        own = self._federation.own
        here = NodeView(
            node_id=own.name,
            peer=None,
            state="here" if self._federation.on else "off",
            why_not=self._parts.settings.remark or self._parts.http.remark,
            url=self._parts.http.address or None,
            namespace=settings.room.namespace,
            agents=len(self._parts.agents()),
            busy=sum(self._federation.own_status(one.agent_id) == AgentStatus.BUSY for one in self._parts.agents()),
            last_seen=rfc3339_of(self._parts.wall()),
            fingerprint=own.fingerprint,
        )
        return [
            here,
            *(self._node(one, settings) for one in self._federation.neighbours.all()),
            *self._unreached(settings, caller),
        ]

    def _node(self, neighbour: Neighbour, settings: Settings) -> NodeView:
        entries = self._federation.table.of_node(neighbour.name) if neighbour.name is not None else []
        clash = self._federation.neighbours.by_name(neighbour.name) if neighbour.name is not None else neighbour
        remark = ""
        if clash is not None and clash is not neighbour:
            remark = f"{neighbour.name} means {clash.node.alias} here, since you call that one so"
        listed = next((one for one in settings.peers if one.fingerprint == neighbour.node.fingerprint), None)
        if not remark and neighbour.state == "silent" and not neighbour.node.paired and listed is not None:
            remark = self._parts.http.why_not(listed)
        return NodeView(
            node_id=neighbour.name,
            peer=neighbour.node.alias,
            state=neighbour.state if self._federation.on else "off",
            why_not=clean_line(neighbour.refused, 500) or remark,
            trusted=neighbour.name is None or settings.trusts(neighbour.name, neighbour.node.fingerprint),
            agents=len(entries),
            busy=sum(one.status == AgentStatus.BUSY for one in entries),
            last_seen=rfc3339_of(neighbour.heard) if neighbour.heard is not None else None,
            fingerprint=neighbour.node.fingerprint,
            url=listed.url if listed is not None and not neighbour.node.paired else None,
        )

    def _unreached(self, settings: Settings, caller: Subject) -> list[NodeView]:
        """Return the peers of federation.toml that are no paired daemons, each with the reason why it stays off.

        They have no name here yet, by which the operation leaves out what a rule hides: the file's will be it.
        """
        known = {one.node.fingerprint for one in self._federation.neighbours.all()}
        names = {one.name for one in self._federation.neighbours.all()}
        return [
            NodeView(
                node_id=one.node_id,
                peer=None,
                state="off",
                why_not=clean_line(self._parts.http.why_not(one), 500) or "it was not reached yet",
                url=one.url,
                trusted=one.trusted,
                fingerprint=one.fingerprint or "",
            )
            for one in settings.peers
            if one.node_id not in names
            and one.fingerprint not in known
            and not self._gate.hides(caller, Action.DELEGATION_CREATE, one.node_id)
        ]

    @serves(LIST_ALL_AGENTS)
    async def agents(self, request: Nothing, caller: Subject) -> list[FederatedAgentView]:
        own, now = self._federation.own, rfc3339_of(self._parts.wall())
        here = [
            FederatedAgentView(
                address=f"{one.agent_id}@{own.name}",
                agent_id=one.agent_id,
                node_id=own.name,
                peer=None,
                status=self._federation.own_status(one.agent_id),
                runtime_type=one.runtime_type,
                capabilities=list(one.capabilities),
                last_seen=now,
            )
            for one in self._parts.agents()
            if not self._gate.hides(caller, Action.AGENT_DISPATCH, one.agent_id)
        ]
        alias = {one.name: one.node.alias for one in self._federation.neighbours.all() if one.name is not None}
        there, turns = list[FederatedAgentView](), Turns()
        # There may be a hundred thousand: others have the loop between them, and who is gone by then is left out.
        for node in self._federation.table.nodes():
            for entry in sorted(self._federation.table.of_node(node), key=lambda one: one.address.agent_id):
                await turns.take()
                there.append(_agent_view(entry, alias.get(node)))
        return here + there

    @serves(BROADCAST)
    async def broadcast(self, request: Broadcast, caller: Subject) -> BroadcastSent:
        if not self._federation.on:
            raise SubletError(
                LocalCode.UNAVAILABLE, "federation is off here", "See federation.toml: enabled, federate."
            )

        def visible(neighbour: Neighbour) -> bool:
            return not self._gate.hides(caller, Action.DELEGATION_CREATE, neighbour.node.alias)

        sender = caller.name if caller.kind == "agent" else PERSON
        said, heard = await self._federation.broadcasts.say(sender, request.text, request.message_type, visible)
        return BroadcastSent(
            message_id=said.message_id,
            room_id=broadcast_room(self._federation.own.name),
            from_agent=said.from_agent,
            at=said.timestamp,
            heard=[BroadcastHeard(peer=one.alias, why_not=clean_line(one.why_not, 300)) for one in heard],
        )

    @serves(LIST_BROADCASTS)
    async def broadcasts(self, request: ListBroadcasts, caller: Subject) -> list[BroadcastView]:
        def text(event: Event, name: str) -> str:
            value = event.data.get(name)
            return value if isinstance(value, str) else ""

        return [
            BroadcastView(
                message_id=text(one, "message_id"),
                from_agent=text(one, "from"),
                peer=text(one, "peer") or None,
                message_type=text(one, "message_type"),
                text=text(one, "text"),
                at=one.at,
            )
            for one in await self._parts.said(EventKind.NODE_MESSAGE, request.limit)
        ]

    @serves(FIND_AGENT)
    async def find(self, request: Find, caller: Subject) -> FoundAgent:
        address, alias, why = self._finding.found(request.to, caller, lent=True)
        return FoundAgent(address=str(address), peer=alias, agent_id=address.agent_id, why=why)

    @serves(ASK_AGENT)
    async def ask(self, request: AskAgent, caller: Subject) -> AsyncGenerator[TaskBegun | AskOutput | TaskAnswer, None]:
        own = self._federation.own
        address, alias, why = self._finding.found(request.to, caller)
        await self._check_denied(address, caller)
        chain = self._parts.chain_of(caller)
        check_call(chain, None, max_depth=self._parts.max_depth)
        yield TaskBegun(target=str(address), reason=why)
        result: TaskResult | None = None
        if address.node == own.name:
            pieces = self._here(address, request, caller, chain)
        elif alias is None:
            pieces = _one(
                failure_result(FederationCode.NODE_UNREACHABLE, f"no node is known as {address.node}", "unknown")
            )
        else:
            asked = Asked(
                to=address,
                prompt=request.text,
                sender=AgentAddress(caller.name if caller.kind == "agent" else PERSON, own.name),
                seconds=request.timeout_seconds or self._parts.settings.now().default_task_timeout_secs,
                context=request.context,
                queue_if_offline=request.wait,
                chain=chain,
            )
            pieces = self._federation.ask(asked)
        async with aclosing(pieces) as told:
            async for piece in told:
                if isinstance(piece, TaskResult):
                    result = piece
                else:
                    yield AskOutput(stream="note", text=piece.text)
        assert result is not None, "each task ends with its result"
        yield _answer(address, why, result)

    async def _check_denied(self, address: AgentAddress, caller: Subject) -> None:
        """Hold a caller to what rules deny by another name of the agent than the one that was typed.

        The operation has asked for the name as it was typed. A rule that allows nothing but that name is enough.

        Raises:
            SubletError: ``POLICY_DENIED``; ``NOT_FOUND`` where the rule hides what it denies.
        """
        neighbour = self._federation.neighbours.by_name(address.node)
        others = (neighbour.name, neighbour.node.alias) if neighbour is not None else ()
        for node in dict.fromkeys((address.node, *others)):
            name = f"{address.agent_id}@{node}"
            decision = self._gate.foresee(caller, Action.AGENT_ASK, Resource(name)).decision
            if not decision.allowed and decision.rule != UNMATCHED:
                await self._gate.ask(caller, Action.AGENT_ASK, name)

    async def _here(
        self, address: AgentAddress, request: AskAgent, caller: Subject, chain: Chain
    ) -> AsyncGenerator[Said | TaskResult, None]:
        """Have an agent of this node do it, as any request ("路由决策流程": a local one is handled at once)."""
        owner = PERSON if caller.kind == "human" else f"{caller.kind}:{caller.name}"
        if all(one.agent_id != address.agent_id for one in self._parts.agents()):
            yield failure_result(FederationCode.AGENT_NOT_FOUND, f"there is no agent {address.agent_id} here")
            return
        text = request.text if not request.context else f"{request.text}\n\nContext:\n{request.context}"
        try:
            async with aclosing(self._parts.ask(address.agent_id, text, caller, owner, chain)) as updates:
                async for update in updates:
                    if isinstance(update, AskOutput) and update.text:
                        yield Said(update.text)
                    elif isinstance(update, AskAnswer):
                        yield result_of(update)
        except SubletError as error:
            code = code_of(error)
            if code is None:
                raise
            yield failure_result(code, error.message, str(error.code))


def _agent_view(entry: AgentEntry, alias: str | None) -> FederatedAgentView:
    return FederatedAgentView(
        address=str(entry.address),
        agent_id=entry.address.agent_id,
        node_id=entry.address.node,
        peer=alias,
        status=entry.status,
        runtime_type=entry.runtime_type,
        capabilities=list(entry.capabilities),
        current_task=entry.current_task,
        last_seen=rfc3339_of(entry.last_seen),
    )


async def _one(result: TaskResult) -> AsyncGenerator[Said | TaskResult, None]:
    yield result


def _answer(address: AgentAddress, why: str, result: TaskResult) -> TaskAnswer:
    code = result.metadata.get("error_code")
    warnings = [ADVICE[FederationCode(code)]] if isinstance(code, str) and code in FederationCode.__members__ else []
    return TaskAnswer(
        target=str(address),
        reason=why,
        result=result.output
        if result.success
        else FailedTask(output=result.output, exit_code=result.exit_code, metadata=result.metadata),
        agent_id=address.agent_id,
        metadata=result.metadata,
        warnings=warnings,
    )
