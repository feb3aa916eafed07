"""Measures the processor time that each test takes, its daemons and commands included, for whoever makes tests cheaper.

``SUBLET_TEST_COSTS=FILE make test`` appends a line of JSON for each test to FILE; then, in ``tests``, ``python -m
support.costs FILE`` prints sums by directory and by module, dearest first. Each worker has a control group of its own
where it may make one, since daemons and commands are children of other processes; elsewhere it counts itself and the
children that it has waited for, and daemons go uncounted. What a fixture of a module costs is with the first and the
last of its tests; what is collected is with no test.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

PLACE: Final = "SUBLET_TEST_COSTS"
"""The environment variable that names the file."""
_HIERARCHIES: Final = (("/sys/fs/cgroup/cpuacct", "cpuacct.usage"), ("/sys/fs/cgroup", "cpu.stat"))
"""Where control groups count processor time: in version 1, and in version 2."""
_SHOWN: Final = 80


class ProcessorTime:
    """The processor time of this process and of all that it starts from now on, in a group if there may be one."""

    def __init__(self) -> None:
        self._group: Path | None = None
        for root, usage in _HIERARCHIES:
            group = Path(root, f"sublet-test-{os.getpid()}")
            with suppress(OSError):
                group.mkdir()
                (group / "cgroup.procs").write_text(str(os.getpid()))
                self._group, self._usage = group, group / usage
                break

    def seconds(self) -> float:
        """Return the seconds that were used."""
        if self._group is None:
            return sum(os.times()[:4])
        text = self._usage.read_text()
        return int(text) / 1e9 if text.strip().isdigit() else int(text.split()[1]) / 1e6

    def close(self) -> None:
        """Leave the group, and remove it if nothing that was started is left in it."""
        if self._group is not None:
            with suppress(OSError):
                (self._group.parent / "cgroup.procs").write_text(str(os.getpid()))
                self._group.rmdir()


class Costs:
    """Writes a line for each test.

    Args:
        place: the file, which all workers append to.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._time = ProcessorTime()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measure one test with its fixtures."""
        before, began = self._time.seconds(), time.monotonic()
        result = yield
        self._write(item.nodeid, self._time.seconds() - before, time.monotonic() - began)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Measure what is imported."""
        before, began = self._time.seconds(), time.monotonic()
        result = yield
        self._write("collection", self._time.seconds() - before, time.monotonic() - began)
        return result

    def pytest_unconfigure(self) -> None:
        """Leave the group."""
        self._time.close()

    def _write(self, name: str, processor: float, wall: float) -> None:
        with self._place.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"test": name, "processor": round(processor, 4), "wall": round(wall, 4)}) + "\n")


def main(arguments: Sequence[str]) -> None:
    """Print what the tests of some files have cost."""
    processor: dict[str, Counter[str]] = {"directory": Counter(), "module": Counter(), "test": Counter()}
    wall: Counter[str] = Counter()
    number: Counter[str] = Counter()
    for path in arguments:
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            module = row["test"].partition("::")[0]
            directory = "/".join(module.split("/")[:2])
            for kind, name in (("directory", directory), ("module", module), ("test", row["test"])):
                processor[kind][name] += row["processor"]
                wall[kind + name] += row["wall"]
                number[kind + name] += 1
    print(f"{sum(processor['directory'].values()):.0f} s of processor")
    for kind, costs in processor.items():
        print(f"\n{'processor':>9} {'wall':>8} {'tests':>6} {kind}")
        for name, seconds in costs.most_common(_SHOWN):
            print(f"{seconds:9.1f} {wall[kind + name]:8.1f} {number[kind + name]:6} {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
