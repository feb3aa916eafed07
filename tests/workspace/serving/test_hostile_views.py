"""A hostile client on a lease of several directories, chosen names and a repository, over a real connection."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import struct
import threading
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from sublet.workspace.export import LentDirectory
from sublet.workspace.git.config import read_config
from sublet.workspace.git.take import QUICK_BYTES, Looking
from sublet.workspace.view.rules import DEFAULT_HIDDEN, DEFAULT_LOCKED, Rules
from support.leases import tree
from support.sftp_client import NO_ATTRIBUTES, Packet, RawChannel, attributes, lender, open_channel, string
from support.views import default_rules

pytestmark = pytest.mark.anyio

OK, NO_SUCH_FILE, DENIED, FAILURE = 0, 2, 3, 4
CHOICE = Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, [], include=["*.py", "/keep"], exclude=["gen"], git="rw")
FORBIDDEN = (
    *("workspace/.git", "workspace/.git/config", "workspace/.git/config.lock", "workspace/.git/hooks/pre-commit"),
    *("workspace/.git/hooks", "workspace/.git/info/attributes", "workspace/.git/commondir", "workspace/.GIT/config"),
    *("workspace/.git/objects/info/alternates", "workspace/.git/modules", "workspace/.git/worktrees/x/gitdir"),
    *("workspace/.git/rebase-merge/git-rebase-todo", "workspace/.env", "workspace/.envrc"),
    *("workspace/notes.txt", "workspace/sub/notes.txt", "workspace/gen/x.py", "workspace/.vscode/x.py"),
    *(
        "workspace",
        "docs",
        "meta/task.json",
        "meta/new",
        "specs",
        "specs/s.txt",
        "specs/new",
        "docs/.git/config",
        "new",
    ),
    *("docs/../specs/s.txt", "docs/../../specs/new", "docs/.vscode/tasks.json"),
)
"""Nothing may be made, changed, moved or removed under these names."""


@pytest.fixture
def area(tmp_path: Path) -> Path:
    files = {
        "project/a.py": "a",
        "project/notes.txt": "secret notes",
        "project/sub/b.py": "b",
        "project/sub/notes.txt": "secret notes",
        "project/gen/x.py": "secret gen",
        "project/.env": "secret env",
        "project/keep/plain": "k",
        "project/.git/config": "[http]\n\textraheader = secret\n",
        "project/.git/HEAD": "ref: refs/heads/main\n",
        "project/.git/hooks/pre-commit": "#!/bin/sh\n",
        "project/.git/objects/ab/cdef": "object",
        "project/.git/objects/info/alternates": "/secret/elsewhere",
        "project/.git/refs/heads/main": "1" * 40,
        "docs/d.txt": "d",
        "docs/.vscode/tasks.json": "{}",
        "specs/s.txt": "s",
        "outside/secret": "secret",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def lent(area: Path) -> tuple[LentDirectory, ...]:
    copies: dict[tuple[bytes, ...], bytes] = {
        (b".git", b"config"): read_config((area / "project/.git/config").read_bytes()).copy
    }
    return (
        LentDirectory("workspace", area / "project", "rw", CHOICE, copies),
        LentDirectory("docs", area / "docs", "rw", default_rules()),
        LentDirectory("specs", area / "specs", "ro", default_rules()),
    )


def attempts(name: bytes, source: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield every request that would make, change, move or remove ``name``; ``source`` is a file that may be moved."""
    path = string(b"/" + name)
    for flags in (2, 3, 2 | 8, 2 | 8 | 16, 2 | 8 | 32, 2 | 4):
        yield 3, path + struct.pack(">I", flags) + NO_ATTRIBUTES
    for kind in (9, 14):
        yield kind, path + attributes(mode=0o777)
    yield 9, path + attributes(size=0)
    yield from ((13, path), (15, path))
    yield 20, string(b"a.py") + path
    for op in (b"posix-rename@openssh.com", b"hardlink@openssh.com"):
        yield 200, string(op) + string(source) + path
        yield 200, string(op) + path + string(b"/docs/taken")
    yield 18, string(source) + path
    yield 18, path + string(b"/docs/taken")
    yield 200, string(b"lsetstat@openssh.com") + path + attributes(times=(1, 1))


