"""The one ignore engine: which names of a workspace an executor sees and may change (DESIGN 4.4, 4.6, 9).

Scan, export, archive and audit all ask the same ``Rules``, so that what was scanned is what is exported, and what is
exported is what is audited. Only names decide, never contents or what exists: a rule holds for a name that is about to
be created as well.

Weak: a name tells nothing of what is inside. A secret in a file with a plain name goes along, unless the delegator's
own patterns hide it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sublet.protocol.bounds import GitMode
from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.git import rules as git_rules
from sublet.workspace.git.rules import REPOSITORY
from sublet.workspace.view import locked_names
from sublet.workspace.view.compiled import compiled, from_the_root
from sublet.workspace.view.patterns import PathPattern, fold

MAX_PATTERNS: Final = 1_000
MAX_CACHED_BYTES: Final = 4 << 20
"""Bytes of name components whose answer is remembered, with what keeps them; the cache starts afresh beyond it."""
MAX_CACHED_NAME: Final = 255
"""Bytes of a name that is remembered: no file has a longer one."""
_CACHED_OVERHEAD: Final = 160
_CACHED_ANSWER: Final = 240
"""Bytes that an entry of the cache takes besides its name, and an answer that is no ordinary one, about."""

RESERVED: Final = b".sublet-"
"""Begins the names that come and go while Sublet itself changes a directory."""

SHORT: Final = "*~[0-9]*"
"""What file systems with short names (FAT, NTFS) may take for any other name: ``SECRET~1.JSO`` is ``secrets.json``."""

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
    # what comes and goes while a staged result is applied, or a file gets a copy of its own
    ".sublet-*",
)  # fmt: skip
"""Names that an executor neither sees nor creates, unless the lease reveals them."""

DEFAULT_LOCKED: Final = locked_names.patterns()
"""Names that the delegator's own tools execute later without being asked: readable, never changed through a lease."""

DEFAULT_CARRIED: Final = locked_names.carried()
"""Likewise, but free below a directory that holds packages, since these carry such names as well."""

PACKAGES: Final = locked_names.packages()
"""Names of directories that hold packages."""

_Paths = tuple[PathPattern, ...]


@dataclass(frozen=True, slots=True)
class _Name:
    """What is known of one component: the answers of name patterns, and the path patterns that may end in it."""

    hidden: bool = False
    shown: bool = False
    locked: bool = False
    carried: bool = False
    excluded: bool = False
    kept: bool = False
    included: bool = False
    writable: bool = False
    hidden_paths: _Paths = ()
    locked_paths: _Paths = ()
    carried_paths: _Paths = ()
    excluded_paths: _Paths = ()
    included_paths: _Paths = ()
    writable_paths: _Paths = ()


_ORDINARY: Final = _Name()


