"""A change set as a branch of the lender's own git repository, or as a patch file; the directory stays as it is.

The repository is the lender's, so its hooks, filters, file-system monitor and signing are kept out: objects are written
and names are set by plumbing alone, with an index of our own (DESIGN 4.8).
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.patterns import Match, Pattern
from sublet.workspace.audit.shadow_git import PLAIN, SYMLINK, ShadowGit, mask
from sublet.workspace.audit.snapshot import MAX_STORED_BYTES, STAND_IN_BYTES, is_stand_in
from sublet.workspace.changes.change_set import ChangeSets
from sublet.workspace.changes.edits import add_above
from sublet.workspace.changes.merge import refusal
from sublet.workspace.changes.record import Entry
from sublet.workspace.git_runner import GitEnded, finish_git, git_environment, git_program, start_git
from sublet.workspace.model import ViewRules

GIT_SECONDS: Final = 120.0
MAX_PATCH_FILE_BYTES: Final = 256 * 1024 * 1024
MAX_BRANCH_BYTES: Final = 200
MAX_ANSWER_BYTES: Final = 1024 * 1024
"""What git may say: an id, a name or a path."""

_BRANCH = Pattern(r"[A-Za-z0-9_][A-Za-z0-9_./+@=-]*\Z")
_OVERRIDES: Final = (
    "safe.directory=*",
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.splitIndex=false",
    "core.attributesFile=/dev/null",
    "core.quotePath=false",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "commit.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
)
_IDENTITY: Final = {
    "GIT_AUTHOR_NAME": "Sublet",
    "GIT_AUTHOR_EMAIL": "sublet@localhost",
    "GIT_COMMITTER_NAME": "Sublet",
    "GIT_COMMITTER_EMAIL": "sublet@localhost",
}
_INDEX_LINE: Final = Pattern(rb"^index ([0-9a-f]{64})\.\.([0-9a-f]{64})((?: [0-7]{6})?)$", lines=True)
"""In a patch only a header can look like this: lines of content begin with a sign, those of binaries hold no space."""
_SHORT: Final = 12
_EXECUTE: Final = 0o111
_ID_DIGITS: Final = {b"sha1": 40, b"sha256": 64}


def export_branch(changes: ChangeSets, key: str, rules: ViewRules, branch: str, message: str) -> str:
    """Commit a result on a new branch: what HEAD has, with the executor's version of every file that it changed.

    Work tree, index and HEAD stay as they are. Files that are not committed, or were changed since, are not looked at:
    the branch is for git to merge.

    Args:
        changes: holds the change set.
        key: of the change set.
        rules: those of the lease; what they hide or lock is left out.
        branch: name of the branch, which must not exist.
        message: of the commit.

    Returns:
        The commit's id.

    Raises:
        SubletError: ``NOT_FOUND`` for no such change set, ``CONFLICT`` where the branch exists, ``INVALID_ARGUMENT``
            for a name that git refuses, ``WORKSPACE_INVALID`` where the directory is in no repository.
    """
    record = changes.record(key)
    rules = rules.without_repository()
    git = _UserGit(record.root)
    _check_branch(git, branch)
    prefix = git.ask("rev-parse", "--show-prefix").rstrip(b"\n")
    head = git.try_ask("rev-parse", "--verify", "--quiet", "HEAD^{commit}").decode().strip()
    entries = [entry for entry in record.entries if not refusal(entry, rules)]
    with tempfile.TemporaryDirectory(prefix="branch-", dir=changes.directory(key)) as place:
        git.index = Path(place, "index")
        if head:
            git.ask("read-tree", head)
        # What goes comes first: a directory may have taken the place of a file, or a file that of a directory.
        none = b"0" * _ID_DIGITS.get(git.ask("rev-parse", "--show-object-format").strip(), 40)
        lines = [b"0 %s\t%s\0" % (none, prefix + e.path) for e in entries if e.after is None]
        for entry in entries:
            if entry.after is not None:
                mode = b"120000" if entry.after.link else b"100755" if entry.after.executable else b"100644"
                object_id = _store(git, changes.directory(key), entry)
                lines.append(b"%s %s\t%s\0" % (mode, object_id, prefix + entry.path))
        git.ask("update-index", "-z", "--index-info", given=b"".join(lines))
        tree = git.ask("write-tree").decode().strip()
    parents = ["-p", head] if head else []
    commit = git.ask("commit-tree", tree, *parents, given=message.encode()).decode().strip()
    # A zero old value: made only where there is none
    git.ask("update-ref", "--no-deref", f"refs/heads/{branch}", commit, "0" * len(commit))
    return commit


def export_patch(changes: ChangeSets, key: str) -> bytes:
    """Return a result as a patch that ``git apply`` takes, with renames, modes, and binary files in full.

    Raises:
        SubletError: ``NOT_FOUND`` for no such change set, ``UNAVAILABLE`` where it holds what a patch can't carry.
    """
    record = changes.record(key)
    with changes.auditor.repository(record.root) as git:
        large = next((entry for entry in record.entries if _left_out(git, entry)), None)
        if large is not None:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"no patch can be made of the result of {key}: {large.shown().shown} is larger than "
                f"{MAX_STORED_BYTES >> 20} MiB, or can't be in a patch",
                "Apply it, or put it on a branch.",
            )
        patch, cut = git.patch(record.baseline, record.result, limit=MAX_PATCH_FILE_BYTES, renames=True, binary=True)
        ids = dict(
            pair
            for entry in record.entries
            if entry.lines is None
            for pair in _usual_ids(git, entry, changes.directory(key) / "result")
        )
    if cut:
        raise SubletError(
            LocalCode.UNAVAILABLE,
            f"the patch of {key} is larger than {MAX_PATCH_FILE_BYTES >> 20} MiB",
            "Apply it, or put it on a branch.",
        )
    return _INDEX_LINE.sub(lambda line: _index_line(line, ids), patch)


def not_carried(changes: ChangeSets, key: str) -> list[str]:
    """Return what of a result neither a branch nor a patch can carry, each with the reason, safe to show.

    Git knows a directory by the files in it, and of permissions the executable bit alone.

    Raises:
        SubletError: ``NOT_FOUND`` for no such change set.
    """
    record = changes.record(key)
    with_files: set[bytes] = set()
    for entry in record.entries:
        add_above(with_files, entry.path)
    told = []
    for directory in record.directories:
        if directory.change == "mode":
            told.append(f"{directory.shown}: its permissions")
        elif directory.path not in with_files:
            told.append(f"{directory.shown}: a directory without files, {directory.change}")
    for entry in record.entries:
        before = entry.permissions_before
        plain = entry.after is not None and not entry.after.link
        if plain and before is not None and (before ^ entry.permissions) & ~_EXECUTE:
            told.append(f"{entry.shown().shown}: its permissions")
    return told


def _left_out(git: ShadowGit, entry: Entry) -> bool:
    """Tell whether the snapshots have only a stand-in of one of the entry's contents, or its path in other words."""
    if mask(entry.path, PLAIN) != entry.path or mask(entry.path, SYMLINK) != entry.path:
        return True
    if entry.lines is not None:
        return False  # text, so it is there
    sides = (side for side in (entry.before, entry.after) if side is not None and not side.link)
    return any(is_stand_in(git.blob(side.blob, limit=STAND_IN_BYTES)) for side in sides)


