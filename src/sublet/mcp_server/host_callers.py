"""Who calls by a host, and which directories the host announces."""

from __future__ import annotations

import mcp.types as t
import structlog
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from sublet.mcp_server import asking
from sublet.mcp_server.session import Context, local_paths
from sublet.policy.decision import Subject
from sublet.protocol.text import clean_line

log = structlog.get_logger(__name__)

MAX_CLIENT_NAME_CHARS = 64
ROOTS_SECONDS = 3.0
ROOTS = "roots"
"""Key of the question for roots in a multi-round-trip answer."""


async def roots_of(ctx: Context, params: t.CallToolRequestParams) -> tuple[str, ...] | t.InputRequiredResult:
    """Return the roots that the host announces, or the question for them.

    A host that has none, or does not answer, gets nothing by it: the caller then may lend only what a person allowed.
    """
    capabilities = ctx.session.client_capabilities
    if capabilities is None or capabilities.roots is None:
        return ()
    if not ctx.session.can_send_request:
        # The 2026 era knows no change notification either, so the host is asked on every call.
        answers = params.input_responses
        if answers is None or set(answers) == {asking.APPROVAL}:
            return t.InputRequiredResult(input_requests={ROOTS: t.ListRootsRequest()})
        answer = answers.get(ROOTS)
        return local_paths(str(root.uri) for root in answer.roots) if isinstance(answer, t.ListRootsResult) else ()
    session = ctx.lifespan_context
    if session.roots is None:
        try:
            found = await ctx.session.send_request(
                t.ListRootsRequest(), t.ListRootsResult, request_read_timeout_seconds=ROOTS_SECONDS
            )
        except (MCPError, ValidationError) as error:
            log.warning("the host did not tell its roots", reason=str(error))
            return ()
        session.roots = local_paths(str(root.uri) for root in found.roots)
    return session.roots


def subject_of(ctx: Context, roots: tuple[str, ...] = ()) -> Subject:
    """Return as whom policy knows the caller: an agent of this daemon, or a host by the name that it says."""
    if (agent := ctx.lifespan_context.agent) is not None:
        return agent  # which directories it may lend is not for its host to say
    client = ctx.session.client_params
    name = clean_line(client.client_info.name, MAX_CLIENT_NAME_CHARS) if client is not None else ""
    return Subject(kind="mcp", name=name, roots=roots)
