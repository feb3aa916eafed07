"""Calls of tools: policy and a person before each, the host's roots where they count, and a bound in time."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import anyio
import mcp.types as t
import structlog
from mcp.shared.exceptions import MCPError

from sublet.mcp_server import asking
from sublet.mcp_server.answers import Answer
from sublet.mcp_server.asking import HostQuestions
from sublet.mcp_server.call import ANSWER_SECONDS, Call
from sublet.mcp_server.catalogue import TOOLS, AnyTool
from sublet.mcp_server.host_callers import roots_of, subject_of
from sublet.mcp_server.protocol_errors import failed
from sublet.mcp_server.session import MAX_CALLS, Context
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.text import clean_line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from sublet.daemon.api.call_api import AskedCall, CallApi
    from sublet.daemon.operations.calling import Calls
    from sublet.policy.decision import Subject

log = structlog.get_logger(__name__)


class ToolCalls:
    """Makes the calls of all hosts.

    Args:
        called_by: returns what calls the operations of the daemon as somebody.
        calls: stands before every tool.
        questions: asks a person by way of the host.
    """

    def __init__(self, called_by: Callable[[Subject], Calls], calls: CallApi, questions: HostQuestions) -> None:
        self._called_by = called_by
        self._calls = calls
        self._asking = questions
        self._tools = {tool.name: tool for tool in TOOLS}

    def shown_to(self, ctx: Context) -> set[str]:
        """Return the names of the tools that no rule hides from the host; an agent's own gate decides on its tools."""
        if ctx.lifespan_context.agent is not None:
            return set(self._tools)
        caller = subject_of(ctx)
        return {name for name in self._tools if not self._calls.hides(caller, asking.TOOL_PREFIX + name)}

    async def call(self, ctx: Context, params: t.CallToolRequestParams) -> t.CallToolResult | t.InputRequiredResult:
        """Make one call of a host. What fails is told to the model, but for what the protocol has as an error."""
        session = ctx.lifespan_context
        if session.calls >= MAX_CALLS:
            return failed(
                SubletError(
                    LocalCode.UNAVAILABLE, f"{MAX_CALLS} calls are under way at once", "Wait for one to be answered."
                )
            )
        session.calls += 1
        try:
            return await self._run(ctx, params)
        except SubletError as error:
            return failed(error)
        except MCPError:
            raise
        except Exception:
            log.exception("a tool failed", tool=clean_line(params.name, 64))
            return failed(
                SubletError(LocalCode.INTERNAL, "the daemon failed on this call", "Its log says why; report it.")
            )
        finally:
            session.calls -= 1

    async def _run(self, ctx: Context, params: t.CallToolRequestParams) -> t.CallToolResult | t.InputRequiredResult:
        deadline = anyio.current_time() + ANSWER_SECONDS
        tool, shown = self._tools.get(params.name), self.shown_to(ctx)
        if tool is None or tool.name not in shown:
            name = clean_line(params.name, 64)
            if tool is not None:  # that it was tried is written down
                tried = asking.asked_call(tool.name, params.arguments or {}, subject_of(ctx), ctx.lifespan_context)
                with contextlib.suppress(SubletError):
                    await self._calls.begin(tried, name)
            there = ", ".join(one for one in self._tools if one in shown)
            # The protocol has this as an error of the request and not of a tool.
            raise MCPError(t.INVALID_PARAMS, f"there is no tool {name!r}; the tools are {there}")
        bound = tool.bind(params.arguments or {})
        asked_call = None
        # The tools of an agent at work here are asked for by the gate of its run.
        if ctx.lifespan_context.agent is None:
            arguments = params.arguments or {}
            asked_call = asking.asked_call(tool.name, arguments, subject_of(ctx), ctx.lifespan_context)
            if (required := await self._asking.approved(ctx, params, asked_call, deadline)) is not None:
                return required
        roots: tuple[str, ...] = ()
        if tool.asks_roots:
            asked = await roots_of(ctx, params)
            if isinstance(asked, t.InputRequiredResult):
                return asked
            roots = asked

        async def report(count: int, line: str) -> None:
            await ctx.session.report_progress(count, None, line)

        caller = subject_of(ctx, roots)
        with ctx.lifespan_context.answering(ctx.request_id) as withdrawn:
            call = Call(self._called_by(caller), caller, report, deadline, withdrawn)
            return await self._answer(tool, bound, call, asked_call)

    async def _answer(
        self,
        tool: AnyTool,
        bound: Callable[[Call], Awaitable[Answer]],
        call: Call,
        asked_call: AskedCall | None,
    ) -> t.CallToolResult:
        async with self._begun(asked_call):
            with anyio.move_on_at(call.deadline) as limit:
                answer = await bound(call)
            if limit.cancelled_caught:
                raise SubletError(
                    LocalCode.UNAVAILABLE,
                    f"the daemon did not answer {tool.name} within {ANSWER_SECONDS:.0f} s",
                    "Call again, with the same idempotency_key if it was delegate.",
                )
        return t.CallToolResult(
            content=[t.TextContent(text=answer.as_json())], structured_content=answer.structure(), is_error=False
        )

    @contextlib.asynccontextmanager
    async def _begun(self, call: AskedCall | None) -> AsyncIterator[None]:
        """Ask policy, or use a grant, before the block, and write down what came of it."""
        if call is None:
            yield
            return
        begun = await self._calls.begin(call, f"there is no tool {call.tool.removeprefix(asking.TOOL_PREFIX)!r}")
        error: str | None = "it was cut off"
        try:
            yield
            error = None
        except Exception as failure:
            error = str(failure)
            raise
        finally:
            await self._calls.ended(begun, error)
