"""A bare git repository in the state directory that keeps what a workspace held, free of the user's git settings.

Git never sees the workspace: it is fed blobs and names by ``fast-import`` and asked for differences between commits. So
no ``.gitignore``, ``.gitattributes``, filter, hook, file-system monitor or index of the tree has a say (DESIGN 4.8).
"""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.patterns import Pattern
from sublet.workspace.git_runner import GitEnded, end_git, finish_git, git_environment, git_program, start_git

GIT_SECONDS: Final = 60.0
"""Time that a question to git may take; what it said until then counts as cut."""
MAX_LISTING_BYTES: Final = 256 << 20
"""What git may say of all names of a snapshot."""
IMPORT_SECONDS: Final = 600.0
REPACK_SECONDS: Final = 600.0
MAX_PACKS: Final = 64
"""Each import leaves a pack; beyond this many they become one."""
MAX_RENAMES: Final = 400
"""Names on either side that are compared with each other for renames; with more, none is looked for."""
SYMLINK: Final = 0o120000
PLAIN: Final = 0o100644
EXECUTABLE: Final = 0o100755
DIRECTORY: Final = 0o040000
"""Only manifests have directories of their own; git keeps none without a file."""

_REF = b"refs/sublet/shadow"
_OBJECT_ID = Pattern(r"[0-9a-f]{64}")
_CHUNK = 65_536
_UNKNOWN_OBJECT = ("not a valid object name", "not a tree object", "bad object")

# SHA-256 names, since an executor who may choose contents could make two files with one SHA-1. HEAD is never born: a
# bare repository reads .gitattributes from it. Objects need not survive a power loss, only a killed daemon.
_CONFIG = """\
[core]
\trepositoryFormatVersion = 1
\tbare = true
\tfileMode = true
\thooksPath = /dev/null
\tattributesFile = /dev/null
\texcludesFile = /dev/null
\tfsmonitor = false
\tautocrlf = false
\tsafecrlf = false
\tquotePath = false
\tlogAllRefUpdates = false
\tprotectHFS = false
\tprotectNTFS = false
\tcompression = 1
\tbigFileThreshold = 16m
\tfsync = none
[extensions]
\tobjectFormat = sha256
[gc]
\tauto = 0
[maintenance]
\tauto = false
[fastimport]
\tunpackLimit = 1
[repack]
\twriteBitmaps = false
"""
ATTRIBUTES = "* -text -eol -ident -filter -working-tree-encoding !diff !merge !whitespace\n"
_LAYOUT = {"HEAD": "ref: refs/heads/never\n", "info/attributes": ATTRIBUTES, "config": _CONFIG}

# Newer versions of git refuse these names in a tree; a % before them keeps them apart from names that have it already.
_MASKED = Pattern(rb"%+\.git(modules)?", ignore_case=True)
_REFUSED = Pattern(rb"\.git|" + rb"%+\.git(modules)?", ignore_case=True)
_REFUSED_LINK = Pattern(rb"\.gitmodules|" + rb"\.git|%+\.git(modules)?", ignore_case=True)


def blob_id(content: bytes) -> str:
    """Return the name that a SHA-256 repository gives to ``content``."""
    return hashlib.sha256(b"blob %d\0" % len(content) + content).hexdigest()


Packs = tuple[int, int, int]
"""Device, number and time of the directory with a repository's packs."""


