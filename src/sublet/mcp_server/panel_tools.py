"""What the tools about delegations do with a panel, whose handle stands where that of a delegation does."""

from __future__ import annotations

import time
from typing import Final

import anyio

from sublet.daemon.api.base import MAX_WAIT_SECONDS
from sublet.daemon.api.delegation_views import ChangeSet
from sublet.daemon.api.panels import (
    APPLY_MEMBER,
    CANCEL_PANEL,
    CREATE_PANEL,
    DISCARD_PANEL,
    GET_PANEL,
    REVIEW_PANEL,
    WAIT_FOR_PANEL,
    ApplyMember,
    CreatePanel,
    MemberView,
    OnePanel,
    PanelReview,
    PanelView,
    WaitForPanel,
)
from sublet.mcp_server.answers import ChangeSetFacts, Delegation, FromPeer, PanelMember, Reviewed, ReviewedText
from sublet.mcp_server.arguments import Delegate, DelegateOutput, DelegateReview
from sublet.mcp_server.begun import Begun
from sublet.mcp_server.call import Call
from sublet.mcp_server.present import Budget, change_set_facts
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.lifecycle import DelegationState
from sublet.protocol.panels import MemberState
from sublet.protocol.text import clean, clean_line, clean_name
from sublet.protocol.times import rfc3339_of

CANCEL_SECONDS: Final = 12.0
MAX_MEMBER_CHARS: Final = 600
"""Of what a member says at the end, and of what its check printed."""
MAX_TEXT_CHARS: Final = 6_000
MAX_FILE_CHARS: Final = 160
MAX_LINE_CHARS: Final = 200


async def begin_panel(call: Call, given: Delegate) -> Delegation:
    """Begin a panel, and wait for its end where that is asked for; a call that the host cancels ends it.

    A retry with the key of an earlier call began nothing, so the panel outlives it.
    """
    began_at = rfc3339_of(time.time())
    fields = {name: value for name, value in given.model_dump().items() if name in CreatePanel.model_fields}
    stop = "first_pass" if given.first_pass else "all"
    request = CreatePanel.model_validate(
        {
            **fields,
            "to": given.peer,
            "members": given.panel,
            "stop": stop,
            "max_agent_seconds": given.agent_seconds,
            "result_mode": "staged",
        }
    )
    begun = Begun[PanelView](CREATE_PANEL)
    try:
        view = await begun.made_by(call, request)
        return _present(await _followed(call, view, 0 if given.background else MAX_WAIT_SECONDS))
    except anyio.get_cancelled_exc_class():
        made = begun.view
        if made is not None and made.created_at >= began_at and call.withdrawn():
            with anyio.move_on_after(CANCEL_SECONDS, shield=True):
                await call.operations.call(CANCEL_PANEL, OnePanel(panel_id=made.panel_id))
        raise


async def panel_output(call: Call, given: DelegateOutput) -> Delegation:
    """Show how a panel stands; what one member printed is shown by its own delegation."""
    view = await call.operations.call(GET_PANEL, OnePanel(panel_id=given.delegation_id))
    return _present(await _followed(call, view, given.wait_seconds))


async def panel_cancel(call: Call, panel_id: str) -> Delegation:
    """Stop a panel."""
    return _present(await call.operations.call(CANCEL_PANEL, OnePanel(panel_id=panel_id)))


async def panel_review(call: Call, given: DelegateReview) -> Reviewed:
    """Compare the results of a panel, take one, or drop all.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for what a panel as a whole can't have.
    """
    panel_id = given.delegation_id
    if given.action == "diff":
        return _compared(await call.operations.call(REVIEW_PANEL, OnePanel(panel_id=panel_id)))
    view = await call.operations.call(GET_PANEL, OnePanel(panel_id=panel_id))
    if given.action == "discard":
        dropped = await call.operations.call(DISCARD_PANEL, OnePanel(panel_id=panel_id))
        return _reviewed(given, view, "Nothing; the panel is closed.", dropped.discarded, dropped.kept)
    if given.action == "undo" or given.member is None:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            "a panel is applied by one of its members, and taken back by that one's delegation",
            f"delegate_review(delegation_id={panel_id!r}, action='apply', member=N), as delegate_output numbers them.",
        )
    asked = ApplyMember(panel_id=panel_id, member=given.member, partial=given.partial)
    report = await call.operations.call(APPLY_MEMBER, asked)
    done, one = report.applied, view.members[given.member - 1].delegation_id
    step = f"delegate_review(delegation_id={one!r}, action='undo') takes it back."
    if done.conflicts and not done.applied:
        step = "Nothing was applied; partial=true applies what has no conflict."
    shown = _reviewed(given, view, step, report.discarded, report.kept)
    budget = Budget(MAX_TEXT_CHARS)
    names, cut = budget.names(done.applied)
    conflicts, more = budget.names([f"{one.path}: {clean_line(one.reason, MAX_LINE_CHARS)}" for one in done.conflicts])
    return shown.model_copy(
        update={
            "change_set": change_set_facts(done.change_set),
            "files_done": len(done.applied),
            "conflicts": len(done.conflicts),
            "shortened": cut or more or None,
            "from_peer": ReviewedText(peer=_peers(view), done=names, conflicts=conflicts),
        }
    )


