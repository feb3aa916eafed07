"""The copy of ``.git/config`` that an executor gets: what git needs to work, and nothing else (DESIGN 4.6).

A repository's configuration names programs, other files, servers and credentials. The copy is made by a list of keys
and of the values that each may have, so that what nobody thought of is left out. No git reads it: the syntax is read by
``git.config_syntax``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from sublet.protocol.patterns import Pattern
from sublet.workspace.git.config_syntax import settings

MAX_CONFIG_BYTES: Final = 1024 * 1024
MAX_ENTRIES: Final = 5_000
MAX_VALUE_CHARS: Final = 1_024

Entry = tuple[str, str, str, str]
"""Section, subsection, key and value; section and key in lower case."""

_BOOLEAN = Pattern(r"(?i)true|false|yes|no|on|off|[01]|")
_NUMBER = Pattern(r"[0-9]{1,9}")
_WORD = Pattern(r"[A-Za-z0-9][A-Za-z0-9-]{0,31}")
_TEXT = Pattern(r"[^\x00-\x1f\x7f]{0,255}")
_REF = Pattern(r"[A-Za-z0-9._/+@%-]{1,255}|\.")
_REFSPEC = Pattern(r"\+?[A-Za-z0-9._/+@%*-]{1,255}(:[A-Za-z0-9._/+@%*-]{1,255})?")
_HOST = Pattern(r"[A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\]")
_SCP = Pattern(r"(?:([^@/:\s]*)@)?([A-Za-z0-9._-]{1,255}):([^\x00-\x1f\x7f]*)")
_URL_PATH = Pattern(r"[A-Za-z0-9._~/%+@-]{0,512}")

_PLAIN_KEYS: Final = {
    "core.repositoryformatversion": _NUMBER,
    "core.filemode": _BOOLEAN,
    "core.bare": _BOOLEAN,
    "core.ignorecase": _BOOLEAN,
    "core.precomposeunicode": _BOOLEAN,
    "core.protecthfs": _BOOLEAN,
    "core.protectntfs": _BOOLEAN,
    "core.symlinks": _BOOLEAN,
    "core.autocrlf": Pattern(_BOOLEAN.source + "|input"),
    "core.eol": _WORD,
    "core.safecrlf": Pattern(_BOOLEAN.source + "|warn"),
    "core.logallrefupdates": Pattern(_BOOLEAN.source + "|always"),
    "core.quotepath": _BOOLEAN,
    "core.sparsecheckout": _BOOLEAN,
    "core.sparsecheckoutcone": _BOOLEAN,
    "core.abbrev": Pattern(_NUMBER.source + "|auto|no"),
    "extensions.objectformat": _WORD,
    "extensions.compatobjectformat": _WORD,
    "extensions.preciousobjects": _BOOLEAN,
    "index.version": _NUMBER,
    "init.defaultbranch": _REF,
    "merge.conflictstyle": _WORD,
    "pull.rebase": _WORD,
    "pull.ff": _WORD,
}
_NAMED_KEYS: Final = {
    ("branch", "remote"): _REF,
    ("branch", "merge"): _REF,
    ("branch", "rebase"): _WORD,
    ("remote", "fetch"): _REFSPEC,
}
# The first two keep git from reading every file anew: through a mount, inodes and change times are others than in the
# delegator's index. The rest keeps it from doing by itself what an executor may not do here.
_OWN: Final[tuple[Entry, ...]] = (
    ("core", "", "checkstat", "minimal"),
    ("core", "", "trustctime", "false"),
    ("core", "", "fsmonitor", "false"),
    ("core", "", "hookspath", "/dev/null"),
    # an index is looked at whole: one that leaves out what is in another file, or in a tree, is not taken
    ("core", "", "splitindex", "false"),
    ("index", "", "sparse", "false"),
    ("gc", "", "auto", "0"),
    ("maintenance", "", "auto", "false"),
    # what comes as a pack is taken apart: packs can't be added
    ("transfer", "", "unpacklimit", "1000000"),
    ("fastimport", "", "unpacklimit", "1000000"),
)


@dataclass(frozen=True, slots=True)
class Config:
    """What a repository's configuration says, as far as it matters to a lease.

    ``copy`` is the part that may be shown; ``ref_storage`` is how references are kept.
    """

    copy: bytes
    ref_storage: str = "files"


def read_config(config: bytes) -> Config:
    """Return what ``config``, the content of ``.git/config``, says.

    What git would not parse becomes a copy of the least that makes a repository.
    """
    entries = list(_listed(config))
    last = {f"{section}.{key}": value for section, subsection, key, value in entries if not subsection}
    return Config(
        _written((*_allowed(entries), *_OWN)),
        last.get("extensions.refstorage", "files").lower(),
    )


def _listed(config: bytes) -> Iterator[Entry]:
    """Yield the entries of ``config`` as git understands them."""
    for name, value in settings(config[:MAX_CONFIG_BYTES], MAX_ENTRIES):
        section, _, rest = name.partition(".")
        subsection, _, key = rest.rpartition(".")
        if section and key and (value is None or len(value) <= MAX_VALUE_CHARS):
            yield section, subsection, key, "true" if value is None else value


def _allowed(entries: Iterable[Entry]) -> Iterator[Entry]:
    for section, subsection, key, value in entries:
        if subsection:
            if not _TEXT.fullmatch(subsection):
                continue
            if (section, key) == ("remote", "url"):
                url = _without_credentials(value)
                if url is not None:
                    yield section, subsection, key, url
                continue
            pattern = _NAMED_KEYS.get((section, key))
        else:
            pattern = _PLAIN_KEYS.get(f"{section}.{key}")
        if pattern is not None and pattern.fullmatch(value):
            yield section, subsection, key, value


def _without_credentials(url: str) -> str | None:
    """Return where ``url`` leads without user, password, query and fragment; None for a path here, or what is odd."""
    for known in (_from_url, _from_scp):
        found = known(url)
        if found is not None:
            return found
    return None


def _from_url(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return None
    if parts.scheme not in ("https", "http", "ssh", "git") or not _URL_PATH.fullmatch(parts.path):
        return None
    host = f"[{host}]" if ":" in host else host
    if not _HOST.fullmatch(host):
        return None
    user = "git@" if parts.scheme == "ssh" and parts.username == "git" else ""
    return f"{parts.scheme}://{user}{host}{f':{port}' if port else ''}{parts.path}"


def _from_scp(url: str) -> str | None:
    found = _SCP.fullmatch(url)
    if found is None or "://" in url or found[3].startswith(("/", ":")) or not _URL_PATH.fullmatch(found[3]):
        return None
    return f"{'git@' if found[1] == 'git' else ''}{found[2]}:{found[3]}"


def _written(entries: Iterable[Entry]) -> bytes:
    lines: list[str] = []
    last: tuple[str, str] | None = None
    for section, subsection, key, value in entries:
        if (section, subsection) != last:
            last = (section, subsection)
            lines.append(f"[{section} {_quoted(subsection)}]" if subsection else f"[{section}]")
        lines.append(f"\t{key} = {_quoted(value)}")
    return "\n".join([*lines, ""]).encode()


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
