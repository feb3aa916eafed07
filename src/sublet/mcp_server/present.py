"""From the daemon's views to the answers that a model is shown, within bounds."""

from __future__ import annotations

from sublet.daemon.api.audit_models import AuditReport, DirectoryChange, FileChange
from sublet.daemon.api.base import MAX_WAIT_SECONDS
from sublet.daemon.api.cautions import without_names
from sublet.daemon.api.delegation_views import ChangeSet, DelegationView, FollowUpView, SandboxView
from sublet.mcp_server.answers import (
    QUOTE,
    Changes,
    ChangeSetFacts,
    Condition,
    Delegation,
    FollowUpFacts,
    FromPeer,
    QuotaFacts,
    Section,
    UsageFacts,
)
from sublet.protocol.lifecycle import DELEGATION_TABLE, DelegationState, is_terminal
from sublet.protocol.text import clean, clean_line, clean_name

MAX_ANSWER_CHARS = 9_800
"""Of each form, so that both together stay below 20,000 (DESIGN 5) and each below the 10 kB some hosts cut at."""
MAX_PREVIEW_CHARS = 4_500
"""Of the peer's and the delegator's free text outside the page; the page gets what is left."""
MAX_NAMES = 40
MAX_SHORT_CHARS = 200
MAX_WHY_CHARS = 400
MAX_LEFT_OUT = 10
CURSOR_RESERVE = "9" * 24
"""Stands for a cursor while the size of an answer is counted; none is longer."""
MAX_CAUTION_CHARS = 600
"""Of one caution, of which there are two at most: its own words, and a few names that are as long as names may be."""
MAX_FOLLOW_UPS_SHOWN = 5
MAX_FOLLOW_UP_CHARS = 80
PAGE_RESERVE_CHARS = 200
"""For what a page brings along: its label, and the heading of the peer's text."""
_LABEL_CHARS = 24
"""Of a name in a list, with its quotes."""


class Budget:
    """Characters that are left. What a character costs is the more expensive of its two forms."""

    def __init__(self, chars: int) -> None:
        self.left = chars

    def cut(self, text: str) -> tuple[str, int]:
        """Return as much of the beginning of ``text`` as is left for, and its length."""
        end = 0
        for end, char in enumerate(text, 1):
            self.left -= 1 + len(QUOTE) if char == "\n" else 2 if char in '"\\\t' else 1
            if self.left < 0:
                self.left = 0
                return text[: end - 1], end - 1
        return text, end

    def take(self, text: str | None, limit: int) -> tuple[str | None, bool]:
        """Return ``text`` within ``limit`` and what is left, and whether it had to be cut; nothing becomes None."""
        if not text:
            return None, False
        shown, length = self.cut(text[:limit])
        return shown or None, length < len(text)

    def names(self, names: list[str]) -> tuple[list[str] | None, bool]:
        """Return the first of ``names``, cleaned, and whether some are missing."""
        shown: list[str] = []
        for name in names[:MAX_NAMES]:
            safe = clean_name(name)
            if len(safe) + _LABEL_CHARS > self.left:
                break
            self.left -= _LABEL_CHARS
            shown.append(self.cut(safe)[0])
        return shown or None, len(shown) < len(names)


def sandbox_text(profile: SandboxView | None) -> str | None:
    """Return what a peer declares of how its agent is held, in one line."""
    if profile is None:
        return None
    return ", ".join(f"{name}={str(value).lower()}" for name, value in profile.model_dump().items())


