"""Where a program of this machine lies, so that a sandbox that shows nothing else can show just that."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_SYSTEM = tuple(map(Path, ("/usr", "/bin", "/sbin", "/lib", "/lib64")))


def program_paths(name: str, search_path: str) -> list[Path]:
    """Return the files and directories that ``name`` needs to run, apart from what the system has anyway.

    That is the program itself and, where it is part of a package directory of its own (a ``node_modules`` tree, or a
    ``bin`` with a ``lib`` beside it as Node, Python and Rust install them), that directory.

    Args:
        name: as in ``argv[0]``: a name to look for, or a path.
        search_path: value of PATH to look in.
    """
    found = shutil.which(name, path=search_path)
    if found is None:
        return []
    link = Path(os.path.abspath(found))
    real = Path(os.path.realpath(found))
    wanted = [link, real]
    if "node_modules" in real.parts:
        wanted.append(Path(*real.parts[: real.parts.index("node_modules") + 1]))
    for file in (link, real):
        prefix = file.parent.parent
        if file.parent.name == "bin" and (prefix / "lib").is_dir():
            wanted += [prefix / "bin", prefix / "lib"]
            if (prefix / "pyvenv.cfg").is_file():
                wanted.append(prefix / "pyvenv.cfg")
    return [path for path in dict.fromkeys(wanted) if not any(path.is_relative_to(root) for root in _SYSTEM)]
