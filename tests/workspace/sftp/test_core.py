"""The SFTP core, bytes in and bytes out: every operation, every flag, every extension, and any bytes at all."""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.export import LeaseUsage
from sublet.workspace.quota import Quota
from sublet.workspace.sftp.core import ProtocolAbort, SftpCore
from sublet.workspace.sftp.handles import MAX_LISTINGS, HandleBudget, Handles
from sublet.workspace.sftp.wire import MAX_PACKET, pack_error
from sublet.workspace.sftp.writes import WRITE_EXTENSIONS, WRITE_OPS
from sublet.workspace.view.export_view import ExportView, WritableView
from support.budgets import examples
from support.sftp_client import INIT, NO_ATTRIBUTES, CoreClient, attributes, frame, next_reply, parse, string
from support.views import default_rules

OK, EOF, NO_SUCH_FILE, DENIED, FAILURE, BAD_MESSAGE, NO_CONNECTION, UNSUPPORTED = 0, 1, 2, 3, 4, 5, 6, 8
QUOTA = 15
READ, WRITE, APPEND, CREAT, TRUNC, EXCL = 1, 2, 4, 8, 16, 32


@dataclass
class Served:
    """A workspace and a session on it."""

    root: Path
    client: CoreClient
    usage: LeaseUsage
    quota: Quota
    live: bool = True


Serve = Callable[..., Served]


