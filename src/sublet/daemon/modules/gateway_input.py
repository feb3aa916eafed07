"""What a gateway brings, as a request to the supervisor: a client of its own, never the owner of this daemon."""

from __future__ import annotations

from contextlib import aclosing
from typing import Final

from sublet.daemon.api.sessions import AskAnswer
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.supervising.asking import AdmittedRequest, AsksAgents
from sublet.policy.decision import Action, Subject
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.gateway import GatewayInput
from sublet.protocol.ids import context_session_id
from sublet.supervisor.gateways.module_file import GatewayModule
from sublet.supervisor.router.syntax import is_direct_hub
from sublet.supervisor.supervisor_agent import AGENT

MAX_SESSIONS_OF_GATEWAY: Final = 200
"""Those that are kept; the one that was used last is the last to go."""


class GatewayInputs:
    """Has the supervisor see to inputs.

    Args:
        asking: brings requests to the supervisor.
        gate: asks policy.
    """

    def __init__(self, asking: AsksAgents, gate: Gatekeeper) -> None:
        self._asking = asking
        self._gate = gate

    async def handle(self, module: GatewayModule, given: GatewayInput) -> str:
        """Return what the supervisor answers.

        Raises:
            SubletError: ``POLICY_DENIED``, ``DECLINED`` where nobody does it, or what the work fails with.
        """
        caller = Subject("a2a", f"gateway:{module.id}")
        target = given.target or module.default_target
        if not is_direct_hub(given.message):  # that goes to a module, which is asked for by its name
            await self._gate.ask(caller, Action.AGENT_MESSAGE, target or "*")
        metadata: dict[str, JsonValue] = {AGENT: target} if target else {}
        owner = f"gateway:{module.id}"
        asked = AdmittedRequest(given.message, caller, owner, metadata=metadata)
        context = given.session or (f"sender:{given.sender}" if given.sender else given.request_id)
        session_id = context_session_id(owner, context)
        await self._asking.make_room(owner, MAX_SESSIONS_OF_GATEWAY)
        updates = self._asking.ask(asked, session_id, {"gateway": module.id, "contextId": context})
        async with aclosing(updates) as pieces:
            async for piece in pieces:
                if isinstance(piece, AskAnswer):
                    if piece.route_decision == "reject":
                        raise SubletError(ErrorCode.DECLINED, piece.reason)
                    return piece.question or piece.result or ""
        raise SubletError(LocalCode.INTERNAL, "the answer broke off")
