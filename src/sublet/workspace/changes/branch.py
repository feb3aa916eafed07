"""A change set as a branch of the delegator's own repository; the directory stays as it is.

Executors may have added objects to that repository, so git reads them in a sandbox: in a repository of ours, whose
objects lie beside the delegator's, which it can only read. What it makes is checked object by object first.
Only then a second sandbox sees the delegator's references, and may write below ``refs/heads``. Configuration, hooks,
attributes, replacements and grafts of the delegator's repository are seen by neither (DESIGN 4.8).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from sublet.disk.removal import temporary_directory
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.patterns import Pattern
from sublet.protocol.text import clean_name
from sublet.workspace.audit.shadow_git import quoted
from sublet.workspace.bundles.listing import MalformedListing, records
from sublet.workspace.changes.change_set import ChangeSets
from sublet.workspace.changes.merge import refusal
from sublet.workspace.changes.record import Entry
from sublet.workspace.export import ViewRules
from sublet.workspace.git.index import unsafe_path
from sublet.workspace.git.objects import check_object_file
from sublet.workspace.git.place import RepositoryPlace, find
from sublet.workspace.git.repository_git import RepositoryGit
from sublet.workspace.git_runner import GitEnded
from sublet.workspace.sandbox.git_sandbox import GitSandbox

MAX_BRANCH_BYTES: Final = 200
MAX_LISTED_BYTES: Final = 512 << 20
"""What git may list of the names in the delegator's repository; it goes to a file."""

_BRANCH = Pattern(r"[A-Za-z0-9_][A-Za-z0-9_./+@=-]*\Z")
_COMMIT: Final = Pattern(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
_FAN: Final = Pattern(r"[0-9a-f]{2}\Z")
_REST: Final = Pattern(r"[0-9a-f]{38}(?:[0-9a-f]{24})?\Z")
_IDENTITY: Final = b"Sublet <sublet@localhost>"
_GITLINK: Final = b"160000 "
_BAD_NAME: Final = 10
_EXISTS: Final = 11
_PIECE: Final = 256 * 1024
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_LOOK: Final = (
    f'g check-ref-format "refs/heads/$1" || exit {_BAD_NAME}\n'
    f'if g show-ref --verify --quiet "refs/heads/$1"; then exit {_EXISTS}; fi\n'
    'if [ -n "$2" ]; then g rev-parse -q --verify --end-of-options "$2^{commit}" || true; fi\n'
)
_LIST: Final = f'ulimit -f {MAX_LISTED_BYTES // 512}; g ls-tree -r -z --full-tree "$1"\n'
_IMPORT: Final = "g fast-import --quiet --done --force\n"
_POINT: Final = 'g update-ref --no-deref "refs/heads/$1" "$2" "$3"\n'


@dataclass(frozen=True, slots=True)
class Exported:
    """A result on a branch: the commit, and of each change that can't be there, the path and the reason."""

    commit: str
    left_out: list[str] = field(default_factory=list)


def export_branch(changes: ChangeSets, key: str, rules: ViewRules, branch: str, message: str) -> Exported:
    """Commit a result on a new branch: what HEAD has, with the executor's version of every file that it changed.

    Work tree, index and HEAD stay as they are. Files that are not committed, or were changed since, are not looked at:
    the branch is for git to merge. What lies in a submodule is in no branch of the repository around it: the submodule
    stays as it is there, and such changes wait to be applied.

    Args:
        changes: holds the change set.
        key: of the change set.
        rules: those of the lease; what they hide or lock is left out.
        branch: name of the branch, which must not exist.
        message: of the commit.

    Raises:
        SubletError: ``NOT_FOUND`` for no such change set, ``CONFLICT`` where the branch exists, ``INVALID_ARGUMENT``
            for a name that git refuses, ``WORKSPACE_INVALID`` where the directory is in no repository, ``DEP_MISSING``
            without git or its sandbox, ``UNAVAILABLE`` where nothing of the result can be on a branch.
    """
    record = changes.record(key)
    rules = rules.without_repository()
    place = find(record.root)
    if place is None:
        raise SubletError(
            ErrorCode.WORKSPACE_INVALID,
            f"{record.root} is in no git repository, so the result can't become a branch",
            "Apply it, or save it as a patch.",
        )
    with temporary_directory("branch-", changes.directory(key)) as made:
        git = _Exporter(place, made, changes.git)
        head = git.look(branch)
        links = git.gitlinks(head) if head else []
        left_out: list[str] = []
        entries: list[Entry] = []
        for entry in record.entries:
            reason = refusal(entry, rules) or _why_not(place.prefix + entry.path, links)
            if reason:
                left_out.append(f"{clean_name(entry.path)}: {reason}")
            else:
                entries.append(entry)
        if left_out and not entries:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"nothing of the result can be on a branch: {left_out[0]}",
                "Apply it, or save it as a patch.",
            )
        with git.stream() as stream:
            _write(stream, head, message, place.prefix, entries, changes.directory(key) / "result")
            commit = git.commit(stream)
        git.point(branch, commit)
    return Exported(commit, left_out)