def tree(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return mode, time and content of everything below ``root``."""
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        found[str(path.relative_to(root))] = (status.st_mode, status.st_mtime_ns, content)
    return found


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Serve a small workspace."""
    opened: list[tuple[SftpCore, ExportView]] = []
    root = tmp_path / "root"
    (root / "dir").mkdir(parents=True)
    (root / "file").write_bytes(b"content")
    (root / ".env").write_text("SECRET=1")
    (root / ".envrc").write_text("locked")
    (root / "link").symlink_to("file")

    def make(
        mode: Literal["ro", "rw"] = "rw", *, handles: int = 64, max_bytes: int | None = None, files: int | None = None
    ) -> Served:
        usage, quota = LeaseUsage(), Quota(max_bytes, files)
        served: Served
        view: ExportView
        descriptor, rules = ConfinedFs.open_root(root), default_rules()
        if mode == "rw":
            touched = usage.touched["workspace"] = set()
            fs = WritableFs(descriptor, rules, quota, lambda parts: touched.add(b"/".join(parts)))
            view = WritableView({"workspace": fs}, {"task.json": b"{}"})
        else:
            view = ExportView({"workspace": ConfinedFs(descriptor, rules, quota)}, {"task.json": b"{}"})
        core = SftpCore(view, usage, Handles(HandleBudget(handles)), lambda: served.live)
        opened.append((core, view))
        served = Served(root, CoreClient(core), usage, quota)
        return served

    yield make
    for core, view in opened:
        core.close()
        view.close()


def every_mutation(handle: bytes) -> Iterator[tuple[str, int, bytes]]:
    """Yield a name, packet type and body for each way to change something, on each kind of path."""
    for path in (
        b"/workspace/file",
        b"/workspace/new",
        b"/workspace/dir",
        b"/workspace/link",
        b"/meta/x",
        b"/workspace/.env",
    ):
        for attrs in (
            attributes(size=0),
            attributes(size=1 << 20),
            attributes(mode=0o777),
            attributes(owner=(1, 1)),
            attributes(times=(1, 1)),
        ):
            yield "setstat", 9, string(path) + attrs
            yield "fsetstat", 10, string(handle) + attrs
            yield "lsetstat", 200, string(b"lsetstat@openssh.com") + string(path) + attrs
        yield "remove", 13, string(path)
        yield "mkdir", 14, string(path) + NO_ATTRIBUTES
        yield "rmdir", 15, string(path)
        yield "symlink", 20, string(b"file") + string(path)
        yield "write", 6, string(handle) + struct.pack(">Q", 0) + string(b"evil")
        for other in (b"/workspace/file", b"/workspace/other"):
            yield "rename", 18, string(path) + string(other)
            yield "rename", 18, string(other) + string(path)
            for extension in (b"posix-rename@openssh.com", b"hardlink@openssh.com"):
                yield extension.decode(), 200, string(extension) + string(path) + string(other)
                yield extension.decode(), 200, string(extension) + string(other) + string(path)
        for flags in range(1, 64):
            if flags & ~READ:
                yield f"open {flags:#x}", 3, string(path) + struct.pack(">I", flags) + attributes(mode=0o777)
    yield "fsync", 200, string(b"fsync@openssh.com") + string(handle)


def test_a_read_only_session_refuses_every_mutation_and_changes_nothing(serve: Serve) -> None:
    served = serve("ro")
    handle = served.client.open(b"/workspace/file", READ).handle
    before = tree(served.root)
    for name, kind, body in every_mutation(handle):
        assert served.client.ask(kind, body).status == DENIED, name
    assert tree(served.root) == before
    assert not served.usage.files_touched
    assert served.usage.bytes_written == 0


def test_a_read_only_session_has_no_mutating_operation_in_its_tables(serve: Serve) -> None:
    read_only, writable = serve("ro").client.core, serve("rw").client.core
    assert set(read_only.operations).isdisjoint(WRITE_OPS)
    assert set(read_only.extensions).isdisjoint(WRITE_EXTENSIONS)
    assert set(writable.operations) == set(read_only.operations) | WRITE_OPS
    assert set(writable.extensions) == set(read_only.extensions) | WRITE_EXTENSIONS


def test_a_writable_session_does_every_operation(serve: Serve) -> None:
    served = serve("rw")
    client, root = served.client, served.root
    handle = client.open(b"/workspace/new", READ | WRITE | CREAT | EXCL, attributes(mode=0o6640)).handle
    assert client.write(handle, b"0123456789").status == OK
    assert client.read(handle, 4, 3).data == b"3456"
    assert client.read(handle, 4, 10).status == EOF
    assert client.ask(8, string(handle)).attrs[1] == 10
    assert client.ask(10, string(handle) + attributes(size=5, mode=0o4600, times=(7, 8))).status == OK
    assert client.extended(b"fsync@openssh.com", string(handle)).status == OK
    assert client.ask(4, string(handle)).status == OK
    status = (root / "new").stat()
    assert (status.st_size, stat.S_IMODE(status.st_mode), status.st_mtime) == (5, 0o600, 8)
    assert client.ask(14, string(b"/workspace/d") + attributes(mode=0o7700)).status == OK
    assert stat.S_IMODE((root / "d").stat().st_mode) == 0o700
    assert client.ask(18, string(b"/workspace/new") + string(b"/workspace/d/new")).status == OK
    assert client.ask(18, string(b"/workspace/file") + string(b"/workspace/d/new")).status == FAILURE
    renamed = client.extended(b"posix-rename@openssh.com", string(b"/workspace/d/new") + string(b"/workspace/file"))
    assert renamed.status == OK
    assert client.extended(b"hardlink@openssh.com", string(b"/workspace/file") + string(b"/workspace/f2")).status == OK
    assert client.ask(20, string(b"../file") + string(b"/workspace/d/l")).status == OK
    assert client.ask(19, string(b"/workspace/d/l")).names == [b"../file"]
    assert client.ask(17, string(b"/workspace/d/l")).attrs[1] == 5
    assert stat.S_ISLNK(client.ask(7, string(b"/workspace/d/l")).attrs[4])
    assert client.extended(b"lsetstat@openssh.com", string(b"/workspace/d/l") + attributes(times=(1, 2))).status == OK
    assert (root / "d" / "l").lstat().st_mtime == 2
    assert client.ask(9, string(b"/workspace/f2") + attributes(owner=(12345, 12345))).status == OK
    assert (root / "f2").stat().st_uid == os.getuid()
    for path in (b"/workspace/d/l", b"/workspace/f2"):
        assert client.ask(13, string(path)).status == OK
    assert client.ask(15, string(b"/workspace/d")).status == OK
    assert sorted(client.listing(b"/workspace")) == [b".", b"..", b".envrc", b"dir", b"file", b"link"]
    assert served.usage.touched == {"workspace": {b"new", b"d", b"d/new", b"file", b"f2", b"d/l"}}
    assert served.usage.bytes_written == 10
    assert served.usage.bytes_read == 4


def test_hidden_names_neither_list_nor_open_nor_are_replaced(serve: Serve) -> None:
    client = serve("rw").client
    assert b".env" not in client.listing(b"/workspace")
    assert client.ask(7, string(b"/workspace/.env")).status == NO_SUCH_FILE
    assert client.open(b"/workspace/.env", READ).status == NO_SUCH_FILE
    for flags in (WRITE, WRITE | CREAT, WRITE | CREAT | TRUNC, READ | WRITE | APPEND):
        assert client.open(b"/workspace/.env", flags).status == DENIED
        assert client.open(b"/workspace/.envrc", flags).status == DENIED
    assert client.open(b"/workspace/.envrc", READ).kind == 102
    assert client.ask(20, string(b"file") + string(b"/workspace/.env")).status == DENIED
    # where nothing is, a name is the client's own
    assert client.open(b"/workspace/dir/x.pem", WRITE | CREAT).kind == 102
    assert b"x.pem" in client.listing(b"/workspace/dir")


def test_escapes_meet_the_virtual_root(serve: Serve, tmp_path: Path) -> None:
    client = serve("rw").client
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "root" / "out").symlink_to(tmp_path / "outside")
    (tmp_path / "root" / "up").symlink_to("..")
    for path in (
        b"/workspace/../outside",
        b"/workspace/../../../../" + os.fsencode(tmp_path) + b"/outside",
        os.fsencode(tmp_path / "outside"),
        b"/etc/passwd",
    ):
        assert client.open(path, READ).status == NO_SUCH_FILE
    for path in (b"/workspace/out", b"/workspace/up/outside"):
        assert client.open(path, READ).status == DENIED
        assert client.ask(17, string(path)).status == DENIED
    assert client.ask(19, string(b"/workspace/out")).status == DENIED
    assert client.ask(16, string(b"/workspace/../..//x/.")).names == [b"/x"]
    assert client.open(b"/workspace/a\0b", READ).status == BAD_MESSAGE


