"""What the machine has, and what is said where it has not (case C15)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from sublet.protocol.errors import ErrorCode, SubletError
from sublet.workspace import requirements
from sublet.workspace.requirements import check_requirements, require_mount, require_sandbox


def only(directory: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Make PATH hold just these programs of the machine."""
    for name in names:
        found = shutil.which(name)
        assert found is not None, f"the tests need {name}"
        (directory / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(directory))


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_this_machine_has_everything() -> None:
    assert [check for check in check_requirements() if not check.ok] == []
    assert {check.required_for for check in check_requirements()} == {"mount", "sandbox", "audit", "serve"}
    require_mount()
    require_sandbox()


def test_case_c15_without_sshfs_exactly_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only(tmp_path, monkeypatch, "fusermount3")
    with pytest.raises(SubletError) as caught:
        require_mount()
    assert caught.value.code == ErrorCode.DEP_MISSING
    assert caught.value.message == "this machine can't mount a workspace: sshfs is not on PATH"
    assert "apt install sshfs" in caught.value.hint


def test_case_c15_without_the_fuse_device_exactly_that_is_named(tmp_path: Path) -> None:
    with pytest.raises(SubletError) as caught:
        require_mount(tmp_path / "fuse")
    assert caught.value.code == ErrorCode.DEP_MISSING
    assert caught.value.message.endswith(f"{tmp_path / 'fuse'} does not exist")
    assert "modprobe fuse" in caught.value.hint


def test_case_c15_a_device_that_may_not_be_opened_is_told_from_a_missing_one(tmp_path: Path) -> None:
    (tmp_path / "fuse").mkdir()  # not even root opens a directory for writing
    with pytest.raises(SubletError, match="can't be opened"):
        require_mount(tmp_path / "fuse")


def test_without_fusermount_exactly_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only(tmp_path, monkeypatch, "sshfs")
    with pytest.raises(SubletError) as caught:
        require_mount()
    assert caught.value.message.endswith(": fusermount3 is not on PATH")


@pytest.mark.parametrize(
    ("capabilities", "bounding", "no_new_privs", "setuid", "reason"),
    [
        (1 << 21, 1 << 21, 0, False, ""),
        (0, 1 << 21, 0, True, ""),
        (0, 1 << 21, 0, False, "not setuid root"),
        (0, 1 << 21, 1, True, "no_new_privs"),
        (0, 0, 0, True, "CAP_SYS_ADMIN is taken"),
    ],
)
def test_case_c15_a_process_that_may_not_mount_is_told_why(
    tmp_path: Path, capabilities: int, bounding: int, no_new_privs: int, setuid: bool, reason: str
) -> None:
    fusermount = tmp_path / "fusermount3"
    program(fusermount, "true")
    fusermount.chmod(0o4755 if setuid else 0o755)
    status = f"Name:\tx\nCapEff:\t{capabilities:016x}\nCapBnd:\t{bounding:016x}\nNoNewPrivs:\t{no_new_privs}\n"
    said = requirements._why_not_mount(str(fusermount), status)
    if os.geteuid() == 0 or not setuid:  # an ordinary user can't make a file that is setuid root
        assert (reason in said) if reason else said == ""


def test_an_sshfs_without_the_fix_is_refused_whatever_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(tmp_path, monkeypatch, "fusermount3")
    program(tmp_path / "sshfs", 'echo "SSHFS version 9.9.9"; echo "    -o no_contain_symlinks"')
    with pytest.raises(SubletError, match="CVE-2026-47187") as caught:
        require_mount()
    assert caught.value.code == ErrorCode.DEP_MISSING
    program(tmp_path / "sshfs", 'echo "SSHFS version 3.7.3"; echo "    -o contain_symlinks    reject"')
    require_mount()


def test_a_bubblewrap_that_fails_is_reported_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bwrap", "echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(SubletError, match="setting up uid map") as caught:
        require_sandbox()
    assert "user namespaces" in caught.value.hint


@pytest.mark.parametrize(("says", "ok"), [("git version 2.29.9", False), ("git version 2.30.0", True), ("?", False)])
def test_git_must_be_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, ok: bool) -> None:
    program(tmp_path / "git", f"echo '{says}'")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    check = requirements.check_git()
    assert check.ok is ok
    assert bool(check.fix) is not ok
