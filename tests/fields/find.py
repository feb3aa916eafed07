"""Finds for each field a test that turns red when it is dropped, among the files that name it: ``find.py NAME…``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

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
SECONDS = 40


def run(field: str, tests: list[str]) -> str | None:
    """Return the first of the tests that fails while the field is dropped."""
    argv = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "fields.dropping", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, VARIABLE: field, "PYTHONPATH": str(ROOT / "tests")}
    try:
        done = subprocess.run(
            argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    failed = re.search(r"^FAILED (\S+?::[^\[\s]+)", done.stdout, re.MULTILINE)
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
    near = sorted(files, key=lambda file: (file.stem.startswith(READERS), file.stat().st_size))
    test = run(field, [str(file.relative_to(ROOT)) for file in near[:12]]) if near else None
    if test is None:
        return f"unobserved\t{field}"
    effect = (told.description or "").replace('"', "'")
    return f"row\t{field}\t{test}\t{effect}"


if __name__ == "__main__":
    with ThreadPoolExecutor(4) as pool:
        jobs = [(name, field) for name in sys.argv[1:] for field in fields(ROOTS[name])]
        for (name, _), line in zip(jobs, pool.map(lambda job: find(*job), jobs), strict=True):
            print(name, line, sep="\t", flush=True)
