"""What is in a directory."""

from __future__ import annotations

from pathlib import Path


def contents(directory: Path) -> dict[str, bytes]:
    """Return every file below a directory with its content, by its path from there."""
    files = (path for path in sorted(directory.rglob("*")) if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}
