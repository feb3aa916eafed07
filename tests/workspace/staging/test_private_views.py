"""Private views: they hold exactly the export, keep what files are, stay bounded, and are found again or removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sublet.disk.removal import remove_tree
from sublet.policy.limits import AdmissionLimits
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.quota import Quota
from sublet.workspace.staging import private_views as staging_module
from sublet.workspace.staging.copy import PlainCopyTooLargeError, copy_tree
from sublet.workspace.staging.overlay import why_no_overlay
from sublet.workspace.staging.private_views import Staging, describe_kinds
from sublet.workspace.staging.staged_result import StagedView
from support.views import default_rules

KEY = "dlg_0123"


class Bench:
    """A directory and the views of it."""

    def __init__(self, base: Path) -> None:
        self.root = base.resolve() / "lent"
        self.root.mkdir()
        self.state = base.resolve() / "state"
        self.state.mkdir(mode=0o700)
        self.staging = Staging(self.state)

    def write(self, path: str, content: bytes = b"", mode: int = 0o644) -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(mode)
        return target

    def copy(self, key: str = KEY) -> Path:
        view = self.staging.open(key, self.root, default_rules(), want="copy")
        assert view.path is not None
        return view.path

    def overlay(self, key: str = KEY) -> StagedView:
        return self.staging.open(key, self.root, default_rules(), want="overlay")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def layered(bench: Bench) -> Bench:
    reason = why_no_overlay(bench.state)
    if reason:
        pytest.skip(reason)
    return bench


def names(directory: Path) -> set[str]:
    return {str(p.relative_to(directory)) for p in directory.rglob("*")}


def in_view(view: StagedView) -> Path:
    """A path of the view for as long as the test runs, by a descriptor of this process."""
    return Path(f"/proc/self/fd/{view.open_root()}")


def test_a_copy_is_exactly_the_export(bench: Bench) -> None:
    bench.write("src/main.py", b"main")
    bench.write("src/.env", b"secret")
    bench.write(".git/config", b"[core]")
    bench.write(".envrc", b"locked, so shown")
    bench.write("empty/x").unlink()
    (bench.root / "link").symlink_to("src/main.py")
    (bench.root / "dangling").symlink_to("/nowhere")
    os.mkfifo(bench.root / "pipe")
    copy = bench.copy()
    assert names(copy) == {"src", "src/main.py", ".envrc", "empty", "link", "dangling"}
    assert (copy / "src/main.py").read_bytes() == b"main"
    assert os.readlink(copy / "link") == "src/main.py"
    assert os.readlink(copy / "dangling") == "/nowhere"
    assert (bench.state / "staged").stat().st_mode & 0o777 == 0o700


def test_a_copy_keeps_modes_times_and_holes_and_is_apart(bench: Bench) -> None:
    tool = bench.write("dir/tool", b"#!/bin/sh", 0o755)
    bench.write("dir/read-only", b"r", 0o444)
    os.utime(tool, ns=(1_000_000_001, 2_000_000_003))
    with open(bench.root / "sparse", "wb") as file:
        file.seek(64 << 20)
        file.write(b"end")
    (bench.root / "dir").chmod(0o555)
    os.utime(bench.root / "dir", ns=(5, 7_000_000_000))
    copy = bench.copy()
    assert (copy / "dir/tool").stat().st_mode & 0o7777 == 0o755
    assert (copy / "dir/read-only").stat().st_mode & 0o7777 == 0o444
    assert (copy / "dir/tool").stat().st_mtime_ns == 2_000_000_003
    assert (copy / "dir").stat().st_mode & 0o7777 == 0o555
    assert (copy / "dir").stat().st_mtime_ns == 7_000_000_000
    sparse = (copy / "sparse").stat()
    assert sparse.st_size == (64 << 20) + 3
    assert sparse.st_blocks * 512 < 1 << 20
    with open(copy / "sparse", "rb") as file:
        file.seek(64 << 20)
        assert file.read() == b"end"
    (copy / "dir/tool").write_bytes(b"changed")
    assert tool.read_bytes() == b"#!/bin/sh"


def test_special_bits_stay_behind(bench: Bench) -> None:
    bench.write("suid", b"x", 0o4755)
    assert (bench.copy() / "suid").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize(
    "limits",
    [AdmissionLimits(max_total_bytes=10), AdmissionLimits(max_files=1), AdmissionLimits(max_file_bytes=10)],
)
def test_a_copy_is_bounded_and_leaves_nothing_where_it_fails(bench: Bench, limits: AdmissionLimits) -> None:
    bench.write("a", b"x" * 11)
    bench.write("b", b"x" * 11)
    staging = Staging(bench.state, lambda: limits)
    with pytest.raises(SubletError) as caught:
        staging.open(KEY, bench.root, default_rules())
    assert caught.value.code is ErrorCode.WORKSPACE_TOO_LARGE
    assert staging.keys() == []


def test_a_directory_that_is_gone_is_refused(bench: Bench) -> None:
    with pytest.raises(SubletError) as caught:
        bench.staging.open(KEY, bench.root / "nowhere", default_rules())
    assert caught.value.code is ErrorCode.WORKSPACE_NOT_FOUND


def test_a_second_view_of_one_key_and_a_key_that_is_a_path_are_refused(bench: Bench) -> None:
    bench.copy()
    with pytest.raises(SubletError) as caught:
        bench.copy()
    assert caught.value.code is LocalCode.CONFLICT
    for key in ("../up", "a/b", "", ".hidden", "a" * 200):
        with pytest.raises(SubletError) as caught:
            bench.copy(key)
        assert caught.value.code is LocalCode.NOT_FOUND
    assert bench.staging.keys() == [KEY]


def test_views_are_bounded_in_number(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging_module, "MAX_VIEWS", 1)
    bench.copy("one")
    with pytest.raises(SubletError) as caught:
        bench.copy("two")
    assert caught.value.code is LocalCode.CONFLICT


def test_a_copy_is_found_after_a_restart_and_what_is_half_made_is_reaped(bench: Bench) -> None:
    bench.write("a", b"a")
    (bench.copy("kept") / "a").write_bytes(b"b")
    bench.copy("old")
    (bench.state / "staged/torn/view").mkdir(parents=True)
    again = Staging(bench.state)
    assert again.find("torn") is None
    assert again.reap({"kept", "torn"}) == ["old", "torn"]
    view = again.find("kept")
    assert view is not None
    assert view.path is not None
    assert (view.path / "a").read_bytes() == b"b"
    again.discard("kept")
    again.discard("kept")
    assert again.find("kept") is None
    assert again.keys() == []


def test_removing_follows_no_link_and_minds_no_mode(bench: Bench) -> None:
    bench.write("deep/er/file").parent.chmod(0o500)
    (bench.root / "deep").chmod(0o500)
    outside = bench.state / "outside"
    outside.mkdir(mode=0o500)
    copy = bench.copy()
    (copy / "out").symlink_to(outside)
    remove_tree(copy.parent)
    assert not copy.parent.exists()
    assert outside.stat().st_mode & 0o777 == 0o500


def test_a_plain_copy_gives_way_beyond_its_bound(bench: Bench, tmp_path: Path) -> None:
    bench.write("a", b"x" * 100)
    bench.write("b", b"x" * 100)
    shared = copy_tree(bench.root, tmp_path / "one", default_rules(), AdmissionLimits(), 1 << 20)
    if shared:
        pytest.skip("this file system shares blocks, so no copy is plain")
    with pytest.raises(PlainCopyTooLargeError):
        copy_tree(bench.root, tmp_path / "two", default_rules(), AdmissionLimits(), 150)


def test_what_is_too_large_to_copy_gets_an_overlay(layered: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    layered.write("a", b"x" * 100)
    layered.write("b", b"x" * 100)
    monkeypatch.setattr(staging_module, "MAX_PLAIN_COPY_BYTES", 150)
    view = layered.staging.open(KEY, layered.root, default_rules())
    assert view.kind in ("overlay", "reflink")
    layered.staging.close()


def test_an_overlay_keeps_changes_apart_and_is_mounted_nowhere(layered: Bench) -> None:
    layered.write("a", b"a")
    layered.write("gone", b"g")
    layered.write("dir/b", b"b")
    view = layered.overlay()
    assert view.path is None
    inside = in_view(view)
    (inside / "a").write_bytes(b"changed")
    (inside / "gone").unlink()
    (inside / "dir/new").write_bytes(b"n")
    assert {p.name for p in inside.iterdir()} == {"a", "dir"}
    assert (layered.root / "a").read_bytes() == b"a"
    assert names(layered.root) == {"a", "gone", "dir", "dir/b"}
    assert str(layered.state) not in Path("/proc/self/mounts").read_text()
    own = {path: layered.staging.is_own_change(view, path) for path in (b"a", b"gone", b"dir/new", b"dir/b", b"none")}
    assert own == {b"a": True, b"gone": True, b"dir/new": True, b"dir/b": False, b"none": False}
    layered.staging.discard(KEY)
    with pytest.raises(OSError, match=r"[Ss]tale"):
        view.open_root()
    assert layered.staging.keys() == []


def test_an_overlay_is_served_as_any_directory(layered: Bench) -> None:
    """Through the confined file system, as a lease is; what is hidden below stays hidden."""
    layered.write("a", b"a")
    layered.write("dir/b", b"b")
    layered.write(".env", b"secret")
    view = layered.overlay()
    touched: list[bytes] = []
    fs = WritableFs(view.open_root(), default_rules(), Quota(), lambda parts: touched.append(b"/".join(parts)))
    file = fs.open_write([b"a"], os.O_WRONLY | os.O_TRUNC, 0o644)
    file.write(b"changed", 0)
    file.close()
    fs.mkdir([b"new"], 0o755)
    fs.rename([b"a"], [b"new", b"a"], replace=False)
    fs.remove([b"dir", b"b"])
    fs.rmdir([b"dir"])
    with pytest.raises(FileNotFoundError):
        fs.lstat([b".env"])
    with pytest.raises(PermissionError):
        fs.open_write([b".env"], os.O_WRONLY | os.O_CREAT, 0o644)
    listing = fs.open_directory([])
    assert {name for name, _ in listing.entries()} == {b"new"}
    listing.close()
    fs.close()
    assert touched == [b"a", b"new", b"a", b"new/a", b"dir/b", b"dir"]
    assert names(layered.root) == {"a", "dir", "dir/b", ".env"}
    layered.staging.discard(KEY)


def test_an_overlay_is_the_same_after_the_daemon_was_killed(layered: Bench) -> None:
    layered.write("a", b"a")
    inside = in_view(layered.overlay())
    (inside / "a").write_bytes(b"changed")
    again = Staging(layered.state)
    view = again.find(KEY)
    assert view is not None
    assert (in_view(view) / "a").read_bytes() == b"changed"
    assert (layered.root / "a").read_bytes() == b"a"
    again.discard(KEY)


def test_an_overlay_of_names_with_the_signs_of_options(tmp_path: Path) -> None:
    base = tmp_path / "a:b,c=d\\e"
    base.mkdir()
    odd = Bench(base)
    reason = why_no_overlay(odd.state)
    if reason:
        pytest.skip(reason)
    odd.write("f", b"x")
    view = odd.overlay()
    assert (in_view(view) / "f").read_bytes() == b"x"
    odd.staging.close()


def test_an_unprivileged_user_has_overlays_too(tmp_path: Path) -> None:
    """The helper as another user, where this one is root: the path that most daemons take."""
    if os.geteuid() != 0:
        pytest.skip("the other overlay tests run unprivileged already")
    base = Path("/tmp") / f"sublet-overlay-{os.getpid()}"
    program = (
        "import socket, subprocess, sys, os\n"
        "ours, theirs = socket.socketpair()\n"
        "s = os.stat(sys.argv[2])\n"
        "done = subprocess.run([sys.executable, '-I', '-S', sys.argv[1], str(theirs.fileno()), sys.argv[2],\n"
        "    f'{s.st_dev}:{s.st_ino}', sys.argv[3]], pass_fds=[theirs.fileno()], stderr=subprocess.PIPE)\n"
        "if done.returncode: sys.exit(done.stderr.decode())\n"
        "root = socket.recv_fds(ours, 1, 1)[1][0]\n"
        "os.unlink('gone', dir_fd=root)\n"
        "print(os.listdir(sys.argv[2]), os.path.exists(f'/proc/self/fd/{root}/gone'))\n"
    )
    python = "/usr/bin/python3"
    if not os.access(python, os.X_OK) or not Path("/usr/bin/setpriv").exists():
        pytest.skip("there is no python or setpriv that another user may run")
    base.mkdir(mode=0o755)
    try:
        helper = base / "helper.py"
        helper.write_bytes(Path(staging_module.__file__).with_name("overlay_helper.py").read_bytes())
        helper.chmod(0o644)
        for name in ("lower", "p", "p/upper", "p/work", "p/merged"):
            (base / name).mkdir()
            os.chown(base / name, 65534, 65534)
        (base / "lower/gone").touch()
        os.chown(base / "lower/gone", 65534, 65534)
        drop = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]
        argv = [*drop, python, "-c", program, str(helper), str(base / "lower"), str(base / "p")]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
        if done.returncode:
            pytest.skip(f"no user namespaces for other users: {done.stderr.strip()[-200:]}")
        assert done.stdout == "['gone'] False\n"
    finally:
        remove_tree(base)


def test_why_there_is_no_overlay_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    assert "no overlay can be made here" in why_no_overlay(tmp_path)
    assert describe_kinds(tmp_path).startswith(("plain copies; no overlay can be made here", "copies that share"))


def test_how_views_are_made_is_told_and_nothing_is_left_of_trying(bench: Bench) -> None:
    kind = bench.staging.open(KEY, bench.write("a", b"a").parent, default_rules()).kind
    told = describe_kinds(bench.state)
    assert told.startswith("copies that share blocks" if kind == "reflink" else "plain copies")
    assert {p.name for p in bench.state.iterdir()} == {"staged"}
