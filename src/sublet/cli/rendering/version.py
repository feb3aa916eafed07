"""The version, in a module of its own: programs ask for it to see whether we are there, and nothing else loads."""

from __future__ import annotations


def own_version() -> str:
    """Return what ``sublet --version`` prints."""
    from importlib.metadata import version

    return f"sublet {version('sublet')}"
