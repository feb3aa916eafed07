"""An object under the name of another: git would believe it."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import zlib
from pathlib import Path

import pytest

from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.git import objects as git_objects
from sublet.workspace.git.objects import check_object
from sublet.workspace.quota import Quota
from sublet.workspace.view.rules import DEFAULT_HIDDEN, DEFAULT_LOCKED, Rules
from support.noise import noise

CONTENT = b"blob 5\0hello"
NAME = hashlib.sha1(CONTENT, usedforsecurity=False).hexdigest().encode()


@pytest.mark.parametrize("form", ["sha1", "sha256"])
def test_what_git_writes_is_what_it_says(tmp_path: Path, form: str) -> None:
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run([*git, "init", "-q", f"--object-format={form}"], cwd=tmp_path, check=True)
    for name, content in (("empty", b""), ("large", noise(3_000_000)), ("text", b"line\n" * 1000)):
        (tmp_path / name).write_bytes(content)
    subprocess.run([*git, "add", "."], cwd=tmp_path, check=True)
    subprocess.run([*git, "commit", "-qm", "one"], cwd=tmp_path, check=True)
    found = list((tmp_path / ".git" / "objects").glob("??/*"))
    assert len(found) == 5
    for path in found:
        check_object(path.read_bytes(), os.fsencode(path.parent.name + path.name))


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (zlib.compress(CONTENT), NAME[:-1] + b"x"),
        (zlib.compress(b"blob 5\0HELLO"), NAME),
        (zlib.compress(CONTENT)[:-5], NAME),
        (zlib.compress(CONTENT) + b"more", NAME),
        (CONTENT, NAME),
        (b"", NAME),
        (zlib.compress(b"blob 6\0hello"), hashlib.sha1(b"blob 6\0hello").hexdigest().encode()),
        (zlib.compress(b"evil 5\0hello"), hashlib.sha1(b"evil 5\0hello").hexdigest().encode()),
    ],
)
def test_what_is_not_is_refused(content: bytes, name: bytes) -> None:
    with pytest.raises(PermissionError):
        check_object(content, name)


def test_the_content_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_objects, "MAX_OBJECT_BYTES", 1_000_000)
    with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
        check_object(zlib.compress(bytes(100_000_000)), NAME)


def test_an_object_takes_its_place_as_a_file_of_our_own_and_is_charged_once(tmp_path: Path) -> None:
    fan = tmp_path / ".git" / "objects" / "pack"
    fan.mkdir(parents=True)
    quota = Quota(10_000, 10)
    fs = WritableFs(ConfinedFs.open_root(tmp_path), Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, [], git="rw"), quota, print)
    objects = [b".git", b"objects"]
    place = [*objects, NAME[:2], NAME[2:]]
    fs.mkdir(place[:-1], 0o755)
    for form in ("link", "rename"):
        draft = [*place[:-1], b"tmp_obj_1"]
        file = fs.open_write(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
        file.write(zlib.compress(CONTENT), 0)
        if form == "link":
            fs.link(draft, place)
            fs.remove(draft)
        else:
            fs.rename(draft, place, replace=True)
        file.write(b"EVIL", 0)
        file.close()
        found = tmp_path.joinpath(*map(os.fsdecode, place))
        assert found.read_bytes() == zlib.compress(CONTENT)
        assert found.stat().st_mode & 0o777 == 0o444
        assert (quota.bytes, quota.files) == (found.stat().st_size, 2)
        found.unlink()
        quota.remove_file()
        quota.bytes = 0
    with pytest.raises(PermissionError):
        fs.open_write(place, os.O_WRONLY | os.O_CREAT, 0o444)
    with pytest.raises(PermissionError):
        fs.open_write([*objects, b"pack", b"pack-1.idx"], os.O_WRONLY | os.O_CREAT, 0o444)
    fs.mkdir([*objects, b"tmp_d"], 0o755)
    with pytest.raises(PermissionError):
        fs.rename([*objects, b"tmp_d"], [*objects, b"cd"], replace=True)
    fs.close()
