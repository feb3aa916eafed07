"""The one ignore engine: which names of a workspace an executor sees and may change (DESIGN 4.4, 4.6, 9).

Scan, export, archive and audit all ask the same ``Rules``, so that what was scanned is what is exported, and what is
exported is what is audited. Only names decide, never contents or what exists: a rule holds for a name that is about to
be created as well.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sublet.protocol.errors import LocalCode, SubletError

MAX_PATTERNS: Final = 1_000
MAX_PATTERN_BYTES: Final = 1_024
MAX_CACHED_NAMES: Final = 65_536
"""Distinct name components whose answer is remembered; the cache starts afresh beyond it."""

DEFAULT_HIDDEN: Final = (
    # environment files; what documents their shape stays visible
    ".env", ".env.*", ".env-*", ".env_*", ".env~", "..env.sw?", "*.env",
    "!.env.example", "!.env.sample", "!.env.template", "!.env.dist", "!example.env", "!sample.env", "!template.env",
    # private keys and key stores
    "*.pem", "*.key", "*.p12", "*.pfx", "*.p8", "*.jks", "*.keystore", "*.kdbx", "*.ppk", "*.gpg-key",
    "id_rsa*", "id_ed25519*", "id_ecdsa*", "id_dsa*", "id_xmss*", "!id_*.pub",
    # credentials of tools
    "credentials.json", "credentials.toml", "service-account*.json", "service_account*.json", "client_secret*.json",
    "application_default_credentials.json", "secrets.json", "secrets.yml", "secrets.yaml", "secrets.toml",
    ".npmrc", ".pypirc", ".netrc", "_netrc", ".git-credentials", ".pgpass", ".my.cnf", ".s3cfg", ".boto",
    ".vault-token", ".htpasswd", "*.tfstate", "*.tfstate.*", "*.tfvars", "*.tfvars.json",
    ".aws", ".azure", ".ssh", ".gnupg", ".kube", ".password-store",
    "**/.docker/config.json", "**/.config/gcloud", "**/.config/gh", "**/.cargo/credentials", "**/.gem/credentials",
    # repository data, at any depth, as directory or as the file that points to one
    ".git",
    # these stay hidden when ``.git`` is revealed: remotes in them carry tokens
    "**/.git/config", "**/.git/config.worktree", "**/.git/modules",
    # what comes and goes while a staged result is applied
    ".sublet-apply-*",
)  # fmt: skip
"""Names that an executor neither sees nor creates, unless the lease reveals them."""

DEFAULT_LOCKED: Final = (
    # read by git for whoever enters the directory; a file named HEAD makes its directory a bare repository
    ".git", "HEAD", ".githooks", ".husky", ".gitconfig", ".hg", ".pre-commit-config.yaml",
    "lefthook.yml", "lefthook.yaml", ".lefthook.yml", ".lefthook.yaml", "lefthook-local.yml", ".overcommit.yml",
    # run by the shell or its helpers on entering the directory or logging in
    ".envrc", ".direnv", ".autoenv", ".autoenv.zsh", ".tool-versions", ".mise", ".mise.toml", "mise.toml",
    ".rtx.toml", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".kshrc",
    ".cshrc", ".tcshrc", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".inputrc", ".xprofile",
    ".xinitrc", ".xsessionrc",
    "**/.config/fish", "**/.config/autostart", "**/.config/systemd",
    # run by agents, editors and containers when the directory is opened
    ".claude", ".mcp.json", ".cursor", ".codex", ".gemini", ".windsurf", ".continue", ".roo", ".kiro", ".opencode",
    ".vscode", "*.code-workspace", ".idea", "*.iml", ".fleet", ".zed", ".devcontainer", ".devcontainer.json",
    ".vim", ".vimrc", ".exrc", ".nvimrc", ".nvim.lua", ".lvimrc", ".emacs", ".emacs.d",
    ".dir-locals.el", ".dir-locals-2.el",
    # run by debuggers and interpreters that start in the directory
    ".gdbinit", ".lldbinit", ".pdbrc", ".pythonrc", ".irbrc", ".pryrc", ".rprofile", ".psqlrc",
)  # fmt: skip
"""Names that the lender's own tools execute later without being asked: readable, never changed through a lease."""

_ANY_DEPTH = b"**"
_Component = re.Pattern[bytes]


