"""Probes of everything that reads git's data: bundles, listings, indexes, objects, references, configurations."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from attacks.kit.repository import (
    Objects,
    bundle_of_files,
    delta,
    entry_of_pack,
    file,
    index_of,
    object_id,
    pack_of,
    stream_of,
)
from attacks.probe import CostProbe, FailureProbe, KeptProbe, Probe
from sublet.protocol.errors import SubletError
from sublet.protocol.names import MalformedName, parse_name, parse_plain_name
from sublet.workspace.archive.download import Branch
from sublet.workspace.archive.tar_format import MalformedTar
from sublet.workspace.archive.wire import MalformedFrame, Planned, plan_frames
from sublet.workspace.bundles.exchange import GitExchange
from sublet.workspace.bundles.listing import MalformedListing, records
from sublet.workspace.bundles.pack import MalformedBundle, measure, read_head
from sublet.workspace.bundles.runs import GitRuns
from sublet.workspace.bundles.server import GitDownload, GitUpload
from sublet.workspace.bundles.taken import Taken
from sublet.workspace.changes.branch import _BRANCH, _COMMIT, _FAN, _REST, _why_not, export_branch
from sublet.workspace.changes.export import _INDEX_LINE
from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.git.config import read_config
from sublet.workspace.git.history import brought
from sublet.workspace.git.index import checked_index, unsafe_path
from sublet.workspace.git.objects import check_object
from sublet.workspace.git.place import find
from sublet.workspace.git.ref_names import check_packed, check_reference, replacements
from sublet.workspace.git.refs import MovedRef, moved, read_refs
from sublet.workspace.git.repository import look_at
from sublet.workspace.quota import Quota
from sublet.workspace.sandbox.git_sandbox import GitSandbox
from sublet.workspace.view.led_to import guarded
from sublet.workspace.view.rules import DEFAULT_CARRIED, DEFAULT_HIDDEN, DEFAULT_LOCKED, Rules
from support.staged import KEY, StagedBench
from support.views import default_rules

RULES = Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, [], carried=DEFAULT_CARRIED, git="rw")
ONE = b"1" * 40
_KEEP: list[tempfile.TemporaryDirectory[str]] = []
"""Directories of inputs, which go with the process."""


def directory() -> Path:
    """Return a new empty directory."""
    _KEEP.append(tempfile.TemporaryDirectory(prefix="probe-"))
    return Path(_KEEP[-1].name)


def small_objects(size: int) -> bytes:
    """Return a pack of as many objects as ``size`` bytes hold."""
    return pack_of([entry_of_pack(3, b"%d" % number) for number in range(size // 12)])


def one_large_object(size: int) -> bytes:
    """Return a pack of few bytes that unpack to very many."""
    return pack_of([entry_of_pack(3, bytes(size * 256))])


def deltas(size: int) -> bytes:
    """Return a pack of differences that mean more than they hold."""
    step = entry_of_pack(7, delta(10, 1 << 20, b"x" * 8), base="1" * 40)
    return pack_of([step] * (size // len(step)))


def moved_references(size: int) -> tuple[Path, list[MovedRef]]:
    """Return a repository, and references that were moved in it to what is not there."""
    root = with_references(64)
    objects = (b"%040x" % number for number in range(size // 40))
    return root, [MovedRef(b"refs/heads/x", ONE, name) for name in objects]


def brought_in(given: tuple[Path, list[MovedRef]]) -> None:
    brought(*given, RULES, GitSandbox())


def measured(pack: bytes) -> None:
    with contextlib.suppress(MalformedBundle):
        measure(io.BytesIO(pack), 0, max_objects=1 << 20, max_bytes=1 << 40)


def headed(content: bytes) -> None:
    with contextlib.suppress(MalformedBundle):
        read_head(io.BytesIO(content), b"refs/heads/sublet")


def listing(size: int) -> bytes:
    """Return what git lists of a result: changes, the tree after and the tree before."""
    count = size // 160
    changes = b"".join(b":000000 100644 %s %s A\0d/%d\0" % (b"0" * 40, ONE, number) for number in range(count))
    tree = b"".join(b"100644 blob %s %7d\td/%d\0" % (ONE, number, number) for number in range(count))
    return changes + b"\0" + tree + b"\0" + tree


def taken(content: bytes) -> None:
    with contextlib.suppress(MalformedListing):
        Taken.read("1" * 40, records(io.BytesIO(content)), compared=True)


def an_index(size: int) -> bytes:
    """Return an index of many entries, every one of which is hidden."""
    return index_of([(b"d%d/.env" % number, 0o100644, "1" * 40) for number in range(size // 80)])


def indexed(content: bytes) -> None:
    with contextlib.suppress(OSError):
        checked_index(content, 20, content, guarded=lambda path: RULES.hidden(tuple(path.split(b"/"))))


def dotted(size: int) -> bytes:
    """Return a path that the pattern of bad ones has to try hard."""
    return b"/".join([b".git" + b" ." * 60 + b"x"] * (size // 128))


def an_object(size: int) -> tuple[bytes, bytes]:
    """Return the file of an object of about 256 times ``size`` bytes, and its name."""
    content = bytes(size * 256)
    return zlib.compress(b"blob %d\0" % len(content) + content), object_id("blob", content).encode()


def objected(given: tuple[bytes, bytes]) -> None:
    with contextlib.suppress(OSError):
        check_object(*given)


def packed(size: int) -> bytes:
    return b"".join(b"%s refs/heads/b/%d\n" % (ONE, number) for number in range(size // 56))


def referenced(content: bytes) -> None:
    with contextlib.suppress(OSError):
        check_packed(content, replacements(content))
    with contextlib.suppress(OSError):
        check_reference(b"ref: refs/" + content)


def with_references(size: int) -> Path:
    """Return a directory whose repository has packed references, and some that are files."""
    root = directory()
    for name in ("objects/info", "refs/heads"):
        (root / ".git" / name).mkdir(parents=True)
    (root / ".git" / "packed-refs").write_bytes(packed(size))
    for number in range(size // 256):
        (root / ".git" / "refs" / "heads" / str(number)).write_bytes(ONE + b"\n")
    (root / ".git" / "objects" / "info" / "alternates").write_text("/nowhere\n" * (size // 9))
    (root / ".git" / "HEAD").write_text("ref: refs/heads/" + "x" * size)
    (root / ".git" / "config").write_text("[core]\n" + "sshCommand = 'tools/*ssh' $x\n" * (size // 32))
    (root / ".claude").mkdir()
    for number in range(size // 256):
        (root / ".claude" / str(number)).symlink_to("../" + "x/../" * 16 + str(number))
    return root


def found(root: Path) -> None:
    refs = read_refs(root)
    moved({}, refs)
    find(root)
    look_at(root)
    guarded(root, lambda locked, hidden: default_rules(hidden=hidden, locked=locked))


def configuration(size: int) -> bytes:
    """Return settings whose values every pattern has to look at."""
    values = (b"true", b"a" * 40 + b"!", b"https://u:p@host/" + b"%" * 20, b"+refs/*:refs/*" * 3)
    urls = (values[2], b"git@host:" + b"p" * 30)
    lines = [b'[remote "r%d"]\nurl = %s\nfetch = %s\n' % (n, urls[n % 2], values[n % 4]) for n in range(size // 96)]
    return b"[core]\nautocrlf = " + b"x" * 40 + b"\n" + b"".join(lines)


def words(size: int) -> bytes:
    return b"index " + b"a" * 64 + b".." + b"b" * (size // 2) + b"\n" + b"/" * (size // 2)


def matched(text: bytes) -> None:
    _INDEX_LINE.sub(b"", text)
    for pattern in (_BRANCH, _COMMIT, _FAN, _REST):
        pattern.match(text.decode("ascii", "replace"))
    unsafe_path(text)
    _why_not(text, [b"x"])


def named(text: bytes) -> None:
    for parse in (parse_name, parse_plain_name):
        with contextlib.suppress(MalformedName):
            parse(text)


@contextlib.contextmanager
def planning() -> Iterator[object]:
    """Plan bundles of a lease by git until the lender has enough of it."""
    root = directory()
    upload = GitUpload([], {}, Quota(1 << 20), lambda: True, root, GitSandbox())
    try:
        frame = b"".join(plan_frames([Planned((b"d%d.bundle" % n, b"x" * 200), "file", 1) for n in range(500)]))
        for _ in range(50):
            with contextlib.suppress(MalformedFrame):
                upload.plan(frame[5:])
        yield upload
    finally:
        upload.close()


@contextlib.contextmanager
def measuring() -> Iterator[object]:
    """Have a bundle measured that says more than it holds."""
    bomb = pack_of([entry_of_pack(2, b"", says=256 << 20)])
    large = Objects()
    with contextlib.suppress(MalformedBundle):
        measure(io.BytesIO(bomb), 0, max_objects=10, max_bytes=1 << 40)
    yield large


def served() -> tuple[Path, WritableFs]:
    root = with_references(64)
    return root, WritableFs(ConfinedFs.open_root(root), RULES, Quota(1 << 20, 1000), lambda _: None)


async def odd_files() -> None:
    """Put what is no file where files of a repository are read and given."""
    root, fs = served()
    for name in ("config", "packed-refs", "HEAD"):
        (root / ".git" / name).unlink(missing_ok=True)
        os.mkfifo(root / ".git" / name)
    found(root)
    (root / ".git" / "refs" / "heads" / "loop").symlink_to("loop")
    os.mkfifo(root / ".git" / "refs" / "heads" / "pipe")
    (root / ".git" / "config").unlink()
    (root / ".git" / "config").write_text("[core]\n\tfsmonitor = ./pipe\n[include]\n\tpath = ../pipe\n")
    os.mkfifo(root / "pipe")
    (root / ".envrc").symlink_to(".envrc")
    found(root)
    lock = (b".git", b"index.lock")
    for target in ("index", "HEAD", "packed-refs", "refs/heads/x", "objects/11/" + "1" * 38, "config"):
        for made in ("a pipe of somebody's", "a link", "no content of its kind"):
            (root / ".git" / "index.lock").unlink(missing_ok=True)
            if made == "a pipe of somebody's":
                os.mkfifo(root / ".git" / "index.lock")
            elif made == "a link":
                with contextlib.suppress(OSError):
                    fs.symlink(b"config", lock)
            else:
                (root / ".git" / target).unlink(missing_ok=True)
                file = fs.open_write(lock, os.O_WRONLY | os.O_CREAT, 0o644)
                file.write(b"\0odd\n", 0)
                file.close()
            with contextlib.suppress(OSError):
                fs.rename(lock, (b".git", *target.encode().split(b"/")), replace=True)
                raise AssertionError(target)
    fs.close()


async def deep_references() -> None:
    """Nest references deeper than a program may call itself."""
    root, _ = served()
    at = os.open(root / ".git" / "refs", os.O_RDONLY)
    for _ in range(1_200):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    found(root)
    os.system(f"rm -rf {root}/.git/refs")


async def odd_bundles() -> None:
    """Leave a FIFO and a link where a bundle is expected, and end git in the middle."""
    place = directory()
    runs = GitRuns(GitSandbox())
    exchange = GitExchange(place / "own", runs)
    exchange.create()
    os.mkfifo(place / "own" / "whole.bundle")
    with contextlib.suppress(SubletError):
        exchange.bundle()
    (place / "bundle").write_bytes(bundle_of_files({b"a": b"b"})[:-30])
    with open(place / "bundle", "rb") as bundle, contextlib.suppress(SubletError):
        exchange.take(bundle, max_bytes=1 << 20, max_names=10)
    runs.halt()
    fine = GitExchange(place / "other", GitRuns(GitSandbox()))
    fine.create()
    (place / "bundle").write_bytes(bundle_of_files({b"a": b"b"}))
    with open(place / "bundle", "rb") as bundle:
        assert fine.take(bundle, max_bytes=1 << 20, max_names=10).names == 1


async def whole_transfer() -> None:
    """Bring a directory out and a result back, and then a result with a link that is too long."""
    project, scratch = directory(), directory()
    (project / "a").write_bytes(b"a" * 100_000)

    def branch() -> Branch:
        return Branch(b"workspace", os.open(project, os.O_RDONLY), RULES)

    down = GitDownload([branch()], {b"task.json": b"{}"}, 0, scratch, GitSandbox())
    while down.step() is not None:
        pass
    down.close()
    objects = Objects()
    good = objects.tree([(b"100644", b"b", objects.blob(b"b" * 300_000)), (b"120000", b"l", objects.blob(b"c"))])
    assert give_back(project, branch(), scratch, objects.bundle(good)) == []
    assert sorted(os.listdir(project)) == ["b", "l"]
    objects = Objects()
    bad = objects.tree([(b"120000", b"l", objects.blob(b"x" * 5_000))])
    with contextlib.suppress(MalformedTar):
        give_back(project, branch(), scratch, objects.bundle(bad))
    assert (project / "b").stat().st_size == 300_000
    assert os.listdir(scratch) == []


def give_back(project: Path, branch: Branch, scratch: Path, bundle: bytes) -> list[str]:
    """Hand a bundle to a lender as the result, and return what was refused of it."""
    tree = WritableFs(ConfinedFs.open_root(project), RULES, Quota(1 << 20, 1000), lambda _: None)
    upload = GitUpload([branch], {b"workspace": tree}, Quota(1 << 22), lambda: True, scratch, GitSandbox())
    try:
        for frame in plan_frames([Planned((b"workspace.bundle",), "file", len(bundle))]):
            upload.plan(frame[5:])
        upload.approve()
        upload.receive(stream_of([file(b"workspace.bundle", bundle)]))
        return [one.name for one in upload.finish().refused]
    finally:
        upload.close()


async def a_branch_that_can_not_be_written() -> None:
    """Put a file where the repository has a directory of objects: no branch, and the repository is as before."""
    bench = StagedBench(directory())
    bench.write("a", "a")
    subprocess.run(["git", "init", "-q", str(bench.root)], check=True)
    with bench.work() as view:
        (view / "a").write_text("A")
    blocked = [bench.root / ".git" / "objects" / f"{number:02x}" for number in range(256)]
    for path in blocked:
        path.touch()
    with contextlib.suppress(SubletError):
        export_branch(bench.changes, KEY, bench.rules, "work", "m")
        raise AssertionError("a branch was made")
    for path in blocked:
        path.unlink()
    assert export_branch(bench.changes, KEY, bench.rules, "work", "m").left_out == []


def cost(name: str, covers: Sequence[str], make: Any, run: Any, size: int = 8192) -> CostProbe:
    """Return a probe whose places are all in ``workspace`` but for those with a colon of their own package."""
    places = [place if place.startswith("protocol.") else f"workspace.{place}" for place in covers]
    return CostProbe(name=f"repository: {name}", covers=places, make=make, run=run, size=size)


_PACK = [
    *(f"bundles.pack:{name}" for name in ("measure", "_object", "_Reader.take", "_Reader.inflate")),
    *("bundles.pack:_Reader.byte", "bundles.pack:_Reader._more", "bundles.pack:_Reader.at_end"),
]
_LISTING = [
    *("bundles.listing:records", "bundles.listing:section", "bundles.listing:Extent.read", "bundles.taken:Taken.read"),
    *("bundles.taken:_changes", "bundles.taken:parents", "bundles.taken:_MODE", "bundles.taken:_ID"),
]
_INDEX = [
    *(f"git.index:{name}" for name in ("checked_index", "_entries", "_check_guarded", "known_entries", "_listed")),
    *("git.index:_blob", "git.index:_cleared"),
]
_CONFIG = [
    *(f"git.config_syntax:_Reader.{name}" for name in ("settings", "_section", "_subsection", "_setting", "_value")),
    "git.config_syntax:settings",
    *(f"git.config:{name}" for name in ("read_config", "_listed", "_allowed", "_without_credentials", "_from_url")),
    *(f"git.config:{name}" for name in ("_from_scp", "_written", "_BOOLEAN", "_NUMBER", "_WORD", "_TEXT", "_REF")),
    *(f"git.config:{name}" for name in ("_REFSPEC", "_HOST", "_SCP", "_URL_PATH", "_PLAIN_KEYS", "_NAMED_KEYS")),
]
_FILES = [
    *(
        "git.refs:read_refs",
        "git.refs:moved",
        "git.refs:_found",
        "git.refs:_loose",
        "git.refs:_is_directory",
        "git.refs:_read",
        "git.refs:_OBJECT",
    ),
    *("git.place:find", "git.place:_own", "git.place:_head", "git.place:_alternates", "git.place:read_file"),
    *("git.place:_path", "git.place:_common", "git.repository:look_at", "git.repository:_content"),
    *("git.place:place_of", "git.obeyed:obeyed", "git.obeyed:_words", "git.obeyed:_WORD"),
    *("view.led_to:guarded", "view.led_to:_links", "view.led_to:_leads", "view.led_to:_SPECIAL", "view.led_to:_target"),
]
_TAKE = [
    *("git.take:looking", "git.take:Looking.look", "git.take:_kind", "git.take:_replaced"),
    *("git.take:_before", "git.take:_config", "git.take:_SHA256"),
]
_EXCHANGE = [
    *(f"bundles.exchange:GitExchange.{name}" for name in ("create", "bundle", "take", "_run")),
    *("bundles.exchange:_ID", "bundles.runs:GitRuns.run", "bundles.runs:GitRuns.script", "git_runner:finish_git"),
    "sandbox.git_sandbox:GitSandbox.wrap",
]

PROBES: tuple[Probe, ...] = (
    cost("a pack of small objects", _PACK, small_objects, measured),
    cost("a pack of one large object", _PACK, one_large_object, measured),
    cost("a pack of differences", [*_PACK, "bundles.pack:_varint"], deltas, measured),
    cost(
        "the beginning of a bundle",
        ["bundles.pack:read_head", "bundles.pack:_object_id"],
        lambda size: b"# v2 git bundle\n" + b"-" * size + b"\n\n",
        headed,
    ),
    cost("what git lists of a result", _LISTING, listing, taken, 32_768),
    cost("an index of hidden names", _INDEX, an_index, indexed, 32_768),
    cost("a path of an index", ["git.index:_BAD_PATH", "git.index:unsafe_path"], dotted, unsafe_path),
    cost(
        "an object that unpacks to much",
        ["git.objects:check_object", "git.objects:check_object_file", "git.objects:_HEADER"],
        an_object,
        objected,
    ),
    cost(
        "references",
        [
            *("git.ref_names:check_packed", "git.ref_names:check_reference", "git.ref_names:replacements"),
            *("git.ref_names:good_name", "git.ref_names:_good_part"),
        ],
        packed,
        referenced,
    ),
    cost("files of a repository", _FILES, with_references, found),
    cost(
        "moved references",
        [
            *("git.history:brought", "git.history:_checked_out", "git.history:_OBJECT"),
            *("git.repository_git:RepositoryGit.on_objects", "git.repository_git:RepositoryGit.on_references"),
            "git.repository_git:RepositoryGit._run",
        ],
        moved_references,
        brought_in,
        2_000,
    ),
    cost("a configuration", _CONFIG, configuration, read_config),
    cost(
        "lines and names",
        [
            *("changes.branch:_BRANCH", "changes.branch:_COMMIT"),
            *("changes.branch:_FAN", "changes.branch:_REST", "changes.branch:_why_not"),
        ],
        words,
        matched,
    ),
    cost("a name", ["protocol.names:parse_name", "protocol.names:parse_plain_name"], lambda n: b"n" * n, named),
    KeptProbe(
        name="repository: a plan of bundles",
        covers=["workspace.bundles.server:GitUpload.plan"],
        attack=planning,
        bound=1 << 20,
    ),
    KeptProbe(
        name="repository: a bundle that says much",
        covers=["workspace.bundles.pack:measure"],
        attack=measuring,
        bound=1 << 20,
    ),
    FailureProbe(
        name="repository: what is no file where git has files",
        covers=[f"workspace.{place}" for place in (*_FILES, *_TAKE)],
        throw=odd_files,
    ),
    FailureProbe(
        name="repository: references nested without end",
        covers=["workspace.git.refs:_loose", "workspace.git.refs:read_refs"],
        throw=deep_references,
    ),
    FailureProbe(
        name="repository: a bundle that is none",
        covers=[f"workspace.{place}" for place in _EXCHANGE],
        throw=odd_bundles,
    ),
    FailureProbe(
        name="repository: a transfer by git, whole and with a broken end",
        covers=[
            *(f"workspace.bundles.server:GitDownload.{name}" for name in ("step", "close", "_stream")),
            *(f"workspace.bundles.server:GitUpload.{name}" for name in ("receive", "begin", "finish", "close")),
            *("workspace.bundles.server:GitUpload._write", "workspace.bundles.server:_directory"),
            *("workspace.bundles.server:_planned", "workspace.bundles.exchange:GitExchange.contents"),
            *("workspace.bundles.stream:write_snapshot", "workspace.bundles.stream:_add"),
            *("workspace.bundles.stream:_copy", "workspace.bundles.exchange:GitExchange.snapshot"),
        ],
        throw=whole_transfer,
    ),
    FailureProbe(
        name="repository: a branch that can't be written",
        covers=[
            *(f"workspace.changes.branch:{name}" for name in ("export_branch", "_write", "_add_fan", "_add")),
            *("workspace.changes.branch:_Exporter.commit", "workspace.changes.branch:_Exporter._add_objects"),
        ],
        throw=a_branch_that_can_not_be_written,
    ),
)
