"""What of a directory the delegator's git runs or obeys because the repository's configuration names it.

Hooks may be kept in the work tree, and so may filters, the watcher of files, and configuration that is included. Git
reads all of that from the files as they are, so that no lease may change them. Nothing here runs git.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sublet.protocol.patterns import Pattern
from sublet.workspace.git.config import MAX_CONFIG_BYTES
from sublet.workspace.git.config_syntax import Setting, settings
from sublet.workspace.git.place import place_of, read_file

MAX_FILES: Final = 16
"""Files of configuration that are read for one repository, those that are included among them."""
MAX_SETTINGS: Final = 5_000
MAX_WORDS: Final = 64
"""Words of one value that are looked at."""
_INCLUDED: Final = frozenset({"include", "includeif"})
_OBEYED: Final = frozenset({"core.hookspath", "core.attributesfile", "gpg.ssh.allowedsignersfile"})
"""Keys whose value is one path, which counts whether it is there or not, and also as a directory."""
_HARMLESS: Final = frozenset({"alias", "author", "branch", "color", "committer", "init", "safe", "url", "user"})
"""Sections that name no program, or one that somebody asks for by name."""
_WHERE: Final = frozenset({"remote.url", "remote.pushurl", "remote.fetch", "remote.push", "submodule.url"})
HOOKS: Final = (
    *(b"applypatch-msg", b"pre-applypatch", b"post-applypatch", b"pre-commit", b"pre-merge-commit"),
    *(b"prepare-commit-msg", b"commit-msg", b"post-commit", b"pre-rebase", b"post-checkout", b"post-merge"),
    *(b"pre-push", b"pre-receive", b"update", b"proc-receive", b"post-receive", b"post-update"),
    *(b"reference-transaction", b"push-to-checkout", b"pre-auto-gc", b"post-rewrite", b"sendemail-validate"),
    *(b"fsmonitor-watchman", b"p4-changelist", b"p4-prepare-changelist", b"p4-post-changelist", b"p4-pre-submit"),
    b"post-index-change",
)
"""Every name that git runs a hook by (githooks(5))."""
_WORD: Final = Pattern(r"[^\s;|&()<>\"'`=$!]+")


def obeyed(top: Path) -> Iterator[Path]:
    """Yield what the repository of the work tree ``top`` names: files, and directories of hooks. It blocks.

    A word of a command counts where it leads to a file, or says by a slash that it is one.
    """
    found = place_of(top)
    if found is None:
        return
    own, common = found
    todo = [own / "config.worktree", common / "config"]
    read: set[Path] = set()
    while todo and len(read) < MAX_FILES:
        file = todo.pop()
        if file in read:
            continue
        read.add(file)
        for setting in settings(read_file(file, MAX_CONFIG_BYTES), MAX_SETTINGS):
            section, key, value = _split(setting)
            if not value or section in _HARMLESS or f"{section}.{key}" in _WHERE:
                continue
            if section in _INCLUDED:
                included = _path(file.parent, value)
                todo.append(included)
                yield included
            elif f"{section}.{key}" in _OBEYED or setting[0] in _OBEYED:
                yield _path(top, value)
                if key == "hookspath":
                    yield _path(common, value)  # where the hooks of a push run
            else:
                yield from _words(top, value)


def _split(setting: Setting) -> tuple[str, str, str]:
    """Return section, key and value of a setting; no value where it can be no path."""
    name, value = setting
    section, _, rest = name.partition(".")
    return section, rest.rpartition(".")[2], value or ""


def _words(top: Path, value: str) -> Iterator[Path]:
    for word in _WORD.findall(value)[:MAX_WORDS]:
        path = _path(top, word)
        is_file = os.path.lexists(path) or "/" in word
        if is_file and not os.path.isdir(path):
            yield path


def _path(base: Path, value: str) -> Path:
    # As git does: ".." climbs from where a path really leads, but what is there is looked at by others (``led_to``).
    return base / os.path.expanduser(value)
