"""The fences of a page: what each is, and what its note says is done with it.

A note is a comment on the line before a fence, ``<!-- fence: WORDS; WORDS -->``. Without one, shell fences are run by
Alice and others are drawings, which nothing runs. Notes:

- ``as bob``: Bob runs it;
- ``fails COMMAND``: the commands that begin so fail, and no others;
- ``ends by Ctrl-C after TEXT``: it goes on for ever, and is interrupted once it has printed the text;
- ``output of COMMAND``: Alice runs the command, and the fence is what it prints;
- ``loads as KIND``: the loader of that kind takes it; ``in force as KIND`` puts it in force as well, at Alice's;
- ``excerpt of FILE``: the file says the same;
- ``walked``: ``e2e/test_readme_walk.py`` runs it on a clean clone, with the real Claude Code, and no other test does;
- ``sketch``: code that compiles, and is run by nobody;
- ``not run: REASON``: one of ``REASONS``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SHELL: Final = frozenset({"sh", "bash", "console"})
REASONS: Final = frozenset(
    {
        "needs another machine",
        "needs root",
        "installs programs of this machine",
        "takes many minutes",
    }
)
_NOTE = re.compile(r"<!-- fence: (.*?) -->\s*$")
_OPENING = re.compile(r"^(?P<indent> *)```(?P<language>[\w-]*)\s*$")


@dataclass(frozen=True)
class Fence:
    """One fence of a page; ``notes`` are the parts of its note."""

    page: str
    line: int
    language: str
    text: str
    notes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    def noted(self, words: str) -> list[str]:
        """Return what the notes that begin with ``words`` say after them."""
        return [note.removeprefix(words).strip() for note in self.notes if note.startswith(words)]

    @property
    def is_run(self) -> bool:
        """Whether its commands are run."""
        return self.language in SHELL and not any(self.noted(words) for words in ("not run", "output of", "walked"))

    @property
    def is_drawing(self) -> bool:
        """Whether it shows something that no program prints or takes."""
        return self.language in {"", "mermaid"} and not self.notes


def fences(page: Path, root: Path = ROOT) -> Iterator[Fence]:
    """Yield the fences of a page, in order.

    Args:
        page: the page.
        root: the checkout that it belongs to.

    Raises:
        ValueError: a fence does not end.
    """
    lines = page.read_text(encoding="utf-8").splitlines()
    name = page.relative_to(root).as_posix()
    number = 0
    while number < len(lines):
        if (opening := _OPENING.match(lines[number])) is None:
            number += 1
            continue
        noted = _NOTE.search(lines[number - 1]) if number else None
        notes = tuple(part.strip() for part in noted[1].split(";")) if noted else ()
        indent = len(opening["indent"])
        end = next((at for at in range(number + 1, len(lines)) if lines[at].strip() == "```"), None)
        if end is None:
            raise ValueError(f"{name}:{number + 1}: this fence does not end")
        text = "".join(f"{line[indent:]}\n" for line in lines[number + 1 : end])
        yield Fence(name, number + 1, opening["language"], text, notes)
        number = end + 1


def steps(fence: Fence, *, by_lines: bool = False) -> list[tuple[str, str | None]]:
    """Return the commands of a shell fence, each with the output that is shown for it, None where none is."""
    if fence.language != "console":
        return [(line, None) for line in fence.text.splitlines()] if by_lines else [(fence.text, None)]
    found: list[tuple[str, str | None]] = []
    for line in fence.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:] + "\n", None))
        else:
            command, shown = found[-1]
            found[-1] = (command, f"{shown or ''}{line}\n")
    return found


def shows(shown: str, printed: str) -> bool:
    """Tell whether a page shows what was printed: ``…`` stands for anything; JSON counts by its value."""
    wanted = ".*?".join(re.escape(part) for part in shown.strip().split("…"))
    if re.fullmatch(wanted, printed.strip(), re.DOTALL) is not None:
        return True
    try:
        return bool(json.loads(shown) == json.loads(printed))
    except ValueError:
        return False
