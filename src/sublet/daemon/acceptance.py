"""What the executor agrees to: which INVITE it accepts and how far it narrows it, which START it takes (AWCP 4, 7)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sublet.daemon.api import KnownPeer
from sublet.daemon.records import AssignmentRecord
from sublet.daemon.times import unix_seconds
from sublet.policy.engine import Policy
from sublet.policy.model import Action, Resource, Subject
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.messages import (
    Accept,
    AcceptExtension,
    Invite,
    RemoteConstraints,
    RemoteMount,
    ReverseEndpoint,
    SandboxProfile,
    Start,
)
from sublet.supervisor.agent_config import AgentConfig


class Acceptance:
    """Decides on INVITE and words ACCEPT.

    Args:
        policy: is asked for every INVITE.
        agents: those offered now; the first is the default.
        max_ttl_seconds: the longest lease that is accepted now.
        reverse_port: port at which a delegator at this address can dial us, or None.
        enforced: items of ``sandbox_profile`` that are enforced here, not only declared.
    """

    def __init__(
        self,
        *,
        policy: Policy,
        agents: Callable[[], Sequence[AgentConfig]],
        max_ttl_seconds: Callable[[], int],
        reverse_port: Callable[[str], int | None],
        enforced: frozenset[str],
    ) -> None:
        self._policy = policy
        self._agents = agents
        self._max_ttl_seconds = max_ttl_seconds
        self._reverse_port = reverse_port
        self._enforced = enforced

    def check(self, message: Invite, peer: KnownPeer) -> AgentConfig:
        """Return the agent that will do the work.

        Raises:
            SubletError: ``DECLINED`` or ``DEP_MISSING``.
        """
        agent = self._agent(message.sublet.agent)
        transport = message.requirements.transport
        if transport != "sshfs":
            raise SubletError(
                ErrorCode.DEP_MISSING, f"transport {transport!r} is not served here", "This executor mounts by sshfs."
            )
        decision = self._policy.decide(
            Subject("peer", peer.name),
            Action.ASSIGNMENT_ACCEPT,
            Resource(agent.id, {"access_mode": message.lease.access_mode, "ttl_seconds": message.lease.ttl_seconds}),
        )
        if not decision.allowed:
            raise SubletError(ErrorCode.DECLINED, decision.reason, decision.hint)
        return agent

    def accept(
        self, message: Invite, agent: AgentConfig, *, mount_point: str, public_key: str, source_host: str
    ) -> Accept:
        """Return the ACCEPT: the access asked for, and at most the time asked for."""
        reverse = self._reverse_port(source_host)
        return Accept(
            delegation_id=message.delegation_id,
            remote_mount=RemoteMount(mount_point=mount_point),
            remote_constraints=RemoteConstraints(
                accepted_access_mode=message.lease.access_mode,
                max_ttl_seconds=min(message.lease.ttl_seconds, self._max_ttl_seconds()),
                sandbox_profile=SandboxProfile(
                    cwd_only=agent.sandbox.cwd_only,
                    allow_network=agent.allow_network,
                    allow_exec=agent.sandbox.allow_exec,
                ),
                public_key=public_key,
            ),
            sublet=AcceptExtension(
                reverse=ReverseEndpoint(port=reverse) if reverse else None,
                sandbox_enforced=sorted(self._enforced),
            ),
        )

    def _agent(self, wanted: str | None) -> AgentConfig:
        agents = self._agents()
        for agent in agents:
            if wanted is None or agent.id == wanted:
                return agent
        offered = ", ".join(agent.id for agent in agents) or "none"
        raise SubletError(ErrorCode.DECLINED, f"there is no agent {wanted!r} here", f"Offered: {offered}.")


def same_invite(first: Invite, second: Invite) -> bool:
    """Tell whether two INVITEs ask for the same, whatever their signatures."""
    return first.model_copy(update={"sublet": second.sublet}) == second and first.sublet.agent == second.sublet.agent


def seconds_left(record: AssignmentRecord, message: Start) -> float:
    """Return for how long START gives access, never more than was accepted.

    Raises:
        SubletError: ``START_EXPIRED``, ``AUTH_FAILED`` or ``DECLINED`` (AWCP 4.3, 4.5).
    """
    accepted = record.accept.remote_constraints
    if accepted.accepted_access_mode == "ro" and message.lease.access_mode == "rw":
        raise SubletError(ErrorCode.DECLINED, "START widens the access from ro to rw", "Send what was accepted.")
    remaining = message.sublet.remaining_seconds
    # Our clocks may differ by more than the lease is long, so what the peer counted wins where it says it.
    seconds = unix_seconds(message.lease.expires_at) - time.time() if remaining is None else float(remaining)
    if seconds <= 0:
        raise SubletError(ErrorCode.START_EXPIRED, "the lease was over before START arrived", "Delegate again.")
    if message.sublet.host_key is None:
        raise SubletError(
            ErrorCode.AUTH_FAILED,
            "START names no host key, so the server could be anybody",
            "Send sublet.host_key.",
        )
    return min(seconds, float(accepted.max_ttl_seconds or seconds))
