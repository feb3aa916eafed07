"""From what peers and the audit say to what a user is shown: cleaned, bounded, with codes that fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from sublet.daemon.api.audit_models import AuditReport, DirectoryChange, FileChange, OthersEdit, RefChange
from sublet.daemon.api.delegation_views import ChangeSet, PromptView, ResultView
from sublet.daemon.api.listing import listed
from sublet.protocol.errors import AgentEnd, SubletError
from sublet.protocol.messages import Done, Error
from sublet.protocol.prompt_state import PromptState
from sublet.protocol.text import MAX_SUMMARY_CHARS, clean, clean_line, clean_name
from sublet.workspace.audit.comparing import Change, DirectoryKind
from sublet.workspace.audit.reporting import AuditResult
from sublet.workspace.git.refs import MovedRef
from sublet.workspace.git.refs import shown as shown_ref
from sublet.workspace.kept.account import Account
from sublet.workspace.staging import staged_result as workspace_changes

MAX_REASON_CHARS = 40
MAX_WHY_CHARS = 120
MAX_LISTED_FILES = 1_000
"""Files that a report lists one by one; the lists by kind of change are complete up to the audit's own bound."""
MAX_NAMES = 10_000
MAX_NAMES_BYTES = 1 << 20
"""Of the names in a list by kind of change: the audit's own bound, which counts them as they are in the directory."""


def refusal(error: Error, peer: str) -> SubletError:
    """Return a peer's ERROR as ours: its code, and its words as the peer's."""
    return SubletError(
        error.code,
        f"{peer}: {clean_line(error.message)}",
        clean_line(error.hint),
        from_peer=True,
        retry_after_seconds=error.sublet.retry_after_seconds,
        agent_end=agent_end(error),
    )


def failed_result(end: AgentEnd) -> ResultView:
    """Return what an agent of a peer said that did not do its task, as it is shown."""
    return ResultView(
        final_summary=clean(end.output_tail, MAX_SUMMARY_CHARS),
        exit_code=end.exit_code,
        prompts=[prompt_view(prompt) for prompt in end.prompts],
    )


def prompt_view(prompt: PromptState) -> PromptView:
    """Return what a peer says of a prompt, as it is shown."""
    return PromptView(
        follow_up_id=prompt.follow_up_id,
        state=prompt.state,
        reason=clean_line(prompt.reason, MAX_REASON_CHARS) if prompt.reason else None,
        exit_code=prompt.exit_code,
    )


def result_view(done: Done) -> ResultView:
    """Return a peer's DONE as it is shown."""
    return ResultView(
        final_summary=clean(done.final_summary, MAX_SUMMARY_CHARS),
        highlights=[clean_name(path) for path in done.highlights],
        notes=clean(done.notes),
        exit_code=done.sublet.exit_code,
        link_losses=done.sublet.link_losses,
        interrupted_operations=done.sublet.interrupted_operations,
        prompts=[prompt_view(prompt) for prompt in done.sublet.prompts],
    )


def agent_end(end: Done | Error) -> AgentEnd | None:
    """Return how the peer's agent ended, as far as it says so."""
    if isinstance(end, Done):
        return AgentEnd("done", end.sublet.exit_code, end.final_summary, tuple(end.sublet.prompts))
    said = end.sublet
    if said.reason is None and said.exit_code is None and said.output_tail is None:
        return None
    return AgentEnd(clean_line(said.reason or ""), said.exit_code, said.output_tail or "", tuple(said.prompts))