async def names(channel: RawChannel, path: bytes) -> list[bytes]:
    opened = await channel.ask(11, string(path))
    found: list[bytes] = []
    while (page := await channel.ask(12, string(opened.handle))).status is None:
        found += page.names
    return sorted(name for name in found if name not in (b".", b".."))


async def read(channel: RawChannel, path: bytes) -> Packet:
    opened = await channel.open(path, 1)
    if opened.kind != 102:
        return opened
    return await channel.ask(5, string(opened.handle) + struct.pack(">QI", 0, 65536))


async def make(channel: RawChannel, path: bytes, data: bytes) -> None:
    handle = (await channel.open(path, 2 | 8 | 32)).handle
    for start in range(0, len(data), 32768):
        piece = struct.pack(">Q", start) + string(data[start : start + 32768])
        assert (await channel.ask(6, string(handle) + piece)).status == OK
    assert (await channel.ask(4, string(handle))).status == OK


@pytest.mark.parametrize("source", [b"/workspace/a.py", b"/docs/d.txt"])
async def test_no_request_touches_what_is_not_lent_for_writing(area: Path, source: bytes) -> None:
    before = tree(area)
    async with lender(area, resources=lent(area)) as served, served.connect() as connection:
        channel = await open_channel(connection)
        for name in FORBIDDEN:
            for kind, body in attempts(name.encode(), source):
                answer = await channel.ask(kind, body)
                # The directories themselves are the lender's: changes of their attributes are accepted and ignored.
                ignored = name in ("workspace", "docs") and kind in (9, 200)
                assert answer.status != OK or ignored, (name, kind, body)
                assert answer.kind != 102, (name, body)
    assert tree(area) == before


async def test_what_is_hidden_neither_lists_nor_opens(area: Path) -> None:
    async with lender(area, resources=lent(area)) as served, served.connect() as connection:
        channel = await open_channel(connection)
        assert await names(channel, b"/") == [b"docs", b"meta", b"specs", b"workspace"]
        assert await names(channel, b"/workspace") == [b".git", b"a.py", b"keep", b"sub"]
        assert await names(channel, b"/workspace/sub") == [b"b.py"]
        assert await names(channel, b"/workspace/.git") == [b"HEAD", b"config", b"hooks", b"objects", b"refs"]
        assert await names(channel, b"/workspace/.git/objects/info") == []
        for hidden in ("notes.txt", "sub/notes.txt", "gen", "gen/x.py", ".env", ".git/objects/info/alternates"):
            for kind in (7, 17, 19, 11):
                assert (await channel.ask(kind, string(b"/workspace/" + hidden.encode()))).status == NO_SUCH_FILE
            assert (await read(channel, b"/workspace/" + hidden.encode())).status == NO_SUCH_FILE
        config = (await read(channel, b"/workspace/.git/config")).data
        assert b"secret" not in config
        assert (await channel.ask(7, string(b"/workspace/.git/config"))).attrs[1] == len(config)


async def test_moves_between_directories_fail_as_between_disks(area: Path) -> None:
    async with lender(area, resources=lent(area)) as served, served.connect() as connection:
        channel = await open_channel(connection)
        two = string(b"/workspace/a.py") + string(b"/docs/a.py")
        assert (await channel.ask(18, two)).status == FAILURE
        assert (await channel.ask(200, string(b"posix-rename@openssh.com") + two)).status == FAILURE
        assert (await channel.ask(200, string(b"hardlink@openssh.com") + two)).status == FAILURE
        up = string(b"/docs/d.txt") + string(b"/docs/../workspace/d.py")
        assert (await channel.ask(18, up)).status == FAILURE
        assert (await channel.ask(20, string(b"../workspace/a.py") + string(b"/docs/link"))).status == DENIED
    assert served.plane.usage(served.lease_id) is None


