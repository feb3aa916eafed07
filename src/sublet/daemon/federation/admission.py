"""Asks policy what a node may: with the node as the subject and, as it is a paired daemon, with the peer as well.

A rule that denies a peer something is not got round by federation: the stricter of the two stands.
"""

from __future__ import annotations

from sublet.daemon.governing.gatekeeper import Gatekeeper, unknown_name
from sublet.federation.ports import AdmittedTask, KnownNode
from sublet.policy.decision import Action, Resource, Subject
from sublet.protocol.federation.addresses import NodeName


class NodeAdmission:
    """Implements ``Admission``.

    Args:
        gate: asks policy.
    """

    def __init__(self, gate: Gatekeeper) -> None:
        self._gate = gate

    async def hears(self, node: KnownNode, name: NodeName, kind: str, namespace: str) -> bool:
        """``Admission.hears``."""
        resource = Resource(kind, {"namespace": namespace})
        return (await self._gate.decide(Subject("node", name), Action.NODE_READ, resource)).allowed

    def tells(self, node: KnownNode, name: NodeName, agent_id: str) -> bool:
        """``Admission.tells``: what it may not ask, it need not know of."""
        return all(
            self._gate.foresee(caller, Action.AGENT_MESSAGE, Resource(agent_id)).decision.allowed
            for caller in (Subject("node", name), Subject("peer", node.alias))
        )

    async def task(self, task: AdmittedTask, namespace: str) -> None:
        """``Admission.task``."""
        payload = task.request.task
        attributes: dict[str, str | int | bool] = {
            "namespace": namespace,
            "system_prompt": payload.system_prompt is not None,
            "size_bytes": len(payload.prompt.encode()),
        }
        unknown = unknown_name(task.agent_id)
        await self._gate.ask_for(
            Subject("node", task.name), Action.NODE_TASK, Resource(task.agent_id, attributes), unknown
        )
        await self._gate.ask_for(
            Subject("peer", task.node.alias), Action.AGENT_MESSAGE, Resource(task.agent_id), unknown
        )
