"""Large binaries in pieces: those of results, and those that an Agent uploads."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from sublet.office_client import blobs
from sublet.office_client.blobs import CHUNK_BYTES, KEPT_BYTES, MAX_UPLOAD_BYTES, BlobShelf, Landing

pytestmark = pytest.mark.anyio

DATA = bytes(range(256)) * 2_000


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def first(data: bytes, piece: bytes | None = None, **fields: object) -> Any:
    piece = data if piece is None else piece
    told = {"chunk_offset": 0, "eof": len(piece) == len(data), "blob": base64.b64encode(piece).decode()}
    return {**told, "total_size": len(data), "sha256": hashlib.sha256(data).hexdigest(), **fields}


def later(upload_id: str, offset: int, piece: bytes, *, eof: bool) -> Any:
    blob = base64.b64encode(piece).decode()
    return {"upload_id": upload_id, "chunk_offset": offset, "eof": eof, "blob": blob}


def reason(answer: Any) -> object:
    return answer["details"]["reason"]


def test_a_result_is_fetched_piece_by_piece() -> None:
    shelf = BlobShelf()
    handle, digest = shelf.put(DATA, "image/png")
    got, ended = b"", False
    while not ended:
        piece: Any = shelf.piece({"blob_handle": handle, "chunk_offset": len(got)}, "r")
        assert (piece["chunk_offset"], piece["total_size"], piece["sha256"]) == (len(got), len(DATA), digest)
        assert (piece["mime_type"], piece["req_id"]) == ("image/png", "r")
        got += base64.b64decode(piece["blob"])
        assert len(got) - piece["chunk_offset"] <= CHUNK_BYTES
        ended = piece["eof"]
    assert got == DATA
    small: Any = shelf.piece({"blob_handle": handle, "chunk_offset": 5, "max_chunk_bytes": 3}, "r")
    assert base64.b64decode(small["blob"]) == DATA[5:8]


def test_handles_that_are_none_and_ranges_beyond_it_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = BlobShelf()
    handle, _ = shelf.put(b"abc", "x/y")
    assert reason(shelf.piece({}, "r")) == "invalid_handle"
    assert reason(shelf.piece({"blob_handle": "../etc/passwd"}, "r")) == "gone"
    for offset in (-1, 4, True, "0", 1.5):
        assert reason(shelf.piece({"blob_handle": handle, "chunk_offset": offset}, "r")) == "range"
    for _ in range(3):
        shelf.put(b"x" * (KEPT_BYTES // 3), "x/y")
    assert reason(shelf.piece({"blob_handle": handle}, "r")) == "gone"
    monkeypatch.setattr(blobs, "KEPT_BLOBS", 2)
    handle, _ = shelf.put(b"abc", "x/y")
    shelf.put(b"a", "x/y")
    shelf.put(b"b", "x/y")
    assert reason(shelf.piece({"blob_handle": handle}, "r")) == "gone"


async def test_an_upload_lands_whole_under_a_name_of_ours(tmp_path: Path) -> None:
    landing = Landing(tmp_path, Clock())
    hostile = "../../.ssh/authorized_keys"
    begun = await landing.take(first(DATA, DATA[:1_000], name_hint=hostile), "r1")
    assert begun == {"upload_id": begun["upload_id"], "chunk_offset": 0, "req_id": "r1"}
    assert list(tmp_path.iterdir()) == []
    done: Any = await landing.take(later(str(begun["upload_id"]), 1_000, DATA[1_000:], eof=True), "r2")
    landed = Path(done["landing_path"])
    assert (landed.parent, landed.read_bytes(), landed.stat().st_mode & 0o777) == (tmp_path, DATA, 0o600)
    assert landed.name == f"{begun['upload_id']}_ssh_authorized_keys"
    assert (done["total_size"], done["sha256"]) == (len(DATA), hashlib.sha256(DATA).hexdigest())
    assert reason(await landing.take(later(str(begun["upload_id"]), 0, b"x", eof=True), "r3")) == "invalid_upload"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"total_size": 0}, "invalid_declaration"),
        ({"total_size": True}, "invalid_declaration"),
        ({"total_size": "3"}, "invalid_declaration"),
        ({"total_size": MAX_UPLOAD_BYTES + 1}, "too_large"),
        ({"sha256": "x" * 64}, "invalid_declaration"),
        ({"sha256": "a" * 64}, "integrity"),
        ({"sha256": None}, "invalid_declaration"),
        ({"blob": "no base64"}, "invalid_declaration"),
        ({"blob": None}, "invalid_declaration"),
        ({"chunk_offset": 1}, "range"),
        ({"total_size": 2}, "range"),
        ({"total_size": 4}, "range"),
        ({"upload_id": "unknown"}, "invalid_upload"),
    ],
)
async def test_an_upload_that_is_not_what_it_says_leaves_nothing(
    tmp_path: Path, fields: dict[str, Any], why: str
) -> None:
    landing = Landing(tmp_path, Clock())
    assert reason(await landing.take({**first(b"abc"), **fields}, "r")) == why
    landing.close()
    assert list(tmp_path.iterdir()) == []


async def test_uploads_are_few_and_go_when_they_are_idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    landing = Landing(tmp_path, clock)
    begun = [await landing.take(first(DATA, DATA[:10]), "r") for _ in range(blobs.MAX_UPLOADS)]
    assert reason(await landing.take(first(DATA), "r")) == "busy"
    repeated = {**later(str(begun[0]["upload_id"]), 10, b"x", eof=False), "total_size": 3}
    assert reason(await landing.take(repeated, "r")) == "invalid_declaration"
    clock.now = blobs.IDLE_SECONDS + 1
    assert "landing_path" in await landing.take(first(DATA), "r")
    monkeypatch.setattr(blobs, "MAX_LANDED_BYTES", len(DATA) + 10)
    assert reason(await landing.take(first(DATA), "r")) == "too_large"


async def test_without_a_directory_and_on_a_bad_disk_nothing_is_taken(tmp_path: Path) -> None:
    assert reason(await Landing(None, Clock()).take(first(b"abc"), "r")) == "forbidden"
    assert reason(await Landing(tmp_path / "gone", Clock()).take(first(b"abc"), "r")) == "io_error"


async def test_a_piece_waits_for_one_whose_asker_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end = threading.Event(), threading.Event()
    copy = shutil.copyfileobj

    def slow(source: Any, target: Any) -> None:
        begun.set()
        may_end.wait(30)
        copy(source, target)

    monkeypatch.setattr(shutil, "copyfileobj", slow)
    landing = Landing(tmp_path, Clock())
    upload = str((await landing.take(first(DATA, DATA[:10]), "r"))["upload_id"])
    asked = asyncio.ensure_future(landing.take(later(upload, 10, DATA[10:], eof=True), "r"))
    await asyncio.to_thread(begun.wait, 30)
    asked.cancel()  # as its connection ends, or its time
    await asyncio.wait([asked])
    again = asyncio.ensure_future(landing.take(later(upload, len(DATA), b"", eof=True), "r"))
    await asyncio.sleep(0.1)
    met = again.done()
    may_end.set()
    assert reason(await again) == "invalid_upload"
    assert not met
    [landed] = tmp_path.iterdir()
    assert landed.read_bytes() == DATA


async def test_of_an_upload_for_which_there_is_no_room_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Any, target: Any) -> None:
        target.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    assert reason(await Landing(tmp_path, Clock()).take(first(DATA), "r")) == "io_error"
    assert list(tmp_path.iterdir()) == []
