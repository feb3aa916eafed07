"""``scripts/check-clean`` finds what a run leaves behind, so that ``make test`` can fail for it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check-clean"


@pytest.fixture
def check_clean(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the script as a module, without its patience."""
    loader = importlib.machinery.SourceFileLoader("check_clean", str(SCRIPT))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    spec = importlib.util.spec_from_loader("check_clean", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.0)
    return module


def call(module: ModuleType, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the script for ``scratch``."""
    monkeypatch.setattr(sys, "argv", ["check-clean", str(scratch)])
    status: int = module.main()
    return status


def test_silence_where_nothing_is_left(
    check_clean: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(check_clean, tmp_path, monkeypatch) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("how", ["environment", "argument", "directory"])
def test_a_process_that_names_the_directory_is_found(
    check_clean: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    how: str,
) -> None:
    clean = {name: value for name, value in os.environ.items() if str(tmp_path) not in value}
    left = subprocess.Popen(
        ["sh", "-c", "echo ready; read _", *([str(tmp_path)] if how == "argument" else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=tmp_path if how == "directory" else "/",
        env=clean | ({"SOME": f"{tmp_path}/x"} if how == "environment" else {}),
    )
    with left:
        assert left.stdout is not None
        left.stdout.readline()
        assert call(check_clean, tmp_path, monkeypatch) == 1
        assert f"process {left.pid}" in capsys.readouterr().err
        left.kill()


def test_a_mount_below_the_directory_is_found(check_clean: ModuleType) -> None:
    points = check_clean.mounts("/")  # below the root there is always one

    assert "mount /proc" in points
    assert check_clean.mounts("/pro") == []
