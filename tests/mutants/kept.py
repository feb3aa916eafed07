"""Keeps what mutants have shown as part of the repository, so that a whole run is gathered over days and machines.

Of each module that decides there is one small file of JSON below ``tests/mutants/kept``: two branches merge these
without a conflict unless both have tried the same module. It holds as long as the text of the module is as it was, and
as long as mutants are judged as they were (``METHOD``, and the release of mutmut). A mutant is named by its number in
all that mutmut makes of that text, so what is ``silent`` may change. Who was killed is written beside the test module
that noticed, and the hash that this had: it holds as long as the test module is there, and is told where it has changed
since. Who survived is written by name, with whether it has survived the tests of other places too.

What the product's other modules say is left out of this: ``--anew`` tries everything again.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Final

from mutants.decides import PACKAGE, ROOT, TESTS
from mutants.operators import Mutant

PLACE: Final = TESTS / "mutants" / "kept"
CACHE: Final = ROOT / ".cache" / "mutants"
"""Where what tests call is remembered, which is no part of the repository."""
METHOD: Final = 1
"""How it is judged whether a mutant survives: one more makes all that is kept outdated."""
MOST_TEXTS: Final = 8
"""Of so many texts of one test module it is remembered what they call: branches share the directory."""
SHORT: Final = 20
"""Digits of a hash that are written."""
WRITE_SECONDS: Final = 5.0
"""How often what a run shows is written down at most, but for its end."""
BY_ITSELF: Final = "itself"
"""Stands for the test of a mutant that can't be compiled, never ends or ends the interpreter."""


@dataclass(frozen=True)
class Shown:
    """What a mutant has shown."""

    by: str = ""
    """The test module that has noticed, or ``BY_ITSELF``; an empty text for one that survived."""
    digest: str = ""
    """Of that test module, then."""
    name: str = ""
    """Of one that survived."""
    further: bool = False
    """Whether it survived also the tests of other places."""

    @property
    def survived(self) -> bool:
        """Whether no test has noticed."""
        return not self.by


@dataclass
class Record:
    """What the mutants of one text of a module have shown, by their numbers."""

    text: str
    """The hash of the module's text and of how mutants are judged."""
    mutants: int = 0
    """How many there were when it was written."""
    shown: dict[int, Shown] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Record | None:
        """Read a file; None where there is none."""
        if not path.exists():
            return None
        rows = json.loads(path.read_text(encoding="utf-8"))
        further = set(_numbers(rows["further"]))
        shown = {
            int(number): Shown(name=name, further=int(number) in further) for number, name in rows["survived"].items()
        }
        for test, numbers in rows["killed"].items():
            by, _, digest = test.partition(" ")
            shown |= dict.fromkeys(_numbers(numbers), Shown(by, digest))
        return cls(rows["text"], rows["mutants"], shown)

    def written(self) -> str:
        """Return the same text for the same results."""
        killed: dict[str, list[int]] = {}
        for number, one in sorted(self.shown.items()):
            if not one.survived:
                killed.setdefault(f"{one.by} {one.digest}".strip(), []).append(number)
        survived = {number: one for number, one in sorted(self.shown.items()) if one.survived}
        rows = {
            "text": self.text,
            "mutants": self.mutants,
            "tried": len(self.shown),
            "killed": {test: _ranges(killed[test]) for test in sorted(killed)},
            "survived": {str(number): one.name for number, one in survived.items()},
            "further": _ranges([number for number, one in survived.items() if one.further]),
        }
        return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


