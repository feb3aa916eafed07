"""What a git that reads a peer's bytes is shown of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from sublet.workspace.sandbox import git_sandbox


@pytest.mark.parametrize("home", ["opt/tools", "opt/tools/of/ann", "opt"])
def test_of_an_installation_that_holds_a_home_the_programs_alone_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    prefix = tmp_path / "opt" / "tools"
    for name in ("bin", "libexec", ".ssh"):
        (prefix / name).mkdir(parents=True)
    (prefix / "bin" / "git").touch()
    (tmp_path / home).mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("HOME", str(tmp_path / home))
    git_sandbox._of_git.cache_clear()
    shown = git_sandbox._of_git(str(prefix / "bin" / "git"))
    git_sandbox._of_git.cache_clear()
    all_of_it = home == "opt"  # a home above it is not shown by it
    assert shown == ((str(prefix),) if all_of_it else (f"{prefix}/bin", f"{prefix}/libexec"))
