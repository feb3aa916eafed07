"""What is compiled before workers start is what pytest and Python take, and is compiled once."""

from __future__ import annotations

import importlib.util
import py_compile
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

from support import budgets, compiled
from support.budgets import examples


def test_a_test_module_is_compiled_as_pytest_does_it_until_it_changes(tmp_path: Path) -> None:
    module = tmp_path / "test_some.py"
    module.write_text("def test_it():\n    assert 1 == 2\n")
    cached = rewrite.get_cache_dir(module) / f"test_some{rewrite.PYC_TAIL}"
    assert compiled.compile_one(module)
    code = rewrite._read_pyc(module, cached)
    assert code is not None
    assert "@pytest_ar" in code.co_names, "assertions are changed"
    assert not compiled.compile_one(module)
    module.write_text("def test_it():\n    assert 1 == 3\n")
    assert compiled.compile_one(module)


def test_another_module_is_compiled_as_python_does_it_until_it_changes(tmp_path: Path) -> None:
    module = tmp_path / "some.py"
    module.write_text("one = 1\n")
    assert compiled.compile_one(module)
    made = Path(importlib.util.cache_from_source(str(module)))
    first = made.read_bytes()
    made.unlink()
    py_compile.compile(str(module))
    assert made.read_bytes() == first
    assert not compiled.compile_one(module)
    module.write_text("one = 10\n")
    assert compiled.compile_one(module)


def test_all_that_is_imported_is_compiled() -> None:
    found = {path.relative_to(compiled.ROOT).as_posix() for path in compiled.modules()}
    assert {"src/sublet/__init__.py", "tests/conftest.py", "tests/test_compiled.py"} <= found


def test_at_night_all_is_drawn_and_otherwise_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(budgets.NIGHTLY, raising=False)
    assert [examples(number) for number in (5, 10, 20, 60, 300)] == [5, 10, 10, 20, 100]
    monkeypatch.setenv(budgets.NIGHTLY, "1")
    assert [examples(number) for number in (5, 20, 300)] == [5, 20, 300]
