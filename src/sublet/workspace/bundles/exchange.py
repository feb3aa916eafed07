"""A tree as a commit in a private bare repository, and commits as bundles: what the transport ``git`` exchanges.

Git never runs in a directory that somebody else has written to, and knows no configuration, hook, filter or protocol
but what is said here. A bundle is checked object by object before anything is made of it. Snapshots of equal trees are
equal commits, so that both sides know the baseline without having to keep it (DESIGN 4.6).
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.patterns import Pattern
from sublet.protocol.text import clean_name
from sublet.workspace.audit.shadow_git import ATTRIBUTES, mask, quoted
from sublet.workspace.bundles.runs import GitRuns
from sublet.workspace.confined.bounds import open_up
from sublet.workspace.confined.fs import OPEN_FILE
from sublet.workspace.git_runner import git_environment, git_program
from sublet.workspace.model import ViewRules
from sublet.workspace.view.walk import Budget, Directory, walk

BRANCH: Final = "refs/heads/sublet"
OBJECTS_BESIDE_NAMES: Final = 16
"""Objects that stand for no name of a tree: its root and the commits."""
MAX_SAID_BYTES: Final = 256 << 20
"""What git may say of all names of a tree."""
_MAX_BUNDLE_HEAD: Final = 4096
_PACKED: Final = ("-c", "fetch.unpackLimit=1", "-c", "transfer.unpackLimit=1")
_ID: Final = Pattern(r"[0-9a-f]{40}\Z")
_LINK: Final = 0o120000
_SAFE: Final = (
    *("-c", "core.hooksPath=/dev/null", "-c", "core.attributesFile=/dev/null", "-c", "core.fsmonitor=false"),
    *("-c", "core.autocrlf=false", "-c", "core.quotePath=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false"),
    *("-c", "transfer.fsckObjects=true", "-c", "protocol.allow=never", "-c", "protocol.file.allow=always"),
    *("-c", "core.bigFileThreshold=16m", "-c", "submodule.recurse=false", "-c", "safe.bareRepository=all"),
)


@dataclass(frozen=True, slots=True)
class Changed:
    """One path that differs: what it becomes, None where it is gone."""

    path: bytes
    mode: int | None
    blob: str


class GitExchange:
    """One private bare repository. Every method blocks: call it in a thread.

    Args:
        directory: where it is made; private, and removed by the caller.
        runs: runs git. Once that is halted, every method raises ``Halted``.
    """

    def __init__(self, directory: Path, runs: GitRuns) -> None:
        self._directory = directory
        self._runs = runs

    def create(self) -> None:
        """Make it."""
        self._run("init", "-q", "--bare", "--template=", "--object-format=sha1", str(self._directory), bare=False)

    def snapshot(self, root_fd: int, rules: ViewRules, budget: Budget, parent: str | None = None) -> str:
        """Commit what ``rules`` show of a tree and git can hold, and return the commit.

        A tree that was worked in has a ``parent``: what an agent has shut in it is opened again.

        Raises:
            OSError: something of a tree with a parent can't be read.
        """
        with tempfile.TemporaryFile(dir=self._directory) as stream:
            stream.write(b"commit %s\nmark :1\n" % BRANCH.encode())
            stream.write(b"committer Sublet <sublet@localhost> 946684800 +0000\ndata 8\nsnapshot\n")
            if parent is not None:
                stream.write(b"from %s\n" % parent.encode())
            stream.write(b"deleteall\n")
            for directory in walk(root_fd, rules, budget):
                if isinstance(directory, Directory):
                    for name, status in directory.entries:
                        self._runs.check()
                        if parent is not None:
                            open_up(directory.fd, name, status)
                        _add(stream, directory, name, status)
                elif parent is not None:  # what can't be read must not pass for removed
                    raise OSError(0, f"{clean_name(b'/'.join(directory.parts))}: {directory.reason}")
            stream.write(b"\nget-mark :1\ndone\n")
            stream.seek(0)
            said = self._run("fast-import", "--quiet", "--done", "--force", stdin=stream)
        return _checked(said.decode("ascii", "replace").strip())

    def bundle(self, target: Path, base: str | None = None) -> None:
        """Write the branch to a bundle, without what ``base`` holds already."""
        self._run("bundle", "create", "-q", str(target), BRANCH, *([f"^{base}"] if base else []))

    def take(self, bundle: Path, *, max_bytes: int, max_names: int, base: str | None = None) -> str:
        """Import a bundle, every object checked, and return its commit.

        Its size and the number of its objects are looked at before git reads it, and it stays packed, so that no more
        is written than it has bytes. What it comes to when it is unpacked is held to the same bounds: one tree can
        stand in many places.

        Args:
            bundle: the file.
            max_bytes: of the bundle, of all its objects, and of the files by which its tree is larger than ``base``.
            max_names: of its tree.
            base: a commit that is here already, on which the bundle is built.

        Raises:
            SubletError: ``TASK_FAILED`` for a bundle that is none, or that is beyond a bound.
        """
        if bundle.stat().st_size > max_bytes:
            raise _too_much(f"{max_bytes:,} bytes")
        if objects_of(bundle) > max_names + OBJECTS_BESIDE_NAMES:
            raise _too_much(f"{max_names:,} names")
        had = self._object_bytes()
        self._run(*_PACKED, "fetch", "-q", "--no-tags", "--no-auto-gc", str(bundle), f"+{BRANCH}:{BRANCH}")
        commit = _checked(self._run("rev-parse", "--verify", "-q", BRANCH).decode("ascii", "replace").strip())
        names, size = self._extent(commit)
        if names > max_names:
            raise _too_much(f"{max_names:,} names")
        there = self._extent(base)[1] if base is not None else 0
        if self._object_bytes() - had > max_bytes or size - there > max_bytes:
            raise _too_much(f"{max_bytes:,} bytes")
        return commit

    def _object_bytes(self) -> int:
        """Return what all objects that are here come to when they are unpacked."""
        return sum(map(int, self._run("cat-file", "--batch-all-objects", "--batch-check=%(objectsize)").split()))

    def _extent(self, commit: str) -> tuple[int, int]:
        """Return how many names the tree of ``commit`` has, and how many bytes its files."""
        names = self._run("ls-tree", "-r", "-t", "-l", "-z", "--full-tree", commit).split(b"\0")[:-1]
        sizes = (name.partition(b"\t")[0].rpartition(b" ")[2] for name in names)
        return len(names), sum(int(size) for size in sizes if size != b"-")

    def check_out(self, bundle: Path, target: Path) -> None:
        """Make ``target`` a repository of its own with the bundle's branch checked out."""
        self._run("init", "-q", "--template=", "--object-format=sha1", str(target), bare=False)
        # Stronger than any .gitattributes of the tree, which would have line ends and the like changed.
        (target / ".git" / "info").mkdir(exist_ok=True)
        (target / ".git" / "info" / "attributes").write_text(ATTRIBUTES)
        within = ("-C", str(target))
        self._run(*within, "fetch", "-q", "--no-tags", str(bundle), f"{BRANCH}:{BRANCH}", bare=False)
        self._run(*within, "checkout", "-q", BRANCH.removeprefix("refs/heads/"), bare=False)

    def changes(self, base: str, result: str) -> list[Changed]:
        """Return what differs between two commits."""
        raw = self._run("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", base, result)
        fields = raw.split(b"\0")[:-1]
        found = []
        for head, path in zip(fields[::2], fields[1::2], strict=True):
            _, mode, _, blob, status = head.decode("ascii").split(" ")
            found.append(Changed(path, None if status == "D" else int(mode, 8), blob))
        return found

    def directories(self, commit: str) -> set[bytes]:
        """Return the directories that a commit holds."""
        return set(self._run("ls-tree", "-r", "-d", "-z", "--name-only", "--full-tree", commit).split(b"\0")[:-1])

    def sizes(self, blobs: Sequence[str]) -> dict[str, int]:
        """Return the sizes of blobs."""
        with tempfile.TemporaryFile(dir=self._directory) as asked:
            asked.write("".join(f"{blob}\n" for blob in blobs).encode())
            asked.seek(0)
            said = self._run("cat-file", "--batch-check=%(objectname) %(objectsize)", stdin=asked)
        return {blob.decode(): int(size) for blob, size in (line.split() for line in said.splitlines())}

    def content(self, blob: str, size: int) -> bytes:
        """Return a blob's content of ``size`` bytes, for small ones."""
        return self._run("cat-file", "blob", blob, limit=size)

    def open_content(self, blob: str) -> IO[bytes]:
        """Return a file without a name that has a blob's content, which is bounded by what ``take`` has let in."""
        file = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115 - it is the caller's
        try:
            self._run("cat-file", "blob", blob, stdout=file)
            file.seek(0)
        except BaseException:
            file.close()
            raise
        return file

    def _run(
        self,
        *arguments: str,
        stdin: IO[bytes] | None = None,
        stdout: IO[bytes] | None = None,
        bare: bool = True,
        limit: int = MAX_SAID_BYTES,
    ) -> bytes:
        git = git_program("", "Install git, or use another transport.")
        environment = git_environment(**({"GIT_DIR": str(self._directory)} if bare else {}))
        ended = self._runs.run([git, *_SAFE, *arguments], environment, stdin, limit=limit, stdout=stdout)
        if ended.late or ended.cut:
            took = "it took too long" if ended.late else f"it would say more than {limit:,} bytes"
            raise _failure(f"git {_command(arguments)}", took)
        if ended.status != 0:
            raise _failure(f"git {_command(arguments)}", ended.said())
        return ended.output