@dataclass(frozen=True, slots=True)
class _PathPattern:
    """A pattern of several components; ``floating`` ones match at any depth, the others from the root."""

    components: tuple[_Component, ...]
    floating: bool

    def matches(self, parts: Sequence[bytes]) -> bool:
        """Tell whether ``parts`` is exactly what the pattern names."""
        size = len(self.components)
        if len(parts) < size or (not self.floating and len(parts) != size):
            return False
        tail = parts[len(parts) - size :]
        return all(c.match(p) for c, p in zip(self.components, tail, strict=True))

    def is_below(self, parts: Sequence[bytes]) -> bool:
        """Tell whether ``parts`` is a proper ancestor of what the pattern names."""
        longest = len(self.components) - 1
        if not self.floating:
            return len(parts) <= longest and self._starts_with(parts)
        return any(self._starts_with(parts[len(parts) - n :]) for n in range(1, min(longest, len(parts)) + 1))

    def _starts_with(self, parts: Sequence[bytes]) -> bool:
        return all(c.match(p) for c, p in zip(self.components, parts, strict=False))


@dataclass(frozen=True, slots=True)
class _Name:
    """What is known of one component: the answers of name patterns, and the path patterns that may end in it."""

    hidden: bool
    shown: bool
    locked: bool
    hidden_paths: tuple[_PathPattern, ...]
    locked_paths: tuple[_PathPattern, ...]


_ORDINARY: Final = _Name(hidden=False, shown=False, locked=False, hidden_paths=(), locked_paths=())


class _AnyOf:
    """Patterns of one component: those that hold whatever the case as one expression, the others as one more."""

    __slots__ = ("_folded", "_written")

    def __init__(self, folded: Iterable[bytes], written: Iterable[bytes]) -> None:
        self._folded = _alternatives(folded)
        self._written = _alternatives(written)

    def matches(self, name: bytes) -> bool:
        """Tell whether one of them matches this component."""
        return bool(
            (self._folded is not None and self._folded.match(name.lower()))
            or (self._written is not None and self._written.match(name))
        )


class _PatternSet:
    """Patterns of one purpose: names as one, paths one by one.

    ``last_folded`` and ``last_written`` are the last components of all of them.
    """

    __slots__ = ("last_folded", "last_written", "names", "paths")

    def __init__(self, patterns: Iterable[str], *, fold: bool, smart_case: bool = False) -> None:
        folded: list[bytes] = []
        written: list[bytes] = []
        self.last_folded: list[bytes] = []
        self.last_written: list[bytes] = []
        paths: list[_PathPattern] = []
        for pattern in patterns:
            components, floating, anchored = _split(pattern)
            as_written = not fold or (smart_case and any(c.lower() != c for c in components))
            sources = [_translate(c if as_written else c.lower()) for c in components]
            (self.last_written if as_written else self.last_folded).append(sources[-1])
            if len(sources) == 1 and not anchored:
                (written if as_written else folded).append(sources[0])
            else:
                flags = 0 if as_written else re.IGNORECASE
                paths.append(_PathPattern(tuple(re.compile(s, flags) for s in sources), floating))
        self.names = _AnyOf(folded, written)
        self.paths = tuple(paths)

    def path_matches(self, parts: Sequence[bytes]) -> bool:
        """Tell whether a path pattern names exactly this path."""
        return any(p.matches(parts) for p in self.paths)

    def paths_ending_in(self, name: bytes) -> tuple[_PathPattern, ...]:
        """Return the path patterns whose last component matches ``name``; for nearly every name there is none."""
        return tuple(p for p in self.paths if p.components[-1].match(name))


