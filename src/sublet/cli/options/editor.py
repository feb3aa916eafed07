"""A person's own editor, with a text in a file of theirs. Blocks until it has ended."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sublet.protocol.errors import LocalCode, SubletError

DEFAULT_EDITOR: Final = "vi"
MAX_FILE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Edited:
    """What was written, and the file that it is in, for its reader to drop."""

    text: str
    file: Path


def edit_in_editor(text: str, environ: Mapping[str, str] = os.environ) -> Edited:
    """Have somebody edit a text.

    Args:
        text: as it is.
        environ: names the editor, by ``VISUAL`` or ``EDITOR``.

    Raises:
        SubletError: ``INVALID_ARGUMENT``: the editor can't be started or failed, or what was written is no text.
    """
    editor = shlex.split(environ.get("VISUAL") or environ.get("EDITOR") or DEFAULT_EDITOR)
    handle, name = tempfile.mkstemp(prefix="sublet-", suffix=".txt")
    file, ending = Path(name), "" if text.endswith("\n") else "\n"
    with open(handle, "w", encoding="utf-8", newline="") as written:
        written.write(text + ending)  # editors end a text by a line end, and would add one
    try:
        status = subprocess.run([*editor, name], check=False).returncode
    except OSError as error:
        file.unlink()
        what = f"{editor[0]} can't be started: {error.strerror}"
        raise SubletError(LocalCode.INVALID_ARGUMENT, what, "Set EDITOR to your editor.") from None
    if status != 0:
        file.unlink()
        raise SubletError(LocalCode.INVALID_ARGUMENT, "the editor failed, so nothing was changed", "Try it again.")
    try:
        with file.open("rb") as read:
            found = read.read(MAX_FILE_BYTES).decode()
    except (OSError, UnicodeDecodeError):
        what = f"what was written is no text in UTF-8; it is in {name}"
        raise SubletError(LocalCode.INVALID_ARGUMENT, what, "Edit it again.") from None
    return Edited(found.removesuffix(ending), file)