def present(
    view: DelegationView,
    *,
    waited: bool = False,
    preview: int = MAX_PREVIEW_CHARS,
    section: Section = "log",
    cursor: str = "0",
) -> Delegation:
    """Return what a model is shown of ``view``, without a page.

    Args:
        view: the delegation.
        waited: whether the caller asked to wait for the end.
        preview: characters of free text.
        section: what ``next_step`` follows while the work goes on.
        cursor: where ``next_step`` reads on, so that it waits for what is not read yet.
    """
    budget = Budget(preview)
    finished = is_terminal(DELEGATION_TABLE, view.state)
    shortened: list[Section] = []
    audit, lost, result, error = view.audit, view.audit_error, view.result, view.error
    message, cut_message = budget.take(clean_line(error.message) if error else None, MAX_WHY_CHARS)
    hint, cut_hint = budget.take(clean_line(error.hint) if error else None, MAX_WHY_CHARS)
    said_by_peer = error is not None and error.from_peer
    summary, cut_summary = budget.take(clean(result.final_summary) if result else None, MAX_PREVIEW_CHARS // 2)
    notes, cut_notes = budget.take(clean(result.notes) if result else None, MAX_WHY_CHARS)
    highlights = [clean_line(line, MAX_SHORT_CHARS) for line in result.highlights[:5]] if result else []
    shown_highlights, cut_highlights = budget.names(highlights)
    cut_highlights |= result is not None and len(result.highlights) > len(highlights)
    follow_ups = view.follow_ups[-MAX_FOLLOW_UPS_SHOWN:]
    prompts, cut_prompts = budget.names(result.prompt_notes() if result else [])
    whys, cut_whys = budget.names([_why(one) for one in follow_ups if one.why])
    cut_prompts |= cut_whys or len(follow_ups) < len(view.follow_ups)
    if cut_message or cut_hint or cut_summary or cut_notes or cut_highlights or cut_prompts:
        shortened.append("summary")
    hidden, cut_hidden = budget.names(view.hidden)
    unmountable, cut_links = budget.names(view.unmountable)
    lent = [f"{one.name} {one.access_mode} {one.path}" for one in view.resources]
    resources, cut_lent = budget.names(lent if len(lent) > 1 else [])
    revealed, cut_revealed = budget.names(view.revealed)
    unlocked, cut_unlocked = budget.names(view.unlocked)
    git_hidden, cut_git = budget.names(view.git_hidden)
    added, cut_added = budget.names(audit.added if audit else [])
    changed, cut_changed = budget.names(audit.changed if audit else [])
    deleted, cut_deleted = budget.names(audit.deleted if audit else [])
    directories, cut_directories = budget.names([_directory_line(one) for one in audit.directories] if audit else [])
    unaudited, cut_unaudited = budget.names(audit.unseen_lines if audit else [])
    refs_bring, cut_refs = budget.names(audit.refs_bring if audit else [])
    cut_deleted |= cut_directories or cut_unaudited or cut_refs
    left_behind, cut_left = budget.names(view.left_behind)
    left_out, cut_branch = budget.names(left_out_of_branch(result.change_set if result else None))
    cautions_about, cut_cautions = budget.names(view.cautions)
    cut_asked = cut_left or cut_branch or cut_cautions or cut_lent or cut_revealed or cut_unlocked or cut_git
    if cut_asked or cut_hidden or cut_links or cut_added or cut_changed or cut_deleted:
        shortened.append("files")
    from_peer = FromPeer(
        peer=view.peer,
        summary=summary,
        highlights=shown_highlights,
        notes=notes,
        error_message=message if said_by_peer else None,
        error_hint=hint if said_by_peer else None,
        files_added=added,
        files_changed=changed,
        files_deleted=deleted,
        directories=directories,
        left_behind=left_behind,
        branch_left_out=left_out,
        cautions_about=cautions_about,
        refs_bring=refs_bring,
        unaudited=unaudited,
        follow_ups=whys,
    )
    says_something = from_peer != FromPeer(peer=view.peer)
    return Delegation(
        delegation_id=view.delegation_id,
        state=view.state,
        finished=finished,
        still_running=waited and not finished,
        next_step=next_step(view, section, cursor),
        condition=_condition(view),
        peer=view.peer,
        agent=view.agent,
        description=clean_line(view.description, MAX_SHORT_CHARS),
        workspace_dir=clean_name(view.workspace_dir),
        access_mode=view.access_mode,
        result_mode=view.result_mode,
        transport=view.transport,
        peer_sandbox=sandbox_text(view.sandbox_profile),
        room_id=view.room_id,
        remaining_seconds=view.remaining_seconds,
        expires_at=view.expires_at,
        exit_code=result.exit_code if result else None,
        follow_ups=[_follow_up(one) for one in follow_ups] or None,
        prompts=prompts,
        link=(result.link_note() or None) if result else None,
        error_code=clean_line(error.code, 64) if error else None,
        error_message=None if said_by_peer else message,
        error_hint=None if said_by_peer else hint,
        retry_after_seconds=error.retry_after_seconds if error else None,
        change_set=change_set_facts(result.change_set) if result and result.change_set else None,
        audit=_changes(audit) if audit else None,
        audit_error=clean_line(f"{lost.code}: {lost.message}", MAX_WHY_CHARS) if lost else None,
        usage=_usage(view),
        quota=QuotaFacts.model_validate(view.quota.model_dump()) if view.quota else None,
        hidden=hidden,
        resources=resources,
        left_out=view.left_out or None,
        revealed=revealed,
        unlocked=unlocked,
        git=view.git if view.git != "hidden" else None,
        git_hidden=git_hidden,
        unmountable=unmountable,
        cautions=without_names(view.cautions) or None,
        keep_all=view.keep_all or None,
        terms=[clean_line(line, MAX_WHY_CHARS) for line in view.terms] or None,
        undo=view.undo,
        shortened=shortened or None,
        from_peer=from_peer if says_something else None,
    )


def with_page(shown: Delegation, section: Section, source: str) -> tuple[Delegation, int]:
    """Return ``shown`` with as much of ``source`` as still fits, and how many characters of it that was.

    Only what is shown is cleaned: a log is a megabyte, and a page of it is asked for again and again.
    """
    base = shown.model_copy(update={"section": section, "next_cursor": CURSOR_RESERVE, "more": False})
    page, length = Budget(max(MAX_ANSWER_CHARS - base.size() - PAGE_RESERVE_CHARS, 0)).cut(source)
    if page:
        page = clean(page, limit=length + 1)
        from_peer = (shown.from_peer or FromPeer(peer=shown.peer)).model_copy(update={"text": page})
        base = base.model_copy(update={"from_peer": from_peer})
    return base, length


def summary_text(view: DelegationView) -> str:
    """Return all that the peer said at the end, as one text to page through."""
    parts: list[str] = []
    if view.error is not None:
        parts += [f"error: {clean(view.error.message)}", f"hint: {clean(view.error.hint)}" if view.error.hint else ""]
    if view.result is not None:
        parts += [clean(view.result.final_summary), *(f"- {clean_line(line)}" for line in view.result.highlights)]
        parts.append(clean(view.result.notes))
        parts += view.result.prompt_notes()
    parts += [
        f"follow-up {number} ({one.id}): {one.state}{f': {clean_line(one.why)}' if one.why else ''}: {one.prompt}"
        for number, one in enumerate(view.follow_ups, 1)
    ]
    return "\n".join(part for part in parts if part)


def files_text(view: DelegationView, audit: AuditReport | None) -> str:
    """Return every changed and hidden name, one a line, to page through."""
    lines: list[str] = []
    if audit is not None:
        lines += [_file_line(change) for change in audit.files]
        counted = {change.path for change in audit.files} | {one.path for one in audit.directories}
        for kind, names in (
            ("added", audit.added),
            ("changed", audit.changed),
            ("deleted", audit.deleted),
            ("mode", audit.mode_changed),
        ):
            lines += [f"{kind}: {clean_name(name)}" for name in names if name not in counted]
        lines += [f"directory {_directory_line(one)}" for one in audit.directories]
        lines += [f"ref: {clean_name(ref.name)} {ref.old or '(none)'} -> {ref.new or '(none)'}" for ref in audit.refs]
        lines += [f"in moved refs, a checkout brings: {clean_name(name)}" for name in audit.refs_bring]
        lines += [f"mark in the index taken off: {clean_name(name)}" for name in audit.index_marks]
        lines += [f"by others: {clean_name(name)}" for name in audit.by_others if name not in counted]
        lines += [f"edited by others, too: {clean_name(e.path)} ({clean_name(e.where)})" for e in audit.others_edits]
        lines += [f"can't be taken back: {clean_name(name)}" for name in audit.not_kept]
        lines += [f"unaudited: {clean_name(line)}" for line in audit.unseen_lines]
        if (left := audit.unseen - len(audit.unseen_lines)) > 0:
            lines.append(f"unaudited: and {left} more")
    if len(view.resources) > 1:
        lines += [f"lent: {one.name} {one.access_mode} {clean_name(one.path)}" for one in view.resources]
    lines += [f"revealed: {clean_name(name)}" for name in view.revealed]
    lines += [f"unlocked: {clean_name(name)}" for name in view.unlocked]
    lines += [f".git hidden: {clean_line(why, MAX_WHY_CHARS)}" for why in view.git_hidden]
    lines += [f"caution: {clean_line(caution, MAX_CAUTION_CHARS)}" for caution in view.cautions]
    lines += [f"left behind: {clean_name(line)}" for line in view.left_behind]
    lines += [f"hidden: {clean_name(name)}" for name in view.hidden]
    lines += [f"unmountable: {clean_name(name)}" for name in view.unmountable]
    return "\n".join(lines)


def change_set_facts(changes: ChangeSet) -> ChangeSetFacts:
    """Return the counts of a staged result as a model is shown them."""
    error = changes.branch_error
    told = {
        "branch_error": clean_line(error, MAX_WHY_CHARS) if error is not None else None,
    }
    return ChangeSetFacts(**{**changes.model_dump(exclude={"branch_left_out"}), **told})


def left_out_of_branch(changes: ChangeSet | None) -> list[str]:
    """Return what is not on the branch of a staged result, and why; the peer chose the names in it."""
    left_out = changes.branch_left_out if changes is not None else []
    return [clean_line(line, MAX_WHY_CHARS) for line in left_out[:MAX_LEFT_OUT]]


def next_step(view: DelegationView, section: Section, cursor: str, *, more: bool = False) -> str:
    """Return the call that goes on with ``view``. A model that repeats it is never answered twice with the same.

    Args:
        view: the delegation.
        section: what the model reads.
        cursor: where it reads on.
        more: whether there is more of the section to read right now.
    """
    call = f"delegate_output(delegation_id={view.delegation_id!r}"
    finished = is_terminal(DELEGATION_TABLE, view.state)
    if finished and more:
        return f"{call}, section={section!r}, cursor={cursor!r}) to read on."
    # The other sections are written anew at the end, so what was read of them before is no place in them.
    place = cursor if section == "log" else "0"
    on = f"{call}, section={section!r}, cursor={place!r}, wait_seconds={MAX_WAIT_SECONDS:.0f})"
    if view.condition is not None and view.condition.kind == "waiting_for_answer":
        if view.room_id is not None:
            return f"Its agent waits for an answer: send_message(to={view.room_id!r}, message=…), and then {on}."
        one = f"delegate(delegation_id={view.delegation_id!r}, prompt=…)"
        return f"Its agent waits for an answer: {one} gives it, and then {on}."
    if not finished:
        return f"{on} to follow it; delegate_cancel to stop it."
    if view.result is not None and view.result.change_set is not None and view.result.change_set.status == "pending":
        review = f"delegate_review(delegation_id={view.delegation_id!r}"
        return f"Nothing is in the directory yet. {review}) to see the patch, then action='apply' or 'discard'."
    if view.state is DelegationState.COMPLETED:
        return f"{call}, section='patch') to see every change; log, summary and files are sections too."
    return f"{call}, section='log') to see how far it came; then delegate again if it should be tried once more."


def _follow_up(follow_up: FollowUpView) -> FollowUpFacts:
    return FollowUpFacts(
        id=follow_up.id, prompt=clean_line(follow_up.prompt, MAX_FOLLOW_UP_CHARS), state=follow_up.state
    )


def _why(follow_up: FollowUpView) -> str:
    return f"{follow_up.id}: {clean_line(follow_up.why, MAX_SHORT_CHARS)}"


def _condition(view: DelegationView) -> Condition | None:
    found = view.condition
    if found is None:
        return None
    return Condition(kind=found.kind, detail=clean_line(found.detail, MAX_WHY_CHARS), position=found.position)


def _changes(audit: AuditReport) -> Changes:
    return Changes(
        added=audit.counts.get("added", 0),
        changed=audit.counts.get("changed", 0),
        deleted=audit.counts.get("deleted", 0),
        mode_changed=audit.counts.get("mode", 0),
        by_others=len(audit.by_others),
        others_edits=len(audit.others_edits) or None,
        not_kept=len(audit.not_kept) or None,
        lines_added=audit.lines_added,
        lines_deleted=audit.lines_deleted,
        refs_moved=len(audit.refs),
        refs_bring=len(audit.refs_bring) or None,
        index_marks=len(audit.index_marks) or None,
        directories_added=audit.directory_counts.get("added"),
        directories_deleted=audit.directory_counts.get("deleted"),
        directories_mode_changed=audit.directory_counts.get("mode"),
        unaudited=audit.unseen,
        truncated=audit.truncated,
        patch_truncated=audit.patch_truncated,
    )


def _usage(view: DelegationView) -> UsageFacts | None:
    usage = view.usage
    if not usage.operations:
        return None
    return UsageFacts(
        bytes_read=usage.bytes_read,
        bytes_written=usage.bytes_written,
        operations=usage.operations,
        files_touched=usage.files_touched,
        bytes_added=usage.bytes_added,
        files_added=usage.files_added,
    )


def _file_line(change: FileChange) -> str:
    added, deleted = change.lines_added, change.lines_deleted
    counts = "binary" if added is None or deleted is None else f"+{added} -{deleted}"
    by = "" if change.by == "executor" else " (not through the lease)"
    modes = _modes(change.mode_before, change.mode_after)
    return f"{change.change}: {clean_name(change.path)} ({counts}){modes}{by}"


def _directory_line(change: DirectoryChange) -> str:
    by = "" if change.by == "executor" else " (not through the lease)"
    return f"{change.change}: {clean_name(change.path)}{_modes(change.mode_before, change.mode_after)}{by}"


def _modes(before: str | None, after: str | None) -> str:
    return f" (mode {before} to {after})" if before and after and before != after else ""