def test_handles_are_bounded_never_reused_and_told_apart(serve: Serve) -> None:
    client = serve("rw", handles=3).client
    first, second = (client.open(b"/workspace/file", READ).handle for _ in range(2))
    directory = client.ask(11, string(b"/workspace")).handle
    before = len(os.listdir("/proc/self/fd"))
    assert client.open(b"/workspace/file", READ).status == FAILURE
    assert client.open(b"/workspace/never", WRITE | CREAT).status == FAILURE
    assert client.ask(11, string(b"/workspace")).status == FAILURE
    assert len(os.listdir("/proc/self/fd")) == before
    assert client.ask(7, string(b"/workspace/never")).status == NO_SUCH_FILE
    assert client.read(directory).status == FAILURE
    assert client.ask(12, string(first)).status == FAILURE
    assert client.write(first, b"x").status == FAILURE
    assert client.ask(4, string(second)).status == OK
    assert client.ask(4, string(second)).status == FAILURE
    assert client.open(b"/workspace/file", READ).handle != second
    assert client.read(b"nonsense").status == FAILURE


def test_a_session_that_ends_closes_its_handles_and_gives_back_their_room(serve: Serve) -> None:
    served = serve("rw")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        served.client.open(b"/workspace/file", READ)
        served.client.ask(11, string(b"/workspace"))
    served.client.core.close()
    served.client.core.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_lease_that_is_over_answers_nothing(serve: Serve) -> None:
    served = serve("rw")
    handle = served.client.open(b"/workspace/file", READ | WRITE).handle
    served.live = False
    assert served.client.read(handle).status == NO_CONNECTION
    assert served.client.write(handle, b"late").status == NO_CONNECTION
    assert served.client.ask(7, string(b"/workspace")).status == NO_CONNECTION
    assert served.client.extended(b"statvfs@openssh.com", string(b"/")).status == NO_CONNECTION
    assert (served.root / "file").read_bytes() == b"content"


