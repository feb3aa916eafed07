"""A tree as a commit in a private bare repository, and commits as bundles: what the transport ``git`` exchanges.

Every git of it runs in the sandbox: it sees the directory of this repository and nothing else of the machine, and knows
no configuration, hook, filter or protocol but what is said there. A bundle is measured before git reads it, and checked
object by object before anything is made of it. What git left in its directory is read as what comes from elsewhere.
Snapshots of equal trees are equal commits, so that both sides know the baseline without having to keep it (DESIGN 4.6).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.patterns import Pattern
from sublet.workspace.audit.shadow_git import ATTRIBUTES
from sublet.workspace.bundles.listing import MAX_LISTED_BYTES, MalformedListing, records
from sublet.workspace.bundles.pack import MalformedBundle, measure, read_head
from sublet.workspace.bundles.runs import GitRuns
from sublet.workspace.bundles.stream import write_snapshot
from sublet.workspace.bundles.taken import Taken
from sublet.workspace.export import ViewRules
from sublet.workspace.git_runner import GitEnded, nameless_beside
from sublet.workspace.view.walk import Budget

BRANCH: Final = "refs/heads/sublet"
OBJECTS_BESIDE_NAMES: Final = 16
"""Objects that stand for no name of a tree: its root and the commits."""
MAX_CHANGED_BYTES: Final = 16 << 20
"""What git may say of all paths that a result changes; they are held in memory."""
MAX_SAID_BYTES: Final = 4096
"""What git may say otherwise: names of commits."""
MAX_BATCH_BYTES: Final = 64 << 20
"""Contents that are asked for at once, unless one alone is larger."""
_BLOCK: Final = 512
_ID: Final = Pattern(r"[0-9a-f]{40}\Z")
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_TOO_LARGE: Final = 128 + 25
"""Status of a shell whose command was ended by SIGXFSZ."""

_IMPORT: Final = 'commit=$(g fast-import --quiet --done --force --depth=0)\nprintf "%s" "$commit"\n'
_BUNDLE: Final = f'g bundle create -q "$1" {BRANCH} >/dev/null 2>&1\n'
_RESULT: Final = (
    "commit=$(g fast-import --quiet --done --force --depth=0)\n"
    'if g diff-tree --quiet -r "$2" "$commit"; then exit 0; fi\n'
    f'g bundle create -q "$1" {BRANCH} "^$2" >/dev/null 2>&1\n'
    'printf "%s" "$commit"\n'
)
_TAKE: Final = (
    'g index-pack --stdin --fix-thin --strict --max-input-size="$3" >/dev/null\n'
    'g rev-parse -q --verify "$1^{commit}" >/dev/null\n'
)
_LIST: Final = f'( ulimit -f {MAX_LISTED_BYTES // _BLOCK}; g ls-tree -r -t -l -z --full-tree "$1" )\n'
_COMPARE: Final = (
    f"( ulimit -f {MAX_CHANGED_BYTES // _BLOCK}\n"
    'g diff-tree -r -z --raw --no-renames --no-abbrev --no-ext-diff --no-textconv "$2" "$1" )\n'
    f"printf '\\000'\n{_LIST}printf '\\000'\n"
    f'( ulimit -f {2 * MAX_LISTED_BYTES // _BLOCK}; g ls-tree -r -t -l -z --full-tree "$2" )\n'
)
_CHECK_OUT: Final = (
    "private=$GIT_DIR; unset GIT_DIR\n"
    'g init -q --template= --object-format=sha1 "$1"\n'
    'mkdir -p "$1/.git/info"\n'
    # Stronger than any .gitattributes of the tree, which would have line ends and the like changed.
    f'printf "%s" "{ATTRIBUTES.strip()}" >"$1/.git/info/attributes"\n'
    'cp "$private"/objects/pack/pack-* "$1/.git/objects/pack/"\n'
    f'g -C "$1" update-ref {BRANCH} "$2"\n'
    f'g -C "$1" checkout -q {BRANCH.removeprefix("refs/heads/")}\n'
)
_CONTENTS: Final = "g cat-file --batch\n"
_LAYOUT: Final = {
    "HEAD": f"ref: {BRANCH}\n",
    "config": "[core]\n\trepositoryformatversion = 0\n\tbare = true\n[fastimport]\n\tunpackLimit = 1\n",
}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A tree of ours as a commit, and how many bytes it took to write it down."""

    commit: str
    bytes: int


