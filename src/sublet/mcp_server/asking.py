"""Puts a call that waits for a person's approval before her, in the MCP host that made it (DESIGN 5, 7, 9).

What a host answers never approves: it runs under an agent, which could answer as well. A no closes the question, a yes
only waits for the decision that the approver's key signs elsewhere, and the call then goes on by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import anyio
import mcp.types as t
import structlog
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from sublet.daemon.api.call_api import AskedCall
from sublet.policy.decision import Action
from sublet.policy.tool_calls import tool_resource
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mcp.server import ServerRequestContext

    from sublet.daemon.api.call_api import CallApi, OpenQuestion
    from sublet.mcp_server.session import HostSession
    from sublet.policy.decision import Subject
    from sublet.protocol.canonical import JsonValue

log = structlog.get_logger(__name__)

APPROVAL: Final = "approval"
"""Key of the question in a multi-round-trip answer."""
TOOL_PREFIX: Final = "sublet."
MAX_SHOWN_CHARS: Final = 4_000
"""Of the arguments in a question; it says where that is not all."""
MARGIN_SECONDS: Final = 3.0
"""What is left of a call's time to answer it, or to begin what was approved."""
APPROVALS_PAGE: Final = "/#/approvals"
MAX_WAITING: Final = 64
"""Questions of one host that are remembered before those that are decided are forgotten; few can be open at once."""

ElicitAction: TypeAlias = Literal["accept", "decline", "cancel"]


def asked_call(tool: str, arguments: Mapping[str, JsonValue], caller: Subject, session: HostSession) -> AskedCall:
    """Return the call of a tool as policy and people see it; what is approved counts for this connection alone."""
    name = TOOL_PREFIX + tool
    return AskedCall(caller, Action.TOOL_CALL, tool_resource(name, arguments), name, arguments, session.id)


class HostQuestions:
    """Asks the person at the host that calls, and nobody else's.

    Args:
        calls: knows what waits.
        page: returns the address of the web page, where there is one.
    """

    def __init__(self, calls: CallApi, page: Callable[[], str | None]) -> None:
        self._calls = calls
        self._page = page

    async def approved(
        self, ctx: ServerRequestContext[HostSession], params: t.CallToolRequestParams, call: AskedCall, deadline: float
    ) -> t.InputRequiredResult | None:
        """Return once ``call`` can be begun, or tried: approved, not in need of it, or undecided until ``deadline``.

        On the 2026 era the question is an answer, and the host calls again with what was said.

        Raises:
            SubletError: ``POLICY_DENIED`` where a person said no; ``APPROVER_MISSING``; ``UNAVAILABLE``.
        """
        before = params.request_state
        # Denied while the host had it on its screen: that answers the call, and is no reason to ask anew.
        if (
            before is not None
            and before in ctx.lifespan_context.waiting
            and await self._calls.decided(before, 0) == "denied"
        ):
            raise _denied(call.tool, before, "a person denied it")
        question = await self._calls.question(call)
        if question is None:
            return None
        await self._remember(ctx.lifespan_context, question.id)
        request = self._request(ctx, question)
        if request is None:
            return None
        left = max(0.0, deadline - MARGIN_SECONDS - anyio.current_time())
        if ctx.session.can_send_request:
            with anyio.move_on_after(left):
                await self._ask(ctx, request, question, left)
            return None
        answer = (params.input_responses or {}).get(APPROVAL)
        if answer is None:
            return t.InputRequiredResult(input_requests={APPROVAL: request}, request_state=question.id)
        await self._heard(answer.action if isinstance(answer, t.ElicitResult) else "cancel", question, left)
        return None

    async def left(self, session: HostSession) -> None:
        """Take back what a host waited for that is gone."""
        for question_id in tuple(session.waiting):
            try:
                await self._calls.withdraw(question_id)
            except SubletError as error:  # the others are taken back all the same
                log.warning("a question was not taken back", question=question_id, reason=str(error))

    async def _remember(self, session: HostSession, question_id: str) -> None:
        session.waiting.add(question_id)
        if len(session.waiting) > MAX_WAITING:
            for one in session.waiting - {question_id}:
                if not await self._is_open(one):
                    session.waiting.discard(one)

    async def _is_open(self, question_id: str) -> bool:
        try:
            return await self._calls.decided(question_id, 0) == "pending"
        except SubletError:  # it is kept no more
            return False

    async def _ask(
        self, ctx: ServerRequestContext[HostSession], request: t.ElicitRequest, question: OpenQuestion, seconds: float
    ) -> None:
        """Ask over the host's channel; a decision by other ways ends the wait and takes the question back."""
        refused: list[SubletError] = []

        async def decided() -> None:
            try:
                await self._decided(question, seconds)
            except SubletError as error:
                refused.append(error)
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(decided)
            try:
                said: ElicitAction = (await ctx.session.send_request(request, t.ElicitResult)).action
            except (MCPError, ValidationError) as error:
                log.warning("the host did not put a question to its user", reason=clean_line(str(error)))
                said = "cancel"
            if said == "decline":
                refused.append(await self._declined(question))
            if said != "accept":
                group.cancel_scope.cancel()
        if refused:
            raise refused[0]

    async def _heard(self, said: ElicitAction, question: OpenQuestion, seconds: float) -> None:
        if said == "decline":
            raise await self._declined(question)
        if said == "accept":
            await self._decided(question, seconds)

    async def _decided(self, question: OpenQuestion, seconds: float) -> None:
        if await self._calls.decided(question.id, seconds) == "denied":
            raise _denied(question.tool, question.id, "a person denied it")

    async def _declined(self, question: OpenQuestion) -> SubletError:
        await self._calls.withdraw(question.id, denied_by=question.agent)
        return _denied(question.tool, question.id, "it was declined in the host")

    def _request(self, ctx: ServerRequestContext[HostSession], question: OpenQuestion) -> t.ElicitRequest | None:
        """Return the question in the form that the host can show; None where it shows none."""
        capabilities = ctx.session.client_capabilities
        can = capabilities.elicitation if capabilities is not None else None
        if can is None:
            return None
        page = self._page()
        if can.url is not None and page is not None:
            return t.ElicitRequest(
                params=t.ElicitRequestURLParams(
                    message=_message(question, "Open the page to decide, by the passphrase of your key."),
                    url=page.rstrip("/") + APPROVALS_PAGE,
                    elicitation_id=question.id,
                )
            )
        if can.form is None and can.url is not None:
            return None
        how = (
            f"To approve it, run in a terminal: sublet approvals approve {question.id}\n"
            "Accept here to have the call wait for that; decline to refuse it. An answer here approves nothing."
        )
        message = _message(question, how)
        schema: dict[str, object] = {"type": "object", "properties": {}}
        return t.ElicitRequest(params=t.ElicitRequestFormParams(message=message, requested_schema=schema))


def _message(question: OpenQuestion, how: str) -> str:
    """Return the exact call for a person's eyes: canonical JSON in ASCII, in which nothing can hide."""
    shown = question.arguments[:MAX_SHOWN_CHARS]
    if len(shown) < len(question.arguments):
        shown += f"\n[not all of it; see: sublet approvals show {question.id}]"
    return (
        f"{clean_line(question.agent)} wants to call {clean_line(question.tool)}, and {clean_line(question.reason)}"
        f" ({clean_line(question.rule)}).\nArguments: {shown}\nsha256 {question.digest}\n{how}"
    )


def _denied(tool: str, question_id: str, why: str) -> SubletError:
    return SubletError(
        LocalCode.POLICY_DENIED, f"{tool}: {why} ({question_id})", "Do without this call, or ask for another."
    )