async def test_a_directory_never_changes_what_is_seen_of_it_by_being_moved(area: Path) -> None:
    async with lender(area, resources=lent(area)) as served, served.connect() as connection:
        channel = await open_channel(connection)
        for old, new in ((b"sub", b"sub.py"), (b"keep", b"kept"), (b"sub", b"keep/sub"), (b"sub", b".git/logs")):
            pair = string(b"/workspace/" + old) + string(b"/workspace/" + new)
            assert (await channel.ask(18, pair)).status in (DENIED, FAILURE)
        # what is left out is moved by nobody either
        assert (await channel.ask(18, string(b"/workspace/sub") + string(b"/workspace/moved"))).status == DENIED
    assert (area / "project" / "sub" / "notes.txt").exists()


OBJECT = zlib.compress(b"blob 3\0new")
DIGEST = hashlib.sha1(b"blob 3\0new", usedforsecurity=False).hexdigest().encode()
NAMED = DIGEST[:2] + b"/" + DIGEST[2:]


async def test_history_is_only_added_to(area: Path) -> None:
    git = b"/workspace/.git/"
    async with lender(area, resources=lent(area)) as served, served.connect() as connection:
        channel = await open_channel(connection)
        handle = (await channel.open(git + b"objects/ab/tmp_obj_1", 2 | 8 | 32)).handle
        await channel.ask(6, string(handle) + struct.pack(">Q", 0) + string(OBJECT))
        wrong = string(git + b"objects/ab/tmp_obj_1") + string(git + b"objects/ab/" + 38 * b"0")
        for op in (b"hardlink@openssh.com", b"posix-rename@openssh.com"):
            assert (await channel.ask(200, string(op) + wrong)).status == DENIED
        assert (await channel.ask(14, string(git + b"objects/" + DIGEST[:2]) + NO_ATTRIBUTES)).status == OK
        to = string(git + b"objects/ab/tmp_obj_1") + string(git + b"objects/" + NAMED)
        assert (await channel.ask(200, string(b"hardlink@openssh.com") + to)).status == OK
        assert (await channel.ask(13, string(git + b"objects/ab/tmp_obj_1"))).status == OK
        for flags in (2, 2 | 8, 2 | 16):
            assert (await channel.open(git + b"objects/" + NAMED, flags)).status == DENIED
        assert (await channel.ask(13, string(git + b"objects/ab/cdef"))).status == DENIED
        assert (await channel.ask(18, string(git + b"objects/ab") + string(git + b"objects/tmp_x"))).status == DENIED
        for op in (b"hardlink@openssh.com", b"posix-rename@openssh.com"):
            pair = string(git + b"objects/ab/cdef") + string(b"/workspace/alias.py")
            assert (await channel.ask(200, string(op) + pair)).status == DENIED
        over = string(git + b"refs/heads/main") + string(git + b"objects/ab/cdef")
        assert (await channel.ask(200, string(b"posix-rename@openssh.com") + over)).status != OK
        assert (await channel.ask(20, string(b"../a.py") + string(git + b"logs"))).status == DENIED
        assert (await channel.ask(20, string(b"a.py") + string(b"/workspace/l.py"))).status == OK
        into = string(b"/workspace/l.py") + string(git + b"ORIG_HEAD")
        assert (await channel.ask(18, into)).status == DENIED
    objects = area / "project" / ".git" / "objects"
    assert (objects / "ab/cdef").read_text() == "object"
    assert not (objects / "ab" / ("0" * 38)).exists()
    assert (objects / os.fsdecode(NAMED)).read_bytes() == OBJECT


