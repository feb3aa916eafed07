"""The tools for the files of the lease: read, list, search, write, edit, move and delete; nothing outside of it."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from sublet.policy.guardrail.schema import CheckedSchema
from sublet.protocol.canonical import JsonValue
from sublet.protocol.text import clean_name
from sublet.supervisor import tools
from sublet.supervisor.chat.tool import MAX_RESULT_CHARS, Arguments, Tool, ToolFailed, ToolResult, number_of, text_of
from sublet.supervisor.job import Job
from sublet.supervisor.lease_files import LeaseFiles, Match, ViewPath
from sublet.supervisor.tool_gate import ToolCall, ToolGate

MAX_PATH_CHARS: Final = 4_096
MAX_READ_LINES: Final = 2_000
MAX_FILE_BYTES: Final = 4 << 20
"""Larger files are neither read by lines nor edited; the shell's tools can."""
MAX_ENTRIES: Final = 1_000
MAX_MATCHES: Final = 200
META: Final = "meta"
_SIFTED: Final = frozenset({tools.FILE_LIST, tools.FILE_SEARCH})

_WORDS: Final = {
    errno.ENOENT: "there is no such file or directory",
    errno.EACCES: "it may not be opened or changed",
    errno.EPERM: "it may not be changed",
    errno.EROFS: "it may only be read",
    errno.EEXIST: "there is something of that name already",
    errno.EISDIR: "it is a directory",
    errno.ENOTDIR: "a part of the path is no directory",
    errno.ENOTEMPTY: "the directory is not empty",
    errno.ELOOP: "it is a link, or lies behind one, and links are not followed",
    errno.EXDEV: "it leads out of the lent directory, or to another one",
    errno.EDQUOT: "the lease may not add more",
    errno.ENOSPC: "there is no room left",
    errno.EFBIG: "it is too large",
}


