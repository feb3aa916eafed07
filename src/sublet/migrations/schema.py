"""What a database looks like in this version, and how each older version is brought to it.

A change of the tables is one more ``Migration`` at the end of a schema's list; ``create`` makes the newest form at
once. A migration is never changed once a release has it: databases exist that went through it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class Tables(Protocol):
    """The part of a connection that a migration uses: nothing of it ends the transaction that surrounds all steps."""

    def execute(self, sql: str, parameters: Sequence[object] = (), /) -> Any:
        """Run one statement and return its cursor."""

    def executemany(self, sql: str, parameters: Iterable[Sequence[object]], /) -> Any:
        """Run one statement once for each of the parameters."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One step from the version before.

    Args:
        to: the version that it leads to.
        what: what it changes, in a few words for the log and the documentation.
        change: changes tables and rows inside the transaction. It knows the tables as they were then, so it uses no
            type and no constant of today's code.
    """

    to: int
    what: str
    change: Callable[[Tables], None]


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of one database.

    Args:
        what: what the database holds, as people read it: ``the rooms``.
        version: of the tables now, as ``PRAGMA user_version`` keeps it.
        create: statements that make a new database of this version.
        migrations: all steps from the oldest version that is taken up, in order.
        application_id: tells our file from any other SQLite file; 0 where it has none.
    """

    what: str
    version: int
    create: tuple[str, ...]
    migrations: tuple[Migration, ...] = ()
    application_id: int = 0

    def __post_init__(self) -> None:
        steps = [one.to for one in self.migrations]
        if steps != list(range(self.oldest + 1, self.version + 1)):
            raise ValueError(f"the migrations of {self.what} do not lead to version {self.version} one by one: {steps}")

    @property
    def oldest(self) -> int:
        """The oldest version that can be brought to this one."""
        return self.version - len(self.migrations)

    def steps_from(self, version: int) -> tuple[Migration, ...]:
        """Return the steps that a database of ``version`` still needs, in order."""
        return self.migrations[version - self.oldest :]