@pytest.mark.parametrize("ends", ["looked", "refused", "revoked", "exchanged"])
async def test_a_large_object_is_looked_at_while_others_are_served(
    area: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    content = random.Random(7).randbytes(QUICK_BYTES)
    raw = b"blob %d\0" % len(content) + content
    digest = hashlib.sha1(raw, usedforsecurity=False).hexdigest()
    name = f"{digest[:2]}/{digest[2:]}" if ends != "refused" else f"{digest[:2]}/{'0' * 38}"
    begun, go_on = threading.Event(), threading.Event()
    look = Looking.look

    def held(looking: Looking) -> None:
        begun.set()
        assert go_on.wait(20)
        look(looking)

    monkeypatch.setattr(Looking, "look", held)
    objects = area / "project" / ".git" / "objects"
    (objects / digest[:2]).mkdir()
    draft = objects / "ab" / "tmp_obj_1"
    git = b"/workspace/.git/objects/"
    old, new = git + b"ab/tmp_obj_1", git + os.fsencode(name)
    async with lender(area, resources=lent(area)) as served, served.connect() as connection:
        channel, other = await open_channel(connection), await open_channel(connection)
        # Of git's drafts, the executor moves only what it made itself.
        await make(channel, old, zlib.compress(raw))
        try:
            async with asyncio.TaskGroup() as group:
                rename = string(b"posix-rename@openssh.com") + string(old) + string(new)
                asked = group.create_task(channel.ask(200, rename))
                assert await asyncio.to_thread(begun.wait, 20)
                assert (await read(other, b"/workspace/a.py")).data == b"a"
                if ends == "revoked":
                    served.plane.revoke(served.lease_id, "test")
                    asked.cancel()
                elif ends == "exchanged":
                    assert (await other.ask(13, string(old))).status == OK
                    await make(other, old, b"another")
                go_on.set()
        finally:
            go_on.set()
        if ends != "revoked":
            expected = {"looked": OK, "refused": DENIED, "exchanged": FAILURE}[ends]
            assert asked.result().status == expected
    assert (objects / name).exists() == (ends == "looked")
    if ends == "looked":
        assert (objects / name).read_bytes() == zlib.compress(raw)
        assert not draft.exists()


def guarded(area: Path) -> dict[str, bytes]:
    """Return what must stay as it is whatever a client does."""
    kept = ("project/gen/", "project/.env", "project/.git/config", "project/.git/hooks", "specs/", "outside/")
    return {name: data for name, data in tree(area).items() if name.startswith((*kept, "docs/.vscode"))}


@pytest.mark.parametrize("seed", range(3))
async def test_random_requests_make_nothing_that_the_rules_do_not_show(area: Path, seed: int) -> None:
    chance = random.Random(seed)
    before, secrets = tree(area), guarded(area)
    pieces = [b"a.py", b"sub", b"keep", b"n.py", b"gen", b".git", b"HEAD", b"refs", b"logs", b"x.txt", b"..", b".env"]

    def path() -> bytes:
        top = chance.choice([b"workspace", b"workspace", b"docs", b"specs"])
        return b"/" + b"/".join([top, *chance.choices(pieces, k=chance.randint(1, 3))])

    def request() -> Sequence[object]:
        name = path()
        return chance.choice(list(attempts(name[1:], path())))

    async with lender(area, resources=lent(area)) as served, served.connect() as connection:
        channel = await open_channel(connection)
        for _ in range(800):
            kind, body = request()
            assert isinstance(kind, int)
            assert isinstance(body, bytes)
            answer = await channel.ask(kind, body)
            if answer.kind == 102:
                await channel.ask(4, string(answer.handle))
    after = tree(area)
    assert guarded(area) == secrets
    for name in after.keys() - before.keys():
        top, _, rest = name.partition("/")
        parts = os.fsencode(rest).split(b"/")
        if top == "project":
            assert not CHOICE.hidden(parts) or CHOICE.secret(parts), name
            assert not CHOICE.directory_only(parts), name
        assert top in ("project", "docs")
