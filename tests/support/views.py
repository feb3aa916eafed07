"""The rules that most tests lend by."""

from __future__ import annotations

from collections.abc import Sequence

from sublet.workspace.view.rules import DEFAULT_CARRIED, DEFAULT_HIDDEN, DEFAULT_LOCKED, Rules


def default_rules(revealed: Sequence[str] = (), *, hidden: Sequence[str] = (), locked: Sequence[str] = ()) -> Rules:
    """Return the default rules, widened by ``hidden`` and ``locked``, with ``revealed`` shown after all.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for a bad pattern.
    """
    return Rules((*DEFAULT_HIDDEN, *hidden), (*DEFAULT_LOCKED, *locked), revealed, carried=DEFAULT_CARRIED)
