"""Blobs of a shadow repository are read through one git, whatever that says or leaves out."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.audit import blob_reader
from sublet.workspace.audit.blob_reader import MAX_PASSED_BYTES, BlobReader
from sublet.workspace.audit.shadow_git import PLAIN, ShadowGit, blob_id
from sublet.workspace.git_runner import start_git

CHANCE = random.Random(3)
SMALL, LINES, LARGE = b"small", b"a b c\n\n" * 9, CHANCE.randbytes(300_000)
HUGE = bytes(MAX_PASSED_BYTES + 1)
MISSING = "f" * 64


class Starts(ShadowGit):
    """Counts the processes; with a ``script``, that answers in the place of git."""

    script = ""

    def __init__(self, git_dir: Path) -> None:
        super().__init__(git_dir)
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, arguments: Sequence[str], stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        if self.script:
            environment = {"PATH": os.environ["PATH"]}
            self.processes.append(start_git(["sh", "-c", self.script], environment, self.git_dir, stdin))
        else:
            self.processes.append(super().start(arguments, stdin))
        return self.processes[-1]


@pytest.fixture
def repository(tmp_path: Path) -> Starts:
    repository = Starts(tmp_path / "shadow")
    repository.create()
    blobs = (SMALL, LINES, LARGE, HUGE, b"")
    with repository.importer() as importer:
        for content in blobs:
            importer.blob(content)
        importer.commit(None, [], [(b"f%d" % n, PLAIN, blob_id(content)) for n, content in enumerate(blobs)])
    repository.processes.clear()
    return repository


def all_ended(repository: Starts) -> bool:
    return all(process.returncode is not None for process in repository.processes)


def test_many_blobs_are_read_through_one_git_which_ends(repository: Starts) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with BlobReader(repository) as blobs:
        assert repository.processes == []
        for content in (SMALL, LARGE, b"", LINES, SMALL):
            assert blobs.blob(blob_id(content), limit=1 << 20) == content
        assert len(repository.processes) == 1
    assert all_ended(repository)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(("large", "starts"), [(LARGE, 1), (HUGE, 2)])
def test_what_is_larger_than_wanted_is_passed_over_and_the_next_is_read(
    repository: Starts, large: bytes, starts: int
) -> None:
    with BlobReader(repository) as blobs:
        assert blobs.blob(blob_id(SMALL), limit=len(SMALL)) == SMALL
        assert blobs.blob(blob_id(large), limit=len(large) - 1) is None
        assert blobs.blob(blob_id(LINES), limit=100) == LINES
        assert blobs.blob(blob_id(SMALL), limit=len(SMALL) - 1) is None
        assert blobs.blob(blob_id(b""), limit=0) == b""
    assert len(repository.processes) == starts
    assert all_ended(repository)


def test_a_missing_blob_is_told_and_the_next_is_read(repository: Starts) -> None:
    [(_, _, _), *_] = repository.entries(head(repository))
    with BlobReader(repository) as blobs:
        for unknown in (MISSING, head(repository)):
            with pytest.raises(SubletError) as no:
                blobs.blob(unknown, limit=1 << 20)
            assert no.value.code is LocalCode.NOT_FOUND
        assert blobs.blob(blob_id(SMALL), limit=100) == SMALL
    assert all_ended(repository)


def head(repository: Starts) -> str:
    return (repository.git_dir / "refs/sublet/shadow").read_text().strip()


def test_a_name_that_is_none_is_never_told_to_git(repository: Starts) -> None:
    with BlobReader(repository) as blobs:
        for name in ("HEAD", f"{MISSING}\n{MISSING}", "", MISSING.upper()):
            with pytest.raises((SubletError, ValueError)):
                blobs.blob(name, limit=100)
    assert repository.processes == []


ID = blob_id(SMALL)


@pytest.mark.parametrize(
    "script",
    [
        "read a",
        f"read a; printf '{ID} blob 5\\nsma'",
        f"read a; printf '{ID} blob'",
        f"read a; printf '{ID} blob 5\\nsmall'",
        f"read a; printf '{ID} blob x\\nsmall\\n'",
        f"read a; printf '{ID} blob -1\\nsmall\\n'",
        f"read a; printf '{ID} blob 4\\nsmall\\n'",
        f"read a; printf '{MISSING} blob 5\\nsmall\\n'",
        "read a; head -c 100000 /dev/zero",
        "exit 3",
    ],
)
def test_a_torn_answer_is_no_content(repository: Starts, script: str) -> None:
    repository.script = script
    with BlobReader(repository) as blobs:
        with pytest.raises(SubletError) as no:
            blobs.blob(ID, limit=100)
        assert no.value.code is LocalCode.UNAVAILABLE
        repository.script = ""
        assert blobs.blob(ID, limit=100) == SMALL
    assert all_ended(repository)


def test_a_git_that_says_nothing_is_ended(repository: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob_reader, "ANSWER_SECONDS", 0.0)
    repository.script = "read a; read b"
    with BlobReader(repository) as blobs, pytest.raises(SubletError, match="not within"):
        blobs.blob(ID, limit=100)
    assert all_ended(repository)


def test_a_git_that_complains_much_is_listened_to(repository: Starts) -> None:
    repository.script = f"read a; head -c 1000000 /dev/zero >&2; printf '{ID} blob 5\\nsmall\\n'; read b"
    with BlobReader(repository) as blobs:
        assert blobs.blob(ID, limit=100) == SMALL
