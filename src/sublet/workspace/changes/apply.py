"""Applying a change set to the directory, and taking that back (DESIGN 4.7).

The caller holds the directory's lock as for a read-write lease, so that no live lease runs over it; a person may go on
working there. Text that both sides changed in different places is merged. With a conflict nothing is applied, or, where
asked for, everything else is, and the executor's version of what conflicts is put beside the person's file as
``NAME.conflict-XXXXXXXX``. All of it happens or nothing (``transaction``).
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from sublet.disk.removal import remove_tree
from sublet.protocol.change_counts import ChangeSetStatus
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.text import clean_name
from sublet.workspace.changes import transaction_plan
from sublet.workspace.changes.change_set import ChangeSets
from sublet.workspace.changes.edits import Edit, Make, PlannedEdits, fit, order
from sublet.workspace.changes.merge import Merger, mass_deletion
from sublet.workspace.changes.outcomes import (
    changed_directories,
    changed_files,
    directory_outcomes,
    side_name,
    told_since,
)
from sublet.workspace.changes.record import ChangeRecord
from sublet.workspace.changes.together import DECIDED, Action, Together, forget, is_decided, members
from sublet.workspace.changes.transaction import DONE, PLAN, recover
from sublet.workspace.changes.transaction_plan import GroupName, Plan
from sublet.workspace.changes.tree import ABSENT, Tree
from sublet.workspace.changes.undo import wanted_by_undo
from sublet.workspace.export import ViewRules
from sublet.workspace.staging.staged_result import (
    Applied,
    Conflict,
    Preview,
)
from sublet.workspace.viewpath import link_stays

ATTEMPTS: Final = 3
"""How often a merge is made anew because the directory changed while it was made."""

OnStep = Callable[[int], None]


_TORN: Final = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What reading a file of the state raises that is not as it was written."""


