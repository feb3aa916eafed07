"""Tar streams as bytes: what is written is read back whatever the pieces, and what is hostile is refused unseen."""

from __future__ import annotations

import contextlib
import io
import tarfile
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.workspace.archive.tar_format import END, Entry, MalformedTar, TarLimits, header, padding
from sublet.workspace.archive.tar_reader import TarReader

LIMITS = TarLimits(max_entries=100, max_bytes=1 << 20, max_file_bytes=1 << 19)
SIZES = st.integers(0, 3_000)
COMPONENTS = st.binary(min_size=1, max_size=120).filter(lambda c: c not in (b".", b"..") and not {0, 47} & set(c))
NAMES = st.lists(COMPONENTS, min_size=1, max_size=5).map(tuple)
TIMES = st.integers(-(1 << 62), 1 << 62)
TARGETS = st.binary(min_size=1, max_size=300).filter(lambda t: 0 not in t)


class Seen:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.found: list[tuple[Entry, bytes]] = []

    def begin(self, entry: Entry) -> None:
        self.found.append((entry, b""))

    def data(self, piece: memoryview) -> None:
        entry, content = self.found[-1]
        self.found[-1] = (entry, content + bytes(piece))

    def end(self) -> None:
        assert len(self.found[-1][1]) == self.found[-1][0].size


def read(stream: bytes, limits: TarLimits = LIMITS, step: int = 1 << 16) -> list[tuple[Entry, bytes]]:
    seen = Seen()
    reader = TarReader(seen, limits)
    for start in range(0, len(stream), step):
        reader.feed(stream[start : start + step])
    reader.finish()
    return seen.found


def written(entries: list[tuple[Entry, bytes]]) -> bytes:
    return b"".join(header(entry) + content + padding(len(content)) for entry, content in entries) + END


@st.composite
def trees(draw: st.DrawFn) -> list[tuple[Entry, bytes]]:
    found: list[tuple[Entry, bytes]] = []
    for parts in draw(st.lists(NAMES, unique=True, max_size=8)):
        kind = draw(st.sampled_from(("file", "directory", "symlink", "hardlink")))
        mode, modified = draw(st.integers(0, 0o777)), draw(TIMES)
        if kind == "file":
            content = draw(st.binary(max_size=1_500))
            found.append((Entry(parts, "file", mode, len(content), modified), content))
        elif kind == "directory":
            found.append((Entry(parts, "directory", mode, modified_ns=modified), b""))
        elif kind == "symlink":
            found.append((Entry(parts, "symlink", mode, modified_ns=modified, target=draw(TARGETS)), b""))
        else:
            target = b"/".join(draw(NAMES))
            found.append((Entry(parts, "hardlink", mode, modified_ns=modified, target=target), b""))
    return found


@given(trees(), st.integers(1, 2_000))
def test_what_is_written_is_read_back_in_any_pieces(tree: list[tuple[Entry, bytes]], step: int) -> None:
    assert read(written(tree), step=step) == tree


@given(trees())
def test_other_programs_can_read_it(tree: list[tuple[Entry, bytes]]) -> None:
    with tarfile.open(fileobj=io.BytesIO(written(tree)), encoding="utf-8", errors="surrogateescape") as tar:
        names = [member.name.encode("utf-8", "surrogateescape") for member in tar.getmembers()]
    assert [name.rstrip(b"/") for name in names] == [b"/".join(entry.parts).rstrip(b"/") for entry, _ in tree]


@given(st.binary(max_size=4_000))
def test_noise_is_refused_or_read_but_never_breaks(noise: bytes) -> None:
    with contextlib.suppress(MalformedTar):
        read(noise)


@given(trees(), st.data())
def test_a_changed_byte_is_refused_or_read_but_never_breaks(
    tree: list[tuple[Entry, bytes]], data: st.DataObject
) -> None:
    stream = bytearray(written(tree))
    at = data.draw(st.integers(0, len(stream) - 1))
    stream[at] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(MalformedTar):
        for entry, _ in read(bytes(stream)):
            assert not {b"", b".", b".."} & set(entry.parts)
            assert entry.mode <= 0o777