def _why_not(path: bytes, links: Sequence[bytes]) -> str:
    """Return why a path can't be on a branch; empty where it can."""
    if unsafe_path(path):
        return "git keeps such a name for itself"
    for link in links:
        if path == link or path.startswith(link + b"/"):
            return f"it is in the submodule {clean_name(link)}, which a branch of this repository does not hold"
    return ""


def _write(stream: IO[bytes], head: str, message: str, prefix: bytes, entries: Sequence[Entry], contents: Path) -> None:
    """Write the commit for ``git fast-import``."""
    text = message.encode("utf-8", "surrogateescape")
    stream.write(b"commit refs/heads/result\nmark :1\n")
    stream.write(b"committer %s %d +0000\ndata %d\n%s\n" % (_IDENTITY, int(time.time()), len(text), text))
    if head:
        stream.write(b"from %s\n" % head.encode())
    # What goes comes first: a directory may have taken the place of a file, or a file that of a directory.
    for entry in entries:
        if entry.after is None:
            stream.write(b"D %s\n" % quoted(prefix + entry.path))
    for entry in entries:
        if entry.after is None:
            continue
        mode = b"120000" if entry.after.link else b"100755" if entry.after.executable else b"100644"
        stream.write(b"M %s inline %s\n" % (mode, quoted(prefix + entry.path)))
        if entry.target is not None:
            stream.write(b"data %d\n%s\n" % (len(entry.target), entry.target))
        else:
            with open(contents / str(entry.stored), "rb") as content:
                stream.write(b"data %d\n" % os.fstat(content.fileno()).st_size)
                while piece := content.read(_PIECE):
                    stream.write(piece)
                stream.write(b"\n")
    stream.write(b"\nget-mark :1\ndone\n")
    stream.seek(0)


