"""Frames of the archive transport: cut anywhere, bounded, and strict about what they hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.workspace.archive.wire import (
    MAX_FRAME,
    Frame,
    Frames,
    MalformedFrame,
    Planned,
    Refused,
    Report,
    data_frames,
    frame,
    pack_failure,
    pack_report,
    plan_frames,
    read_failure,
    read_plan,
    read_report,
)

COMPONENTS = st.binary(min_size=1, max_size=60).filter(lambda c: c not in (b".", b"..") and not {0, 47} & set(c))
PLANNED = st.builds(
    lambda parts, kind, size: Planned(tuple(parts), kind, size if kind == "file" else 0),
    st.lists(COMPONENTS, min_size=1, max_size=6),
    st.sampled_from(("file", "directory", "symlink", "hardlink", "deleted")),
    st.integers(0, 1 << 60),
)


def received(stream: bytes, step: int = 1 << 20) -> list[tuple[Frame, bytes]]:
    frames = Frames()
    found: list[tuple[Frame, bytes]] = []
    for start in range(0, len(stream), step):
        found += frames.receive(stream[start : start + step])
    return found


@given(st.lists(st.tuples(st.sampled_from(Frame), st.binary(max_size=300)), max_size=8), st.integers(1, 50))
def test_frames_arrive_whatever_the_pieces(sent: list[tuple[Frame, bytes]], step: int) -> None:
    assert received(b"".join(frame(*one) for one in sent), step) == sent


@given(st.binary(max_size=2_000))
def test_noise_is_refused_or_waited_for(noise: bytes) -> None:
    try:
        found = received(noise)
    except MalformedFrame:
        return
    for kind, payload in found:
        for read in (read_report, read_failure, lambda data: list(read_plan(data))):
            try:
                read(payload)
            except MalformedFrame:
                assert kind in Frame


@pytest.mark.parametrize("head", [b"\x05" + (MAX_FRAME + 1).to_bytes(4, "big"), b"\x09\0\0\0\0", b"\0\0\0\0\0"])
def test_a_frame_that_is_too_large_or_unknown_is_refused_by_its_head(head: bytes) -> None:
    with pytest.raises(MalformedFrame):
        received(head)


def test_content_is_cut_into_frames() -> None:
    content = bytes(range(256)) * 3_000
    frames = received(b"".join(data_frames(content)))
    assert b"".join(payload for _, payload in frames) == content
    assert max(len(payload) for _, payload in frames) == MAX_FRAME


@given(st.lists(PLANNED, max_size=20))
def test_a_plan_is_read_back(plan: list[Planned]) -> None:
    frames = received(b"".join(plan_frames(plan)))
    assert [planned for _, payload in frames for planned in read_plan(payload)] == plan


@pytest.mark.parametrize(
    "name", [b"/etc/passwd", b"../a", b"a/../b", b"a//b", b"", b"a\0b", b"x" * 256, b"/".join([b"x"] * 300)]
)
def test_a_plan_with_a_name_that_leads_elsewhere_is_refused(name: bytes) -> None:
    payload = b"f" + (0).to_bytes(8, "big") + len(name).to_bytes(2, "big") + name
    with pytest.raises(MalformedFrame):
        list(read_plan(payload))


@pytest.mark.parametrize(
    "payload", [b"f", b"f" + bytes(8) + b"\0\5ab", b"?" + bytes(8) + b"\0\1a", b"d" + b"\1" * 8 + b"\0\1a"]
)
def test_a_plan_that_is_cut_or_strange_is_refused(payload: bytes) -> None:
    with pytest.raises(MalformedFrame):
        list(read_plan(payload))


def test_reports_and_failures_are_read_back() -> None:
    report = Report(refused=[Refused(name="a", reason="it is locked")], refused_count=3)
    [(kind, payload)] = received(pack_report(report))
    assert (kind, read_report(payload)) == (Frame.REPORT, report)
    [(kind, payload)] = received(pack_failure("QUOTA", "x" * 1_000))
    assert (kind, read_failure(payload).code, len(read_failure(payload).reason)) == (Frame.FAIL, "QUOTA", 200)


def test_a_long_report_is_cut_and_still_counts() -> None:
    refused = [Refused(name="\N{SNOWMAN}" * 4_000, reason="r" * 200) for _ in range(200)]
    [(_, payload)] = received(pack_report(Report(refused=refused, refused_count=200)))
    assert read_report(payload).refused_count == 200
    assert 0 < len(read_report(payload).refused) < 200