class Kept:
    """Results below one directory."""

    def __init__(self, place: Path = PLACE, root: Path = ROOT, package: Path = PACKAGE) -> None:
        """Remember the places.

        Args:
            place: the directory; it is made when there is something to keep.
            root: of the repository.
            package: below which the modules are.
        """
        self.place, self._root, self._package = place, root, package
        self._records: dict[str, Record] = {}
        self._counts: dict[str, int] = {}
        self._unwritten: set[str] = set()
        self._digests: dict[str, str] = {}
        self._wrote = time.monotonic()

    def known(self, file: str) -> dict[int, Shown]:
        """Return what holds still of the mutants of a module, by their numbers."""
        shown = self._record(file).shown
        return {number: one for number, one in shown.items() if one.survived or self._is_there(one.by)}

    def outdated(self, file: str) -> bool:
        """Tell whether there are results, but of another text of the module, or judged in another way."""
        record = Record.read(self._path(file))
        return record is not None and record.text != self._text(file)

    def changed_since(self, shown: Shown) -> bool:
        """Tell whether the test module that has noticed has changed since."""
        return shown.by not in ("", BY_ITSELF) and self._digest_of(shown.by) != shown.digest

    def strangers(self, files: Iterable[str]) -> list[str]:
        """Return the files here that are of none of these modules."""
        known = {self._path(file) for file in files}
        return [
            path.relative_to(self.place).as_posix() for path in sorted(self.place.rglob("*.json")) if path not in known
        ]

    def counted(self, file: str, count: int) -> None:
        """Remember how many mutants a module has."""
        self._counts[file] = count

    def note(self, mutant: Mutant, *, survived: bool, tests: Sequence[str], further: bool = False) -> None:
        """Keep what a mutant has shown just now.

        Args:
            mutant: which.
            survived: whether no test noticed.
            tests: id of the test that has noticed; several or none say that it was not a test.
            further: whether those that it survived are of other places.
        """
        if survived:
            shown = Shown(name=mutant.name, further=further)
        elif len(tests) == 1:
            by = tests[0].partition("::")[0]
            shown = Shown(by, self._digest_of(by))
        else:
            shown = Shown(BY_ITSELF)
        self._record(mutant.file).shown[mutant.number] = shown
        self._unwritten.add(mutant.file)
        if time.monotonic() - self._wrote > WRITE_SECONDS:
            self.write()

    def write(self) -> None:
        """Write down what was noted."""
        for file in sorted(self._unwritten):
            path, record = self._path(file), self._record(file)
            record.mutants = self._counts.get(file, record.mutants)
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_suffix(".new")
            beside.write_text(record.written(), encoding="utf-8")
            beside.replace(path)
        self._unwritten.clear()
        self._wrote = time.monotonic()

    def _record(self, file: str) -> Record:
        if file not in self._records:
            record, text = Record.read(self._path(file)), self._text(file)
            self._records[file] = record if record is not None and record.text == text else Record(text)
        return self._records[file]

    def _digest_of(self, by: str) -> str:
        if by not in self._digests:
            self._digests[by] = _of_file(self._root / by)
        return self._digests[by]

    def _is_there(self, by: str) -> bool:
        return by == BY_ITSELF or (self._root / by).is_file()

    def _path(self, file: str) -> Path:
        return self.place / Path(file).with_suffix(".json")

    def _text(self, file: str) -> str:
        text = (self._package / file).read_text(encoding="utf-8")
        return _digest(f"{METHOD} {version('mutmut')}\n{text}")


def _ranges(numbers: Iterable[int]) -> str:
    """Write numbers in order shortly: ``0-7 9``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return " ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in parts)


def _numbers(ranges: str) -> list[int]:
    found: list[int] = []
    for part in ranges.split():
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def forget_oldest(folder: Path, suffix: str) -> None:
    """Leave room for one file more of a few."""
    paths = sorted(folder.glob(f"*{suffix}"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in paths[MOST_TEXTS - 1 :]:
        path.unlink(missing_ok=True)


def digest_of_folder(folder: Path) -> str:
    """Return a hash of all files below a directory, or of a single file."""
    paths = [folder] if folder.is_file() else sorted(folder.rglob("*"))
    files = (path for path in paths if path.is_file() and "__pycache__" not in path.parts)
    return _digest("".join(f"{path.relative_to(folder)} {_of_file(path)}\n" for path in files))


def _of_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:SHORT] if path.is_file() else ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:SHORT]
