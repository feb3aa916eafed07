"""The scan before INVITE: what is refused, with which hint, and what the result lists."""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from sublet.protocol.errors import ErrorCode, SubletError
from sublet.workspace.confined.nested_mounts import NestedMounts
from sublet.workspace.export import LentDirectory
from sublet.workspace.view import admission
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
    found = lend(tmp_path)
    assert (found.files, found.total_bytes) == (2, 110)
    assert (found.largest_file, found.largest_bytes) == ("big.bin", 100)
    assert sorted(found.hidden) == [".env", ".git"]
    assert found.hidden_count == 2
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
    found = lend(tmp_path)
    assert found.files == 2
    assert found.hidden == (".env",)


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
    found = lend(root)
    assert sorted(found.unmountable) == ["absolute", "sub/far", "up"]
    assert found.total_bytes == 0


def test_special_files_are_listed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    found = lend(tmp_path)
    assert found.special == ("pipe",)
    assert found.files == 0


def test_lists_are_bounded_and_clean_but_counts_are_complete(tmp_path: Path) -> None:
    for i in range(150):
        (tmp_path / f"k{i}\n\x1b[31m.pem").write_text("")
    found = lend(tmp_path)
    assert len(found.hidden) == 100
    assert found.hidden_count == 150
    assert not any("\n" in n or "\x1b" in n for n in found.hidden)


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
    found = scan(tmp_path, Meddling(tmp_path), AdmissionLimits())
    assert found.files in (1, 2)  # the link itself may be counted, nothing behind it
    assert found.total_bytes == 1


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


# Whole results


PLAIN = Rules(["secret*", ".git"], [], [], exclude=["/left"])


def put(root: Path, **files: int) -> Path:
    """Make files of so many bytes, by their paths with ``__`` for a slash."""
    for name, size in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    return root


def test_all_that_is_told_of_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = put(tmp_path / "root", a=3, sub__b=7, sub__c=7, sub__secret1=9, secret2__d=9, left__e=9, store__HEAD=1)
    for name in ("store/objects", "store/refs", ".git", "sub/mounted"):
        (root / name).mkdir()
    (root / "inside").symlink_to("sub/b")
    (root / "sub/out").symlink_to("../../x")
    os.mkfifo(root / "sub/pipe")
    covers = NestedMounts.covers
    monkeypatch.setattr(NestedMounts, "covers", lambda self, parts: parts[-1] == b"mounted" or covers(self, parts))
    expected = Admission(
        real_path=root,
        total_bytes=3 + 7 + 7 + 1,
        files=4 + 2,
        largest_bytes=7,
        largest_file="sub/b",
        hidden=(".git", "secret2", "sub/secret1"),
        hidden_count=3,
        unmountable=("sub/out", "sub/mounted"),
        unmountable_count=2,
        special=("sub/pipe",),
        special_count=1,
        left_out=1,
        mounted=("sub/mounted",),
        bare=("store",),
    )
    found = scan(root, PLAIN, AdmissionLimits())
    assert replace(found, hidden=tuple(sorted(found.hidden))) in (expected, replace(expected, largest_file="sub/c"))
    other = put(tmp_path / "other", f=8, secret3=1)
    lent = [LentDirectory(name, path, "ro", PLAIN) for name, path in (("one", root), ("two", other))]
    both = scan_all(lent, AdmissionLimits())
    assert replace(both, hidden=tuple(sorted(both.hidden))) == Admission(
        real_path=root,
        total_bytes=18 + 8,
        files=7,
        largest_bytes=8,
        largest_file="two/f",
        hidden=("one/.git", "one/secret2", "one/sub/secret1", "two/secret3"),
        hidden_count=4,
        unmountable=("one/sub/out", "one/sub/mounted"),
        unmountable_count=2,
        special=("one/sub/pipe",),
        special_count=1,
        left_out=1,
        mounted=("one/sub/mounted",),
    )
    assert scan_all(lent[1:], AdmissionLimits()) == scan(other, PLAIN, AdmissionLimits())


@pytest.mark.parametrize(
    ("limits", "fits"),
    [
        ({"max_total_bytes": 30}, True),
        ({"max_total_bytes": 29}, False),
        ({"max_files": 3}, True),
        ({"max_files": 2}, False),
        ({"max_file_bytes": 20}, True),
        ({"max_file_bytes": 19}, False),
    ],
)
def test_what_is_allowed_is_allowed_to_the_last_byte(tmp_path: Path, limits: dict[str, int], fits: bool) -> None:
    for number, names in enumerate(({"a": 20, "b": 4, "c": 6}, {"a": 20, "b": 4})):
        put(tmp_path / str(number), **names)
    put(tmp_path / "2", c=6)
    lent = [LentDirectory(name, tmp_path / name, "rw", PLAIN) for name in ("1", "2")]
    bounds = replace(AdmissionLimits(), **limits)  # type: ignore[arg-type]
    asks: list[Callable[[], Admission]] = [
        partial(scan, tmp_path / "0", PLAIN, bounds),
        partial(scan_all, lent, bounds),
    ]
    for ask in asks:
        if fits:
            ask()
            continue
        with pytest.raises(SubletError) as caught:
            ask()
        assert caught.value.code is ErrorCode.WORKSPACE_TOO_LARGE


