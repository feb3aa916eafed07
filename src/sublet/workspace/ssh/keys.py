"""Public key lines, which come from peers: checked for their form before asyncssh's parser sees them.

That parser makes a regular expression of the words that it finds in a text that looks like another kind of key file,
and fails in ways of its own on what is none.
"""

from __future__ import annotations

from typing import Final

import asyncssh

from sublet.protocol.patterns import Pattern

_LINE: Final = Pattern(r"[a-z0-9@.-]{1,64} [A-Za-z0-9+/]{16,}={0,2}(?: [ -~]*)?\Z")
MAX_LINE_CHARS: Final = 5_000


def read_public_key(line: str) -> asyncssh.SSHKey:
    """Return the key of one OpenSSH public key line: kind, base64 and perhaps a comment.

    Raises:
        ValueError: it is no such line, or not of a kind that is known here.
    """
    line = line.strip()
    if len(line) > MAX_LINE_CHARS or not _LINE.match(line):
        raise ValueError("it is no public key line")
    try:
        return asyncssh.import_public_key(line)
    except asyncssh.KeyImportError as error:
        raise ValueError(str(error)) from None