def audit_view(
    results: Mapping[str, AuditResult],
    failed: Iterable[str] = (),
    refs: Mapping[str, Sequence[MovedRef]] | None = None,
    marks: Mapping[str, Collection[bytes]] | None = None,
    bring: Mapping[str, Collection[bytes]] | None = None,
) -> AuditReport:
    """Return an audit as it is shown.

    Args:
        results: by the name of the directory; where there are several, it leads the name of each file.
        failed: directories of which there is no audit.
        refs: references that were moved, by the name of the directory.
        marks: files that an index had git not look at, by the name of the directory.
        bring: hidden and locked names in commits of moved references, by the name of the directory.
    """
    failed = list(failed)
    several = len(results) + len(failed) > 1

    def shown(directory: str, name: str) -> str:
        return f"{directory}/{name}" if several else name

    def named(change: Change) -> list[str]:
        found = (shown(directory, name) for directory, result in results.items() for name in result.named(change))
        return listed(found, MAX_NAMES, most_bytes=MAX_NAMES_BYTES)

    files = [(directory, file) for directory, result in results.items() for file in result.files]
    moved = [
        RefChange(name=shown(directory, clean_name(ref.name)), old=shown_ref(ref.old), new=shown_ref(ref.new))
        for directory, found in (refs or {}).items()
        for ref in found
    ]
    directories = [(directory, changed) for directory, result in results.items() for changed in result.directories]
    unseen = [(directory, *found) for directory, result in results.items() for found in result.unaudited]
    unaudited = [*(f"{directory}/" for directory in failed)]
    unaudited += [shown(directory, clean_name(path)) for directory, path, _ in unseen]
    unaudited_why = [*(f"{directory}/" for directory in failed)]
    unaudited_why += [shown(directory, with_reason(path, why)) for directory, path, why in unseen]
    marked = [
        shown(directory, clean_name(path)) for directory, paths in (marks or {}).items() for path in sorted(paths)
    ]
    brought = [
        shown(directory, clean_name(path)) for directory, paths in (bring or {}).items() for path in sorted(paths)
    ]
    told_files = listed(
        (
            FileChange(
                path=shown(directory, file.shown),
                change=file.change,
                lines_added=file.lines_added,
                lines_deleted=file.lines_deleted,
                by=file.by,
                mode_before=mode_text(file.mode_before),
                mode_after=mode_text(file.mode_after),
            )
            for directory, file in files
        ),
        MAX_LISTED_FILES,
        lambda one: one.path,
    )
    told_directories = listed(
        (
            DirectoryChange(
                path=shown(directory, changed.shown),
                change=changed.change,
                by=changed.by,
                mode_before=mode_text(changed.mode_before),
                mode_after=mode_text(changed.mode_after),
            )
            for directory, changed in directories
        ),
        MAX_LISTED_FILES,
        lambda one: one.path,
    )
    told_refs = listed(moved, MAX_LISTED_FILES, lambda one: one.name)
    return AuditReport(
        added=named("added"),
        changed=named("changed"),
        deleted=named("deleted"),
        mode_changed=named("mode"),
        counts=dict(sum((Counter(result.counts) for result in results.values()), Counter[Change]())),
        by_others=listed(
            (shown(directory, name) for directory, result in results.items() for name in result.by_others),
            MAX_NAMES,
            most_bytes=MAX_NAMES_BYTES,
        ),
        files=told_files,
        directories=told_directories,
        directory_counts=dict(
            sum((Counter(result.directory_counts) for result in results.values()), Counter[DirectoryKind]())
        ),
        refs=told_refs,
        refs_bring=listed(brought, MAX_LISTED_FILES),
        index_marks=listed(marked, MAX_LISTED_FILES),
        unaudited=listed(unaudited, MAX_LISTED_FILES),
        unaudited_why=listed(unaudited_why, MAX_LISTED_FILES),
        unaudited_count=len(unaudited),
        lines_added=sum(result.lines_added for result in results.values()),
        lines_deleted=sum(result.lines_deleted for result in results.values()),
        truncated=any(result.truncated for result in results.values())
        or (len(told_files), len(told_directories), len(told_refs)) != (len(files), len(directories), len(moved)),
    )


def with_accounts(report: AuditReport, accounts: Mapping[str, Account], *, several: bool) -> AuditReport:
    """Return a report with what the lease did to the edits of others, and what can't be taken back.

    Args:
        report: as ``audit_view`` made it.
        accounts: by the name of the directory.
        several: whether that leads the name of each file.
    """
    others: list[OthersEdit] = []
    lost: list[str] = []
    for name, account in accounts.items():
        lead = f"{name}/" if several else ""
        for path, kept in account.others:
            others.append(
                OthersEdit(path=lead + clean_name(path), kept=None if kept is None else clean_name(str(kept)))
            )
        others += [OthersEdit(path=lead + clean_name(path), overwritten=False) for path in account.after]
        lost += [lead + clean_name(path) for path in account.lost]
    return report.model_copy(
        update={
            "others_edits": listed(others, MAX_LISTED_FILES, lambda one: one.path),
            "not_kept": listed(lost, MAX_LISTED_FILES),
        }
    )


def with_reason(path: bytes, why: str) -> str:
    """Return a path that could not be read, and why, as it is shown."""
    return f"{clean_name(path)} ({clean_line(why, MAX_WHY_CHARS)})"


def mode_text(permissions: int | None) -> str | None:
    """Return permissions as ``chmod`` takes them; None where there are none."""
    return None if permissions is None else f"{permissions:04o}"


def change_set_view(changes: Iterable[workspace_changes.ChangeSet]) -> ChangeSet:
    """Return the change sets of one delegation as one, as it is shown."""
    found = list(changes)
    statuses = {one.status for one in found}
    return ChangeSet(
        added=sum(one.counts.added for one in found),
        changed=sum(one.counts.changed for one in found),
        deleted=sum(one.counts.deleted for one in found),
        renamed=sum(one.counts.renamed for one in found),
        mode_changed=sum(one.counts.mode_changed for one in found),
        lines_added=sum(one.counts.lines_added for one in found),
        lines_deleted=sum(one.counts.lines_deleted for one in found),
        directories_added=sum(one.counts.directories_added for one in found),
        directories_deleted=sum(one.counts.directories_deleted for one in found),
        directories_mode_changed=sum(one.counts.directories_mode_changed for one in found),
        status=statuses.pop() if len(statuses) == 1 else "partly_applied",
    )
