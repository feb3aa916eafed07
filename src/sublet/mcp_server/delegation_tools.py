"""The tools about delegations, as functions of their arguments: they translate to the daemon's API (DESIGN 5)."""

from __future__ import annotations

import hashlib
import time

import anyio
import anyio.to_thread

from sublet.daemon.api.delegation_fields import ListNewest, OneDelegation, OneWithPatch
from sublet.daemon.api.delegation_views import DelegationView
from sublet.daemon.api.delegations import (
    CANCEL_DELEGATION,
    CREATE_DELEGATION,
    EXTEND_DELEGATION,
    LIST_DELEGATIONS,
    SAY_MORE,
    CreateDelegation,
    ExtendDelegation,
    SayMore,
)
from sublet.daemon.api.federation import CAPABILITY, FIND_AGENT, LIST_ALL_AGENTS, FederatedAgentView, Find
from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.peers import SHOW_DIRECTORY
from sublet.daemon.api.results import APPLY_RESULT, DISCARD_RESULT, REVIEW_RESULT, UNDO_RESULT, ApplyResult
from sublet.mcp_server.answers import Answer, Delegation
from sublet.mcp_server.arguments import (
    Delegate,
    DelegateCancel,
    DelegateReview,
    DirectoryQuery,
)
from sublet.mcp_server.begun import Begun
from sublet.mcp_server.call import Call
from sublet.mcp_server.panel_tools import begin_panel, panel_cancel, panel_review
from sublet.mcp_server.present import MAX_WHY_CHARS, present
from sublet.mcp_server.present_directory import DELEGATIONS_PER_READ, present_directory, present_found
from sublet.mcp_server.present_review import present_applied, present_diff, present_discarded, present_undone
from sublet.mcp_server.room_tools import rooms_of
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ids import is_panel
from sublet.protocol.text import clean_line
from sublet.protocol.times import rfc3339_of

CANCEL_SECONDS = 5.0
"""How long the end of such a delegation may take to be under way."""


async def delegate(call: Call, given: Delegate) -> Answer:
    """Lend a directory or steer a delegation that runs, and wait for the end where that is asked for."""
    if "delegation_id" not in given.model_fields_set:
        if given.panel is not None:
            return await begin_panel(call, given)
        return await _begin_and_follow(call, given)
    extended: int | None = None
    if "prompt" in given.model_fields_set:
        view = await _say(call, given)
    else:
        view, extended = await _extend(call, given)
    shown = await _followed(call, given, view)
    return shown.model_copy(update={"extended_by_seconds": extended})


async def _followed(call: Call, given: Delegate, view: DelegationView) -> Delegation:
    """Wait for the end where that is asked for."""
    if not given.background:
        view = await call.follow(view, float("inf"), since=view.cursor, until_end=True)
    return present(view, waited=not given.background)


async def _begin_and_follow(call: Call, given: Delegate) -> Delegation:
    """Begin a delegation. One whose call the host cancels is ended, since nobody was told its id.

    A retry with the key of an earlier call began nothing, so the delegation outlives it.
    """
    began_at = rfc3339_of(time.time())
    begun = Begun[DelegationView](CREATE_DELEGATION)
    try:
        request, why = await _named(call, _asked(given))
        shown = await _followed(call, given, await begun.made_by(call, request))
        return shown.model_copy(update={"why": why})
    except anyio.get_cancelled_exc_class():
        view = begun.view
        if view is not None and view.created_at >= began_at and call.withdrawn():
            with anyio.move_on_after(CANCEL_SECONDS, shield=True):
                await call.operations.call(CANCEL_DELEGATION, OneDelegation(delegation_id=view.delegation_id))
        raise


async def _say(call: Call, given: Delegate) -> DelegationView:
    """Send a follow-up; one that is sent again with the same key is the same one."""
    key = given.idempotency_key
    named = None if key is None else "key_" + hashlib.sha256(key.encode()).hexdigest()[:32]
    return await call.operations.call(
        SAY_MORE, SayMore(delegation_id=given.delegation_id, prompt=given.prompt, follow_up_id=named)
    )