def _usual_ids(git: ShadowGit, entry: Entry, contents: Path) -> Iterator[tuple[bytes, bytes]]:
    """Yield the ids that a snapshot has for the entry's contents, each with that of a usual repository.

    Only these let ``git apply`` take a binary file: it makes sure of both sides.
    """
    sides = [entry.before, entry.after]
    for side in sides:
        if side is None:
            continue
        stored = side is entry.after and entry.stored is not None
        content = (contents / str(entry.stored)).read_bytes() if stored else git.blob(side.blob, limit=MAX_STORED_BYTES)
        if content is not None:
            digest = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
            yield side.blob.encode(), digest.hexdigest().encode()


def _index_line(line: Match[bytes], ids: Mapping[bytes, bytes]) -> bytes:
    """Return a line of ids as a usual repository has it: whole where known or of nothing, else short."""
    old, new = (b"0" * 40 if not side.strip(b"0") else ids.get(side, side[:_SHORT]) for side in (line[1], line[2]))
    return b"index %s..%s%s" % (old, new, line[3])


def _store(git: _UserGit, directory: Path, entry: Entry) -> bytes:
    if entry.target is not None:
        return git.ask("hash-object", "-w", "--no-filters", "--stdin", given=entry.target).strip()
    with open(directory / "result" / str(entry.stored), "rb") as content:
        return git.ask("hash-object", "-w", "--no-filters", "--stdin", source=content).strip()


def _check_branch(git: _UserGit, branch: str) -> None:
    valid = _BRANCH.match(branch) and len(os.fsencode(branch)) <= MAX_BRANCH_BYTES
    if not valid or not git.succeeds("check-ref-format", f"refs/heads/{branch}"):
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, f"{branch!r} can't be the name of a branch", "Use a name such as sublet/result."
        )
    if git.succeeds("show-ref", "--verify", "--quiet", f"refs/heads/{branch}"):
        raise SubletError(
            LocalCode.CONFLICT,
            f"there is a branch {branch} already",
            "Name another one; none is overwritten.",
        )


class _UserGit:
    """Git on the lender's repository, with nothing of theirs that would run."""

    def __init__(self, directory: Path) -> None:
        program = git_program("", "Install git.")
        self._start = [program, *(part for setting in _OVERRIDES for part in ("-c", setting))]
        self._directory = directory
        self.index: Path | None = None
        if not self.succeeds("rev-parse", "--git-dir"):
            raise SubletError(
                ErrorCode.WORKSPACE_INVALID,
                f"{directory} is in no git repository, so the result can't become a branch",
                "Apply it, or save it as a patch.",
            )

    def ask(self, *arguments: str, given: bytes = b"", source: IO[bytes] | None = None) -> bytes:
        """Return what git prints.

        Raises:
            SubletError: ``UNAVAILABLE`` with git's words where it fails.
        """
        done = self._run(arguments, given, source)
        if done.status != 0 or done.cut:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"git {arguments[0]} failed: {done.said() or 'it was ended'}",
                "Apply the result, or save it as a patch.",
            )
        return done.output

    def try_ask(self, *arguments: str) -> bytes:
        """Return what git prints, nothing where it fails."""
        done = self._run(arguments, b"", None)
        return done.output if done.status == 0 else b""

    def succeeds(self, *arguments: str) -> bool:
        """Tell whether git ends with status 0."""
        return self._run(arguments, b"", None).status == 0

    def _run(self, arguments: Sequence[str], given: bytes, source: IO[bytes] | None) -> GitEnded:
        environment = git_environment(**_IDENTITY)
        if self.index is not None:
            environment["GIT_INDEX_FILE"] = str(self.index)
        with tempfile.TemporaryFile() as file:
            file.write(given)
            file.seek(0)
            process = start_git([*self._start, *arguments], environment, self._directory, source or file)
            ended = finish_git(process, limit=MAX_ANSWER_BYTES, seconds=GIT_SECONDS)
        if ended.late:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"git {arguments[0]} took longer than {GIT_SECONDS:.0f} s",
                "Try again when the machine is less busy.",
            )
        return ended
