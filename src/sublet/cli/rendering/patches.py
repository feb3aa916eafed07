"""Patches as commands print them."""

from __future__ import annotations

import sys

from sublet.cli.rendering.screen import Screen


def show_patch(patch: str, screen: Screen, *, nothing: str) -> None:
    """Print a patch: coloured on a terminal, to the byte in a pipe; where it is empty, say ``nothing``."""
    if not patch:
        screen.note(nothing)
    elif screen.out.is_terminal:
        from sublet.cli.rendering.delegations import diff_text

        screen.out.print(diff_text(patch), soft_wrap=True)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(patch.encode("utf-8", "surrogateescape"))
        sys.stdout.buffer.flush()