class FileTools:
    """Makes the tools of one job.

    Args:
        job: whose lease.
        files: its files.
        gate: asked for what a listing or a search finds, before it is told.
    """

    def __init__(self, job: Job, files: LeaseFiles, gate: ToolGate) -> None:
        self._job = job
        self._gate = gate
        self._files = files

    def tools(self) -> list[Tool]:
        """Return those that the lease allows: one for reading has none that write."""
        path = _text("Path in the first lent directory, or /NAME/… for another; never outside of them")
        made = [
            self._tool(
                tools.FILE_READ,
                "Read a text file. Returns its lines; 'first_line' and 'lines' choose a part of a long one.",
                {"path": path, "first_line": _count(1, 10_000_000), "lines": _count(1, MAX_READ_LINES)},
                ("path",),
                self._read,
            ),
            self._tool(
                tools.FILE_LIST,
                "List a directory; directories end with a slash. Path '.' is the first lent directory.",
                {"path": path},
                (),
                self._list,
            ),
            self._tool(
                tools.FILE_SEARCH,
                "Find lines that contain 'text', literally, in the files below 'path' whose names match the glob "
                "'name'. Without 'text', find the files.",
                {
                    "text": _text("What to look for"),
                    "path": path,
                    "name": _text("Glob over file names, such as *.py", 200),
                    "ignore_case": {"type": "boolean"},
                },
                (),
                self._search,
            ),
        ]
        if self._job.access_mode == "ro":
            return made
        return [
            *made,
            self._tool(
                tools.FILE_WRITE,
                "Write a whole text file; what it held before is gone. Missing directories are made.",
                {"path": path, "content": _text("All of it", MAX_FILE_BYTES)},
                ("path", "content"),
                self._write,
            ),
            self._tool(
                tools.FILE_EDIT,
                "Replace 'old' by 'new' in a text file. 'old' must occur exactly once, unless 'all' is true.",
                {
                    "path": path,
                    "old": {**_text("Text to replace, exactly as it is", MAX_FILE_BYTES), "minLength": 1},
                    "new": _text("What takes its place", MAX_FILE_BYTES),
                    "all": {"type": "boolean"},
                },
                ("path", "old", "new"),
                self._edit,
            ),
            self._tool(
                tools.FILE_MOVE,
                "Rename a file or directory to a name that is free, in the same lent directory.",
                {"path": path, "to": path},
                ("path", "to"),
                self._move,
            ),
            self._tool(
                tools.FILE_DELETE,
                "Delete a file, a link or an empty directory.",
                {"path": path},
                ("path",),
                self._delete,
            ),
        ]

    def _tool(
        self,
        name: str,
        description: str,
        properties: Mapping[str, JsonValue],
        required: tuple[str, ...],
        run: Callable[[Arguments], Awaitable[ToolResult]],
    ) -> Tool:
        async def guarded(arguments: Arguments) -> ToolResult:
            try:
                return await run(arguments)
            except TimeoutError:
                raise ToolFailed("the lender's files do not answer; try again later") from None
            except OSError as error:
                raise ToolFailed(_WORDS.get(error.errno or 0) or error.strerror or "it can't be done") from None

        schema: dict[str, JsonValue] = {
            "type": "object",
            "properties": dict(properties),
            "required": list(required),
            "additionalProperties": False,
        }
        sifted = name in _SIFTED
        return Tool(name, description, CheckedSchema(schema), guarded, self._touched, self._named, sifted=sifted)

    def _touched(self, arguments: Arguments) -> tuple[str, ...]:
        names = [text_of(arguments, name) for name in ("path", "to") if name in arguments] or ["."]
        return tuple(self._policy_path(name) for name in names)

    def _policy_path(self, text: str) -> str:
        try:
            return "/".join(self._path(text))
        except ToolFailed:
            return text if text.startswith("/") else f"/{text}"

    def _named(self, arguments: Arguments) -> str:
        return " → ".join(text_of(arguments, name) for name in ("path", "to") if name in arguments)

    def _path(self, text: str) -> ViewPath:
        """Return where a path of the model's leads, by its words alone: no link is ever followed.

        Raises:
            ToolFailed: it leads out, or is no path.
        """
        if len(text) > MAX_PATH_CHARS or "\0" in text:
            raise ToolFailed("that is no path")
        mount = f"{self._job.mount_point}/"
        if text.startswith(mount):
            text = f"/{text.removeprefix(mount)}"  # as programs that it ran have printed it
        parts = [] if text.startswith("/") else [self._job.resources[0].name]
        least = len(parts)
        for part in text.split("/"):
            if part == "..":
                if len(parts) <= least:
                    raise ToolFailed("the path leads out of the lent directory")
                parts.pop()
            elif part not in ("", "."):
                parts.append(part)
        known = [*(resource.name for resource in self._job.resources), META]
        if parts and parts[0] not in known:
            raise ToolFailed(f"there is no directory /{parts[0]}; those that are lent: {', '.join(known)}")
        return tuple(parts)

    def _shown(self, path: ViewPath) -> str:
        first = self._job.resources[0].name
        return clean_name("/".join(path[1:]) or ".") if path[:1] == (first,) else clean_name("/" + "/".join(path))

    async def _read(self, arguments: Arguments) -> ToolResult:
        text = await self._text(self._path(text_of(arguments, "path")))
        lines = text.split("\n")
        first, count = number_of(arguments, "first_line", 1), number_of(arguments, "lines", MAX_READ_LINES)
        chosen = lines[first - 1 : first - 1 + count]
        kept: list[str] = []
        room = MAX_RESULT_CHARS
        for line in chosen:
            if room < len(line) + 1 and kept:
                break
            kept.append(line[:MAX_RESULT_CHARS])
            room -= len(line) + 1
        end = first + len(kept) - 1
        facts: dict[str, JsonValue] = {"lines": len(kept)}
        if not kept:
            return ToolResult(f"[The file has {len(lines):,} lines.]", facts)
        body = "\n".join(kept)
        if first > 1 or end < len(lines):
            body += f"\n[Lines {first:,} to {end:,} of {len(lines):,}.]"
        return ToolResult(body, facts)

    async def _list(self, arguments: Arguments) -> ToolResult:
        path = self._path(text_of(arguments, "path", "."))
        listing = await self._files.list(path, MAX_ENTRIES)
        may, concealed = self._may(tools.FILE_LIST, arguments)
        entries = [entry for entry in listing.entries if may((*path, entry.name))]
        marks = {"directory": "/", "link": " (a link, not followed)", "other": " (no file)", "file": ""}
        lines = [
            clean_name(entry.name) + marks[entry.kind] + (f"  {entry.size:,}" if entry.kind == "file" else "")
            for entry in entries
        ]
        if listing.more:
            lines.append("[There are more; list the directories below, or search by name.]")
        left_out = len(listing.entries) - len(entries) - len(concealed)
        lines += _left_out(left_out, "entries")
        return ToolResult(
            "\n".join(lines) or "[The directory is empty.]", {"entries": len(entries), "leftOut": left_out}
        )

    async def _search(self, arguments: Arguments) -> ToolResult:
        may, concealed = self._may(tools.FILE_SEARCH, arguments)
        matches = await self._files.search(
            self._path(text_of(arguments, "path", ".")),
            text_of(arguments, "text"),
            text_of(arguments, "name"),
            MAX_MATCHES,
            ignore_case=arguments.get("ignore_case") is True,
            may=may,
        )
        left_out = max(0, matches.left_out - len(concealed))
        lines = [self._match(match) for match in matches.found]
        if matches.more:
            lines.append("[The search ended at a bound; narrow it for the rest.]")
        facts: dict[str, JsonValue] = {
            "matches": len(matches.found),
            "files": matches.files,
            "leftOut": left_out,
        }
        lines = lines or [f"[Nothing found in {matches.files:,} files.]"]
        return ToolResult("\n".join([*lines, *_left_out(left_out, "files")]), facts)

    def _may(self, tool: str, arguments: Arguments) -> tuple[Callable[[ViewPath], bool], set[ViewPath]]:
        """Return what tells whether a call may tell of a path that it finds, and the paths that it must not know of."""
        call, concealed = ToolCall(tool, arguments, "", sifted=True), set[ViewPath]()

        def may(path: ViewPath) -> bool:
            shown = "/".join(path)
            if self._gate.reveals(call, shown):
                return True
            if self._gate.conceals(call, shown):
                concealed.add(path)
            return False

        return may, concealed

    def _match(self, match: Match) -> str:
        name = self._shown(match.path)
        return f"{name}:{match.line}:{match.text}" if match.line else name

    async def _write(self, arguments: Arguments) -> ToolResult:
        data = text_of(arguments, "content").encode()
        new = await self._files.write(self._path(text_of(arguments, "path")), data)
        said = "Created" if new else "Written"
        return ToolResult(f"{said}, {len(data):,} bytes.", {"bytes": len(data), "created": new})

    async def _edit(self, arguments: Arguments) -> ToolResult:
        path, old = self._path(text_of(arguments, "path")), text_of(arguments, "old")
        text = await self._text(path, exact=True)
        count = text.count(old)
        if count == 0:
            raise ToolFailed("'old' is not in the file; read it again and send it exactly as it is")
        if count > 1 and arguments.get("all") is not True:
            raise ToolFailed(f"'old' is in the file {count} times; send more around it, or set 'all'")
        data = text.replace(old, text_of(arguments, "new")).encode()
        await self._files.write(path, data)
        return ToolResult(f"Replaced {count} time{'' if count == 1 else 's'}.", {"bytes": len(data), "replaced": count})

    async def _move(self, arguments: Arguments) -> ToolResult:
        await self._files.move(self._path(text_of(arguments, "path")), self._path(text_of(arguments, "to")))
        return ToolResult("Moved.")

    async def _delete(self, arguments: Arguments) -> ToolResult:
        await self._files.delete(self._path(text_of(arguments, "path")))
        return ToolResult("Deleted.")

    async def _text(self, path: ViewPath, *, exact: bool = False) -> str:
        """Return a file's text; ``exact`` refuses what would not be written back as it was."""
        part = await self._files.read(path, 0, MAX_FILE_BYTES)
        if part.size > MAX_FILE_BYTES:
            raise ToolFailed(f"the file has {part.size:,} bytes, and {MAX_FILE_BYTES:,} is the most here")
        if b"\0" in part.data:
            raise ToolFailed("the file is no text")
        try:
            return part.data.decode()
        except UnicodeDecodeError:
            if exact:
                raise ToolFailed("the file is not UTF-8, so it can't be edited here") from None
            return part.data.decode("utf-8", "replace")


def _left_out(count: int, what: str) -> list[str]:
    return [f"[Left out: {count:,} {what} that policy denies.]"] if count else []


def _text(description: str, limit: int = MAX_PATH_CHARS) -> dict[str, JsonValue]:
    return {"type": "string", "description": description, "maxLength": limit}


def _count(least: int, most: int) -> dict[str, JsonValue]:
    return {"type": "integer", "minimum": least, "maximum": most}