def plain(name: str, kind: bytes = tarfile.REGTYPE, content: bytes = b"", **more: object) -> bytes:
    """Return one entry as any program might write it."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(content)
    for key, value in more.items():
        setattr(info, key, value)
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape") + content + padding(len(content))


def attributes(records: bytes) -> bytes:
    info = tarfile.TarInfo("attributes")
    info.type, info.size = tarfile.XHDTYPE, len(records)
    return info.tobuf(tarfile.USTAR_FORMAT) + records + padding(len(records))


HOSTILE: dict[str, Callable[[], bytes]] = {
    "absolute": lambda: plain("/etc/passwd"),
    "climbing": lambda: plain("a/../../b"),
    "dots": lambda: plain("./a"),
    "empty component": lambda: plain("a//b"),
    "climbing directory": lambda: plain("..", tarfile.DIRTYPE),
    "climbing by attribute": lambda: attributes(b"11 path=..\n"[:11]) + plain("a"),
    "hard link out": lambda: plain("a", tarfile.LNKTYPE, linkname="../../etc/passwd"),
    "absolute hard link": lambda: plain("a", tarfile.LNKTYPE, linkname="/etc/passwd"),
    "link without target": lambda: plain("a", tarfile.SYMTYPE),
    "device": lambda: plain("a", tarfile.CHRTYPE, devmajor=1, devminor=3),
    "FIFO": lambda: plain("a", tarfile.FIFOTYPE),
    "GNU long name": lambda: plain("././@LongLink", tarfile.GNUTYPE_LONGNAME, b"x" * 200),
    "GNU sparse": lambda: plain("a", tarfile.GNUTYPE_SPARSE),
    "global attributes": lambda: plain("a", tarfile.XGLTYPE, b"11 path=xx\n"),
    "unknown attribute": lambda: attributes(b"25 GNU.sparse.realsize=9\n") + plain("a"),
    "attribute twice": lambda: attributes(b"10 path=x\n10 path=y\n") + plain("a"),
    "attribute with a wrong length": lambda: attributes(b"99 path=x\n") + plain("a"),
    "attributes twice": lambda: attributes(b"10 path=x\n") + attributes(b"10 path=x\n") + plain("a"),
    "attributes alone": lambda: attributes(b"10 path=x\n"),
    "huge attributes": lambda: attributes(b"x" * 20_000) + plain("a"),
    "long component": lambda: plain("x" * 256),
    "long name": lambda: plain("/".join(["x" * 200] * 30)),
    "deep": lambda: plain("/".join(["x"] * 300)),
    "twice": lambda: plain("a") + plain("a"),
    "file and directory": lambda: plain("a") + plain("a", tarfile.DIRTYPE),
    "size of a directory": lambda: attributes(b"10 size=9\n") + plain("a", tarfile.DIRTYPE),
    "negative time beyond bounds": lambda: attributes(b"30 mtime=-9999999999999999999\n") + plain("a"),
    "something after the end": lambda: END + plain("a"),
    "too large a file": lambda: plain("a", content=bytes((1 << 19) + 1)),
    "too many bytes": lambda: b"".join(plain(f"a{n}", content=bytes(1 << 19)) for n in range(3)),
    "too many names": lambda: b"".join(plain(f"a{n}") for n in range(101)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_hostile_is_refused(name: str) -> None:
    with pytest.raises(MalformedTar):
        read(HOSTILE[name]() + END)


def test_a_size_that_is_claimed_is_refused_before_any_of_it_comes() -> None:
    info = tarfile.TarInfo("bomb")
    info.size = 1 << 40
    with pytest.raises(MalformedTar, match="a file of more than"):
        TarReader(Seen(), LIMITS).feed(info.tobuf(tarfile.GNU_FORMAT))


@pytest.mark.parametrize("left", [0, 100, 512, 600, 1_500])
def test_a_stream_that_is_cut_is_not_complete(left: int) -> None:
    with pytest.raises(MalformedTar):
        read((plain("a", content=b"x" * 1_000) + END)[:left])