async def _followed(call: Call, view: PanelView, seconds: float) -> PanelView:
    """Wait for the end of a panel, as long as the call may take."""
    end = min(anyio.current_time() + min(seconds, MAX_WAIT_SECONDS), call.deadline - 0.5)
    reports = 0
    while view.state != "over" and (left := end - anyio.current_time()) > 0:
        asked = WaitForPanel(panel_id=view.panel_id, timeout=min(left, 5.0))
        view = await call.operations.call(WAIT_FOR_PANEL, asked)
        reports += 1
        await call.report(reports, ", ".join(f"{one.member}: {one.state}" for one in view.members))
    return view


def _present(view: PanelView) -> Delegation:
    over = view.state == "over"
    good = [one for one in view.members if one.state in (MemberState.PASSED, MemberState.READY)]
    state = DelegationState.RUNNING if not over else DelegationState.COMPLETED if good else DelegationState.ERROR
    call = f"delegate_output(delegation_id={view.panel_id!r}, wait_seconds=45) waits for it."
    review = f"delegate_review(delegation_id={view.panel_id!r}) compares the results."
    budget, lines = Budget(MAX_TEXT_CHARS), list[str]()
    for one in view.members:
        for label, said in (("says", one.summary), ("check printed", one.check_output)):
            if said.strip():
                lines.append(f"{one.member} {label}: {budget.cut(clean(said)[-MAX_MEMBER_CHARS:])[0]}")
    return Delegation(
        delegation_id=view.panel_id,
        state=state,
        finished=over,
        still_running=not over,
        next_step=review if over else call,
        peer=_peers(view),
        description=clean_line(view.description, MAX_LINE_CHARS),
        workspace_dir=clean_name(view.workspace_dir),
        access_mode="rw",
        result_mode="staged",
        members=[_member(one) for one in view.members],
        from_peer=FromPeer(peer=_peers(view), text="\n".join(lines)) if lines else None,
    )


def _member(one: MemberView) -> PanelMember:
    changes = one.change_set
    return PanelMember(
        member=one.member,
        delegation_id=one.delegation_id,
        address=one.address,
        why=clean_line(one.why, MAX_LINE_CHARS),
        state=str(one.state),
        exit_code=one.exit_code,
        check=clean_line(one.check_reason, MAX_LINE_CHARS) or None,
        seconds=one.seconds,
        files=_files(changes) if changes is not None else None,
        lines=f"+{changes.lines_added} -{changes.lines_deleted}" if changes is not None else None,
        error=str(one.error.code) if one.error is not None else None,
    )


def _files(changes: ChangeSet) -> int:
    return changes.added + changes.changed + changes.deleted + changes.renamed + changes.mode_changed


def _compared(found: PanelReview) -> Reviewed:
    view = found.panel
    budget, lines, cut = Budget(MAX_TEXT_CHARS), list[str](), found.truncated
    for file in found.files:
        did = "; ".join(
            f"{one.member} {one.change} +{one.lines_added or 0} -{one.lines_deleted or 0}"
            + (" conflict" if one.conflict else "")
            for one in file.changes
        )
        line = f"{clean_name(file.path)[:MAX_FILE_CHARS]}: {did}"
        if budget.left < len(line) + 4:
            cut = True
            break
        lines.append(budget.cut(line + "\n")[0])
    best = next((one for one in view.members if one.state is MemberState.PASSED), view.members[0])
    step = (
        f"delegate_review(delegation_id={best.delegation_id!r}) shows one patch; "
        f"delegate_review(delegation_id={view.panel_id!r}, action='apply', member=N) takes it and drops the others."
    )
    shown = _reviewed(None, view, step, None, None)
    return shown.model_copy(
        update={
            "conflicts": sum(any(one.conflict for one in file.changes) for file in found.files),
            "shortened": cut or None,
            "kept": [clean_line(one, MAX_LINE_CHARS) for one in found.unread] or None,
            "from_peer": ReviewedText(peer=_peers(view), text="".join(lines)) if lines else None,
        }
    )


def _reviewed(
    given: DelegateReview | None, view: PanelView, step: str, discarded: list[str] | None, kept: list[str] | None
) -> Reviewed:
    """Return what a panel has in common; its counts are those of all members together."""
    sets = [one.change_set for one in view.members if one.change_set is not None]

    def total(name: str) -> int:
        return sum(getattr(one, name) for one in sets)

    return Reviewed(
        delegation_id=view.panel_id,
        action=given.action if given is not None else "diff",
        next_step=step,
        workspace_dir=clean_name(view.workspace_dir),
        change_set=ChangeSetFacts(
            status="pending" if given is None else "discarded",
            added=total("added"),
            changed=total("changed"),
            deleted=total("deleted"),
            renamed=total("renamed"),
            mode_changed=total("mode_changed"),
            lines_added=total("lines_added"),
            lines_deleted=total("lines_deleted"),
        ),
        conflicts=0,
        members=[_member(one) for one in view.members],
        discarded=discarded or None,
        kept=[clean_line(one, MAX_LINE_CHARS) for one in kept or []] or None,
    )


def _peers(view: PanelView) -> str:
    return ", ".join(dict.fromkeys(one.peer for one in view.members))
