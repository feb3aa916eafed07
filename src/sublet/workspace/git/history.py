"""What references that an executor moved would bring into the delegator's directory, were they checked out.

An executor that may write to a repository may commit files of any name. They are in no directory until somebody checks
that commit out. So the names that the lease hides or locks are told beside the references that hold them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sublet.disk.removal import temporary_directory
from sublet.protocol.errors import SubletError
from sublet.protocol.patterns import Pattern
from sublet.workspace.bundles.listing import MalformedListing, records
from sublet.workspace.export import ViewRules
from sublet.workspace.git.place import find
from sublet.workspace.git.refs import MovedRef
from sublet.workspace.git.repository_git import RepositoryGit
from sublet.workspace.sandbox.git_sandbox import GitSandbox

MAX_REFS: Final = 200
"""References that are looked into."""
MAX_NAMES: Final = 200
"""Names that are told."""
MAX_LISTED_BYTES: Final = 64 << 20
UNKNOWN: Final = b"*"
"""Told as a name where a reference could not be looked into."""
_OBJECT: Final = Pattern(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
_NONE: Final = b"-"
_RESOLVE: Final = 'g rev-parse -q --verify --end-of-options "$1^{commit}" || true\n'
_LOOK: Final = (
    f"ulimit -f {MAX_LISTED_BYTES // 512}\n"
    "while read -r old new; do\n"
    'if [ "$old" = - ]; then g ls-tree -r -z --full-tree --name-only "$new" || printf "*\\000"\n'
    'else g diff-tree -r -z --no-renames --diff-filter=ACMT --name-only "$old" "$new" || printf "*\\000"; fi\n'
    "done\n"
)


def brought(root: Path, moved: Sequence[MovedRef], rules: ViewRules, sandbox: GitSandbox) -> list[bytes]:
    """Return names that ``rules`` hide or lock and that moved references have otherwise than before, in order.

    A new reference is compared with the commit that was checked out before, or else told in full. Of more than
    ``MAX_REFS`` references, or where git can't look at them, ``UNKNOWN`` is among the names. It blocks: call it in a
    thread.

    Args:
        root: the lent directory, a real path.
        moved: its references.
        rules: those of the lease.
        sandbox: what git runs in.
    """
    place = find(root)
    now = [ref for ref in moved if _OBJECT.match(ref.new)]
    if place is None or not now:
        return []
    found: set[bytes] = {UNKNOWN} if len(now) > MAX_REFS else set()
    rules = rules.without_repository()
    try:
        with temporary_directory("sublet-refs-") as directory:
            git = RepositoryGit(place, directory, sandbox, "a look at moved references")
            before = _checked_out(git, moved)
            pairs = {(ref.old if _OBJECT.match(ref.old) else before, ref.new) for ref in now}
            with git.temporary() as asked, git.temporary() as listed:
                asked.write(b"".join(b"%s %s\n" % pair for pair in sorted(pairs)[:MAX_REFS]))
                asked.seek(0)
                if git.on_objects(_LOOK, stdin=asked, stdout=listed).status != 0:
                    found.add(UNKNOWN)
                listed.seek(0)
                for path in records(listed):
                    inside = path.removeprefix(place.prefix)
                    if path == UNKNOWN or (path.startswith(place.prefix) and _guarded(inside, rules)):
                        found.add(inside)
                    if len(found) >= MAX_NAMES:
                        break
    except (SubletError, OSError, MalformedListing):
        found.add(UNKNOWN)
    return sorted(found)


def _checked_out(git: RepositoryGit, moved: Sequence[MovedRef]) -> bytes:
    """Return the commit that was checked out before references were moved; ``_NONE`` where there was none."""
    by_name = {ref.name: ref for ref in moved}
    head = by_name[b"HEAD"].old if b"HEAD" in by_name else b"ref: " + os.fsencode(git.place.head)
    name = head.removeprefix(b"ref: ")
    if name in by_name:
        name = by_name[name].old
    if not _OBJECT.match(name) and name.startswith(b"refs/"):
        name = git.on_references(_RESOLVE, os.fsdecode(name)).output.strip()
    return name if _OBJECT.match(name) else _NONE


def _guarded(path: bytes, rules: ViewRules) -> bool:
    parts = path.split(b"/")
    return rules.hidden(parts) or rules.locked(parts)
