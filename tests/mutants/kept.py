"""Keeps what mutants have shown, so that a whole run goes on where it was stopped and tries only what changed.

Of each module there is a file of lines, named by the module and by the hash of its text and of what tries mutants
(``TOOLS``). A line holds one mutant, named by the hash of its text. That it was killed holds as long as the file of the
test that has noticed is as it was; that it survived, as long as all tests of its own place are. What the product's
other modules and tests of other places say is left out of this: ``--anew`` tries everything again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from mutants.decides import PACKAGE, ROOT
from mutants.operators import Mutant

PLACE: Final = ROOT / ".cache" / "mutants"
TOOLS: Final = ("swapping.py", "forks.py", "observed.py", "plugin.py", "anew.py")
"""The modules here that decide whether a mutant survives."""
MOST_TEXTS: Final = 8
"""Of so many texts of one module the results are kept: branches share the directory."""
SHORT: Final = 20
"""Digits of a hash that are written."""


@dataclass(frozen=True)
class Shown:
    """What a mutant has shown."""

    survived: bool
    tests: tuple[str, ...] = ()
    """Ids of the tests that it was given, if it survived."""
    further: bool = False
    """Whether it survived also the tests of other places."""


class Kept:
    """Results below one directory."""

    def __init__(self, place: Path, folders: Sequence[str], root: Path = ROOT, package: Path = PACKAGE) -> None:
        """Remember the places.

        Args:
            place: the directory; it is made when there is something to keep.
            folders: where the tests of this run are, below the root.
            root: of the repository.
            package: below which the modules are.
        """
        self.place, self._root, self._package = place, root, package
        self._folders = {folder: digest_of_folder(root / folder) for folder in folders}

    def known(self, mutants: Iterable[Mutant]) -> dict[int, Shown]:
        """Return what is known of these mutants and holds still, by their numbers."""
        found: dict[int, Shown] = {}
        rows: dict[str, Mapping[str, Any]] = {}
        file = ""
        for number, mutant in enumerate(mutants):
            if mutant.file != file:
                file = mutant.file
                rows = _rows(self._path(file))
            row = rows.get(_digest(mutant.source))
            if row is not None and self._holds(row):
                found[number] = Shown(row["survived"], tuple(row["tests"]), row["further"])
        return found

    def note(self, mutant: Mutant, *, survived: bool, tests: Sequence[str], further: bool = False) -> None:
        """Keep what a mutant has shown just now.

        Args:
            mutant: which.
            survived: whether no test noticed.
            tests: ids of the tests that it was given, or of the one that has noticed.
            further: whether these are of other places.
        """
        files = dict.fromkeys(test.partition("::")[0] for test in tests)
        row = {
            "mutant": _digest(mutant.source),
            "survived": survived,
            "tests": list(tests) if survived else [],
            "further": survived and further,
            "by": self._folders if survived else {file: _of_file(self._root / file) for file in files},
        }
        path = self._path(mutant.file)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            forget_oldest(path.parent)
        with path.open("a", encoding="utf-8") as written:
            written.write(json.dumps(row) + "\n")

    def _holds(self, row: Mapping[str, Any]) -> bool:
        by: Mapping[str, str] = row["by"]
        if row["survived"]:
            return all(by.get(folder) == digest for folder, digest in self._folders.items())
        return all(_of_file(self._root / file) == digest for file, digest in by.items())

    def _path(self, file: str) -> Path:
        return self.place / file.replace("/", ".") / f"{_of_module(self._package / file)}.jsonl"


def _rows(path: Path) -> dict[str, Mapping[str, Any]]:
    """Read what is kept, the latest of each mutant; a line that was cut off is none."""
    rows: dict[str, Mapping[str, Any]] = {}
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    for line in lines:
        if line.endswith("}\n"):
            row = json.loads(line)
            rows[row["mutant"]] = row
    return rows


def forget_oldest(folder: Path, suffix: str = ".jsonl") -> None:
    """Leave room for one file more of a few."""
    paths = sorted(folder.glob(f"*{suffix}"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in paths[MOST_TEXTS - 1 :]:
        path.unlink(missing_ok=True)


@cache
def _of_module(path: Path) -> str:
    here = Path(__file__).parent
    tools = "".join(_of_file(here / name) for name in TOOLS)
    return _digest(tools + path.read_text(encoding="utf-8"))


@cache
def _of_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:SHORT] if path.is_file() else ""


def digest_of_folder(folder: Path) -> str:
    """Return a hash of all files below a directory, or of a single file."""
    paths = [folder] if folder.is_file() else sorted(folder.rglob("*"))
    files = (path for path in paths if path.is_file() and "__pycache__" not in path.parts)
    return _digest("".join(f"{path.relative_to(folder)} {_of_file(path)}\n" for path in files))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:SHORT]
