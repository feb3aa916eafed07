"""The words of cautions about mounts, which are the same in every answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

TIMES: Final = (
    "file times in a mount are whole seconds, so a second build within the same second may miss a change; delegate "
    "with --transport archive, or build in a directory outside the mount"
)
LOCKS: Final = (
    "file locks do not pass through a mount, so a program here that had the database open meanwhile may have lost "
    "rows; check it, and lend databases with --transport archive"
)


def without_names(told: Iterable[str]) -> list[str]:
    """Return the words of cautions without the file names, which the executor may have chosen.

    Args:
        told: what ``cautions`` returned; sentences of another version are left out.
    """
    return [words for words in (TIMES, LOCKS) if any(caution.endswith(f": {words}") for caution in told)]