class _Exporter:
    """Makes a commit of the delegator's repository and a branch of it.

    Args:
        place: the delegator's repository.
        directory: a private one, for this export alone.
        sandbox: what git runs in.
    """

    def __init__(self, place: RepositoryPlace, directory: Path, sandbox: GitSandbox) -> None:
        self._git = RepositoryGit(place, directory, sandbox, "a result on a branch")
        if place.config.ref_storage != "files":
            raise SubletError(
                LocalCode.UNAVAILABLE,
                "the repository keeps its references in a way that is not served, so no branch can be made",
                "Apply the result, or save it as a patch.",
            )

    def look(self, branch: str) -> str:
        """Return the commit of HEAD, empty before the first; the branch can be made.

        Raises:
            SubletError: ``INVALID_ARGUMENT`` or ``CONFLICT`` where it can't.
        """
        status = _BAD_NAME
        if _BRANCH.match(branch) and len(os.fsencode(branch)) <= MAX_BRANCH_BYTES:
            ended = self._git.on_references(_LOOK, branch, self._git.place.head)
            status = ended.status
        if status == _BAD_NAME:
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                f"{branch!r} can't be the name of a branch",
                "Use a name such as sublet/result.",
            )
        if status == _EXISTS:
            raise SubletError(
                LocalCode.CONFLICT,
                f"there is a branch {branch} already",
                "Name another one; none is overwritten.",
            )
        said = _demand("rev-parse", ended)
        return said if _COMMIT.match(said) else ""

    def gitlinks(self, commit: str) -> list[bytes]:
        """Return the paths of the submodules in a commit."""
        with self._git.temporary() as listed:
            _demand("ls-tree", self._git.on_objects(_LIST, commit, stdout=listed))
            listed.seek(0)
            try:
                return [line.partition(b"\t")[2] for line in records(listed) if line.startswith(_GITLINK)]
            except MalformedListing as error:
                raise _failure("ls-tree", str(error)) from None

    def stream(self) -> IO[bytes]:
        """Return a file for what ``commit`` reads."""
        return self._git.temporary()

    def commit(self, stream: IO[bytes]) -> str:
        """Make the commit that ``stream`` describes, add its objects to the delegator's, and return it."""
        commit = _demand("fast-import", self._git.on_objects(_IMPORT, stdin=stream))
        if not _COMMIT.match(commit):
            raise _failure("fast-import", "it names no commit")
        try:
            self._add_objects()
        except OSError as error:
            raise _failure("fast-import", f"an object could not be added: {error.strerror}") from None
        return commit

    def _add_objects(self) -> None:
        with _opened(self._git.own / "objects") as made, _opened(self._git.place.objects) as target:
            for fan in sorted(os.listdir(made)):
                if _FAN.match(fan):
                    _add_fan(made, target, fan)

    def point(self, branch: str, commit: str) -> None:
        """Make the branch; a zero old value has it made only where there is none."""
        _demand("update-ref", self._git.on_references(_POINT, branch, commit, "0" * len(commit)))


def _add_fan(made: int, target: int, fan: str) -> None:
    """Add the objects whose names begin with ``fan``, each once it is what its name says."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(fan, 0o777, dir_fd=target)
    with _opened(fan, made) as own, _opened(fan, target) as theirs:
        there = set(os.listdir(theirs))
        for rest in sorted(os.listdir(own)):
            if _REST.match(rest) and rest not in there:
                with os.fdopen(os.open(rest, _READ, dir_fd=own), "rb") as content:
                    check_object_file(content, (fan + rest).encode())
                    content.seek(0)
                    _add(content, theirs, rest)


@contextlib.contextmanager
def _opened(path: str | Path, directory: int | None = None) -> Iterator[int]:
    """Hold a directory open."""
    fd = os.open(path, _DIRECTORY, dir_fd=directory)
    try:
        yield fd
    finally:
        os.close(fd)


def _add(content: IO[bytes], directory: int, name: str) -> None:
    """Write one object of the delegator's repository, which is there as a whole or not at all."""
    draft = f"tmp_obj_{secrets.token_hex(8)}"
    try:
        with os.fdopen(os.open(draft, _WRITE, 0o444, dir_fd=directory), "wb") as out:
            while piece := content.read(_PIECE):
                out.write(piece)
            out.flush()
            os.fsync(out.fileno())
        os.rename(draft, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft, dir_fd=directory)
        raise


def _demand(what: str, ended: GitEnded) -> str:
    if ended.status != 0 or ended.cut:
        raise _failure(what, ended.said() or f"it ended with status {ended.status}")
    return ended.output.decode("ascii", "replace").strip()


def _failure(what: str, reason: str) -> SubletError:
    return SubletError(
        LocalCode.UNAVAILABLE, f"git {what} failed: {reason}", "Apply the result, or save it as a patch."
    )