class Rules:
    """Hidden, locked and left-out names; implements ``ViewRules``. ``patterns`` says how they are written.

    Hidden and excluding patterns match whatever the case, since many tools and some file systems do not tell ``.ENV``
    from ``.env``; locked ones likewise, unless they are written with capitals. Those that give more, which are
    revealing, unlocking, including and writable ones, match only as written. In ``hidden`` and ``exclude``, a leading
    ``!`` makes an exception from the other patterns of the same list, and from nothing else.

    Args:
        hidden: patterns of names that are neither listed nor opened nor created, since they are secret or dangerous.
        locked: patterns of names that are read-only.
        carried: patterns of names that are read-only as well, but for those below one of ``PACKAGES``.
        revealed: patterns that take names out of ``hidden``. What lies below a hidden directory stays hidden until
            that directory is revealed, too.
        unlocked: patterns that take names out of ``locked``, likewise; never ``.git``.
        include: patterns of the only names that go along, with all that lies below them and the directories on the way
            to them; none is everything.
        exclude: patterns of names that stay where they are.
        writable: patterns of the only names that may be changed, with all that lies below them; none is everything.
            They are paths from the root, unless ``**/`` begins them. What is locked in them stays locked, and ``.git``
            goes by ``git``.
        only_adds: whether nothing may be removed, renamed or replaced but what the lease has made itself.
        folds: whether the file system may take names that differ in case for the same, so that names which are written
            with capitals are locked in any letters, and names that may be short for another one are hidden.
        git: what is shown of ``.git`` at the root (``git.rules``), whatever the patterns say.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for a pattern that could never match or is out of bounds.
    """

    __slots__ = (
        "_arguments",
        "_cache",
        "_cached_bytes",
        "_carried",
        "_excepted",
        "_excluded",
        "_folds",
        "_git",
        "_guards",
        "_hidden",
        "_included",
        "_kept",
        "_locked",
        "_notable",
        "_only_adds",
        "_revealed",
        "_selective",
        "_unlocked",
        "_writable",
    )

    def __init__(
        self,
        hidden: Sequence[str],
        locked: Sequence[str],
        revealed: Sequence[str],
        *,
        carried: Sequence[str] = (),
        unlocked: Sequence[str] = (),
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        writable: Sequence[str] = (),
        only_adds: bool = False,
        git: GitMode = "hidden",
        folds: bool = False,
    ) -> None:
        self._arguments = (hidden, locked, carried, revealed, unlocked, include, exclude, writable)
        if sum(map(len, self._arguments)) > MAX_PATTERNS:
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                f"there are more than {MAX_PATTERNS} patterns of hidden, locked, revealed, left-out and writable names",
                "Use fewer patterns; a * covers many names.",
            )
        self._folds = folds
        self._only_adds = only_adds
        self._git = git
        names = ((*hidden, SHORT) if folds else hidden, *self._arguments[1:-1], map(from_the_root, writable))
        made = compiled(*(tuple(patterns) for patterns in names), folds)
        self._hidden, self._excepted = made.hidden, made.excepted
        self._excluded, self._kept = made.excluded, made.kept
        self._locked, self._carried = made.locked, made.carried
        self._revealed, self._unlocked = made.revealed, made.unlocked
        self._included, self._writable = made.included, made.writable
        self._selective = bool(include or exclude)
        self._guards = made.guards
        self._notable = made.notable
        self._cache: dict[bytes, _Name] = {}
        self._cached_bytes = 0

    def hidden(self, parts: Sequence[bytes]) -> bool:
        """Tell whether the name neither lists nor opens, nor may be created."""
        if self._git != "hidden" and parts and parts[0] == REPOSITORY:
            return len(parts) > 1 and not git_rules.shown(parts[1:])
        for end, part in enumerate(parts, 1):
            name = self._name(part)
            if not name.hidden and not (name.hidden_paths and any(p.matches(parts[:end]) for p in name.hidden_paths)):
                continue
            if not name.shown and not self._shown_path(parts[:end]):
                return True
        return self._selective and self.left_out(parts)

    def hides(self) -> bool:
        """Tell whether any name may be hidden at all."""
        return True

    def notable(self, name: bytes) -> bool:
        """Tell whether some rule may hide or lock a name that is called so, wherever it is."""
        return self._included is not None or self._notable.matches(name)

    def secret(self, parts: Sequence[bytes]) -> bool:
        """Tell whether the name is hidden for what it may hold, so that a lease may make its own where nothing is.

        Not what the delegator chose to leave out, what Sublet keeps for itself, what is locked, nor anything of a
        repository.
        """
        if not parts or self._in_repository(parts) or self.left_out(parts) or self.directory_only(parts):
            return False
        return (
            self.hidden(parts) and not self.locked(parts) and not any(fold(part).startswith(RESERVED) for part in parts)
        )

    def left_out(self, parts: Sequence[bytes]) -> bool:
        """Tell whether the delegator chose to leave the name out; then it is hidden, whatever it is."""
        if not self._selective or self._in_repository(parts):
            return False
        for end, part in enumerate(parts, 1):
            name = self._name(part)
            above = parts[:end]
            excluded = name.excluded or any(p.matches(above) for p in name.excluded_paths)
            if excluded and not name.kept and not self._kept.path_matches(above):
                return True
        return self._included is not None and not self._includes(parts) and not self._on_the_way(parts)

    def directory_only(self, parts: Sequence[bytes]) -> bool:
        """Tell whether the name is there, or may be created, only as a directory; anything else of it is hidden."""
        if self._in_repository(parts):
            return len(parts) == 1
        return self._included is not None and bool(parts) and not self._includes(parts)

    def locked(self, parts: Sequence[bytes]) -> bool:
        """Tell whether the name may be read, but neither written, created, renamed nor removed."""
        if self._in_repository(parts):
            return self._git == "ro" or len(parts) == 1 or not git_rules.writable(parts[1:])
        if self._writable is not None and self.read_only(parts):
            return True
        packed = False
        for end, part in enumerate(parts, 1):
            name = self._name(part)
            shut = name.locked or (name.locked_paths and any(p.matches(parts[:end]) for p in name.locked_paths))
            if not shut and not packed:
                shut = name.carried or (name.carried_paths and any(p.matches(parts[:end]) for p in name.carried_paths))
            packed = packed or part in PACKAGES
            if not shut:
                continue
            if fold(part) == REPOSITORY or not self._unlocks(part, parts[:end]):
                return True
        return False

    def packed(self, parts: Sequence[bytes]) -> bool:
        """Tell whether names that packages carry are free in this directory."""
        return self._carried.floats and any(part in PACKAGES for part in parts)

    def read_only(self, parts: Sequence[bytes]) -> bool:
        """Tell whether the name is ``locked`` since only others are lent for writing."""
        if self._writable is None or not parts or self._in_repository(parts):
            return False
        for end, part in enumerate(parts, 1):
            name = self._name(part)
            if name.writable or (name.writable_paths and any(p.matches(parts[:end]) for p in name.writable_paths)):
                return False
        return True

    def only_adds(self) -> bool:
        """Tell whether the lease may remove, rename and replace nothing but what it has made itself."""
        return self._only_adds

    def kept(self, parts: Sequence[bytes]) -> bool:
        """Tell whether the name may be created, but is neither changed nor removed once it is there."""
        return len(parts) > 1 and self._in_repository(parts) and git_rules.kept(parts[1:])

    def checked(self, parts: Sequence[bytes]) -> bool:
        """Tell whether git believes what is in that file of the repository: it is looked at before it is taken."""
        return len(parts) > 1 and self._in_repository(parts) and git_rules.checked(parts[1:])

    def draft(self, parts: Sequence[bytes]) -> bool:
        """``ViewRules.draft``: a lock or a file that git is still writing."""
        return len(parts) > 1 and self._in_repository(parts) and git_rules.draft(parts[1:])

    def may_be_directory(self, parts: Sequence[bytes]) -> bool:
        """Tell whether a name that is ``checked`` or a ``draft`` may also be made as a directory."""
        return len(parts) > 1 and git_rules.may_be_directory(parts[1:])

    def bars_links(self, parts: Sequence[bytes]) -> bool:
        """Tell whether no symbolic link may be put here: the delegator's git would write through it."""
        return self._in_repository(parts)

    def guards_below(self, parts: Sequence[bytes]) -> bool:
        """Tell whether a rule is anchored below this directory.

        Such a directory is neither source nor target of a rename: moving it away would take a hidden or locked name
        from under its rule, and moving another one here would put names under a rule that reveals them.
        """
        return any(p.leads_on(parts) for p in self._guards)

    def without_repository(self) -> Rules:
        """Return the same rules with ``.git`` hidden: what is audited and compared file by file."""
        if self._git == "hidden":
            return self
        hidden, locked, carried, revealed, unlocked, include, exclude, writable = self._arguments
        return Rules(
            hidden,
            locked,
            revealed,
            carried=carried,
            unlocked=unlocked,
            include=include,
            exclude=exclude,
            writable=writable,
            only_adds=self._only_adds,
            folds=self._folds,
        )

    def _in_repository(self, parts: Sequence[bytes]) -> bool:
        return self._git != "hidden" and bool(parts) and parts[0] == REPOSITORY

    def _shown_path(self, parts: Sequence[bytes]) -> bool:
        return self._excepted.path_matches(parts) or self._revealed.path_matches(parts)

    def _unlocks(self, part: bytes, parts: Sequence[bytes]) -> bool:
        return self._unlocked.names.matches(part) or self._unlocked.path_matches(parts)

    def _includes(self, parts: Sequence[bytes]) -> bool:
        """Tell whether an including pattern names this, or something above it."""
        for end, part in enumerate(parts, 1):
            name = self._name(part)
            if name.included or any(p.matches(parts[:end]) for p in name.included_paths):
                return True
        return False

    def _on_the_way(self, parts: Sequence[bytes]) -> bool:
        """Tell whether something that is included could lie below this, if it is a directory."""
        assert self._included is not None
        if not parts or self._included.floats:
            return True
        return any(p.leads_on(parts) for p in self._included.paths)

    def _name(self, part: bytes) -> _Name:
        found = self._cache.get(part)
        if found is None:
            found = self._look_at(part)
            if len(part) <= MAX_CACHED_NAME:
                if self._cached_bytes > MAX_CACHED_BYTES:
                    self._cache, self._cached_bytes = {}, 0
                self._cache[part] = found
                self._cached_bytes += len(part) + _CACHED_OVERHEAD + (0 if found is _ORDINARY else _CACHED_ANSWER)
        return found

    def _look_at(self, part: bytes) -> _Name:
        if not self._notable.matches(part):
            return _ORDINARY  # as nearly every name is
        included, writable = self._included, self._writable
        return _Name(
            hidden=self._hidden.names.matches(part),
            shown=self._excepted.names.matches(part) or self._revealed.names.matches(part),
            locked=self._locked.names.matches(part),
            carried=self._carried.names.matches(part),
            excluded=self._excluded.names.matches(part),
            kept=self._kept.names.matches(part),
            included=included is not None and included.names.matches(part),
            hidden_paths=self._hidden.paths_ending_in(part),
            locked_paths=self._locked.paths_ending_in(part),
            carried_paths=self._carried.paths_ending_in(part),
            excluded_paths=self._excluded.paths_ending_in(part),
            included_paths=included.paths_ending_in(part) if included is not None else (),
            writable=writable is not None and writable.names.matches(part),
            writable_paths=writable.paths_ending_in(part) if writable is not None else (),
        )