@pytest.mark.parametrize("flags", [0, CREAT, TRUNC, APPEND, EXCL, READ | CREAT, READ | TRUNC])
def test_flags_that_change_need_the_write_flag(serve: Serve, flags: int) -> None:
    served = serve("rw")
    answer = served.client.open(b"/workspace/file", flags)
    assert answer.status == (None if flags == 0 else BAD_MESSAGE)
    assert (served.root / "file").read_bytes() == b"content"


def test_statvfs_and_limits_answer(serve: Serve) -> None:
    client = serve("rw", max_bytes=1 << 20, handles=9).client
    values = struct.unpack(">11Q", client.extended(b"statvfs@openssh.com", string(b"/workspace")).body)
    assert values[0] * values[4] <= 1 << 20
    handle = client.open(b"/workspace/file", READ).handle
    assert client.extended(b"fstatvfs@openssh.com", string(handle)).kind == 201
    assert client.extended(b"fstatvfs@openssh.com", string(b"x")).kind == 101
    assert struct.unpack(">4Q", client.extended(b"limits@openssh.com", b"").body)[3] == 9
    assert b"statvfs@openssh.com\x00\x00\x00\x012" in client.hello


def test_quota_and_cross_device_errors_have_the_codes_that_sshfs_needs(serve: Serve) -> None:
    served = serve("rw", max_bytes=10)
    handle = served.client.open(b"/workspace/new", WRITE | CREAT).handle
    assert served.client.write(handle, b"x" * 10).status == OK
    assert served.client.write(handle, b"x", 10).status == QUOTA
    assert parse(pack_error(1, OSError(errno.EXDEV, "x"))).status == FAILURE
    assert parse(pack_error(1, OSError(errno.ENOSPC, "x", "/real/path"))).status == 14
    assert b"/real/path" not in pack_error(1, OSError(errno.ENOSPC, "x", "/real/path"))


def test_offsets_beyond_any_file_are_refused(serve: Serve) -> None:
    served = serve("rw")
    handle = served.client.open(b"/workspace/file", READ | WRITE).handle
    for offset in ((1 << 63) - 1, 1 << 63, (1 << 64) - 1):
        assert served.client.read(handle, 10, offset).status in (EOF, BAD_MESSAGE)
        assert served.client.write(handle, b"x", offset).status == FAILURE
        assert served.client.ask(10, string(handle) + attributes(size=offset)).status in (FAILURE, BAD_MESSAGE)
    assert (served.root / "file").read_bytes() == b"content"


def test_unknown_operations_and_extensions_are_unsupported(serve: Serve) -> None:
    client = serve("rw").client
    for kind in (0, 1, 2, 21, 22, 99, 101, 199, 201, 255):
        assert client.ask(kind, b"").status == UNSUPPORTED
    assert client.extended(b"copy-data", b"").status == UNSUPPORTED
    assert client.extended(b"", b"").status == UNSUPPORTED


@pytest.mark.parametrize("kind", [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 200])
@pytest.mark.parametrize("body", [b"", b"\0\0", b"\0\0\0\5abc", b"\xff\xff\xff\xff"])
def test_truncated_requests_are_bad_messages(serve: Serve, kind: int, body: bytes) -> None:
    served = serve("rw")
    before = tree(served.root)
    assert served.client.ask(kind, body).status == BAD_MESSAGE
    assert tree(served.root) == before