class Applier:
    """Applies and undoes the change sets of a daemon. Every method blocks: call it in a thread, one at a time per
    directory, which its lock sees to.

    Args:
        changes: where they are kept.
        on_step: called before each step of a change; tests stop there.
    """

    def __init__(self, changes: ChangeSets, on_step: OnStep | None = None) -> None:
        self._changes = changes
        self._on_step = on_step

    def preview(self, key: str, rules: ViewRules) -> Preview:
        """Tell what ``apply`` would do now; nothing is changed.

        Raises:
            SubletError: ``NOT_FOUND`` without such a change set or its snapshots, ``WORKSPACE_NOT_FOUND`` where the
                directory is gone.
        """
        record = self._changes.record(key)
        with self._tree(record.root) as tree, self._scratch(key) as scratch:
            wanted = self._merge(record, rules, tree, Path(scratch))
            outcomes = directory_outcomes(record, tree, wanted, order(tree, rules, wanted))
            edited = {edit.path for edit in wanted.edits if not edit.of_directory} - set(wanted.merged)
            return Preview(
                clean=tuple(sorted(edited)),
                merged=tuple(sorted(wanted.merged)),
                present=tuple(sorted(wanted.present)),
                conflicts=tuple(wanted.conflicts),
                mass_deletion=mass_deletion(record, wanted),
                directories=outcomes,
            )

    def apply(self, key: str, rules: ViewRules, *, partial: bool = False, allow_mass_deletion: bool = False) -> Applied:
        """Merge one change set into its directory: ``apply_all``."""
        return self.apply_all({key: rules}, partial=partial, allow_mass_deletion=allow_mass_deletion)[key]

    def apply_all(
        self, parts: Mapping[str, ViewRules], *, partial: bool = False, allow_mass_deletion: bool = False
    ) -> dict[str, Applied]:
        """Merge change sets into their directories: all of them, or none.

        Args:
            parts: the change sets by their keys, with the rules of their leases; what those hide or lock is never
                changed.
            partial: with conflicts, apply what has none and put the executor's versions of the rest beside.
            allow_mass_deletion: whether it may remove most of the directory, or all that the executor saw.

        Returns:
            What was changed, by key. Where there are conflicts anywhere without ``partial``, nothing was, and the
            status of each is as before.

        Raises:
            SubletError: ``CONFLICT`` for one that is applied already, a mass deletion, or a directory that does not
                stop changing; else as ``preview``, and ``UNAVAILABLE`` where nothing could be written.
        """
        return self._apply_all(parts, partial=partial, allow_mass_deletion=allow_mass_deletion)

    def _apply_all(
        self, parts: Mapping[str, ViewRules | None], *, partial: bool, allow_mass_deletion: bool
    ) -> dict[str, Applied]:
        for key in parts:
            self.recover(key)
        records = {key: self._changes.record(key) for key in parts}
        for key, record in records.items():
            if record.status not in ("pending", "undone"):
                raise SubletError(
                    LocalCode.CONFLICT,
                    f"the result of {key} was applied already",
                    f"`sublet undo {key}` takes it back; then it can be applied again.",
                )
        reports: dict[str, Applied] = {}
        outcomes: dict[str, ChangeSetStatus] = {}
        with ExitStack() as opened, self._together(parts, "apply") as together:
            for key, rules in parts.items():
                tree = opened.enter_context(self._tree(records[key].root))
                report, plan = self._apply_one(
                    records[key], rules, tree, together, partial=partial, allow_mass_deletion=allow_mass_deletion
                )
                if plan is None:
                    return dict.fromkeys(parts, Applied((), ())) | {key: report}
                reports[key], outcomes[key] = report, plan.outcome
            together.commit()
        for key, outcome in outcomes.items():
            self._changes.set_status(key, outcome)
        return reports

    def take_back(self, keys: Iterable[str]) -> dict[str, Applied]:
        """Take live leases back by change sets that ``make_taking_back`` made, merged with what changed since.

        What conflicts is left as it is, and told with where the version before lies; all else is restored, in all of
        the directories or in none.

        Returns:
            What was restored, by key.

        Raises:
            SubletError: as ``apply_all``.
        """
        return self._apply_all(dict.fromkeys(keys), partial=True, allow_mass_deletion=True)

    def _apply_one(
        self,
        record: ChangeRecord,
        rules: ViewRules | None,
        tree: Tree,
        together: Together,
        *,
        partial: bool,
        allow_mass_deletion: bool,
    ) -> tuple[Applied, Plan | None]:
        """Merge one change set; without a plan where conflicts keep it from being applied."""
        for _ in range(ATTEMPTS):
            with self._scratch(record.key) as scratch:
                wanted = self._merge(record, rules, tree, Path(scratch))
                self._check_deletions(record, wanted, allow_mass_deletion)
                if wanted.conflicts and not partial:
                    return Applied((), tuple(wanted.conflicts)), None
                conflicts = told_since(wanted) if rules is None else self._beside(record, rules, tree, wanted)
                steps = order(tree, rules, wanted)
                outcome: ChangeSetStatus = "partly_applied" if conflicts else "applied"
                plan = together.forward(record.key, tree, record.root, steps, outcome)
            if plan is not None:
                return Applied(changed_files(plan), tuple(conflicts), changed_directories(plan)), plan
        raise _does_not_stop(record.root)

    def undo(self, key: str) -> Applied:
        """Take one change set back: ``undo_all``."""
        return self.undo_all([key])[key]

    def undo_all(self, keys: Iterable[str]) -> dict[str, Applied]:
        """Take back what was applied, wherever nobody has changed it since; the rest is told as conflicts.

        All of the directories are changed, or none.

        Returns:
            What was taken back, by key.

        Raises:
            SubletError: ``CONFLICT`` where one was not applied, else as ``apply_all``.
        """
        keys = list(keys)
        for key in keys:
            self.recover(key)
        done = {key: self._applied(key) for key in keys}
        reports: dict[str, Applied] = {}
        with ExitStack() as opened, self._together(keys, "undo") as together:
            for key in keys:
                tree = opened.enter_context(self._tree(done[key].root))
                reports[key] = self._undo_one(key, done[key], tree, together)
            together.commit()
        for key, report in reports.items():
            self._settle_undo(key, keep=bool(report.conflicts))
        return reports

    def _applied(self, key: str) -> Plan:
        self._changes.record(key)
        try:
            return transaction_plan.load(self._changes.directory(key) / "apply" / DONE)
        except FileNotFoundError:
            raise SubletError(
                LocalCode.CONFLICT,
                f"the result of {key} is not applied, so there is nothing to undo",
                f"`sublet review {key}` shows it.",
            ) from None

    def _undo_one(self, key: str, done: Plan, tree: Tree, together: Together) -> Applied:
        for _ in range(ATTEMPTS):
            wanted = wanted_by_undo(tree, done, self._changes.directory(key) / "apply")
            fit(tree, None, wanted)
            plan = together.forward(key, tree, done.root, order(tree, None, wanted), "undone")
            if plan is not None:
                return Applied(changed_files(plan), tuple(wanted.conflicts), changed_directories(plan))
        raise _does_not_stop(done.root)

    def changed(self, key: str) -> tuple[bytes, ...]:
        """Return the files and directories that an ``apply`` which holds has changed, what it put beside included.

        Raises:
            SubletError: ``UNAVAILABLE`` where that can't be read.
        """
        try:
            plan = transaction_plan.load(self._changes.directory(key) / "apply" / DONE)
            return tuple(sorted({step.path for step in plan.steps}))
        except FileNotFoundError:
            return ()

    def recover(self, key: str) -> bool:
        """Finish or take back what a crash has interrupted, and tell whether there was something.

        Raises:
            SubletError: ``UNAVAILABLE`` where that can't be done.
        """
        directory = self._changes.directory(key)
        interrupted = False
        for name in ("apply", "undo"):
            if (directory / name).is_dir():
                interrupted |= recover(directory / name, self._tree, self._decided) is not None
        if (directory / "undo" / DONE).exists():
            self._settle_undo(key, keep=True)
        elif (directory / "apply" / DONE).exists():
            outcome = transaction_plan.load(directory / "apply" / DONE).outcome
            if self._changes.record(key).status != outcome:
                self._changes.set_status(key, outcome)
        if (found := members(directory)) is not None:
            action, keys = found
            forget(directory / DECIDED, {one: self._changes.directory(one) for one in keys}, action)
        return interrupted

    def recover_all(self) -> dict[str, SubletError | None]:
        """Do ``recover`` for all change sets; return those that were interrupted, with the error where it failed."""
        found: dict[str, SubletError | None] = {}
        # Whoever keeps the decision of a group comes last: it forgets it once the others have looked at it.
        keys = sorted(self._changes.all_keys(), key=lambda key: (self._changes.directory(key) / DECIDED).exists())
        for key in keys:
            try:
                if self.recover(key):
                    found[key] = None
            except SubletError as error:
                found[key] = error
            except _TORN as error:
                found[key] = SubletError(
                    LocalCode.UNAVAILABLE,
                    f"what is kept of the result {key} can't be read: {type(error).__name__}",
                    "Discard it; the directory it was applied to may be changed in part.",
                )
        return found

    def _decided(self, group: GroupName) -> bool:
        return is_decided(self._changes.directory(group.leader), group)

    def _together(self, keys: Iterable[str], action: Action) -> Together:
        return Together({key: self._changes.directory(key) for key in keys}, action, self._on_step)

    def _merge(self, record: ChangeRecord, rules: ViewRules | None, tree: Tree, scratch: Path) -> PlannedEdits:
        contents = self._changes.directory(record.key) / "result"
        with self._changes.auditor.repository(record.root) as git:
            wanted = Merger(record, contents, rules, tree, git, scratch).run()
        fit(tree, rules, wanted)
        wanted.conflicts.sort(key=lambda conflict: conflict.path)
        return wanted

    def _beside(self, record: ChangeRecord, rules: ViewRules, tree: Tree, wanted: PlannedEdits) -> list[Conflict]:
        """Add edits that put the executor's versions beside the person's; return the conflicts with those names."""
        entries = {entry.path: entry for entry in record.entries}
        told: list[Conflict] = []
        taken = {edit.path for edit in wanted.edits}
        suffix = b".conflict-" + record.key.partition(".")[0][-8:].encode()
        for conflict in wanted.conflicts:
            entry = entries.get(conflict.path)
            if conflict.kind == "refused" or entry is None or entry.after is None:
                told.append(conflict)
                continue
            place = side_name(tree, rules, conflict.path, suffix, taken)
            link_leaves = entry.target is not None and not link_stays(conflict.path.count(b"/"), entry.target)
            if place is None or link_leaves or (entry.target is None and conflict.theirs is None):
                told.append(conflict)
                continue
            make = Make(
                entry.after,
                conflict.theirs,
                entry.target,
                entry.permissions,
                entry.modified_ns or None,
                alone=True,  # a person edits it, and no other name may change by that
            )
            wanted.edits.append(Edit(place, ABSENT, make))
            taken.add(place)
            told.append(dataclasses.replace(conflict, kept_as=place))
        return told

    def _check_deletions(self, record: ChangeRecord, wanted: PlannedEdits, allowed: bool) -> None:
        problem = "" if allowed else mass_deletion(record, wanted)
        if problem:
            raise SubletError(
                LocalCode.CONFLICT,
                f"the result of {record.key} was not applied: {problem}",
                "If that is meant, apply it with --allow-mass-deletion; otherwise discard it.",
            )

    def _settle_undo(self, key: str, *, keep: bool) -> None:
        """Forget the application; what was there before stays readable where ``keep``."""
        directory = self._changes.directory(key)
        self._changes.set_status(key, "undone")
        if (directory / "undo" / PLAN).exists():
            return  # all is undone, but not tidied up: ``recover`` goes on with it
        (directory / "apply" / DONE).unlink(missing_ok=True)
        if not keep:
            remove_tree(directory / "apply")
        remove_tree(directory / "undo")

    def _tree(self, root: Path) -> Tree:
        try:
            return Tree(root, self._changes.auditor.salt(root))
        except OSError as exc:
            raise SubletError(
                ErrorCode.WORKSPACE_NOT_FOUND,
                f"{clean_name(os.fsencode(root))} can't be opened: {exc.strerror}",
                "The result is kept until you discard it; put the directory back, then try again.",
            ) from None

    def _scratch(self, key: str) -> tempfile.TemporaryDirectory[str]:
        return tempfile.TemporaryDirectory(prefix="merge-", dir=self._changes.directory(key))


def _does_not_stop(root: Path) -> SubletError:
    return SubletError(
        LocalCode.CONFLICT,
        f"{clean_name(os.fsencode(root))} is being changed, so nothing was changed in it ({ATTEMPTS} attempts)",
        "Stop what is writing there, then try again.",
    )
