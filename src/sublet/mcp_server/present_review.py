"""From reviews of staged results to the answers that a model is shown, within bounds."""

from __future__ import annotations

from sublet.daemon.api.delegation_views import ChangeSet, DelegationView
from sublet.daemon.api.results import Applied, Conflict, Discarded, Review, Undone
from sublet.mcp_server.answers import ReviewAction, Reviewed, ReviewedText
from sublet.mcp_server.present import (
    MAX_ANSWER_CHARS,
    MAX_PREVIEW_CHARS,
    PAGE_RESERVE_CHARS,
    Budget,
    change_set_facts,
    left_out_of_branch,
)
from sublet.protocol.text import clean, clean_line, clean_name

MAX_REASON_CHARS = 200


def present_diff(view: DelegationView, review: Review, start: int) -> Reviewed:
    """Return a page of the patch, and what stands in the way of applying it.

    Args:
        view: the delegation.
        review: with its patch.
        start: characters of the patch that were read before.
    """
    patch = review.patch or ""
    shown = _reviewed(
        view,
        "diff",
        review.change_set,
        conflicts=review.conflicts,
        unread=review.unread_why or review.unread,
        mass_deletion=review.mass_deletion and review.change_set.status == "pending",
    ).model_copy(update={"next_cursor": "9" * 24, "more": False, "patch_truncated": review.patch_truncated or None})
    room = max(MAX_ANSWER_CHARS - shown.size() - PAGE_RESERVE_CHARS, 0)
    page, length = Budget(room).cut(patch[start:])
    if page:
        said = shown.from_peer or ReviewedText(peer=view.peer)
        shown = shown.model_copy(update={"from_peer": said.model_copy(update={"text": clean(page, limit=length + 1)})})
    end = min(start, len(patch)) + length
    return shown.model_copy(update={"next_cursor": str(end), "more": end < len(patch)})


def present_applied(view: DelegationView, report: Applied) -> Reviewed:
    """Return what became of a result that was to be applied."""
    return _reviewed(view, "apply", report.change_set, done=report.applied, conflicts=report.conflicts)


def present_discarded(view: DelegationView, report: Discarded) -> Reviewed:
    """Return that a result is gone."""
    return _reviewed(view, "discard", report.change_set)


def present_undone(view: DelegationView, report: Undone) -> Reviewed:
    """Return what was taken back."""
    return _reviewed(view, "undo", report.change_set, done=report.undone, conflicts=report.conflicts)


def _reviewed(
    view: DelegationView,
    action: ReviewAction,
    changes: ChangeSet,
    *,
    done: list[str] | None = None,
    conflicts: list[Conflict] | None = None,
    unread: list[str] | None = None,
    mass_deletion: bool = False,
) -> Reviewed:
    budget = Budget(MAX_PREVIEW_CHARS)
    standing = conflicts or []
    shown_conflicts, cut_conflicts = budget.names([_conflict_line(conflict) for conflict in standing])
    shown_done, cut_done = budget.names(done or [])
    shown_unread, cut_unread = budget.names(unread or [])
    left_out, cut_branch = budget.names(left_out_of_branch(changes))
    said = ReviewedText(
        peer=view.peer,
        done=shown_done,
        conflicts=shown_conflicts,
        unread=shown_unread,
        branch_left_out=left_out,
    )
    return Reviewed(
        delegation_id=view.delegation_id,
        action=action,
        next_step=_next_step(view.delegation_id, changes, bool(standing), mass_deletion),
        workspace_dir=clean_name(view.workspace_dir),
        change_set=change_set_facts(changes),
        files_done=None if done is None else len(done),
        conflicts=len(standing),
        mass_deletion=mass_deletion or None,
        shortened=cut_conflicts or cut_done or cut_unread or cut_branch or None,
        from_peer=said if said != ReviewedText(peer=view.peer) else None,
    )


def _conflict_line(conflict: Conflict) -> str:
    yours, theirs = (where if where is not None else "none" for where in (conflict.yours, conflict.theirs))
    return f"{conflict.path}: {clean_line(conflict.reason, MAX_REASON_CHARS)} (yours: {yours}; theirs: {theirs})"


def _next_step(delegation_id: str, changes: ChangeSet, conflicts: bool, mass_deletion: bool) -> str:
    call = f"delegate_review(delegation_id={delegation_id!r}, action="
    if changes.status in ("applied", "partly_applied"):
        return f"{call}'undo') takes it back."
    if changes.status != "pending":
        return "Nothing; this result is closed. Delegate again for a new one."
    if mass_deletion:
        return f"Ask the person: only `sublet apply {delegation_id} --allow-mass-deletion` applies it."
    if conflicts:
        return f"{call}'apply', partial=true) applies what has no conflict; look at both versions for the rest."
    return f"{call}'apply') writes it into the directory; {call}'discard') drops it."
