"""The wire format, as asyncssh's own encoder and decoder have it, which clients use."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from contextlib import nullcontext

import pytest
from asyncssh import constants
from asyncssh.packet import SSHPacket, String, UInt32, UInt64
from asyncssh.sftp import SFTPAttrs, SFTPLimits, SFTPName, SFTPVFSAttrs
from hypothesis import given
from hypothesis import strategies as st

from sublet.workspace.sftp import wire
from sublet.workspace.sftp.wire import Attributes, MalformedPacket, Op, OpenFlag, Reader, ReplyType, Status
from sublet.workspace.viewpath import MAX_PATH_BYTES

REQUEST = 0x01020304
U32, U64 = st.integers(0, 0xFFFFFFFF), st.integers(0, (1 << 64) - 1)
OTHER_NAMES = {
    "FXP_OP_UNSUPPORTED": "FX_OP_UNSUPPORTED",
    "FX_NO_SPACE": "FX_NO_SPACE_ON_FILESYSTEM",
    "FXP_EXTENDED_REPLY": "FXP_EXTENDED_REPLY",
}


@pytest.mark.parametrize(
    ("prefix", "numbers"),
    [("FXP_", Op), ("FXP_", ReplyType), ("FXF_", OpenFlag), ("FX_", Status)],
    ids=["requests", "answers", "flags", "codes"],
)
def test_numbers_are_those_of_the_protocol(prefix: str, numbers: type[Op | ReplyType | OpenFlag | Status]) -> None:
    for one in numbers:
        if one is not Status.IO_ERROR:  # on purpose a code that no client knows
            name = prefix + one.name
            assert one == getattr(constants, OTHER_NAMES.get(name, name)), name
    assert Status.IO_ERROR not in {value for name, value in vars(constants).items() if name.startswith("FX_")}


def test_bounds_are_those_that_clients_keep() -> None:
    assert (wire.VERSION, wire.MAX_PACKET, wire.MAX_READ, wire.MAX_WRITE) == (3, 266240, 261120, 261120)
    assert wire.MAX_OFFSET == 0x7FFFFFFFFFFFFFFF  # of off_t
    assert wire.MAX_EXTENDED_PAIRS == 16


def opened(packet: bytes, kind: ReplyType, request: int = REQUEST) -> SSHPacket:
    """Return what comes behind the head of one whole packet."""
    found = SSHPacket(packet)
    assert (found.get_uint32(), found.get_byte(), found.get_uint32()) == (len(packet) - 4, kind, request)
    return found


@given(st.binary(max_size=40), st.sampled_from(Status))
def test_answers_of_one_string_or_code(text: bytes, code: Status) -> None:
    status = opened(wire.pack_status(REQUEST, code, text), ReplyType.STATUS)
    assert (status.get_uint32(), status.get_string(), status.get_string()) == (code, text, b"")
    status.check_end()
    for packed, kind in (
        (wire.pack_handle(REQUEST, text), ReplyType.HANDLE),
        (wire.pack_data(REQUEST, text), ReplyType.DATA),
    ):
        packet = opened(packed, kind)
        assert packet.get_string() == text
        packet.check_end()
    named = opened(wire.pack_name(REQUEST, text), ReplyType.NAME)
    assert named.get_uint32() == 1
    name = SFTPName.decode(named, 3)
    assert (name.filename, name.longname, name.attrs.encode(3)) == (text, b"", UInt32(0))
    named.check_end()


def test_a_status_has_no_text_unless_it_is_given() -> None:
    assert wire.pack_status(1, Status.OK) == b"\0\0\0\x11\x65" + struct.pack(">IIII", 1, 0, 0, 0)


@given(st.dictionaries(st.binary(max_size=20), st.binary(max_size=4), max_size=4).map(lambda found: [*found.items()]))
def test_version_names_the_extensions(extensions: list[tuple[bytes, bytes]]) -> None:
    packet = opened(wire.pack_version(extensions), ReplyType.VERSION, 3)
    assert [(packet.get_string(), packet.get_string()) for _ in extensions] == extensions
    packet.check_end()


STATUSES = st.builds(
    lambda *fields: os.stat_result((*fields, 0)),
    *(
        st.integers(0, 0xFFFF),
        *map(st.just, (1, 2, 3)),
        U32,
        U32,
        U64,
        st.integers(-5, 1 << 33),
        st.integers(-5, 1 << 33),
    ),
)


def same(found: SFTPAttrs, status: os.stat_result) -> bool:
    low = 0xFFFFFFFF
    return (found.size, found.uid, found.gid, found.permissions, found.atime, found.mtime) == (
        *(status.st_size, status.st_uid, status.st_gid, status.st_mode),
        *(int(status.st_atime) & low, int(status.st_mtime) & low),
    )


@given(STATUSES, st.lists(st.binary(max_size=20), max_size=3))
def test_attributes_and_listings_are_read_as_they_were(status: os.stat_result, names: list[bytes]) -> None:
    packet = opened(wire.pack_attrs(REQUEST, status), ReplyType.ATTRS)
    assert same(SFTPAttrs.decode(packet, 3), status)
    packet.check_end()
    packet = opened(wire.pack_names(REQUEST, [wire.pack_entry(name, status) for name in names]), ReplyType.NAME)
    assert packet.get_uint32() == len(names)
    for name in names:
        entry = SFTPName.decode(packet, 3)
        assert (entry.filename, entry.longname) == (name, b"")
        assert same(entry.attrs, status)
    packet.check_end()


def test_the_file_system_and_limits_are_read_as_they_are() -> None:
    packet = opened(wire.pack_statvfs(REQUEST, tuple(range(100, 111))), ReplyType.EXTENDED_REPLY)
    assert [*vars(SFTPVFSAttrs.decode(packet, 3)).values()] == [*range(100, 111)]
    packet.check_end()
    packet = opened(wire.pack_limits(REQUEST, 77), ReplyType.EXTENDED_REPLY)
    limits = SFTPLimits.decode(packet)
    assert (limits.max_packet_len, limits.max_read_len) == (wire.MAX_PACKET, wire.MAX_READ)
    assert (limits.max_write_len, limits.max_open_handles) == (wire.MAX_WRITE, 77)
    packet.check_end()


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOENT, Status.NO_SUCH_FILE),
        (errno.ENOTDIR, Status.NO_SUCH_FILE),
        (errno.EACCES, Status.PERMISSION_DENIED),
        (errno.EPERM, Status.PERMISSION_DENIED),
        (errno.EROFS, Status.PERMISSION_DENIED),
        (errno.ELOOP, Status.PERMISSION_DENIED),
        (errno.EINVAL, Status.BAD_MESSAGE),
        (errno.ENAMETOOLONG, Status.BAD_MESSAGE),
        (errno.EOPNOTSUPP, Status.OP_UNSUPPORTED),
        (errno.ENOSPC, Status.NO_SPACE),
        (errno.EDQUOT, Status.QUOTA_EXCEEDED),
        (errno.EIO, Status.IO_ERROR),
        (errno.EXDEV, Status.FAILURE),
        (errno.EEXIST, Status.FAILURE),
        (None, Status.FAILURE),
    ],
)
def test_a_system_error_has_the_systems_words_and_no_path(number: int | None, code: Status) -> None:
    error = OSError("words") if number is None else OSError(number, "words", "/a/path")
    packet = opened(wire.pack_error(REQUEST, error), ReplyType.STATUS)
    assert (packet.get_uint32(), packet.get_string()) == (code, os.strerror(number or 0).encode())


SET = st.builds(
    Attributes,
    st.none() | U64,
    st.none() | st.tuples(U32, U32),
    st.none() | U32,
    st.none() | st.tuples(U32, U32),
)
PAIRS = st.lists(st.tuples(st.binary(max_size=5), st.binary(max_size=5)), max_size=2)


def sent(attributes: Attributes, pairs: list[tuple[bytes, bytes]]) -> bytes:
    """Encode as a client does."""
    made = SFTPAttrs(size=attributes.size, permissions=attributes.permissions, extended=pairs)
    made.uid, made.gid = attributes.owner or (None, None)
    made.atime, made.mtime = attributes.times or (None, None)
    encoded: bytes = made.encode(3)
    return encoded


@given(U32, U64, st.binary(max_size=20), SET, PAIRS, st.binary(max_size=3))
def test_fields_are_read_as_a_client_writes_them_and_never_beyond_their_packet(
    small: int, large: int, text: bytes, attributes: Attributes, pairs: list[tuple[bytes, bytes]], behind: bytes
) -> None:
    body = UInt32(small) + UInt64(large) + String(text) * 3 + sent(attributes, pairs) + String(b"last")
    reads: list[Callable[[Reader], object]] = [
        *(Reader.u32, Reader.u64, Reader.string, Reader.path),
        lambda reader: bytes(reader.view()),
        *(Reader.attributes, Reader.string),
    ]
    expected = [small, large, text, text, text, attributes, b"last"]
    for cut in range(len(body) + 1):
        reader, found = Reader(b"head" + body + behind, 4, 4 + cut), []
        with nullcontext() if cut == len(body) else pytest.raises(MalformedPacket):
            for read in reads:
                found.append(read(reader))  # noqa: PERF401
        assert found == expected[: len(found)]
    assert found == expected


def test_a_path_has_its_longest() -> None:
    longest = b"x" * MAX_PATH_BYTES
    assert Reader(String(longest), 0, 4 + len(longest)).path() == longest
    with pytest.raises(OSError, match=os.strerror(errno.ENAMETOOLONG)):
        Reader(String(longest + b"x"), 0, 5 + len(longest)).path()


@pytest.mark.parametrize(("pairs", "fits"), [(16, True), (17, False)])
def test_extended_attributes_are_read_over_up_to_a_number(pairs: int, fits: bool) -> None:
    body = sent(Attributes(None, None, None, None), [(b"", b"")] * pairs)
    reader = Reader(body, 0, len(body))
    if fits:
        assert reader.attributes() == Attributes(None, None, None, None)
        return
    with pytest.raises(MalformedPacket):
        reader.attributes()
