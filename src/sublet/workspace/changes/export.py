"""A change set as a patch file; the directory stays as it is (DESIGN 4.8)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.patterns import Match, Pattern
from sublet.workspace.audit.blob_reader import BlobReader
from sublet.workspace.audit.shadow_git import PLAIN, SYMLINK, mask
from sublet.workspace.audit.snapshot import MAX_STORED_BYTES, STAND_IN_BYTES, is_stand_in
from sublet.workspace.changes.change_set import ChangeSets
from sublet.workspace.changes.edits import add_above
from sublet.workspace.changes.record import Entry

MAX_PATCH_FILE_BYTES: Final = 256 * 1024 * 1024

_INDEX_LINE: Final = Pattern(rb"^index ([0-9a-f]{64})\.\.([0-9a-f]{64})((?: [0-7]{6})?)$", lines=True)
"""In a patch only a header can look like this: lines of content begin with a sign, those of binaries hold no space."""
_SHORT: Final = 12
_EXECUTE: Final = 0o111


def export_patch(changes: ChangeSets, key: str) -> bytes:
    """Return a result as a patch that ``git apply`` takes, with renames, modes, and binary files in full.

    Raises:
        SubletError: ``NOT_FOUND`` for no such change set, ``UNAVAILABLE`` where it holds what a patch can't carry.
    """
    record = changes.record(key)
    with changes.auditor.repository(record.root) as git, BlobReader(git) as blobs:
        large = next((entry for entry in record.entries if _left_out(blobs, entry)), None)
        if large is not None:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"no patch can be made of the result of {key}: {large.shown().shown} is larger than "
                f"{MAX_STORED_BYTES >> 20} MiB, or can't be in a patch",
                "Apply it, or put it on a branch.",
            )
        patch, cut = git.patch(record.baseline, record.result, limit=MAX_PATCH_FILE_BYTES, renames=True, binary=True)
        ids = dict(
            pair
            for entry in record.entries
            if entry.lines is None
            for pair in _usual_ids(blobs, entry, changes.directory(key) / "result")
        )
    if cut:
        raise SubletError(
            LocalCode.UNAVAILABLE,
            f"the patch of {key} is larger than {MAX_PATCH_FILE_BYTES >> 20} MiB",
            "Apply it, or put it on a branch.",
        )
    return _INDEX_LINE.sub(lambda line: _index_line(line, ids), patch)


def not_carried(changes: ChangeSets, key: str) -> list[str]:
    """Return what of a result neither a branch nor a patch can carry, each with the reason, safe to show.

    Git knows a directory by the files in it, and of permissions the executable bit alone.

    Raises:
        SubletError: ``NOT_FOUND`` for no such change set.
    """
    record = changes.record(key)
    with_files: set[bytes] = set()
    for entry in record.entries:
        add_above(with_files, entry.path)
    told = []
    for directory in record.directories:
        if directory.change == "mode":
            told.append(f"{directory.shown}: its permissions")
        elif directory.path not in with_files:
            told.append(f"{directory.shown}: a directory without files, {directory.change}")
    for entry in record.entries:
        before = entry.permissions_before
        plain = entry.after is not None and not entry.after.link
        if plain and before is not None and (before ^ entry.permissions) & ~_EXECUTE:
            told.append(f"{entry.shown().shown}: its permissions")
    return told


def _left_out(blobs: BlobReader, entry: Entry) -> bool:
    """Tell whether the snapshots have only a stand-in of one of the entry's contents, or its path in other words."""
    if mask(entry.path, PLAIN) != entry.path or mask(entry.path, SYMLINK) != entry.path:
        return True
    if entry.lines is not None:
        return False  # text, so it is there
    sides = (side for side in (entry.before, entry.after) if side is not None and not side.link)
    return any(is_stand_in(blobs.blob(side.blob, limit=STAND_IN_BYTES)) for side in sides)


def _usual_ids(blobs: BlobReader, entry: Entry, contents: Path) -> Iterator[tuple[bytes, bytes]]:
    """Yield the ids that a snapshot has for the entry's contents, each with that of a usual repository.

    Only these let ``git apply`` take a binary file: it makes sure of both sides.
    """
    sides = [entry.before, entry.after]
    for side in sides:
        if side is None:
            continue
        stored = side is entry.after and entry.stored is not None
        content = (
            (contents / str(entry.stored)).read_bytes() if stored else blobs.blob(side.blob, limit=MAX_STORED_BYTES)
        )
        if content is not None:
            digest = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
            yield side.blob.encode(), digest.hexdigest().encode()


def _index_line(line: Match[bytes], ids: Mapping[bytes, bytes]) -> bytes:
    """Return a line of ids as a usual repository has it: whole where known or of nothing, else short."""
    old, new = (b"0" * 40 if not side.strip(b"0") else ids.get(side, side[:_SHORT]) for side in (line[1], line[2]))
    return b"index %s..%s%s" % (old, new, line[3])