@pytest.mark.parametrize(
    "stream",
    [
        b"\0\0\0\0",
        b"\0\0\0\4\5\0\0\0",
        struct.pack(">I", MAX_PACKET + 1),
        b"\xff\xff\xff\xff",
    ],
)
def test_streams_that_cannot_be_followed_are_aborted(serve: Serve, stream: bytes) -> None:
    core = serve("rw").client.core
    core.receive(stream)
    with pytest.raises(ProtocolAbort):
        next_reply(core)


@pytest.mark.parametrize("first", [frame(5, 1, b""), b"\0\0\0\5\1\0\0\0\2"])
def test_a_session_starts_with_init_of_version_three(tmp_path: Path, first: bytes) -> None:
    fs = ConfinedFs(ConfinedFs.open_root(tmp_path), default_rules(), Quota(None, None))
    core = SftpCore(ExportView({"workspace": fs}, {}), LeaseUsage(), Handles(HandleBudget(1)), lambda: True)
    core.receive(first)
    with pytest.raises(ProtocolAbort):
        next_reply(core)
    fs.close()


def test_frames_may_arrive_in_any_pieces(serve: Serve) -> None:
    core = serve("rw").client.core
    replies = []
    for byte in frame(7, 1, string(b"/workspace/file")) + frame(16, 2, string(b"/")):
        core.receive(bytes((byte,)))
        if (reply := next_reply(core)) is not None:
            assert isinstance(reply, bytes)
            replies.append(parse(reply).kind)
    assert replies == [105, 104]


def test_a_long_listing_comes_in_pages_below_the_clients_limit(serve: Serve) -> None:
    served = serve("rw")
    for number in range(3000):
        (served.root / "dir" / f"{number:0>60}").touch()
    handle = served.client.ask(11, string(b"/workspace/dir")).handle
    pages = []
    while (page := served.client.ask(12, string(handle))).status is None:
        assert len(page.body) < 128 * 1024
        pages.append(page.names)
    assert len(pages) > 1
    assert len({name for names in pages for name in names}) == 3002


_paths = st.sampled_from(
    [b"", b"/", b"/workspace", b"/workspace/file", b"/workspace/new", b"/workspace/dir/x", b"/workspace/link",
     b"/workspace/.env", b"/workspace/../..", b"/meta/task.json", b"/workspace/" + b"n" * 300, b"\0",
     b"/workspace/\xff"]
)  # fmt: skip
_fields = st.lists(
    st.one_of(
        _paths.map(string),
        st.integers(0, 0xFFFFFFFF).map(lambda n: struct.pack(">I", n)),
        st.integers(0, 8).map(lambda n: string(n.to_bytes(8, "big"))),
        st.integers(0, 63).map(lambda n: struct.pack(">I", n)),
        st.sampled_from([*WRITE_EXTENSIONS, b"statvfs@openssh.com"]).map(string),
        st.binary(max_size=24),
    ),
    max_size=5,
).map(b"".join)
_requests = st.tuples(
    st.one_of(st.integers(3, 20), st.just(200), st.integers(0, 255)), st.integers(0, 0xFFFFFFFF), _fields
).map(lambda t: frame(*t))


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    mode=st.sampled_from(["ro", "rw"]),
    greeted=st.booleans(),
    pieces=st.lists(st.one_of(_requests, _requests, _requests, st.binary(max_size=40)), max_size=25),
)
def test_no_bytes_break_the_core_or_leak_a_descriptor(
    tmp_path: Path, mode: Literal["ro", "rw"], greeted: bool, pieces: list[bytes]
) -> None:
    root = tmp_path / "fuzzed"
    (root / "dir").mkdir(parents=True, exist_ok=True)
    if not (root / "file").is_dir():
        (root / "file").write_bytes(b"content")
    before = len(os.listdir("/proc/self/fd"))
    quota, usage = Quota(1 << 20, 100), LeaseUsage()
    view: ExportView
    if mode == "rw":
        view = WritableView(
            {"workspace": WritableFs(ConfinedFs.open_root(root), default_rules(), quota, lambda _: None)}, {}
        )
    else:
        view = ExportView({"workspace": ConfinedFs(ConfinedFs.open_root(root), default_rules(), quota)}, {})
    core = SftpCore(view, usage, Handles(HandleBudget(16)), lambda: True)
    try:
        for piece in ([INIT] if greeted else []) + pieces:
            core.receive(piece)
            while (reply := next_reply(core)) is not None:
                answer = reply if isinstance(reply, bytes) else reply.answer()
                assert len(answer) == 4 + int.from_bytes(answer[:4], "big") <= MAX_PACKET
    except ProtocolAbort:
        pass
    finally:
        core.close()
        view.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert sorted(os.listdir(tmp_path)) == ["fuzzed"]


