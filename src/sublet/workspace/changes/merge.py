"""The three-way merge of a change set with the directory as it is now, file by file (DESIGN 4.7).

B is what the executor saw, R what it left, W what is there. Where W is B, R is taken; where W is R, there is nothing to
do; what both sides changed is merged where it is text, and a conflict otherwise. What the change set does not name is
not even looked at.
"""

from __future__ import annotations

import itertools
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.audit.shadow_git import ShadowGit, blob_id
from sublet.workspace.audit.snapshot import MAX_STORED_BYTES
from sublet.workspace.changes.edits import Edit, Make, PlannedEdits
from sublet.workspace.changes.record import ChangeRecord, Content, Entry
from sublet.workspace.changes.tree import PathContents, Tree
from sublet.workspace.export import ViewRules
from sublet.workspace.staging.staged_result import Conflict, ConflictKind
from sublet.workspace.viewpath import link_stays

MERGE_SECONDS: Final = 30.0
MANY_DELETIONS: Final = 50
"""More deletions than this, if they are also more than half of the directory, have to be allowed explicitly."""

_EXECUTE: Final = 0o111
_READ_TO_EXECUTE: Final = 2


class Merger:
    """One merge.

    Args:
        record: the change set.
        contents: directory of its stored contents.
        rules: those of the lease; hidden and locked names are never changed. None where a live lease is taken back, so
            that the delegator's own state is restored.
        tree: the directory.
        git: repository with the baseline's contents.
        scratch: empty directory for merged files, needed until they are applied.
    """

    def __init__(
        self, record: ChangeRecord, contents: Path, rules: ViewRules | None, tree: Tree, git: ShadowGit, scratch: Path
    ) -> None:
        self._record = record
        self._contents = contents
        self._rules = None if rules is None else rules.without_repository()
        self._tree = tree
        self._git = git
        self._scratch = scratch
        self._wanted = PlannedEdits()
        self._numbers = itertools.count()
        self._merges: dict[tuple[Path | None, str, str | None], Path] = {}

    def run(self) -> PlannedEdits:
        """Return the edits and conflicts.

        Raises:
            SubletError: ``NOT_FOUND`` where the baseline is gone, ``UNAVAILABLE`` where git does not answer.
        """
        wanted = self._wanted
        by_path = {entry.path: entry for entry in self._record.entries}
        for directory in self._record.directories:
            if directory.after is None:
                wanted.drop.add(directory.path)
            elif directory.before is None:
                wanted.directories[directory.path] = directory.after
        done = {path for entry in by_path.values() for path in self._follow_rename(entry, by_path)}
        for entry in by_path.values():
            if entry.path not in done:
                self._entry(entry)
        for directory in self._record.directories:
            if directory.before is not None and directory.after is not None:
                self._directory(directory.path, directory.before, directory.after)
        return wanted

    def _directory(self, path: bytes, before: int, after: int) -> None:
        """Give a directory the permissions that the executor gave it."""
        parts = path.split(b"/")
        found = self._tree.look(path)
        if self._rules is not None and (self._rules.hidden(parts) or self._rules.locked(parts)):
            self._wanted.conflicts.append(Conflict(path, "refused", "its permissions are never changed from outside"))
        elif found.kind != "directory":
            detail = "the executor changed its permissions, and it is no directory here any more"
            self._wanted.conflicts.append(Conflict(path, "deleted_here", detail))
        elif (mode := merged_permissions(before, after, found.permissions)) != found.permissions:
            self._wanted.edits.append(Edit(path, found, permissions=mode))

    def _is_taken(self, path: bytes) -> bool:
        """Tell whether something is under a hidden name, or under one above it that is hidden: it is not looked at."""
        rules, parts = self._rules, path.split(b"/")
        if rules is None:
            return False
        hidden = [b"/".join(parts[:end]) for end in range(1, len(parts) + 1) if rules.hidden(parts[:end])]
        return any(self._tree.is_there(above) for above in hidden)

    def _entry(self, entry: Entry) -> None:
        never = refusal(entry, self._rules)
        if not never and self._is_taken(entry.path):
            never = "its name is hidden from executors, and something of yours is there"
        if never:
            self._conflict(entry, "refused", never)
            return
        found = self._tree.look(entry.path)
        before, after = entry.before, entry.after
        here = found.content if found.kind in ("file", "link") else None
        if found.kind == "closed":
            self._conflict(entry, "refused", f"what is here can't be looked at: {found.reason}")
        elif found.kind == "special":
            self._conflict(entry, "type", "what is here is neither a file nor a link")
        elif found.kind == "directory":
            self._over_directory(entry, found)
        elif here is not None and here == after:
            self._same_content(entry, here, after, found)
        elif here == after:
            self._wanted.present.append(entry.path)
        elif here is not None and after is not None and entry.permissions_before is not None and entry.same_content:
            self._permissions_only(entry, here, after, found)
        elif here == before:
            self._take(entry, found)
        elif after is None:
            self._conflict(entry, "deleted_there", "the executor removed it, and it was changed here")
        elif here is None:
            self._conflict(entry, "deleted_here", "the executor changed it, and it was removed here")
        elif before is None:
            self._conflict(entry, "both_added", "it was made here, too, and differently")
        elif before.link or after.link or here.link:
            self._conflict(entry, "type", "it is a link on one side, and both sides changed it")
        else:
            self._both_changed(entry, before, after, here, found)

    def _same_content(self, entry: Entry, here: Content, after: Content, found: PathContents) -> None:
        """Settle a path that holds already what the executor left, but for its permissions perhaps."""
        mode = self._permissions(entry, found, after.executable)
        if here.link or entry.permissions_before is None or mode == found.permissions:
            self._wanted.present.append(entry.path)
            return
        self._wanted.edits.append(Edit(entry.path, found, permissions=mode))
        if not entry.same_content:
            self._wanted.merged.append(entry.path)

    def _permissions_only(self, entry: Entry, here: Content, after: Content, found: PathContents) -> None:
        """Settle a path of which the executor changed the permissions alone."""
        if here.link or after.link:
            self._conflict(entry, "type", "it is a link on one side, and both sides changed it")
            return
        assert entry.permissions_before is not None
        mode = merged_permissions(entry.permissions_before, entry.permissions, found.permissions)
        if mode == found.permissions:
            self._wanted.present.append(entry.path)
            return
        self._wanted.edits.append(Edit(entry.path, found, permissions=mode))
        if here != entry.before:
            self._wanted.merged.append(entry.path)

    def _permissions(self, entry: Entry, found: PathContents, executable: bool) -> int:
        """Return the permissions of a file that is here, with what the executor changed of them."""
        here = found.permissions
        if entry.permissions_before is not None:
            here = merged_permissions(entry.permissions_before, entry.permissions, here)
        return _with_execute(here, executable)

    def _over_directory(self, entry: Entry, found: PathContents) -> None:
        if entry.after is None:
            self._conflict(entry, "deleted_there", "the executor removed it, and there is a directory here now")
        elif entry.before is None and entry.path in self._wanted.drop:
            self._write(entry, found)  # the executor replaced the directory; whether it can go is seen later
        else:
            self._conflict(entry, "directory", "there is a directory of this name here")

    def _take(self, entry: Entry, found: PathContents) -> None:
        """Make the path what the executor left."""
        before, after = entry.before, entry.after
        if after is None:
            self._wanted.edits.append(Edit(entry.path, found))
        elif before is not None and (before.blob, before.link) == (after.blob, after.link):
            mode = self._permissions(entry, found, after.executable)
            self._wanted.edits.append(Edit(entry.path, found, permissions=mode))
        else:
            self._write(entry, found)

    def _write(self, entry: Entry, found: PathContents) -> None:
        after = entry.after
        assert after is not None
        if after.link:
            make = Make(after, target=entry.target)
        else:
            source = self._theirs(entry)
            mode = entry.permissions
            modified: int | None = entry.modified_ns
            if found.kind == "file":
                # Its permissions are the delegator's, and its time is now: whoever built from it has to build again.
                mode, modified = self._permissions(entry, found, after.executable) & 0o777, None
            make = Make(after, source, None, mode, modified, _owner(found), source)
        self._wanted.edits.append(Edit(entry.path, found, make))

    def _both_changed(self, entry: Entry, before: Content, after: Content, here: Content, found: PathContents) -> None:
        executable = after.executable if here.executable == before.executable else here.executable
        if before.blob == after.blob or here.blob == after.blob:
            mode = self._permissions(entry, found, executable)
            if mode == found.permissions:
                self._wanted.present.append(entry.path)
                return
            self._wanted.edits.append(Edit(entry.path, found, permissions=mode))
            self._wanted.merged.append(entry.path)
            return
        if here.blob == before.blob:
            source = self._theirs(entry)
            content = Content(after.blob, executable=executable)
            mode = self._permissions(entry, found, executable) & 0o777
            make = Make(content, source, None, mode, None, _owner(found), source)
            self._wanted.edits.append(Edit(entry.path, found, make))
            self._wanted.merged.append(entry.path)
            return
        self._merge_text(entry, entry.path, before, executable, found)

    def _merge_text(self, entry: Entry, here: bytes, before: Content, executable: bool, found: PathContents) -> bool:
        """Merge what is at ``here`` with the executor's file at the entry's path, and tell whether that worked."""
        merged = self._merged(entry, here, before)
        if isinstance(merged, bytes):
            source = self._scratch / f"merged-{next(self._numbers)}"
            source.write_bytes(merged)
            if found.content is not None:  # other names of the same three files stay names of one
                source = self._merges.setdefault((self._theirs(entry), before.blob, found.content.blob), source)
            content = Content(blob_id(merged), executable=executable)
            mode = self._permissions(entry, found, executable) & 0o777
            expect = found if here == entry.path else PathContents("absent")
            make = Make(content, source, None, mode, None, _owner(found), self._theirs(entry))
            self._wanted.edits.append(Edit(entry.path, expect, make))
            self._wanted.merged.append(entry.path)
            return True
        detail = {
            "content": "both sides changed the same lines",
            "binary": "both sides changed it, and it is not text or too large to merge",
        }[merged]
        self._conflict(entry, "content" if merged == "content" else "binary", detail)
        return False

    def _merged(self, entry: Entry, here: bytes, before: Content) -> bytes | str:
        theirs = self._theirs(entry)
        if theirs is None or theirs.stat().st_size > MAX_STORED_BYTES:
            return "binary"
        try:
            ours = self._tree.read(here, MAX_STORED_BYTES)
        except OSError:
            return "content"  # gone meanwhile
        base = self._git.blob(before.blob, limit=MAX_STORED_BYTES)
        new = theirs.read_bytes()
        if ours is None or base is None or any(b"\0" in side for side in (ours, base, new)):
            return "binary"
        with tempfile.TemporaryDirectory(dir=self._scratch) as place:
            for name, content in (("ours", ours), ("base", base), ("theirs", new)):
                Path(place, name).write_bytes(content)
            # git reads no settings here but those of the shadow repository
            arguments = ["merge-file", "-p", "-q", *(str(Path(place, n)) for n in ("ours", "base", "theirs"))]
            with self._git.start(arguments, subprocess.DEVNULL) as process:
                try:
                    merged, _ = process.communicate(timeout=MERGE_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    raise SubletError(
                        LocalCode.UNAVAILABLE,
                        f"git did not merge a file within {MERGE_SECONDS:g} s",
                        "Try again when the machine is less busy.",
                    ) from None
        if process.returncode != 0:
            return "content"
        return merged if len(merged) <= MAX_STORED_BYTES else "binary"

    def _follow_rename(self, entry: Entry, by_path: dict[bytes, Entry]) -> list[bytes]:
        """Carry over what was changed here in a file that the executor renamed; return the paths that are settled."""
        old = by_path.get(entry.renamed_from) if entry.renamed_from is not None else None
        if old is None or old.after is not None or old.before is None or entry.after is None:
            return []
        if refusal(entry, self._rules) or refusal(old, self._rules) or old.before.link or entry.after.link:
            return []
        found = self._tree.look(old.path)
        if found.kind != "file" or found.content is None or found.content == old.before:
            return []
        if self._tree.look(entry.path).kind != "absent":
            return []
        here = found.content
        executable = entry.after.executable if here.executable == old.before.executable else here.executable
        if not self._merge_text(entry, old.path, old.before, executable, found):
            return [entry.path, old.path]  # the file stays under its old name, and the conflict keeps the new one
        self._wanted.edits.append(Edit(old.path, found))
        return [entry.path, old.path]

    def _theirs(self, entry: Entry) -> Path | None:
        return None if entry.stored is None else self._contents / str(entry.stored)

    def _conflict(self, entry: Entry, kind: ConflictKind, detail: str) -> None:
        theirs = None if kind == "refused" and self._rules is not None else self._theirs(entry)
        self._wanted.conflicts.append(Conflict(entry.path, kind, detail, theirs))


def refusal(entry: Entry, rules: ViewRules | None) -> str:
    """Return why a change is never applied, whatever is there; empty where it may be.

    Args:
        entry: the change.
        rules: those of the lease; hidden and locked names are never changed. None where a lease is taken back.
    """
    if rules is None:
        return entry.problem
    parts = entry.path.split(b"/")
    made = entry.before is None and rules.secret(parts)  # then it is the executor's own, where nothing of yours is
    if (rules.hidden(parts) and not made) or rules.directory_only(parts):
        return "its name is hidden from executors"
    if (
        rules.only_adds()
        and entry.before is not None
        and (entry.after is None or entry.before.link != entry.after.link)
    ):
        return "this lease may remove and replace nothing of yours"
    if rules.read_only(parts):
        return "only other names were lent for writing"
    if rules.locked(parts):
        return "your own tools would act on it later, so it is never changed from outside"
    if entry.problem:
        return entry.problem
    if entry.target is not None and not link_stays(len(parts) - 1, entry.target):
        return "the link leads out of the directory"
    if entry.target is not None and rules.guards_below(parts):
        return "a link here would lead around the rules for names below it"
    if any(part in (b"", b".", b"..") for part in parts):
        return "it is no name"
    return ""


def mass_deletion(record: ChangeRecord, wanted: PlannedEdits) -> str:
    """Return why the deletions have to be allowed explicitly; empty where they don't (case C10)."""
    sources = {entry.renamed_from for entry in record.entries}
    count = sum(1 for edit in wanted.edits if edit.removes and edit.path not in sources)
    gone = sum(1 for entry in record.entries if entry.after is None and entry.path not in sources)
    left = any(entry.after is not None for entry in record.entries)
    if count and gone >= record.baseline_files and not left:
        return f"it would remove every file that the executor saw ({count:,})"
    if count > MANY_DELETIONS and 2 * count > record.baseline_files:
        return f"it would remove {count:,} of {record.baseline_files:,} files"
    # A directory that was renamed is one that is gone and one that was made.
    removed = len(wanted.drop) - len(wanted.directories)
    if removed > MANY_DELETIONS and 2 * removed > record.baseline_directories:
        return f"it would remove {removed:,} of {record.baseline_directories:,} directories"
    return ""


def merged_permissions(before: int, after: int, here: int) -> int:
    """Return ``here`` with each bit that differs between ``before`` and ``after`` as in ``after``."""
    changed = before ^ after
    return here & ~changed | after & changed


def _with_execute(permissions: int, executable: bool) -> int:
    """Return ``permissions`` with execution for whoever may read, or for nobody."""
    if executable == bool(permissions & 0o100):
        return permissions
    if not executable:
        return permissions & ~_EXECUTE
    return permissions | (permissions >> _READ_TO_EXECUTE & _EXECUTE) | 0o100


def _owner(found: PathContents) -> tuple[int, int] | None:
    return (found.uid, found.gid) if found.kind in ("file", "link") else None