class ShadowGit:
    """One shadow repository.

    Args:
        git_dir: its directory; ``create`` makes it.
    """

    def __init__(self, git_dir: Path) -> None:
        self.git_dir = git_dir

    def create(self) -> None:
        """Make the repository where there is none; the file that makes it one is written last."""
        if (self.git_dir / "config").exists():
            return
        for name in ("objects/pack", "objects/info", "refs", "info"):
            (self.git_dir / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, text in _LAYOUT.items():
            (self.git_dir / name).write_text(text)

    def importer(self) -> Importer:
        """Return what adds a commit; git starts with the first thing to add."""
        return Importer(self)

    def holds(self, commit: str) -> bool:
        """Tell whether the objects of ``commit`` and its tree are there.

        Raises:
            SubletError: ``DEP_MISSING`` without git.
        """
        asked = self.start(["cat-file", "-e", f"{checked_id(commit)}^{{tree}}"])
        return finish_git(asked, limit=0, seconds=GIT_SECONDS).status == 0

    def packs(self) -> Packs | None:
        """Return what tells whether a pack was added or lost since, or replaced; None where there are none."""
        try:
            status = (self.git_dir / "objects" / "pack").stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_mtime_ns

    def entries(self, commit: str) -> list[tuple[bytes, int, str]]:
        """Return path, mode and object id of every file of ``commit``.

        Raises:
            SubletError: ``NOT_FOUND`` where there is no such commit.
        """
        output, cut = self.run(["ls-tree", "-r", "-z", "--full-tree", checked_id(commit)], limit=MAX_LISTING_BYTES)
        if cut:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"git did not list snapshot {commit} within {GIT_SECONDS:g} s and {MAX_LISTING_BYTES >> 20} MiB",
                "Try again when the machine is less busy, or lend a smaller directory.",
            )
        found = []
        for line in output.split(b"\0")[:-1]:
            meta, path = line.split(b"\t", 1)
            mode, _type, object_id = meta.split(b" ")
            found.append((unmask(path), int(mode, 8), object_id.decode()))
        return found

    def message(self, commit: str) -> bytes:
        """Return the message of ``commit``.

        Raises:
            SubletError: ``NOT_FOUND`` where there is no such commit.
        """
        output, _ = self.run(["cat-file", "commit", checked_id(commit)], limit=_CHUNK)
        return output.partition(b"\n\n")[2]

    def line_counts(
        self, old: str, new: str, *, limit: int, renames: bool = False
    ) -> dict[bytes, tuple[int, int] | None]:
        """Return lines added and deleted by path, None for binary files; what exceeds ``limit`` bytes is left out."""
        output, _ = self.run(["diff-tree", "-z", "--numstat", *_diff_arguments(old, new, renames=renames)], limit=limit)
        counts: dict[bytes, tuple[int, int] | None] = {}
        pieces = iter(output.split(b"\0")[:-1])
        for line in pieces:
            added, deleted, path = line.split(b"\t", 2)
            if not path:  # a rename: the old and the new path follow
                next(pieces, b"")
                path = next(pieces, b"")
            counts[unmask(path)] = None if added == b"-" else (int(added), int(deleted))
        return counts

    def renames(self, old: str, new: str, *, limit: int) -> dict[bytes, bytes]:
        """Return the old path of each new one that git takes for renamed, as far as ``limit`` bytes tell."""
        arguments = ["diff-tree", "-z", "--name-status", "--diff-filter=R", *_diff_arguments(old, new, renames=True)]
        output, _ = self.run(arguments, limit=limit)
        pieces = output.split(b"\0")
        triples = zip(pieces[0::3], pieces[1::3], pieces[2::3], strict=False)
        return {unmask(to): unmask(source) for _, source, to in triples}

    def blob(self, object_id: str, *, limit: int) -> bytes | None:
        """Return the content of a blob, or None where it is larger than ``limit`` bytes.

        Raises:
            SubletError: ``NOT_FOUND`` where there is no such blob.
        """
        content, cut = self.run(["cat-file", "blob", checked_id(object_id)], limit=limit)
        return None if cut else content

    def patch(
        self, old: str, new: str, *, limit: int, below: str = "", renames: bool = False, binary: bool = False
    ) -> tuple[bytes, bool]:
        """Return the patch, at most ``limit`` bytes of it, and whether it was cut.

        Args:
            old: what is compared with.
            new: what is compared.
            limit: bytes after which it is cut.
            below: a directory that leads all names in it.
            renames: whether a renamed file is told as such.
            binary: whether it holds what is not text, too, so that ``git apply`` can make it.
        """
        how = ["--binary", "--full-index"] if binary else []
        how += [f"--src-prefix=a/{below}/", f"--dst-prefix=b/{below}/"] if below else []
        return self.run(["diff-tree", "-p", *how, *_diff_arguments(old, new, renames=renames)], limit=limit)

    def compact(self) -> None:
        """Join the packs when there are many; objects that no commit on the reference holds are kept as well."""
        if len(list((self.git_dir / "objects" / "pack").glob("*.pack"))) > MAX_PACKS:
            self.run(["repack", "-a", "-d", "-k", "-q", "--window=0"], limit=0, seconds=REPACK_SECONDS)

    def start(self, arguments: Sequence[str], stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """Start git on this repository with no environment but its own, to be handed to ``finish_git``.

        Raises:
            SubletError: ``DEP_MISSING`` where git is not installed.
        """
        git = git_program(
            "; it keeps the record of what a delegation changed",
            "Install git 2.29 or later (Debian and Ubuntu: apt install git).",
        )
        return start_git([git, *arguments], git_environment(GIT_DIR=str(self.git_dir)), self.git_dir, stdin)

    def run(self, arguments: Sequence[str], *, limit: int, seconds: float = GIT_SECONDS) -> tuple[bytes, bool]:
        """Return what git prints, at most ``limit`` bytes of it, and whether it was cut there or by ``seconds``.

        Raises:
            SubletError: ``DEP_MISSING`` without git, ``NOT_FOUND`` for an unknown object, else ``INTERNAL``.
        """
        ended = finish_git(self.start(arguments), limit=limit, seconds=seconds)
        if ended.status > 0 and not ended.cut:
            raise _failure(arguments[0], ended)
        return ended.output, ended.cut or ended.status < 0


class Importer:
    """Adds one commit through ``git fast-import``; used as a context, it leaves no process behind."""

    def __init__(self, repository: ShadowGit) -> None:
        self._repository = repository
        self._process: subprocess.Popen[bytes] | None = None
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Importer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._timer is not None:
            end_git(self._process)
            self._timer.cancel()
            with contextlib.suppress(BrokenPipeError):
                self._process.__exit__(kind, exc, trace)

    def blob(self, content: bytes) -> None:
        """Store ``content``; its name is ``blob_id(content)``."""
        self._write(b"blob\ndata %d\n" % len(content), content, b"\n")

    def pieces(self, content: Iterable[bytes]) -> str:
        """Store a content that can be gone through again and again without being kept as a whole; return its name."""
        size = sum(map(len, content))
        digest = hashlib.sha256(b"blob %d\0" % size)
        self._write(b"blob\ndata %d\n" % size)
        for piece in content:
            digest.update(piece)
            self._write(piece)
        self._write(b"\n")
        return digest.hexdigest()

    def commit(
        self,
        parent: str | None,
        deleted: Iterable[bytes],
        changed: Iterable[tuple[bytes, int, str]],
        message: bytes = b"",
    ) -> str:
        """Commit ``parent`` without the ``deleted`` and with the ``changed`` paths, modes and blobs; return its id."""
        self._write(b"commit %s\nmark :1\n" % _REF)
        self._write(b"committer Sublet <sublet@localhost> %d +0000\n" % int(time.time()))
        self._write(b"data %d\n%s" % (len(message), message), b"\n" if message else b"")
        if parent is not None:
            self._write(b"from %s\n" % checked_id(parent).encode())
        for path in deleted:
            for name in {mask(path, PLAIN), mask(path, SYMLINK)}:
                self._write(b"D %s\n" % quoted(name))
        for path, mode, object_id in changed:
            self._write(b"M %o %s %s\n" % (mode, object_id.encode(), quoted(mask(path, mode))))
        self._write(b"\nget-mark :1\ndone\n")
        ended = _ended(self._running())
        answer = ended.output.decode("ascii", "replace").strip()
        if ended.status != 0 or not _OBJECT_ID.fullmatch(answer):
            raise _failure("fast-import", ended)
        return answer

    def _write(self, *pieces: bytes) -> None:
        process = self._running()
        assert process.stdin is not None
        try:
            for piece in pieces:
                process.stdin.write(piece)
        except BrokenPipeError:
            raise _failure("fast-import", _ended(process)) from None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            arguments = ["fast-import", "--quiet", "--done", "--force", "--depth=0"]
            self._process = self._repository.start(arguments, subprocess.PIPE)
            self._timer = threading.Timer(IMPORT_SECONDS, end_git, [self._process])
            self._timer.start()
        return self._process


def mask(path: bytes, mode: int) -> bytes:
    """Return ``path`` as a tree may hold it, with a ``%`` before each component that git would refuse."""
    if b".git" not in path.lower():
        return path
    *above, name = path.split(b"/")
    masked = [b"%" + c if _REFUSED.fullmatch(c) else c for c in above]
    refused = _REFUSED_LINK if mode == SYMLINK else _REFUSED
    return b"/".join([*masked, b"%" + name if refused.fullmatch(name) else name])


def unmask(path: bytes) -> bytes:
    """Undo ``mask``."""
    if b"%" not in path:
        return path
    return b"/".join(c[1:] if _MASKED.fullmatch(c) else c for c in path.split(b"/"))


def checked_id(object_id: str) -> str:
    """Return ``object_id`` where it is one, so that nothing else becomes an argument or a file name.

    Raises:
        SubletError: ``NOT_FOUND`` otherwise.
    """
    if not _OBJECT_ID.fullmatch(object_id):
        raise SubletError(
            LocalCode.NOT_FOUND,
            f"there is no snapshot named {object_id[:80]!r}",
            "The record of its delegation names it.",
        )
    return object_id


def _diff_arguments(old: str, new: str, *, renames: bool = False) -> list[str]:
    how = ["-M", f"-l{MAX_RENAMES}"] if renames else ["--no-renames"]
    return ["-r", *how, "--no-ext-diff", "--no-textconv", "--no-color", checked_id(old), checked_id(new)]


def quoted(path: bytes) -> bytes:
    """Return ``path`` in the quotes of ``fast-import``, where only these three bytes have a meaning."""
    return b'"' + path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n") + b'"'


def _ended(process: subprocess.Popen[bytes]) -> GitEnded:
    """Let an import end, and return what it has said."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    return finish_git(process, limit=_CHUNK, seconds=IMPORT_SECONDS)


def _failure(command: str, ended: GitEnded) -> SubletError:
    said = ended.said()
    if any(words in said.lower() for words in _UNKNOWN_OBJECT):
        return SubletError(
            LocalCode.NOT_FOUND, f"the audit does not hold that snapshot any more: {said}", "Its record was pruned."
        )
    return SubletError(
        LocalCode.INTERNAL,
        f"git {command} failed on the audit's own repository: {said or 'it was ended'}",
        "Look for a full disk; `sublet doctor` checks the version of git (2.29 or later).",
    )
