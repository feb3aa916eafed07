"""How every benchmark shows what it measured: a table, JSON, or its part of a page in docs."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from sublet.daemon.logs.logging import configure_logging

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "benchmarks.md"
RELIABILITY = DOCS / "reliability.md"
HEAD = ("what", "measured", "goal", "peer", "ratio")


@dataclass(frozen=True, slots=True)
class Row:
    """One figure.

    Args:
        what: what was measured.
        value: the figure itself.
        unit: its unit, as text after it.
        detail: further figures of the same measurement, as text.
        goal: what DESIGN 12 asks for, as text; empty where it says nothing.
        met: whether the goal is met; None where there is none.
        peer: what a peer took for the same in the same run, as text.
        ratio: ours by the peer's.
    """

    what: str
    value: float
    unit: str
    detail: str = ""
    goal: str = ""
    met: bool | None = None
    peer: str = ""
    ratio: float | None = None

    def cells(self) -> tuple[str, ...]:
        """Return the row as text, in the order of ``HEAD``."""
        measured = f"{_figure(self.value)} {self.unit}" + (f" ({self.detail})" if self.detail else "")
        goal = self.goal + ("" if self.met is None else ", met" if self.met else ", MISSED")
        return self.what, measured, goal, self.peer, "" if self.ratio is None else f"{self.ratio:.2f}"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 1 else f"{value:.2f}"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that ``show`` obeys; what parts of the product log in this process goes to stderr."""
    configure_logging("warning")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--markdown", action="store_true", help="write the table into its page in docs as well")


def show(name: str, rows: Sequence[Row], options: argparse.Namespace, page: Path = PAGE) -> None:
    """Print ``rows`` as the options say.

    Args:
        name: of the benchmark, as in the page's markers ``<!-- benchmark:NAME -->`` and ``<!-- /benchmark -->``.
        rows: what was measured.
        options: parsed with the options of ``add_options``.
        page: where ``--markdown`` writes it.
    """
    if options.json:
        print(json.dumps({"benchmark": name, "machine": machine(), "rows": [asdict(row) for row in rows]}))
    else:
        print(_table(rows))
        if os.getloadavg()[0] > (os.cpu_count() or 1):
            print(f"The machine is busy (load {os.getloadavg()[0]:.1f}): trust the ratios, not the absolute figures.")
    if options.markdown:
        write(name, rows, page)


def machine() -> str:
    """Return what the figures depend on, and when they were taken; the load is that of the benchmark and all else."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return (
        f"{os.cpu_count()} cores of {model}, {memory:.0f} GiB, Linux {platform.release().partition('-')[0]}, "
        f"Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}; {time.strftime('%Y-%m-%d', time.gmtime())}"
    )


def write(name: str, rows: Sequence[Row], page: Path) -> None:
    """Replace what stands between the markers of ``name`` on ``page``.

    Raises:
        SystemExit: the page has no such markers.
    """
    write_table(name, HEAD, [row.cells() for row in rows], page)


def write_table(name: str, head: Sequence[str], rows: Sequence[Sequence[str]], page: Path, note: str = "") -> None:
    """Replace what stands between the markers of ``name`` on ``page`` by a table, ``note`` and what it was run on.

    Raises:
        SystemExit: the page has no such markers.
    """
    told = f"{note} {machine()}." if note else f"{machine()}."
    write_part(name, f"{markdown_table(head, rows)}\n\n{told}", page)


def write_part(name: str, said: str, page: Path) -> None:
    """Replace what stands between the markers of ``name`` on ``page`` by ``said``.

    Raises:
        SystemExit: the page has no such markers.
    """
    part = f"<!-- benchmark:{name} -->\n{said}\n<!-- /benchmark -->"
    text, count = re.subn(
        rf"<!-- benchmark:{name} -->\n.*?<!-- /benchmark -->",
        lambda _: part,
        page.read_text(encoding="utf-8"),
        flags=re.DOTALL,
    )
    if count != 1:
        sys.exit(f"{page} has no place for {name}")
    page.write_text(text, encoding="utf-8")


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table for a page."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)])


def _table(rows: Sequence[Row]) -> str:
    return text_table(HEAD, [row.cells() for row in rows])


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table for a terminal."""
    cells = [head, *rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(head))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in cells)
