"""What agents of ours are at, for other nodes: by the table of states, and by the tasks that they were given."""

from __future__ import annotations

from sublet.protocol.federation.statuses import AgentStatus, Happens, step


class OwnStatuses:
    """The statuses of our agents, as tasks of other nodes move them."""

    def __init__(self) -> None:
        self._states: dict[str, AgentStatus] = {}
        """By agent, of those that are not idle alone: whoever asks names agents as it likes."""
        self._tasks: dict[str, dict[tuple[str, str], str]] = {}
        """Ids of the tasks at work, by agent, and by node id and request id of who asked."""

    def begin(self, agent_id: str, task_id: str, request: tuple[str, str]) -> None:
        """Note that an agent starts a task; one that has failed before recovers with it.

        Args:
            agent_id: of ours.
            task_id: as who asks calls it, which may call another one so.
            request: node id of who asks, and the id of its request.
        """
        running = self._tasks.setdefault(agent_id, {})
        running[request] = task_id
        state = self._state(agent_id)
        if state is AgentStatus.ERROR:
            state = step(state, Happens.RECOVER)
        self._set(agent_id, step(state, Happens.START) if state is AgentStatus.IDLE else state)

    def end(self, agent_id: str, request: tuple[str, str], *, failed: bool) -> None:
        """Note that a task is over; the agent is at its others still, where it has any."""
        running = self._tasks.get(agent_id, {})
        running.pop(request, None)
        if running or self._state(agent_id) is not AgentStatus.BUSY:
            return
        self._tasks.pop(agent_id, None)
        self._set(agent_id, step(AgentStatus.BUSY, Happens.FAIL if failed else Happens.COMPLETE))

    def recover(self) -> bool:
        """Let agents that have failed be asked again; tell whether there were any."""
        failed = [agent_id for agent_id, state in self._states.items() if state is AgentStatus.ERROR]
        for agent_id in failed:
            self._set(agent_id, step(AgentStatus.ERROR, Happens.RECOVER))
        return bool(failed)

    def told(self, agent_id: str, node_id: str, *, busy: bool) -> tuple[str, str | None]:
        """Return an agent's status, and the id of the task of one node that it is at.

        Args:
            agent_id: whose.
            node_id: who is told: of others' tasks it learns nothing but that there are some.
            busy: whether the agent is at work for somebody here.
        """
        state = self._state(agent_id)
        if state is AgentStatus.IDLE and busy:
            state = step(state, Happens.START)
        theirs = [task for (whose, _), task in self._tasks.get(agent_id, {}).items() if whose == node_id]
        return str(state), (theirs[-1] if theirs else None)

    def _set(self, agent_id: str, state: AgentStatus) -> None:
        if state is AgentStatus.IDLE:
            self._states.pop(agent_id, None)
        else:
            self._states[agent_id] = state

    def _state(self, agent_id: str) -> AgentStatus:
        return self._states.get(agent_id) or step(AgentStatus.INITIAL, Happens.REGISTER)
