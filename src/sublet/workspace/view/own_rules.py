"""The rules of a lease as they are when it has ended: what it made itself under hidden names is seen and told."""

from __future__ import annotations

from collections.abc import Sequence

from sublet.workspace.export import ViewRules
from sublet.workspace.own_names import OwnNames


class OwnShown:
    """Rules that hide no name of the lease's own; all else is as the rules have it.

    Args:
        rules: those of the lease.
        own: what it made under hidden names where nothing was.
    """

    def __init__(self, rules: ViewRules, own: OwnNames) -> None:
        self._rules = rules
        self._own = own

    def hides(self) -> bool:
        """As the rules have it."""
        return self._rules.hides()

    def notable(self, name: bytes) -> bool:
        """As the rules have it."""
        return self._rules.notable(name)

    def secret(self, parts: Sequence[bytes]) -> bool:
        """As the rules have it."""
        return self._rules.secret(parts)

    def hidden(self, parts: Sequence[bytes]) -> bool:
        """Tell whether the name is hidden, and none that the lease made."""
        return self._rules.hidden(parts) and self._own.at(parts) is None

    def left_out(self, parts: Sequence[bytes]) -> bool:
        """As the rules have it."""
        return self._rules.left_out(parts)

    def directory_only(self, parts: Sequence[bytes]) -> bool:
        """As the rules have it."""
        return self._rules.directory_only(parts)

    def locked(self, parts: Sequence[bytes]) -> bool:
        """As the rules have it."""
        return self._rules.locked(parts)

    def packed(self, parts: Sequence[bytes]) -> bool:
        """As the rules have it."""
        return self._rules.packed(parts)

    def read_only(self, parts: Sequence[bytes]) -> bool:
        """As the rules have it."""
        return self._rules.read_only(parts)

    def only_adds(self) -> bool:
        """As the rules have it."""
        return self._rules.only_adds()

    def kept(self, parts: Sequence[bytes]) -> bool:
        """As the rules have it."""
        return self._rules.kept(parts)

    def checked(self, parts: Sequence[bytes]) -> bool:
        """As the rules have it."""
        return self._rules.checked(parts)

    def draft(self, parts: Sequence[bytes]) -> bool:
        """As the rules have it."""
        return self._rules.draft(parts)

    def may_be_directory(self, parts: Sequence[bytes]) -> bool:
        """As the rules have it."""
        return self._rules.may_be_directory(parts)

    def bars_links(self, parts: Sequence[bytes]) -> bool:
        """As the rules have it."""
        return self._rules.bars_links(parts)

    def guards_below(self, parts: Sequence[bytes]) -> bool:
        """As the rules have it."""
        return self._rules.guards_below(parts)

    def without_repository(self) -> OwnShown:
        """Return the same for what is compared file by file."""
        return OwnShown(self._rules.without_repository(), self._own)


def with_own(rules: ViewRules, own: OwnNames | None) -> ViewRules:
    """Return the rules by which a lease is looked at that has made ``own``."""
    return OwnShown(rules, own) if own else rules