def test_directories_that_are_too_much_together_are_told_each_with_its_size(tmp_path: Path) -> None:
    lent = [
        LentDirectory(name, put(tmp_path / name, a=size), "rw", PLAIN) for name, size in (("one", 2048), ("two", 7))
    ]
    with pytest.raises(SubletError) as caught:
        scan_all(lent, AdmissionLimits(max_files=1))
    assert caught.value.message == (
        "the 2 directories hold 2.0 KiB in 2 files together, more than the 2.0 GiB and 1 files allowed"
    )
    assert caught.value.hint.endswith("They are: one/ (2.0 KiB, 1 files), two/ (7 bytes, 1 files).")


def test_time_is_for_all_directories_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    now = [100.0]

    def noted(root: Path, rules: object, limits: AdmissionLimits) -> Admission:
        asked.append(limits.max_seconds)
        now[0] += 4
        return scan(root, PLAIN, AdmissionLimits())

    monkeypatch.setattr(admission, "scan", noted)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    lent = [LentDirectory(name, put(tmp_path / name, a=1), "rw", PLAIN) for name in ("a", "b", "c", "d")]
    scan_all(lent, AdmissionLimits(max_seconds=9.5))
    assert asked == [9.5, 5.5, 1.5, 0.0]


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        ((1 << 20) - 1, "1024.0 KiB"),
        (1 << 20, "1.0 MiB"),
        (3 << 19, "1.5 MiB"),
        (1 << 30, "1.0 GiB"),
        (5 << 40, "5120.0 GiB"),
    ],
)
def test_how_sizes_are_told(amount: int, text: str) -> None:
    assert admission._size(amount) == text


def test_the_largest_directories_are_named_one_level_down_where_that_is_nearly_all(tmp_path: Path) -> None:
    put(tmp_path, a__x=2, b__c__x=80, b__x=20, d__e__x=79, d__x=21, f__x=1, top=5)
    (tmp_path / "empty").mkdir()
    limits = AdmissionLimits(max_total_bytes=1)
    assert refused(tmp_path, limits).hint.endswith("Largest: b/c/ (80 bytes), d/ (100 bytes), a/ (2 bytes).")
    put(tmp_path / "alone", top=5)
    assert "Largest" not in refused(tmp_path / "alone", limits).hint
    by_count = refused(tmp_path, AdmissionLimits(max_files=4))
    assert "b/ (2 files), d/ (2 files), a/ (1 files)" in by_count.hint
    assert "holds 8 files, more than the 4 allowed" in by_count.message


def test_some_directories_are_ranked_and_others_only_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (admission.MAX_RANKED_DIRECTORIES, admission.MAX_NAMES_LISTED) == (20_000, 100)
    monkeypatch.setattr(admission, "MAX_RANKED_DIRECTORIES", 2)
    put(tmp_path, a__x=1, b__x=2, c__x=3, a__d__x=4)
    hint = refused(tmp_path, AdmissionLimits(max_total_bytes=9)).hint
    # the walk meets a, a/d and only then b
    assert hint.endswith("Largest: a/d/ (4 bytes).")
    assert lend(tmp_path).total_bytes == 10


def test_a_repository_is_bare_where_git_takes_it_for_one(tmp_path: Path) -> None:
    put(tmp_path, one__HEAD=1, one__refs=1, two__HEAD=1, two__refs=1, two__objects=1, two__more=1)
    rules = Rules([], ["/two/config"], [])
    assert lend(tmp_path).bare == ("two",)
    assert scan(tmp_path, rules, AdmissionLimits()).bare == ()
    with pytest.raises(SubletError) as caught:
        admission._check_bare(replace(lend(tmp_path), bare=("", "a", "b", "c")))
    assert "(the directory itself, a, b)" in caught.value.message


def test_a_policy_that_refuses_tells_the_first_names(tmp_path: Path) -> None:
    strict = AdmissionLimits(on_sensitive="refuse")
    put(tmp_path, **{f"secret{number}": 1 for number in range(7)})
    with pytest.raises(SubletError) as caught:
        scan(tmp_path, PLAIN, strict)
    assert "holds 7 sensitive names, " in caught.value.message
    assert caught.value.message.partition("directory: ")[2].count(",") == 4
    put(tmp_path / "one", secret=1)
    with pytest.raises(SubletError, match="holds 1 sensitive name,"):
        scan(tmp_path / "one", PLAIN, strict)
    (tmp_path / "git/.GIT").mkdir(parents=True)
    (tmp_path / "git/left").mkdir()
    assert scan(tmp_path / "git", PLAIN, strict).hidden == (".GIT",)


def test_each_hidden_name_is_counted_whatever_comes_before_it(tmp_path: Path) -> None:
    put(tmp_path, **{f"{kind}{number}": 1 for kind in ("secret", "left") for number in range(6)})
    found = scan(tmp_path, Rules(["secret*"], [], [], exclude=["left*"]), AdmissionLimits())
    assert (found.hidden_count, found.left_out, found.files) == (6, 6, 0)


def test_a_directory_that_goes_while_it_is_looked_at_is_invalid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> object:
        raise OSError(errno.ESTALE, "words")

    monkeypatch.setattr(admission, "walk", gone)
    error = refused(tmp_path)
    assert error.code is ErrorCode.WORKSPACE_INVALID
    assert error.message == f"{tmp_path} can't be lent: {os.strerror(errno.ESTALE)}"