class GitExchange:
    """One private bare repository. Every method blocks: call it in a thread.

    Args:
        directory: where it is made; private, and removed by the caller. Git may change all of it.
        runs: runs git. Once that is halted, every method raises ``Halted``.
    """

    def __init__(self, directory: Path, runs: GitRuns) -> None:
        self._directory = directory
        self._repository = directory / "repository"
        self._runs = runs

    def create(self) -> None:
        """Make the repository in which git packs and unpacks."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        for name in ("objects/pack", "objects/info", "refs/heads", "info"):
            (self._repository / name).mkdir(mode=0o700, parents=True)
        for name, text in _LAYOUT.items():
            (self._repository / name).write_text(text, encoding="ascii")

    def snapshot(self, root_fd: int, rules: ViewRules, budget: Budget) -> Snapshot:
        """Commit what ``rules`` show of a tree and git can hold, and return the commit and its bytes."""
        with nameless_beside(self._directory) as stream:
            size = write_snapshot(stream, root_fd, rules, budget, self._runs.check, BRANCH)
            return Snapshot(_checked(self._run("fast-import", _IMPORT, stdin=stream)), size)

    def bundle(self) -> IO[bytes]:
        """Return the branch as a bundle, open for reading."""
        target = self._directory / "whole.bundle"
        self._run("bundle", _BUNDLE, str(target))
        return self._open(target.name)

    def result(self, root_fd: int, rules: ViewRules, budget: Budget, base: str) -> IO[bytes] | None:
        """Commit what a tree has become on ``base``, and return what is new as an open bundle; None for nothing."""
        target = self._directory / "result.bundle"
        with nameless_beside(self._directory) as stream:
            write_snapshot(stream, root_fd, rules, budget, self._runs.check, BRANCH, parent=base)
            said = self._run("fast-import", _RESULT, str(target), base, stdin=stream)
        return self._open(target.name) if said else None

    def take(self, bundle: IO[bytes], *, max_bytes: int, max_names: int, base: str | None = None) -> Taken:
        """Import a bundle, every object checked, and return what it holds.

        Its size, the number of its objects and the size of each are looked at before git reads it, and it stays packed,
        so that no more is written than it has bytes. What its tree comes to is held to the same bounds: one tree can
        stand in many places.

        Args:
            bundle: the open file.
            max_bytes: of the bundle, of all its objects when they are unpacked, and of the files by which its tree is
                larger than ``base``.
            max_names: how many names its tree may have.
            base: a commit that is here already, on which the bundle may be built.

        Raises:
            SubletError: ``TASK_FAILED`` for a bundle that is none, or that is beyond a bound.
        """
        size = os.fstat(bundle.fileno()).st_size
        try:
            if size > max_bytes:
                raise MalformedBundle(f"it holds more than {max_bytes:,} bytes")
            head = read_head(bundle, BRANCH.encode())
            if not head.needs <= ({base} if base is not None else set()):
                raise MalformedBundle("it is built on commits that are not here")
            measure(bundle, head.pack, max_objects=max_names + OBJECTS_BESIDE_NAMES, max_bytes=max_bytes)
        except MalformedBundle as error:
            raise _failure("a bundle", str(error)) from None
        os.lseek(bundle.fileno(), head.pack, os.SEEK_SET)
        with nameless_beside(self._directory) as listed:
            script = _TAKE + (_LIST if base is None else _COMPARE)
            self._run("index-pack", script, head.commit, base or "", str(size), stdin=bundle, stdout=listed)
            listed.seek(0)
            try:
                taken = Taken.read(head.commit, records(listed), compared=base is not None)
            except MalformedListing as error:
                raise _failure("a bundle", str(error)) from None
        if taken.names > max_names:
            raise _failure("a bundle", f"it holds more than {max_names:,} names")
        if taken.more_bytes > max_bytes:
            raise _failure("a bundle", f"it holds more than {max_bytes:,} bytes")
        return taken

    def check_out(self, commit: str, target: Path) -> None:
        """Make ``target``, an empty directory of ours, a repository of its own with ``commit`` checked out."""
        ended = self._runs.script(
            _CHECK_OUT,
            [str(target), commit],
            None,
            writable=[target],
            readable=[self._repository],
            git_dir=self._repository,
        )
        _demand("checkout", ended)

    def contents(self, blobs: Sequence[tuple[str, int]]) -> Generator[IO[bytes]]:
        """Yield, for each blob with its size in bytes, a file that stands at its content; take just that many bytes.

        Raises:
            SubletError: ``TASK_FAILED`` where git has other content than was listed.
        """
        at = 0
        while at < len(blobs):
            end, size = at + 1, blobs[at][1]
            while end < len(blobs) and size + blobs[end][1] <= MAX_BATCH_BYTES:
                size += blobs[end][1]
                end += 1
            with nameless_beside(self._directory) as asked, nameless_beside(self._directory) as given:
                asked.write("".join(f"{blob}\n" for blob, _ in blobs[at:end]).encode())
                asked.seek(0)
                self._run("cat-file", _CONTENTS, stdin=asked, stdout=given)
                given.seek(0)
                for blob, expected in blobs[at:end]:
                    if given.readline(128) != b"%s blob %d\n" % (blob.encode(), expected):
                        raise _failure("git cat-file", "it has other content than it listed")
                    end_of_blob = given.tell() + expected
                    yield given
                    given.seek(end_of_blob)
                    if given.read(1) != b"\n":
                        raise _failure("git cat-file", "it has other content than it listed")
            at = end

    def _open(self, name: str) -> IO[bytes]:
        """Open a file that git was to leave in its directory, which is as foreign as what git has read."""
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fd = os.open(name, _OPEN, dir_fd=directory)
        except OSError as error:
            raise _failure("git bundle", f"it left no bundle: {error.strerror}") from None
        finally:
            os.close(directory)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise _failure("git bundle", "it left no bundle")
        return os.fdopen(fd, "rb")

    def _run(
        self, what: str, script: str, *arguments: str, stdin: IO[bytes] | None = None, stdout: IO[bytes] | None = None
    ) -> str:
        ended = self._runs.script(
            script,
            arguments,
            stdin,
            writable=[self._directory],
            git_dir=self._repository,
            limit=MAX_SAID_BYTES,
            stdout=stdout,
        )
        _demand(what, ended)
        return ended.output.decode("ascii", "replace")


def _demand(what: str, ended: GitEnded) -> None:
    if ended.late or ended.cut:
        took = "it took too long" if ended.late else f"it would say more than {MAX_SAID_BYTES:,} bytes"
        raise _failure(f"git {what}", took)
    if ended.status == _TOO_LARGE:
        raise _failure(f"git {what}", "it holds more names, or longer ones, than are listed")
    if ended.status != 0:
        raise _failure(f"git {what}", ended.said() or f"it ended with status {ended.status}")


def _checked(commit: str) -> str:
    if not _ID.match(commit):
        raise _failure("git", "it names no object")
    return commit


def _failure(what: str, reason: str) -> SubletError:
    return SubletError(
        ErrorCode.TASK_FAILED,
        f"{what} failed on the workspace that travels by git: {reason}",
        "Delegate with another transport: --transport archive keeps all that git can't.",
    )
