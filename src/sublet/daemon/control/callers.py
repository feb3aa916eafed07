"""Who is at the other end of one of our sockets: the person herself, or an agent that runs here for somebody else."""

from __future__ import annotations

from sublet.policy.decision import Subject
from sublet.protocol.chain import Chain
from sublet.protocol.errors import LocalCode, SubletError
from sublet.supervisor.processes import ProcessOwners


class Callers:
    """Tells by the process that connects, which no program can choose.

    Args:
        owners: knows whose processes run.
        node_id: of this daemon.
    """

    def __init__(self, owners: ProcessOwners, node_id: str) -> None:
        self._owners = owners
        self._node_id = node_id

    def agent(self, pid: int) -> Subject | None:
        """Return the agent to which a process belongs, or None where it is none's.

        Raises:
            ProcessLookupError: nobody can tell, so that it is nobody to talk with.
        """
        found = self._owners.owner(pid)
        if found is None:
            return None
        return Subject("agent", found.agent_id, role=found.role, run=found.job.delegation_id)

    def chain(self, caller: Subject) -> Chain:
        """Return the chain of what ``caller`` asks for.

        Raises:
            SubletError: ``LEASE_OVER`` where the work that it asked from is over.
        """
        if caller.kind != "agent":
            return Chain()
        found = self._owners.of_job(caller.run, caller.name)
        if found is None:
            raise SubletError(LocalCode.LEASE_OVER, f"the work of agent {caller.name} is over", "Begin it anew.")
        return found.chain(self._node_id)

    def rest(self, chain: Chain) -> float:
        """Return for how many seconds the work still has its own lease that has called by ``chain``; 0 where over."""
        agent_id = chain.execution_chain[-1].partition("@")[0]
        found = self._owners.of_job(chain.lease_id, agent_id)
        return (found.chain(self._node_id).ttl or 0.0) if found is not None else 0.0
