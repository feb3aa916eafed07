"""What the executor agrees to: which INVITE it accepts and how far it narrows it, which START it takes (AWCP 4, 7)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from anyio import to_thread

from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.ports.given_to_a2a import KnownPeer
from sublet.policy.decision import Action, Resource, Subject, Value
from sublet.policy.request_rules import narrowing
from sublet.protocol.assignment import granting
from sublet.protocol.bounds import AccessMode
from sublet.protocol.chain import Chain, address, check_call
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.messages import (
    Accept,
    AcceptExtension,
    Invite,
    RemoteConstraints,
    RemoteMount,
    ReverseEndpoint,
    SandboxProfile,
)
from sublet.protocol.near import did_you_mean
from sublet.protocol.text import clean_line
from sublet.supervisor.agent_config import AgentConfig, check_governed
from sublet.supervisor.confinement import Confinement
from sublet.supervisor.readiness import unable


class Acceptance:
    """Decides on INVITE and words ACCEPT.

    Args:
        gate: is asked for every INVITE.
        agents: those offered now; the first is the default.
        max_ttl_seconds: the longest lease that is accepted now.
        reverse_port: port at which a delegator at this address can dial us, or None.
        node_id: of this daemon.
        max_depth: how deep calls between agents may be nested.
        confinement: returns how an agent is held here.
    """

    def __init__(
        self,
        *,
        gate: Gatekeeper,
        agents: Callable[[], Sequence[AgentConfig]],
        max_ttl_seconds: Callable[[], int],
        reverse_port: Callable[[str], int | None],
        confinement: Callable[[AgentConfig], Confinement],
        node_id: str,
        max_depth: int,
        entity: Callable[[str], str | None],
    ) -> None:
        self._entity = entity
        self._node_id = node_id
        self._max_depth = max_depth
        self._gate = gate
        self._agents = agents
        self._max_ttl_seconds = max_ttl_seconds
        self._reverse_port = reverse_port
        self._confinement = confinement

    async def check(self, message: Invite, peer: KnownPeer) -> AgentConfig:
        """Return the agent that will do the work.

        Raises:
            SubletError: ``DECLINED``; ``DEP_MISSING`` where the agent's program is not there.
        """
        caller, wanted = Subject("peer", peer.name), message.sublet.agent
        offered = self._agents()
        # Asked for the name as it was given, before anybody looks whether there is such an agent.
        await self._ask(
            caller,
            wanted or (offered[0].id if offered else "*"),
            access_mode=message.lease.access_mode,
            ttl_seconds=message.lease.ttl_seconds,
            unknown=self._unknown(caller, wanted),
        )
        agent = next((agent for agent in offered if wanted is None or agent.id == wanted), None)
        if agent is None:
            raise self._unknown(caller, wanted)
        if (lack := await to_thread.run_sync(unable, agent)) is not None:
            raise SubletError(
                ErrorCode.DEP_MISSING,
                f"agent {agent.id} can't work there: {lack.what}",
                f"Its owner mends that: {lack.remedy}",
            )
        self._check_chain(message, agent)
        self._check_narrowing(message, agent)
        enforced = self._confinement(agent).enforced
        if missing := sorted({*message.sublet.require_enforced} - enforced):
            raise SubletError(
                ErrorCode.DECLINED,
                f"what the delegator requires is not enforced here: {', '.join(map(clean_line, missing))}",
                f"Enforced for agent {agent.id}: {', '.join(sorted(enforced)) or 'nothing'}.",
            )
        return agent

    def accept(
        self,
        message: Invite,
        agent: AgentConfig,
        *,
        transport: str,
        mount_point: str,
        public_key: str,
        source_host: str,
    ) -> Accept:
        """Return the ACCEPT: the access asked for, and at most the time asked for."""
        reverse = self._reverse_port(source_host)
        held = self._confinement(agent)
        return Accept(
            delegation_id=message.delegation_id,
            remote_mount=RemoteMount(mount_point=mount_point),
            remote_constraints=RemoteConstraints(
                accepted_access_mode=message.lease.access_mode,
                max_ttl_seconds=granting.longest(message, self._max_ttl_seconds()),
                sandbox_profile=SandboxProfile(
                    cwd_only=held.cwd_only, allow_network=held.allow_network, allow_exec=held.allow_exec
                ),
                public_key=public_key,
            ),
            sublet=AcceptExtension(
                renewable=True,
                reverse=ReverseEndpoint(port=reverse) if reverse else None,
                sandbox_enforced=sorted(held.enforced),
                transport=transport,
                entity=self._entity(agent.id),
            ),
        )

    async def admit(self, agent: str, peer: KnownPeer, access_mode: AccessMode, ttl_seconds: int) -> None:
        """Return if ``agent`` may work for ``peer`` for that many seconds in all, by START or by its renewal.

        Raises:
            SubletError: ``DECLINED``.
        """
        caller = Subject("peer", peer.name)
        unknown = self._unknown(caller, agent)
        await self._ask(caller, agent, access_mode=access_mode, ttl_seconds=ttl_seconds, unknown=unknown)

    @property
    def longest(self) -> int:
        """For how many seconds any work may take here."""
        return self._max_ttl_seconds()

    async def _ask(
        self, caller: Subject, agent: str, *, access_mode: str, ttl_seconds: int, unknown: SubletError
    ) -> None:
        try:
            attributes: dict[str, Value] = {"access_mode": access_mode, "ttl_seconds": ttl_seconds}
            await self._gate.ask_for(caller, Action.ASSIGNMENT_ACCEPT, Resource(agent, attributes), unknown)
        except SubletError as error:
            if error.code is not LocalCode.POLICY_DENIED:
                raise
            raise SubletError(ErrorCode.DECLINED, error.message, error.hint) from None

    def _unknown(self, caller: Subject, wanted: str | None) -> SubletError:
        """Return what is said of an agent that is not here, or that ``caller`` must not know of."""
        shown = [a.id for a in self._agents() if not self._gate.hides(caller, Action.ASSIGNMENT_ACCEPT, a.id)]
        offered = ", ".join(shown) or "none"
        return SubletError(
            ErrorCode.DECLINED,
            f"there is no agent {clean_line(wanted or '', 80)!r} here{did_you_mean(wanted or '', shown)}",
            f"Offered: {offered}.",
        )

    def _check_narrowing(self, message: Invite, agent: AgentConfig) -> None:
        """Refuse what the delegator narrows and nothing here would hold the agent to.

        Raises:
            SubletError: ``DECLINED``.
        """
        terms = message.sublet.terms
        try:
            check_governed(agent, narrowing(terms.deny, terms.only))
        except SubletError as error:
            raise SubletError(ErrorCode.DECLINED, error.message, error.hint) from None

    def _check_chain(self, message: Invite, agent: AgentConfig) -> None:
        """Refuse what would loop, nest too deep or outlive its caller.

        Raises:
            SubletError: ``DECLINED``, with the chain.
        """
        sent = message.sublet.chain
        try:
            check_call(
                sent.chain() if sent is not None else Chain(),
                address(agent.id, self._node_id),
                max_depth=self._max_depth,
            )
        except SubletError as error:
            raise SubletError(ErrorCode.DECLINED, f"{error.code}: {error.message}", error.hint) from None


def choose_transport(message: Invite, served: Collection[str], require: Callable[[str], None]) -> str:
    """Return the first transport that the delegator offers and this machine can take. Blocks: call it in a thread.

    Args:
        message: the INVITE; a plain AWCP peer names one transport only.
        served: the transports that are known here.
        require: raises ``DEP_MISSING`` where this machine lacks what a transport needs.

    Raises:
        SubletError: ``DEP_MISSING``, naming what the first choice lacks, and which other transport would do (AWCP 4.5).
    """
    wanted = message.requirements.transport
    offered = message.sublet.transports if wanted in message.sublet.transports else [wanted]
    failure: SubletError | None = None
    for transport in offered:
        try:
            if transport in served:
                require(transport)
                return transport
        except SubletError as error:
            failure = failure or error
    if failure is None:
        names = ", ".join(clean_line(name, 40) for name in offered)
        failure = SubletError(ErrorCode.DEP_MISSING, f"transport {names} is not served here")
    others = [name for name in served if name not in offered and _works(name, require)]
    if not others:
        raise failure
    fallback = f"Delegate with --transport {others[0]}, which this executor can take as it is."
    raise SubletError(failure.code, failure.message, f"{failure.hint} Or: {fallback}" if failure.hint else fallback)


def _works(transport: str, require: Callable[[str], None]) -> bool:
    try:
        require(transport)
    except SubletError:
        return False
    return True
