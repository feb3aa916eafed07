"""Reads many blobs of a shadow repository through one git, which is started with the first."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from types import TracebackType
from typing import Final

from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.audit.shadow_git import ShadowGit, checked_id
from sublet.workspace.git_runner import end_git

ANSWER_SECONDS: Final = 60.0
"""Time that git may take for one blob."""
MAX_HEAD_BYTES: Final = 1_024
MAX_PASSED_BYTES: Final = 8 << 20
"""A blob that nobody wants is read as far as this; for a larger one git is started anew."""
_CHUNK: Final = 65_536


class BlobReader:
    """Reads blobs one after the other; used as a context, it leaves no process behind. It blocks.

    Args:
        repository: holds the blobs.
    """

    def __init__(self, repository: ShadowGit) -> None:
        self._repository = repository
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = bytearray()
        self._ends = 0.0

    def __enter__(self) -> BlobReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def blob(self, object_id: str, *, limit: int) -> bytes | None:
        """Return the content of a blob, or None where it is larger than ``limit`` bytes.

        Args:
            object_id: of the blob.
            limit: bytes that it may have.

        Raises:
            SubletError: ``NOT_FOUND`` where there is no such blob, ``UNAVAILABLE`` where git does not answer,
                ``DEP_MISSING`` without git.
        """
        checked_id(object_id)
        if self._process is None:
            self._process = self._repository.start(["cat-file", "--batch"], subprocess.PIPE)
        self._ends = time.monotonic() + ANSWER_SECONDS
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(object_id.encode() + b"\n")
            self._process.stdin.flush()
            head = self._line().split(b" ")
            if len(head) != 3 or head[1] != b"blob":
                raise SubletError(
                    LocalCode.NOT_FOUND,
                    f"the audit does not hold {object_id[:16]} any more",
                    "Its record was pruned.",
                )
            size = int(head[2])
            if head[0] != object_id.encode() or size < 0:
                raise ValueError("it says what was not asked for")
            if size > limit:
                self._pass_over(size + 1)
                return None
            content = self._take(size)
            if self._take(1) != b"\n":
                raise ValueError("it says what was not asked for")
            return content
        except (OSError, EOFError, TimeoutError, ValueError) as exc:
            self._end()
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"git did not answer about {object_id[:16]}: {exc}",
                "Try again when the machine is less busy; `sublet doctor` checks the version of git.",
            ) from None
        except BaseException:
            self._end()
            raise

    def _line(self) -> bytes:
        while (at := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise ValueError("it says what was not asked for")
            self._more()
        line = bytes(self._buffer[:at])
        del self._buffer[: at + 1]
        return line

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._more()
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def _pass_over(self, size: int) -> None:
        """Be ready for the next blob, without the rest of this one."""
        if size > MAX_PASSED_BYTES:
            self._end()
            return
        while size > 0:
            if not self._buffer:
                self._more()
            passed = min(size, len(self._buffer))
            del self._buffer[:passed]
            size -= passed

    def _more(self) -> None:
        """Wait for more of what git says.

        Raises:
            EOFError: it has ended.
            TimeoutError: it took too long.
        """
        process = self._process
        assert process is not None
        assert process.stdout is not None
        assert process.stderr is not None
        answers, errors = process.stdout.fileno(), process.stderr.fileno()
        ready = select.poll()
        for fd in (answers, errors):
            ready.register(fd, select.POLLIN)
        while True:
            found = ready.poll(max(0.0, self._ends - time.monotonic()) * 1_000)
            if not found:
                raise TimeoutError(f"not within {ANSWER_SECONDS:g} s")
            # What it says of broken objects is read as well, or it would wait for that for ever.
            if any(fd == errors for fd, _ in found) and not os.read(errors, _CHUNK):
                ready.unregister(errors)
            if any(fd == answers for fd, _ in found):
                break
        piece = os.read(answers, _CHUNK)
        if not piece:
            raise EOFError("it has ended")
        self._buffer += piece

    def _end(self) -> None:
        process, self._process = self._process, None
        self._buffer.clear()
        if process is not None:
            end_git(process)
            with contextlib.suppress(BrokenPipeError):
                process.__exit__(None, None, None)
