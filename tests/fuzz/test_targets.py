"""A short run over every decoder, and that none is left out. ``make fuzz`` goes on for as long as one likes."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sublet
from fuzz import targets
from fuzz.corpus import SEEDS, seeds
from fuzz.feeding import Finding, feed
from fuzz.mutation import mutated
from fuzz.targets import EXEMPT, TARGETS
from support.budgets import examples

NAMES = sorted(TARGETS)
SLOW = {
    "sftp_read_only": 25,
    "sftp_writable": 25,
    "change_record": 25,
    "git_refs": 25,
    "lease_memory": 25,
    "session_files": 15,
    "acp_tool_call": 40,
    "acp_file_request": 15,
    "git_config": 8,
    "lied_to_text": 8,
    "key_files": 5,
}
"""Targets that work on the disk, and how many examples they get."""
INPUT_BYTES = 1 << 14
MAX_PEAK_BYTES = 8 << 20
"""What a target may take for an input of ``INPUT_BYTES``."""

_DECODER = re.compile(
    r"_?(parse|parsed|decode|load|read(?!_only)|unpack|unb64|from_json|from_client|from_server)(_\w+)?\Z"
)
_RAW = re.compile(r"\b(bytes|str|memoryview|JsonValue|Path|object|Mapping)\b")


@pytest.mark.parametrize("name", NAMES)
def test_every_seed_and_any_mutation_ends_as_documented(name: str) -> None:
    corpus = seeds(name)
    for seed in corpus:
        feed(name, seed)

    @settings(
        max_examples=examples(SLOW.get(name, 60)),
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.binary(max_size=400) | st.builds(mutated, st.sampled_from(corpus), st.randoms(), st.just(corpus)))
    def any_input(data: bytes) -> None:
        feed(name, data)

    any_input()


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SLOW])
def test_no_input_takes_much_memory(name: str) -> None:
    random, corpus = Random(7), seeds(name)
    inputs = [mutated(random.choice(corpus), random, corpus) for _ in range(10)]
    inputs += [seed * (INPUT_BYTES // max(1, len(seed))) for seed in corpus]
    for seed in corpus:  # what is imported and kept for good is not the input's
        feed(name, seed)
    target = TARGETS[name]
    for data in inputs:
        tracemalloc.start()
        try:
            with suppress(*target.raises):
                target.call(data)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < MAX_PEAK_BYTES, data[:200]


def decoders() -> Iterator[str]:
    """Yield every function that is named like a decoder and takes something raw, as ``module:name``."""
    root = Path(str(sublet.__file__)).parent
    for path in sorted(root.rglob("*.py")):
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not _DECODER.match(node.name):
                continue
            taken = [ast.unparse(a.annotation) for a in node.args.args + node.args.kwonlyargs if a.annotation]
            if any(_RAW.search(annotation) for annotation in taken):
                yield f"{module}:{node.name}"


def test_every_decoder_is_a_target_or_exempt_for_a_reason() -> None:
    found = set(decoders())
    covered = {name for target in TARGETS.values() for name in target.covers}
    assert found - covered - set(EXEMPT) == set(), "add a target with seeds to tests/fuzz"
    assert set(EXEMPT) & covered == set()
    assert set(EXEMPT) - found == set(), "these are gone"
    assert all(len(reason) > 10 for reason in EXEMPT.values())
    assert {path.name for path in SEEDS.iterdir()} == set(TARGETS)
    assert sum(path.stat().st_size for path in SEEDS.rglob("*")) < 1 << 20


def test_what_a_target_does_not_document_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(data: bytes) -> None:
        raise KeyError(data)

    monkeypatch.setitem(targets.TARGETS, "broken", targets.Target(broken, (ValueError,), ()))
    with pytest.raises(Finding, match="KeyError"):
        feed("broken", b"x")


def test_the_same_seed_makes_the_same_mutations() -> None:
    made = [[mutated(b"seed of some length", Random(3), [b"other"]) for _ in range(5)] for _ in range(2)]
    assert made[0] == made[1]


def test_fuzzing_runs_for_as_long_as_it_is_told() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fuzz.run", "--engine", "mutation", "--seconds", "0.2", "reverse_preamble", "view_path"],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["reverse_preamble", "view_path"]
    assert "nothing found" in done.stdout
