"""Stages, applies and undoes a result as another user; exits 0 where all is right. Started by root with a directory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from support.staged import KEY, StagedBench, write

NOBODY = 65534


def main() -> None:
    """Give up root, then do what a user does."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    bench = StagedBench(Path(sys.argv[1]))
    bench.write("f", "mine", 0o640)
    bench.write("ro/f", "read only", 0o444)
    before = bench.state_of()
    with bench.work() as view:
        write(view, "f", "theirs")
        write(view, "new/f", "n")
        (view / "ro/f").unlink()
    assert bench.applier.apply(KEY, bench.rules).conflicts == ()
    assert bench.read("f") == "theirs"
    assert (bench.root / "new/f").stat().st_uid == NOBODY
    bench.applier.undo(KEY)
    assert bench.state_of() == before


if __name__ == "__main__":
    main()
