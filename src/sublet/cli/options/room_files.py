"""Files that messages come with: read from disk, uploaded; fetched and written where nothing is overwritten."""

from __future__ import annotations

import asyncio
import base64
import mimetypes
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sublet.cli.options.given_text import not_utf8_name
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.patterns import Pattern

if TYPE_CHECKING:
    from sublet.daemon.api.room_files import FileView
    from sublet.daemon.api.room_messages import MessageView
    from sublet.daemon.control.client import ControlClient as Control

_UNSAFE: Final = Pattern(r"[^\pL\pN_.+-]+")
MAX_NAME_CHARS: Final = 120
STDOUT: Final = "-"
ANY_TYPE: Final = "application/octet-stream"


async def upload(control: Control, room_id: str, path: Path) -> FileView:
    """Put a file of this machine into a room.

    Raises:
        SubletError: ``INVALID_ARGUMENT``: it can't be read, is empty or too large.
    """
    from sublet.daemon.api.room_files import MAX_FILE_BYTES, UPLOAD_FILE, UploadFile

    if (refused := not_utf8_name(path.name)) is not None:
        raise refused
    data = await asyncio.to_thread(
        contents_of, path, MAX_FILE_BYTES, "Lend the directory of what is larger: sublet delegate"
    )
    given: dict[str, Any] = {
        "room_id": room_id,
        "filename": path.name[:255],
        "media_type": mimetypes.guess_type(path.name)[0] or ANY_TYPE,
        "data": base64.b64encode(data),
    }
    kept = await control.call(UPLOAD_FILE, UploadFile.model_validate(given))
    return kept.model_copy(update={"filename": given["filename"]})  # the room may have it under another name


async def download(control: Control, room_id: str, message: MessageView, output: str | None) -> str:
    """Write the file that a message comes with, and return where.

    Args:
        control: the daemon.
        room_id: the room.
        one: the message.
        output: a path, or ``-`` for stdout; by default the file's own name, of which nothing counts as a path, here.

    Raises:
        SubletError: ``NOT_FOUND``: it comes with none; ``CONFLICT``: there is such a file already.
    """
    from sublet.daemon.api.room_files import FETCH_FILE, FetchFile

    media = media_of(message)
    if media is None:
        raise SubletError(LocalCode.NOT_FOUND, "this message comes with no file", "`sublet read ROOM` shows files.")
    found = await control.call(FETCH_FILE, FetchFile(room_id=room_id, blob_hash=str(media["blob_hash"])))
    data = base64.b64decode(found.data)
    if output == STDOUT:
        sys.stdout.buffer.write(data)
        return output
    path = Path(output) if output is not None else Path(safe_name(str(media.get("filename"))))
    await asyncio.to_thread(write_file, path, data)
    return str(path)


def media_of(message: MessageView) -> dict[str, Any] | None:
    """Return what a message says of the file that it comes with; None where it comes with none."""
    media = message.ext.get("media")
    return media if isinstance(media, dict) and isinstance(media.get("blob_hash"), str) else None


def typed_path(typed: str) -> Path:
    """Return the path that somebody typed, or had a terminal put there, which quotes blanks; ``~`` is the home."""
    path = Path(typed.strip()).expanduser()
    if not path.exists():
        with suppress(ValueError):
            words = shlex.split(typed)
            if len(words) == 1:
                return Path(words[0]).expanduser()
    return path


def contents_of(path: Path, most: int, instead: str) -> bytes:
    """Return what is in a file; blocks.

    Args:
        path: the file.
        most: bytes that it may have.
        instead: what to do with a larger one.

    Raises:
        SubletError: ``INVALID_ARGUMENT``: there is none, it can't be read, is empty or too large.
    """
    bound = f"{most >> 20} MiB" if most >> 20 else f"{most >> 10} KiB"
    try:
        if not path.is_file():
            raise SubletError(LocalCode.INVALID_ARGUMENT, f"no file here: {path}", f"Name one of up to {bound}.")
        if not 0 < path.stat().st_size <= most:
            raise SubletError(LocalCode.INVALID_ARGUMENT, f"empty, or larger than {bound}: {path}", instead)
        return path.read_bytes()
    except OSError as error:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, f"it can't be read ({error.strerror}): {path}", "May you read it?"
        ) from None


def write_file(path: Path, data: bytes) -> None:
    """Write a new file; blocks.

    Raises:
        SubletError: ``CONFLICT``: there is such a file already; ``UNAVAILABLE``: it can't be written.
    """
    try:
        with path.open("xb") as file:
            file.write(data)
    except FileExistsError:
        raise SubletError(
            LocalCode.CONFLICT, f"a file is there already: {path}", "Name another place for it."
        ) from None
    except OSError as error:
        raise SubletError(LocalCode.UNAVAILABLE, f"{path}: {error.strerror}", "Name another place for it.") from None


def safe_name(given: str) -> str:
    """Return a name that a peer gave a file, without directories, dots at the beginning, and odd characters."""
    name = _UNSAFE.sub("_", given.replace("\\", "/").rpartition("/")[2]).lstrip(".-")[-MAX_NAME_CHARS:]
    return name or "file"
