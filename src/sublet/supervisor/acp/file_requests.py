"""Files that an ACP agent has us read and write: those of the lease, each asked for at the gate (DESIGN 4.9)."""

from __future__ import annotations

import errno
import itertools
from typing import Final

import acp
from acp.schema import ReadTextFileResponse, WriteTextFileResponse

from sublet.protocol.canonical import JsonValue
from sublet.supervisor import tools
from sublet.supervisor.acp.asking import ToolQuestions
from sublet.supervisor.acp.tool_calls import in_view
from sublet.supervisor.job import Job, JobResource
from sublet.supervisor.lease_files import LeaseFiles, ViewPath
from sublet.supervisor.tool_gate import ToolCall

MAX_READ_BYTES: Final = 4 << 20
"""Larger files the agent can read by its own tools."""
_INTERNAL: Final = -32603
_NOT_FOUND: Final = -32002


class FileRequests:
    """Answers ``fs/read_text_file`` and ``fs/write_text_file``.

    Args:
        job: whose lease; what tells about the task can be read beside it.
        files: its files, confined.
        asking: asks before each.
    """

    def __init__(self, job: Job, files: LeaseFiles, asking: ToolQuestions) -> None:
        self._resources = [*job.resources, JobResource("meta", job.meta, "ro")]
        self._files = files
        self._asking = asking
        self._numbers = itertools.count(1)

    async def read(self, path: str, line: int | None, limit: int | None) -> ReadTextFileResponse:
        """Return the text of a file, or ``limit`` lines from ``line`` on, which counts from one.

        Raises:
            acp.RequestError: it may not be read, or can't.
        """
        call, where = await self._begin(tools.FILE_READ, path, {})
        try:
            part = await self._files.read(where, 0, MAX_READ_BYTES)
            if part.size > len(part.data):
                raise OSError(errno.EFBIG, "it is too large")
            text = part.data.decode()
        except (OSError, UnicodeDecodeError) as error:
            raise await self._failed(call, error) from None
        await self._asking.ended(call.call_id, None)
        if line is not None or limit is not None:
            first = max(0, (line or 1) - 1)
            lines = text.splitlines(keepends=True)[first:]
            text = "".join(lines if limit is None else lines[:limit])
        return ReadTextFileResponse(content=text)

    async def write(self, path: str, content: str) -> WriteTextFileResponse:
        """Make ``content`` the whole of a file.

        Raises:
            acp.RequestError: it may not be written, or can't.
        """
        call, where = await self._begin(tools.FILE_WRITE, path, {"content": content})
        try:
            await self._files.write(where, content.encode("utf-8", "replace"))
        except OSError as error:
            raise await self._failed(call, error) from None
        await self._asking.ended(call.call_id, None)
        return WriteTextFileResponse()

    async def _begin(self, tool: str, path: str, more: dict[str, JsonValue]) -> tuple[ToolCall, ViewPath]:
        """Ask, and return the call with the path below the view."""
        shown = in_view(path, self._resources)
        call = ToolCall(tool, {"path": path, **more}, f"fs-{next(self._numbers)}", (shown,))
        if (refused := await self._asking.may(call, f"{tool} {shown}")) is not None:
            if refused.hidden:
                raise acp.RequestError(_NOT_FOUND, refused.reason)
            raise acp.RequestError(_INTERNAL, f"it is not allowed: {refused.reason}")
        if shown.startswith("/") or "\0" in path:
            reason = "it is outside of the lent directories"
            self._asking.note("refused", f"{tool} {shown}: {reason}")
            await self._asking.ended(call.call_id, reason)
            raise acp.RequestError(_INTERNAL, reason)
        return call, tuple(shown.split("/"))

    async def _failed(self, call: ToolCall, error: OSError | UnicodeDecodeError) -> acp.RequestError:
        if isinstance(error, UnicodeDecodeError):
            reason, code = "it is no UTF-8 text", _INTERNAL
        elif isinstance(error, TimeoutError):
            reason, code = "the lender's files do not answer", _INTERNAL
        else:
            reason, code = error.strerror or "it failed", _NOT_FOUND if error.errno == errno.ENOENT else _INTERNAL
        await self._asking.ended(call.call_id, reason)
        return acp.RequestError(code, reason)