async def _extend(call: Call, given: Delegate) -> tuple[DelegationView, int]:
    """Lengthen the lease, and return by how much the limits of both sides allowed."""
    before = await call.view(given.delegation_id)
    more = ExtendDelegation(delegation_id=given.delegation_id, seconds=given.ttl_seconds)
    view = await call.operations.call(EXTEND_DELEGATION, more)
    return view, view.ttl_seconds - before.ttl_seconds


def _asked(given: Delegate) -> CreateDelegation:
    return CreateDelegation.model_validate(given.model_dump(include=set(CreateDelegation.model_fields)))


async def _named(call: Call, request: CreateDelegation) -> tuple[CreateDelegation, str | None]:
    """Return a request with its peer, where that was named by an address or a capability, and why it is this one.

    Raises:
        SubletError: ``NOT_FOUND`` where there is none.
    """
    if "@" not in request.peer and not request.peer.startswith(CAPABILITY):
        return request, None
    found = await call.operations.call(FIND_AGENT, Find(to=request.peer))
    if found.peer is None:
        raise SubletError(
            LocalCode.NOT_FOUND,
            f"{clean_line(found.address, 200)} is no agent of a peer",
            "directory shows who can be lent to.",
        )
    named = request.model_copy(update={"peer": f"{found.peer}/{found.agent_id}"})
    return named, clean_line(found.why, MAX_WHY_CHARS)


async def delegate_cancel(call: Call, given: DelegateCancel) -> Answer:
    """Stop a delegation, or all of a panel, and cut its access."""
    if is_panel(given.delegation_id):
        return await panel_cancel(call, given.delegation_id)
    return present(await call.operations.call(CANCEL_DELEGATION, OneDelegation(delegation_id=given.delegation_id)))


async def delegate_review(call: Call, given: DelegateReview) -> Answer:
    """Show a staged result, write it into the directory, drop it, or take it back."""
    if is_panel(given.delegation_id):
        return await panel_review(call, given)
    view = await call.view(given.delegation_id)
    operations, asked = call.operations, OneDelegation(delegation_id=given.delegation_id)
    if given.action == "diff":
        review = await operations.call(REVIEW_RESULT, OneWithPatch(delegation_id=given.delegation_id, patch=True))
        return present_diff(view, review, int(given.cursor.partition(":")[0]))
    if given.action == "apply":
        request = ApplyResult(delegation_id=given.delegation_id, partial=given.partial)
        return present_applied(view, await operations.call(APPLY_RESULT, request))
    if given.action == "discard":
        return present_discarded(view, await operations.call(DISCARD_RESULT, asked))
    return present_undone(view, await operations.call(UNDO_RESULT, asked))


async def directory(call: Call, given: DirectoryQuery) -> Answer:
    """Show which peers may be delegated to, which not and why, what may be lent, and the caller's rooms."""
    found = await call.operations.call(SHOW_DIRECTORY, Nothing())
    if given.find is not None:
        one = await call.operations.call(FIND_AGENT, Find(to=given.find))
        return present_found(found, call.caller.roots, one)
    before = None if given.cursor[0].isdigit() else given.cursor
    known = await _delegations(call, before)
    start = 0 if before is not None else int(given.cursor.partition(":")[0])
    rest = before is not None
    elsewhere = [] if rest or start else await _elsewhere(call)
    return present_directory(found, call.caller.roots, await rooms_of(call), known, start, rest=rest, nodes=elsewhere)


async def _elsewhere(call: Call) -> list[FederatedAgentView]:
    """Return the agents of other nodes; none for a caller that may not read them."""
    try:
        return [one for one in await call.operations.call(LIST_ALL_AGENTS, Nothing()) if one.peer is not None]
    except SubletError as error:
        if error.code is LocalCode.POLICY_DENIED:
            return []
        raise


async def _delegations(call: Call, before: str | None) -> list[DelegationView]:
    """Return a page of delegations, the newest first; none for a caller that may not read them."""
    try:
        return await call.operations.call(LIST_DELEGATIONS, ListNewest(limit=DELEGATIONS_PER_READ, before=before))
    except SubletError as error:
        if error.code is LocalCode.POLICY_DENIED:
            return []
        raise