# Case D08: modes


@pytest.mark.parametrize(("asked", "file", "directory"), [(0o664, 0o664, 0o764), (0o4777, 0o777, 0o777)])
def test_case_d08_what_is_made_has_the_mode_that_the_client_asks_for(
    serve: Serve, asked: int, file: int, directory: int
) -> None:
    """A client has a umask of its own, and the daemon's is not applied once more."""
    before = os.umask(0o077)
    try:
        served = serve()
        opened = served.client.open(b"/workspace/new", WRITE | CREAT, attributes(mode=asked))
        assert opened.handle
        assert served.client.ask(14, string(b"/workspace/made") + attributes(mode=asked)).status == OK
        assert served.client.open(b"/workspace/by-default", WRITE | CREAT).handle
        assert served.client.ask(14, string(b"/workspace/made-by-default") + NO_ATTRIBUTES).status == OK
    finally:
        os.umask(before)
    modes = {name: stat.S_IMODE((served.root / name).stat().st_mode) for name in os.listdir(served.root)}
    assert (modes["new"], modes["made"]) == (file, directory)
    assert (modes["by-default"], modes["made-by-default"]) == (0o600, 0o700)


# Names and numbers that no client needs


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(b"/workspace/" + b"x" * 256, id="a long name"),
        pytest.param(b"/workspace/" + b"x/" * 2048, id="a long path"),
        pytest.param(b"/workspace/" + b"x/" * 300 + b"x", id="a deep path"),
        pytest.param(b"/workspace/../" * 19_000, id="250 KB"),
    ],
)
def test_paths_that_no_file_can_have_are_refused_before_anybody_looks(serve: Serve, path: bytes) -> None:
    served = serve()
    for kind in (3, 7, 9, 11, 13, 14, 15, 16, 17, 19):
        assert served.client.ask(kind, string(path) + b"\0" * 8).status == BAD_MESSAGE
    for kind in (18, 20):
        assert served.client.ask(kind, string(b"/workspace/new") + string(path)).status == BAD_MESSAGE
    for name in (b"posix-rename@openssh.com", b"hardlink@openssh.com"):
        assert served.client.extended(name, string(b"/workspace/new") + string(path)).status == BAD_MESSAGE
    assert served.usage.touched == {"workspace": set()}


def test_extended_attributes_are_read_over_only_as_many_as_a_client_could_send(serve: Serve) -> None:
    served = serve()
    for pairs, status in ((2, OK), (17, BAD_MESSAGE)):
        attrs = struct.pack(">II", 0x80000000, pairs) + (string(b"") * 2) * pairs
        assert served.client.ask(9, string(b"/workspace/file") + attrs).status == status


def test_directories_that_are_open_are_counted_apart(serve: Serve) -> None:
    served = serve(handles=1024)
    opened = [served.client.ask(11, string(b"/workspace")) for _ in range(MAX_LISTINGS)]
    assert served.client.ask(11, string(b"/workspace")).status == FAILURE
    assert served.client.open(b"/workspace/file", READ).handle
    assert served.client.ask(4, string(opened[0].handle)).status == OK
    assert served.client.ask(11, string(b"/workspace")).handle
