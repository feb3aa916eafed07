"""Compiles the modules of tests before workers of pytest start, each of which would do it for itself at the same time.

``python -m support.compiled`` takes a quarter of a minute in a new checkout and nothing in one that is known. pytest
offers no way to compile test modules, as it changes their assertions, without importing them as well; so this leans on
a private part of it, and ``test_compiled.py`` says when that is another one.
"""

from __future__ import annotations

import importlib.util
import os
import py_compile
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from _pytest.assertion import rewrite

ROOT: Final = Path(__file__).parents[2]
PLACES: Final = ("src", "tests", "benchmarks", "examples")
_QUIET: Final[Any] = SimpleNamespace(trace=lambda _: None)


def compile_one(path: Path) -> bool:
    """Compile a module for whoever imports it, unless that was done; return whether it was done now."""
    if path.name.startswith("test_") or path.name == "conftest.py":
        return _compile_for_pytest(path)
    compiled = Path(importlib.util.cache_from_source(str(path)))
    if _is_of(compiled, path):
        return False
    py_compile.compile(str(path), doraise=True)
    return True


def modules(root: Path = ROOT) -> list[Path]:
    """Return the modules of a checkout that are imported from there."""
    return [path for place in PLACES for path in sorted((root / place).rglob("*.py"))]


def _compile_for_pytest(path: Path) -> bool:
    cached = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
    if rewrite._read_pyc(path, cached) is not None:
        return False
    cached.parent.mkdir(parents=True, exist_ok=True)
    digest, code = rewrite._rewrite_test(path, None)  # type: ignore[arg-type]  # there is none; it says no more
    rewrite._write_pyc(_QUIET, code, digest, cached)
    return True


def _is_of(compiled: Path, path: Path) -> bool:
    """Tell whether a compiled module is that of a source, as Python itself does."""
    try:
        head = compiled.read_bytes()[:16]
    except OSError:
        return False
    source = path.stat()
    numbers = [int.from_bytes(head[at : at + 4], "little") for at in (4, 8, 12)]
    return head[:4] == importlib.util.MAGIC_NUMBER and numbers == [0, int(source.st_mtime), source.st_size]


def main() -> None:
    """Compile all that is not compiled, by as many processes as there are processors."""
    sys.dont_write_bytecode = False
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, modules(), chunksize=16))


if __name__ == "__main__":
    main()
