"""The scan before INVITE: what is refused, with which hint, and what the result lists."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from sublet.protocol.errors import ErrorCode, SubletError
from sublet.workspace.export import LentDirectory
from sublet.workspace.view import walk as walk_module
from sublet.workspace.view.admission import Admission, AdmissionLimits, scan, scan_all
from sublet.workspace.view.rules import Rules
from support.views import default_rules


def lend(root: Path, *, revealed: Sequence[str] = (), limits: AdmissionLimits | None = None) -> Admission:
    return scan(root, default_rules(revealed), limits or AdmissionLimits())


def refused(root: Path, limits: AdmissionLimits | None = None) -> SubletError:
    with pytest.raises(SubletError) as caught:
        lend(root, limits=limits)
    return caught.value


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_counts_what_is_exported(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_bytes(b"x" * 10)
    (tmp_path / "big.bin").write_bytes(b"x" * 100)
    (tmp_path / ".env").write_bytes(b"x" * 1000)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "pack").write_bytes(b"x" * 1000)
    before = open_descriptors()
    admission = lend(tmp_path)
    assert (admission.files, admission.total_bytes) == (2, 110)
    assert (admission.largest_file, admission.largest_bytes) == ("big.bin", 100)
    assert sorted(admission.hidden) == [".env", ".git"]
    assert admission.hidden_count == 2
    assert open_descriptors() == before


def test_c07_secrets_are_hidden_and_listed_unless_revealed(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("TOKEN=1")
    (tmp_path / "id_ed25519").write_text("key")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "tls.pem").write_text("key")
    assert sorted(lend(tmp_path).hidden) == [".env", "conf/tls.pem", "id_ed25519"]
    assert sorted(lend(tmp_path, revealed=[".env"]).hidden) == ["conf/tls.pem", "id_ed25519"]


def test_c08_what_git_ignores_is_lent_but_ignored_secrets_are_not(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("node_modules\n.env\n")
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "dep.js").write_text("1")
    (tmp_path / ".env").write_text("TOKEN=1")
    admission = lend(tmp_path)
    assert admission.files == 2
    assert admission.hidden == (".env",)


def test_c05_links_that_a_mount_cannot_follow_are_listed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(b"x" * 500)
    (root / "absolute").symlink_to(tmp_path / "outside")
    (root / "up").symlink_to("../outside")
    (root / "sub" / "inside").symlink_to("../sub")
    (root / "sub" / "far").symlink_to("../../outside")
    (root / "fine").symlink_to("sub")
    (root / "dangling").symlink_to("nowhere")
    admission = lend(root)
    assert sorted(admission.unmountable) == ["absolute", "sub/far", "up"]
    assert admission.total_bytes == 0


def test_special_files_are_listed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    admission = lend(tmp_path)
    assert admission.special == ("pipe",)
    assert admission.files == 0


def test_lists_are_bounded_and_clean_but_counts_are_complete(tmp_path: Path) -> None:
    for i in range(150):
        (tmp_path / f"k{i}\n\x1b[31m.pem").write_text("")
    admission = lend(tmp_path)
    assert len(admission.hidden) == 100
    assert admission.hidden_count == 150
    assert not any("\n" in n or "\x1b" in n for n in admission.hidden)


def test_a_root_that_is_a_link_is_resolved(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert lend(tmp_path / "link").real_path == tmp_path / "real"


def test_a_missing_root(tmp_path: Path) -> None:
    assert refused(tmp_path / "absent").code is ErrorCode.WORKSPACE_NOT_FOUND
    (tmp_path / "dangling").symlink_to("absent")
    assert refused(tmp_path / "dangling").code is ErrorCode.WORKSPACE_NOT_FOUND


def test_a_root_that_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    for root in (tmp_path / "file", tmp_path / "loop", Path("relative"), Path("/nul\0")):
        assert refused(root).code is ErrorCode.WORKSPACE_INVALID


def test_too_many_bytes_names_the_largest_directories(tmp_path: Path) -> None:
    for name, size in (("a", 10), ("b", 5000), ("c", 3000), ("d", 1000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_bytes(b"x" * size)
    (tmp_path / "b" / "cache").mkdir()
    (tmp_path / "b" / "cache" / "g").write_bytes(b"x" * 45_000)
    error = refused(tmp_path, AdmissionLimits(max_total_bytes=6000))
    assert error.code is ErrorCode.WORKSPACE_TOO_LARGE
    assert "b/cache/ (43.9 KiB), c/ (2.9 KiB), d/ (1000 bytes)" in error.hint


def test_too_many_files(tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    for i in range(20):
        (tmp_path / "many" / str(i)).write_text("")
    error = refused(tmp_path, AdmissionLimits(max_files=19))
    assert error.code is ErrorCode.WORKSPACE_TOO_LARGE
    assert "many/ (20 files)" in error.hint
    assert lend(tmp_path, limits=AdmissionLimits(max_files=20)).files == 20
    assert "more than 10 names" in refused(tmp_path, AdmissionLimits(max_files=1)).message


def test_one_file_that_is_too_large(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"x" * 101)
    error = refused(tmp_path, AdmissionLimits(max_file_bytes=100))
    assert error.code is ErrorCode.WORKSPACE_TOO_LARGE
    assert "model.bin" in error.message


def test_a_scan_that_takes_too_long_refuses(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    assert refused(tmp_path, AdmissionLimits(max_seconds=-1)).code is ErrorCode.WORKSPACE_TOO_LARGE


def test_what_cannot_be_entered_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk_module, "MAX_DEPTH", 3)
    (tmp_path / "a" / "b" / "c" / "d").mkdir(parents=True)
    assert refused(tmp_path).code is ErrorCode.WORKSPACE_INVALID
    assert "a/b/c/d" in refused(tmp_path).message
    assert "--exclude /a/b/c/d" in refused(tmp_path).hint
    assert scan(tmp_path, Rules([], [], [], exclude=["/a/b/c/d"]), AdmissionLimits()).files == 0


def test_the_hint_quotes_what_a_shell_or_a_pattern_would_take_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk_module, "MAX_DEPTH", 1)
    (tmp_path / "a" / "it's [x]").mkdir(parents=True)
    hint = refused(tmp_path).hint
    pattern = shlex.split(hint[hint.index("--exclude ") :].partition(", or")[0])[1]
    assert scan(tmp_path, Rules([], [], [], exclude=[pattern]), AdmissionLimits()).files == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_an_unreadable_directory_refuses(tmp_path: Path) -> None:
    (tmp_path / "shut").mkdir(mode=0)
    assert refused(tmp_path).code is ErrorCode.WORKSPACE_INVALID


def test_a_strict_policy_refuses_instead_of_hiding(tmp_path: Path) -> None:
    strict = AdmissionLimits(on_sensitive="refuse")
    (tmp_path / ".git").mkdir()
    assert lend(tmp_path, limits=strict).hidden == (".git",)
    (tmp_path / ".env").write_text("TOKEN=1")
    error = refused(tmp_path, strict)
    assert error.code is ErrorCode.SENSITIVE_FILES
    assert ".env" in error.message


class Meddling(Rules):
    """Rules that change the tree while it is walked, the way another process would."""

    def __init__(self, root: Path) -> None:
        super().__init__([], [], [])
        self._root = root

    def hidden(self, parts: Sequence[bytes]) -> bool:
        if parts[-1] == b"vanishing":
            (self._root / "vanishing").unlink(missing_ok=True)
        if parts[-1] == b"swapped" and (self._root / "swapped").is_dir() and not (self._root / "swapped").is_symlink():
            (self._root / "swapped" / "f").unlink()
            (self._root / "swapped").rmdir()
            (self._root / "swapped").symlink_to("/etc")
        return False


def test_what_vanishes_or_becomes_a_link_during_the_walk_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "vanishing").write_text("x")
    (tmp_path / "swapped").mkdir()
    (tmp_path / "swapped" / "f").write_text("x")
    (tmp_path / "stays").write_text("x")
    admission = scan(tmp_path, Meddling(tmp_path), AdmissionLimits())
    assert admission.files in (1, 2)  # the link itself may be counted, nothing behind it
    assert admission.total_bytes == 1


@pytest.mark.parametrize("where", ["", "deep/store"])
def test_a_bare_repository_is_not_lent_for_writing(tmp_path: Path, where: str) -> None:
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / where)], check=True)

    with pytest.raises(SubletError) as caught:
        scan_all([LentDirectory("workspace", tmp_path, "rw", default_rules())], AdmissionLimits())

    assert caught.value.code is ErrorCode.WORKSPACE_INVALID
    assert (where or "the directory itself") in caught.value.message
    assert scan_all([LentDirectory("workspace", tmp_path, "ro", default_rules())], AdmissionLimits()).bare == (where,)


def test_of_a_bare_repository_that_is_named_as_one_settings_and_hooks_are_locked(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "store.git")], check=True)
    rules = default_rules()

    assert scan_all([LentDirectory("workspace", tmp_path, "rw", rules)], AdmissionLimits()).bare == ()
    for below in ("config", "hooks", "hooks/pre-receive", "info/attributes", "objects/info/alternates"):
        assert rules.locked(tuple(f"store.git/{below}".encode().split(b"/"))), below
    assert not rules.locked((b"store.git", b"refs", b"heads", b"main"))
    assert rules.guards_below((b"store.git",))
