"""Which modules decide, and which tests are theirs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from support.quick import starts_programs

TESTS: Final = Path(__file__).parent.parent
ROOT: Final = TESTS.parent
PACKAGE: Final = ROOT / "src" / "sublet"

_HOSTILE: Final = tuple(
    f"attacks/test_{name}.py"
    for name in ("view_led_to", "view_names", "view_property", "view_terms", "repository_left", "repository_rw")
)
"""Executors with raw SFTP, whose tests are tests of all that stands between them and a lent directory."""

AREAS: Final = {
    "policy": ("policy",),
    "protocol": ("protocol",),
    "workspace/view": ("workspace/view", "workspace/confined", "workspace/git", *_HOSTILE),
    "workspace/confined": ("workspace/view", "workspace/confined", "workspace/sftp", "workspace/git", *_HOSTILE),
    "workspace/sftp": ("workspace/sftp", "workspace/serving/test_login.py", *_HOSTILE),
    "supervisor/router": ("supervisor/router",),
    "messaging/reading/authorise.py": ("messaging/reading", "messaging/trust", "messaging/extensions"),
}
"""What decides, below ``src/sublet``, and where below ``tests`` its tests are: directories, and single modules."""
SETTLED: Final = "test_settled"
"""Test modules that look at what all modules of their place settle as they are loaded."""


def modules() -> Iterator[str]:
    """Return the modules that decide, below the package."""
    for area in AREAS:
        place = PACKAGE / area
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            yield path.relative_to(PACKAGE).as_posix()


def folders_of_tests(files: Iterable[str]) -> list[str]:
    """Return where the tests of these modules are, below the root of the repository, each once."""
    areas = {area for file in files for area in AREAS if file == area or file.startswith(f"{area}/")}
    folders = {folder for area in areas for folder in AREAS[area]}
    return [f"tests/{folder}" for folder in sorted(folders) if not _below(folder, folders)]


def further_tests(folders: Iterable[str]) -> list[str]:
    """Return the test modules outside of these folders that start no program."""
    places = [ROOT / folder for folder in folders]
    return [
        path.relative_to(ROOT).as_posix()
        for path in sorted(TESTS.rglob("test_*.py"))
        if "mutants" not in path.parts
        and not any(path.is_relative_to(place) for place in places)
        and not starts_programs(path)
    ]


def own_tests(file: str) -> frozenset[str]:
    """Return how the test modules that are a module's own are called (see ``tests/test_names.py``)."""
    path = PACKAGE / file
    stem = path.stem.lstrip("_")
    names = {path.parent.name} if stem == "init__" else {stem, f"{path.parent.name}_{stem}"}
    rows = (line.partition(" <- ") for line in (TESTS / "tested_by.txt").read_text(encoding="utf-8").splitlines())
    return frozenset({f"test_{name}" for name in names} | {Path(test).stem for named, _, test in rows if named == file})


def _below(folder: str, folders: set[str]) -> bool:
    return any(folder != other and folder.startswith(f"{other}/") for other in folders)
