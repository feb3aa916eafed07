"""Reads the directories of capabilities: regular files of their own only, bounded, and all of them at once."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sublet.disk.plain_file import read_plain
from sublet.policy.capabilities.disclosure import Documents
from sublet.policy.capabilities.module_file import MAX_MODULE_BYTES, MODULE_ID, CapabilityModule, parse_module
from sublet.protocol.canonical import canonical_json
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.text import clean_line

MODULE_FILE: Final = "module.json"
MAX_MODULES: Final = 256
MAX_DOCUMENT_BYTES: Final = 256 * 1024
MAX_PROGRAM_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Capability:
    """A capability: its file, where it lies, its documents, and its program where that is a file of its own."""

    module: CapabilityModule
    directory: Path
    documents: Documents
    digest: str
    program: bytes | None = None


@dataclass(frozen=True, slots=True)
class CapabilitySet:
    """All capabilities at one moment.

    ``problems`` say by directory why one of them is not there; ``version`` is a digest of all that is
    (``capabilitySnapshotVersion``).
    """

    found: Mapping[str, Capability] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    version: str = ""

    def get(self, capability_id: str) -> Capability:
        """Return the capability of that id, where it is enabled.

        Raises:
            SubletError: ``NOT_FOUND``.
        """
        one = self.found.get(capability_id)
        if one is None or not one.module.enabled:
            shown = clean_line(capability_id, 80)
            raise SubletError(LocalCode.NOT_FOUND, f"there is no capability {shown!r}", "See: sublet capability list")
        return one


def read_capabilities(directories: Sequence[Path]) -> CapabilitySet:
    """Return what is below ``directories``; of two with the same id, the one in the earlier directory. Blocks.

    A directory that is not there holds none. One whose module can't be used is a problem of its own and no problem of
    the others.
    """
    found: dict[str, Capability] = {}
    problems: dict[str, str] = {}
    for root in directories:
        for directory in _below(root):
            if directory.name in found:
                continue
            try:
                if len(found) >= MAX_MODULES:
                    raise SubletError(LocalCode.INVALID_ARGUMENT, f"there are more than {MAX_MODULES} modules")
                found[directory.name] = _read(directory)
            except SubletError as error:
                problems[str(directory)] = error.message
            except OSError as error:
                problems[str(directory)] = f"can't be read: {error.strerror}"
    return CapabilitySet(found, problems, _version(found.values()))


def _below(root: Path) -> Iterable[Path]:
    try:
        with os.scandir(root) as entries:
            names = sorted(entry.name for entry in entries if not entry.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [root / name for name in names if (root / name).is_dir() or (root / name).is_symlink()]


def _read(directory: Path) -> Capability:
    if not MODULE_ID.fullmatch(directory.name):
        raise _bad(f"{clean_line(directory.name, 80)!r} is no id of a module")
    handle = open_module(directory)
    try:
        raw = read_file(handle, MODULE_FILE, MAX_MODULE_BYTES)
        if raw is None:
            raise _bad(f"it has no {MODULE_FILE}")
        module = parse_module(raw, directory.name)
        if module.arguments is not None:
            _check_schema(module)
        readme = read_file(handle, module.readme_file, MAX_DOCUMENT_BYTES)
        cli = read_file(handle, module.cli_doc_file, MAX_DOCUMENT_BYTES)
        program = None
        if module.own_file is not None:
            program = read_file(handle, module.own_file, MAX_PROGRAM_BYTES)
            if program is None:
                raise _bad(f"it has no {module.own_file}, which is its command")
    finally:
        os.close(handle)
    digest = hashlib.sha256()
    for part in (raw, readme or b"", cli or b"", program or b""):
        digest.update(len(part).to_bytes(8, "big") + part)
    documents = Documents(*((text or b"").decode("utf-8", "replace") for text in (readme, cli)))
    return Capability(module, directory, documents, digest.hexdigest(), program)


def open_module(directory: Path) -> int:
    """Return a descriptor of a module's directory, which is no link.

    Raises:
        SubletError: ``INVALID_ARGUMENT``: it is one.
    """
    try:
        return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:
        raise _bad("it is a link, and a module lies in a directory of its own") from None


def read_file(directory: int, name: str, limit: int) -> bytes | None:
    """Return a file of a module, or None where there is none.

    Raises:
        SubletError: ``INVALID_ARGUMENT``: a link, no regular file, or too large.
    """
    try:
        data = read_plain(Path(name), limit, follow=False, directory=directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        what = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise _bad(f"{name} can't be read: {what}") from None
    if len(data) > limit:
        raise _bad(f"{name} has more than {limit} bytes")
    return data


def _check_schema(module: CapabilityModule) -> None:
    from sublet.policy.guardrail.schema import CheckedSchema  # loaded by whoever uses one

    CheckedSchema(module.schema_of_arguments())


def _version(found: Iterable[Capability]) -> str:
    facts = {one.module.id: one.digest for one in found}
    return hashlib.sha256(canonical_json(dict(sorted(facts.items())))).hexdigest()[:16]


def _bad(what: str) -> SubletError:
    return SubletError(LocalCode.INVALID_ARGUMENT, what)