class Rules:
    """Hidden, locked and revealed names; implements ``ViewRules``.

    A pattern without a slash matches a component at any depth, and with it all that lies below. A pattern with a slash
    is anchored at the workspace root (``/build`` is the top-level one only); after a leading ``**/`` it matches at any
    depth. Each component is an ``fnmatch`` pattern over bytes. In ``hidden``, a leading ``!`` makes an exception.

    Hidden patterns match whatever the case, since many tools and some file systems do not tell ``.ENV`` from ``.env``;
    locked ones likewise, unless they are written with capitals; revealing ones only as written.

    Args:
        hidden: patterns of names that are neither listed nor opened nor created.
        locked: patterns of names that are read-only.
        revealed: patterns that take names out of ``hidden``. What lies below a hidden directory stays hidden until
            that directory is revealed, too.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for a pattern that could never match or is out of bounds.
    """

    __slots__ = ("_cache", "_excepted", "_guards", "_hidden", "_locked", "_notable", "_revealed")

    def __init__(self, hidden: Sequence[str], locked: Sequence[str], revealed: Sequence[str]) -> None:
        if len(hidden) + len(locked) + len(revealed) > MAX_PATTERNS:
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                f"there are more than {MAX_PATTERNS} patterns of hidden, locked and revealed names",
                "Use fewer patterns; a * covers many names.",
            )
        self._hidden = _PatternSet((p for p in hidden if not p.startswith("!")), fold=True)
        self._excepted = _PatternSet((p[1:] for p in hidden if p.startswith("!")), fold=True)
        self._revealed = _PatternSet(revealed, fold=False)
        self._locked = _PatternSet(locked, fold=True, smart_case=True)
        self._guards = self._hidden.paths + self._excepted.paths + self._revealed.paths + self._locked.paths
        sets = (self._hidden, self._excepted, self._revealed, self._locked)
        self._notable = _AnyOf(
            (last for patterns in sets for last in patterns.last_folded),
            (last for patterns in sets for last in patterns.last_written),
        )
        self._cache: dict[bytes, _Name] = {}

    def hidden(self, parts: Sequence[bytes]) -> bool:
        """Tell whether the name neither lists nor opens, nor may be created."""
        for end, part in enumerate(parts, 1):
            name = self._name(part)
            if not name.hidden and not (name.hidden_paths and any(p.matches(parts[:end]) for p in name.hidden_paths)):
                continue
            if not name.shown and not self._shown_path(parts[:end]):
                return True
        return False

    def locked(self, parts: Sequence[bytes]) -> bool:
        """Tell whether the name may be read, but neither written, created, renamed nor removed."""
        for end, part in enumerate(parts, 1):
            name = self._name(part)
            if name.locked or (name.locked_paths and any(p.matches(parts[:end]) for p in name.locked_paths)):
                return True
        return False

    def guards_below(self, parts: Sequence[bytes]) -> bool:
        """Tell whether a rule is anchored below this directory.

        Such a directory is neither source nor target of a rename: moving it away would take a hidden or locked name
        from under its rule, and moving another one here would put names under a rule that reveals them.
        """
        return any(p.is_below(parts) for p in self._guards)

    def _shown_path(self, parts: Sequence[bytes]) -> bool:
        return self._excepted.path_matches(parts) or self._revealed.path_matches(parts)

    def _name(self, part: bytes) -> _Name:
        found = self._cache.get(part)
        if found is None:
            if len(self._cache) >= MAX_CACHED_NAMES:
                self._cache.clear()
            found = self._cache[part] = self._look_at(part)
        return found

    def _look_at(self, part: bytes) -> _Name:
        if not self._notable.matches(part):
            return _ORDINARY  # as nearly every name is
        return _Name(
            hidden=self._hidden.names.matches(part),
            shown=self._excepted.names.matches(part) or self._revealed.names.matches(part),
            locked=self._locked.names.matches(part),
            hidden_paths=self._hidden.paths_ending_in(part),
            locked_paths=self._locked.paths_ending_in(part),
        )


def default_rules(revealed: Sequence[str] = (), *, hidden: Sequence[str] = (), locked: Sequence[str] = ()) -> Rules:
    """Return the default rules, widened by ``hidden`` and ``locked``, with ``revealed`` shown after all.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for a bad pattern.
    """
    return Rules((*DEFAULT_HIDDEN, *hidden), (*DEFAULT_LOCKED, *locked), revealed)


def _split(pattern: str) -> tuple[list[bytes], bool, bool]:
    """Return the components of ``pattern``, whether it matches at any depth, and whether it is anchored."""
    raw = os.fsencode(pattern)
    anchored = raw.startswith(b"/")
    components = raw.strip(b"/").split(b"/")
    floating = components[0] == _ANY_DEPTH and len(components) > 1
    if floating:
        components = components[1:]
    if len(raw) > MAX_PATTERN_BYTES or b"\0" in raw:
        raise _bad_pattern(pattern, f"is longer than {MAX_PATTERN_BYTES} bytes or holds a NUL")
    if any(c in (b"", b".", b"..") for c in components):
        raise _bad_pattern(pattern, "has an empty, . or .. component and can never match")
    if _ANY_DEPTH in components:
        raise _bad_pattern(pattern, "has ** elsewhere than at its beginning")
    return components, floating, anchored or (len(components) > 1 and not floating)


def _bad_pattern(pattern: str, why: str) -> SubletError:
    return SubletError(
        LocalCode.INVALID_ARGUMENT,
        f"the name pattern {pattern[:80]!r} {why}",
        "Write a name such as *.pem, a path from the workspace root such as conf/secret, or **/ before either.",
    )


def _translate(component: bytes) -> bytes:
    # Latin-1 maps bytes to characters one to one, so names that are not UTF-8 match byte by byte.
    return fnmatch.translate(component.decode("latin-1")).encode("latin-1")


def _alternatives(sources: Iterable[bytes]) -> _Component | None:
    joined = b"|".join(b"(?:" + s + b")" for s in sources)
    return re.compile(joined) if joined else None
