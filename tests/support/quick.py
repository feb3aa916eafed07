"""Tells which test modules ``make check`` runs: those that start nothing.

Nobody keeps a list. A module is quick where it tests one package of ``src`` (its directory has that package's name) or
lies beside those directories, and where neither it nor a helper below ``tests`` that it imports starts a program: all
daemons, mounts and browsers of tests come to be by a helper that does.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[1]
PACKAGES: Final = TESTS.parent / "src" / "sublet"
STARTS: Final = re.compile(
    r"^\s*(?:import|from) +(?:subprocess|pty)\b"
    r"|\b(?:create_subprocess_exec|create_subprocess_shell|open_process|run_process|StdioServerParameters|os\.fork)\("
    r"|^\s*from sublet\.app\.running import",
    re.MULTILINE,
)
"""What starts a program, or a whole daemon in the process of the tests, in the text of a module."""
_IMPORTED: Final = re.compile(r"^\s*(?:from +([\w.]+) +import +(\([^)]*\)|[^\n#]*)|import +([\w.]+))", re.MULTILINE)


def is_quick(path: Path) -> bool:
    """Tell whether a test module starts nothing."""
    inner = path.relative_to(TESTS).parts
    return (len(inner) == 1 or (PACKAGES / inner[0]).is_dir()) and not starts_programs(path)


def starts_programs(path: Path) -> bool:
    """Tell whether a module below ``tests``, or one there that it imports, starts programs."""
    seen: set[Path] = set()
    left = [path]
    while left:
        one = left.pop()
        if one not in seen:
            seen.add(one)
            starts, imports = _read(one)
            if starts:
                return True
            left += imports
    return False


def imported(text: str) -> list[str]:
    """Return the dotted names that a module imports, at its top or later: modules, and what it takes from them."""
    names = []
    for module, members, plain in _IMPORTED.findall(text):
        names += [plain] if plain else [module, *(f"{module}.{name}" for name in re.findall(r"\w+", members))]
    return names


@cache
def _read(path: Path) -> tuple[bool, tuple[Path, ...]]:
    """Return whether a module starts programs itself, and the modules below ``tests`` that it imports."""
    text = path.read_text(encoding="utf-8")
    places = [TESTS.joinpath(*name.split(".")) for name in imported(text)]
    files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()]
    return STARTS.search(text) is not None, tuple(files)
