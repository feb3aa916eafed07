"""Finds for each field a test that turns red when it is dropped, among the files that name it: ``find.py NAME…``."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

import pytest

from fields.dropping import VARIABLE
from fields.walking import ROOTS, fields

ROOT = Path(__file__).parents[2]
PLACES = {
    "agent": ["tests/supervisor", "tests/daemon", "tests/a2a_server"],
    "config": ["tests/daemon", "tests/supervisor"],
    "delegation": ["tests/daemon", "tests/mcp_server", "tests/workspace"],
    "module": ["tests/supervisor", "tests/daemon", "tests/policy"],
    "gateway": ["tests/supervisor", "tests/daemon"],
    "policy": ["tests/policy", "tests/daemon"],
}
READERS = ("test_agent_config", "test_config", "test_schema", "test_rule_set", "test_module", "test_file_model")
SECONDS = 25


def run(field: str, tests: list[str]) -> str | None:
    """Return the first of the tests that fails while the field is dropped."""
    os.chdir(ROOT)
    os.environ[VARIABLE] = field
    with tempfile.TemporaryFile("w+") as told:
        os.dup2(told.fileno(), 1)
        os.dup2(told.fileno(), 2)
        signal.alarm(SECONDS)
        pytest.main(
            [
                "-q",
                "-x",
                "-W",
                "ignore::pytest.PytestAssertRewriteWarning",
                "-p",
                "fields.dropping",
                "-p",
                "no:cacheprovider",
                *tests,
            ]
        )
        signal.alarm(0)
        sys.stdout.flush()
        told.seek(0)
        printed = told.read()
    failed = re.search(r"^FAILED (\S+?::[^\[\s]+)", printed, re.MULTILINE)
    return failed[1] if failed else None


def find(name: str, field: str) -> str:
    """Return the row of a field, or its line among what no test observes."""
    place, _, attribute = field.rpartition(".")
    module, _, model = place.partition(":")
    told = getattr(import_module(module), model).model_fields[attribute]
    words = {attribute, told.alias or attribute}
    files = [
        file
        for folder in PLACES[name]
        for file in sorted((ROOT / folder).rglob("test_*.py"))
        if any(re.search(rf"\b{word}\b", file.read_text(encoding="utf-8")) for word in words)
    ]
    near = sorted(files, key=lambda file: file.stat().st_size)
    readers = [file for file in near if file.stem.startswith(READERS)]
    others = [file for file in near if file not in readers]
    test = run(field, [str(file.relative_to(ROOT)) for file in (*others[:4], *readers)]) if near else None
    if test is None:
        return f"{name}\tunobserved\t{field}"
    effect = (told.description or "").replace('"', "'")
    return f"{name}\trow\t{field}\t{test}\t{effect}"


def isolated(job: tuple[str, str]) -> str:
    """Find the row of a field in a process of its own, which has loaded all of this already."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.close(read)
        with suppress(BaseException):
            os.write(write, find(*job).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        line = told.read()
    os.waitpid(child, 0)
    return line or f"{job[0]}\tunobserved\t{job[1]}"


if __name__ == "__main__":
    jobs = [(name, field) for name in sys.argv[1:] for field in fields(ROOTS[name])]
    with ProcessPoolExecutor(3, get_context("fork"), max_tasks_per_child=None) as pool:
        for line in pool.map(isolated, jobs):
            print(line, flush=True)