def objects_of(bundle: Path) -> int:
    """Return how many objects a bundle says that it holds; git refuses one that holds others.

    Raises:
        SubletError: ``TASK_FAILED`` where it is none of ours: of version 2, with one branch.
    """
    with open(bundle, "rb") as file:
        head, blank, pack = file.read(_MAX_BUNDLE_HEAD).partition(b"\n\n")
    signature, *lines = head.split(b"\n")
    branches = [line for line in lines if not line.startswith(b"-")]
    if signature != b"# v2 git bundle" or len(branches) != 1 or not blank or pack[:4] != b"PACK" or len(pack) < 12:
        raise _failure("a bundle", "it is none, or of another kind")
    return int.from_bytes(pack[8:12], "big")


def _add(stream: IO[bytes], directory: Directory, name: bytes, status: os.stat_result) -> None:
    """Write one name of a tree, where git can hold it."""
    path = b"/".join((*directory.parts, name))
    if stat.S_ISLNK(status.st_mode):
        mode, content = _LINK, os.readlink(name, dir_fd=directory.fd)
    elif stat.S_ISREG(status.st_mode):
        mode = 0o100755 if status.st_mode & stat.S_IXUSR else 0o100644
        fd = os.open(name, os.O_RDONLY | OPEN_FILE, dir_fd=directory.fd)
        with open(fd, "rb") as file:
            content = file.read(status.st_size)
    else:
        return
    if mask(path, mode) == path:  # git refuses names such as .git, whatever the case
        stream.write(b"M %o inline %s\ndata %d\n" % (mode, quoted(path), len(content)))
        stream.write(content + b"\n")


def _too_much(bound: str) -> SubletError:
    return _failure("a bundle", f"it holds more than {bound}")


def _checked(commit: str) -> str:
    if not _ID.match(commit):
        raise _failure("git", "it names no commit")
    return commit


def _command(arguments: Sequence[str]) -> str:
    words = iter(arguments)
    return next(word for word in words if not word.startswith(("-", "/")))


def _failure(what: str, reason: str) -> SubletError:
    return SubletError(
        ErrorCode.TASK_FAILED,
        f"{what} failed on the workspace that travels by git: {reason}",
        "Delegate with another transport: --transport archive keeps all that git can't.",
    )


def parents(path: bytes) -> Iterator[bytes]:
    """Yield the directories above a path, the highest first."""
    parts = path.split(b"/")
    for end in range(1, len(parts)):
        yield b"/".join(parts[:end])
