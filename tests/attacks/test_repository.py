"""A hostile lender, executor or repository against everything that reads git's data."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import asyncssh
import pytest

from attacks.kit.repository import (
    META,
    Objects,
    bundle_of,
    bundle_of_files,
    delta,
    entry_of_pack,
    file,
    hostile_lender,
    link,
    pack_of,
    stream_of,
)
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.workspace.archive.carrier import ArchiveCarrier
from sublet.workspace.archive.client import ArchiveChannel
from sublet.workspace.archive.tar_format import Entry, TarLimits
from sublet.workspace.archive.wire import Planned
from sublet.workspace.bundles.carrier import GitCarrier
from sublet.workspace.bundles.exchange import GitExchange
from sublet.workspace.bundles.runs import GitRuns
from sublet.workspace.changes.branch import export_branch
from sublet.workspace.export import Export, ExportLimits, LentDirectory, MountTarget
from sublet.workspace.sandbox.git_sandbox import GitSandbox
from sublet.workspace.serving.listener import DataPlane
from sublet.workspace.ssh.connection import connect
from support.sftp_lender import public_line
from support.staged import KEY as KEY_OF_CHANGES
from support.staged import StagedBench
from support.views import default_rules

pytestmark = pytest.mark.anyio
KEY = asyncssh.generate_private_key("ssh-ed25519")
LIMITS = TarLimits(1_000, 1 << 24, 1 << 24)


async def attach(carrier: ArchiveCarrier, stream: bytes, lease: str) -> str:
    """Take a hostile lender's view, and return why it was refused; empty where it was not."""
    async with hostile_lender(stream, KEY) as target, await connect(target, KEY, 5) as connection:
        try:
            view = await carrier.attach(carrier.reserve(lease), connection)
        except SubletError as error:
            return error.message
        await view.detach(flush=False)
    return ""


def git_carrier(tmp_path: Path) -> GitCarrier:
    return GitCarrier(tmp_path / "state" / "clones", lambda: LIMITS)


async def test_a_bundle_without_a_name_makes_no_repository_of_the_state(tmp_path: Path) -> None:
    owned = tmp_path / "owned"
    evil = bundle_of_files(
        {
            b"commondir": b"evil\n",
            b"evil/HEAD": b"ref: refs/heads/sublet\n",
            b"evil/config": f'[core]\n\talternateRefsCommand = "touch {owned};:"\n'.encode(),
            b"evil/objects/info/alternates": f"{tmp_path}/state/clones/.git/objects\n".encode(),
            b"evil/objects/pack/x": b"",
            b"evil/refs/heads/.keep": b"",
        }
    )
    carrier = git_carrier(tmp_path)
    for lease in ("dlg_1", "dlg_2"):
        assert "a name is empty" in await attach(carrier, stream_of([META, file(b"...bundle", evil)]), lease)
    assert not owned.exists()
    assert os.listdir(tmp_path / "state" / "clones") == []


@pytest.mark.parametrize("kind", ["bundle first", "link first"])
async def test_a_link_in_the_place_of_a_directory_leads_nowhere(tmp_path: Path, kind: str) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    bundle = file(b"workspace.bundle", bundle_of_files({b"authorized_keys2": b"ssh-ed25519 AAAA mallory\n"}))
    planted = link(b"workspace", os.fsencode(victim))
    entries = [bundle, planted] if kind == "bundle first" else [planted, bundle]
    assert "beside the bundles" in await attach(git_carrier(tmp_path), stream_of([META, *entries]), "dlg_1")
    assert os.listdir(victim) == []


@pytest.mark.parametrize(
    "name", [b"..bundle", b".git.bundle", b"-x.bundle", b"meta.bundle", b".bundle", b"a\nb.bundle", b"x.bundle.bundle"]
)
async def test_a_directory_has_a_plain_name(tmp_path: Path, name: bytes) -> None:
    stream = stream_of([META, file(name, bundle_of_files({b"a": b"b"}))])
    assert await attach(git_carrier(tmp_path), stream, "dlg_1")
    assert os.listdir(tmp_path / "state" / "clones") == []


async def test_more_directories_than_may_be_lent_are_refused(tmp_path: Path) -> None:
    bundle = bundle_of_files({b"a": b"b"})
    stream = stream_of([META, *(file(b"d%d.bundle" % number, bundle) for number in range(17))])
    assert "more than 16 directories" in await attach(git_carrier(tmp_path), stream, "dlg_1")


@pytest.mark.parametrize("name", [b"workspace", b"meta"])
async def test_a_view_of_an_archive_holds_directories_alone(tmp_path: Path, name: bytes) -> None:
    carrier = ArchiveCarrier(tmp_path / "work", lambda: LIMITS)
    stream = stream_of([link(name, os.fsencode(tmp_path))])
    assert "no directory" in await attach(carrier, stream, "dlg_1")
    assert os.listdir(tmp_path / "work") == []


async def test_a_link_in_meta_is_refused(tmp_path: Path) -> None:
    stream = stream_of([META, (Entry((b"meta", b"x"), "symlink", target=b"/etc/passwd"), b"")])
    assert "a link in /meta" in await attach(git_carrier(tmp_path), stream, "dlg_1")


def bomb(name: str) -> bytes:
    """Return a bundle that says little and means much."""
    objects = Objects()
    if name == "a tree that says it is large":
        objects.entries.append(entry_of_pack(2, b"", says=256 << 20))
        return bundle_of("1" * 40, pack_of(objects.entries))
    if name == "a tree that is large":
        return objects.bundle(objects.add("tree", bytes(256 << 20)))
    if name == "a file that is large":
        return objects.bundle(objects.tree([(b"100644", b"f", objects.blob(bytes(64 << 20)))]))
    if name == "a file that says it is small":
        objects.entries.append(entry_of_pack(3, bytes(1 << 20), says=10))
        return bundle_of("1" * 40, pack_of(objects.entries))
    if name == "many files of one difference":
        base = objects.blob(bytes(1 << 20))
        copy = b"\xff" + b"\0" * 4 + b"\0\0\x10"  # the first MiB of the base
        for _ in range(64):
            objects.delta(base, delta(1 << 20, 15 << 20, copy * 15))
        return objects.bundle(objects.files({}))
    if name == "one difference of 4 GiB":
        base = objects.blob(bytes(1 << 20))
        objects.delta(base, delta(1 << 20, 4 << 30, b"\xff" + b"\0" * 4 + b"\0\0\x10"))
        return objects.bundle(objects.files({}))
    if name == "a commit that is large":
        return bundle_of(objects.add("commit", bytes(1 << 20)), pack_of(objects.entries))
    if name == "a tag":
        return bundle_of(objects.add("tag", b"x"), pack_of(objects.entries))
    if name == "more objects than it says":
        tree = objects.files({b"a": b"b"})
        commit = objects.commit(tree)
        return bundle_of(commit, pack_of(objects.entries, count=1))
    if name == "a size without an end":
        return bundle_of("1" * 40, b"PACK\0\0\0\2\0\0\0\1" + b"\xbf" * 4096)
    if name == "a branch of another name":
        tree = objects.files({b"a": b"b"})
        return bundle_of(objects.commit(tree), pack_of(objects.entries), branch=b"refs/replace/" + b"1" * 40)
    if name == "built on what is not there":
        return objects.bundle(objects.files({b"a": b"b"}), needs=["2" * 40])
    raise AssertionError(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a tree that says it is large", "says that it holds one object of 268,435,456 bytes"),
        ("a tree that is large", "too large for its kind"),
        ("a file that is large", "more than may come"),
        ("a file that says it is small", "larger than it says"),
        ("many files of one difference", "bytes when it is unpacked"),
        ("one difference of 4 GiB", "makes 4,294,967,296 bytes"),
        ("a commit that is large", "too large for its kind"),
        ("a tag", "another kind than commits, trees and files"),
        ("more objects than it says", "something follows its pack"),
        ("a size without an end", "a size that can't be"),
        ("a branch of another name", "another reference"),
        ("built on what is not there", "built on commits that are not here"),
    ],
)
async def test_a_bundle_that_means_more_than_it_says_is_refused_before_git_reads_it(
    tmp_path: Path, name: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GitRuns, "script", lambda *_, **__: pytest.fail("git was started"))
    content = bomb(name)
    repository = GitExchange(tmp_path / "own", GitRuns(GitSandbox()))
    repository.create()
    (tmp_path / "bundle").write_bytes(content)
    tracemalloc.start()
    try:
        with open(tmp_path / "bundle", "rb") as bundle, pytest.raises(SubletError) as refused:
            repository.take(bundle, max_bytes=1 << 24, max_names=1_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert reason in refused.value.message
    assert peak < 2 << 20


def nested_in_itself(objects: Objects, mode: bytes, name: bytes) -> str:
    return objects.tree([(mode, name, objects.blob(b"x"))])


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        (b"100644", b".git"),
        (b"100644", b".GIT"),
        (b"100644", b"git~1"),
        (b"100644", b".g\xe2\x80\x8cit"),
        (b"100644", b".git "),
        (b"100644", b".git::$INDEX_ALLOCATION"),
        (b"100644", b".."),
        (b"100644", b"a/b"),
        (b"120000", b".gitmodules"),
        (b"40000", b"a"),
        (b"100644", b""),
    ],
)
async def test_a_tree_that_git_would_not_make_is_refused(tmp_path: Path, mode: bytes, name: bytes) -> None:
    objects = Objects()
    evil = objects.bundle(nested_in_itself(objects, mode, name))
    carrier = git_carrier(tmp_path)
    assert await attach(carrier, stream_of([META, file(b"workspace.bundle", evil)]), "dlg_1")
    assert os.listdir(tmp_path / "state" / "clones") == []


async def test_a_gitmodules_with_options_in_it_is_refused(tmp_path: Path) -> None:
    modules = b'[submodule "x"]\n\tpath = x\n\turl = --upload-pack=touch${IFS}owned\n'
    evil = bundle_of_files({b".gitmodules": modules})
    assert await attach(git_carrier(tmp_path), stream_of([META, file(b"workspace.bundle", evil)]), "dlg_1")


async def test_a_gitlink_becomes_an_empty_directory_and_nothing_is_fetched(tmp_path: Path) -> None:
    objects = Objects()
    modules = objects.blob(b'[submodule "x"]\n\tpath = x\n\turl = https://localhost:1/x\n')
    tree = objects.tree([(b"100644", b".gitmodules", modules), (b"160000", b"x", "3" * 40)])
    stream = stream_of([META, file(b"workspace.bundle", objects.bundle(tree))])
    async with hostile_lender(stream, KEY) as target, await connect(target, KEY, 5) as connection:
        carrier = git_carrier(tmp_path)
        view = await carrier.attach(carrier.reserve("dlg_1"), connection)
        assert os.listdir(view.path / "workspace" / "x") == []
        await view.detach(flush=False)


def test_git_in_the_sandbox_sees_its_own_directory_and_no_network(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (tmp_path / "secret").write_text("secret")
    script = (
        f"for path in {tmp_path}/secret /etc/passwd /proc/1 /root /home /run /var /tmp/x; do\n"
        'if [ -e "$path" ]; then echo "sees $path"; fi; done\n'
        'if echo x >/new 2>/dev/null; then echo "writes /"; fi\n'
        'if echo x >/usr/new 2>/dev/null; then echo "writes /usr"; fi\n'
        "g config --get core.fsmonitor\n"
        'for interface in /sys/class/net/*; do [ -e "$interface" ] && echo "$interface"; done\n'
        "ulimit -v; echo x >own\n"
    )
    runs = GitRuns(GitSandbox())
    ended = runs.script(script, [], None, writable=[own], git_dir=own / "no", limit=4096)
    assert ended.status == 0, ended.errors
    assert ended.output.decode().split() == ["false", "1048576"]
    assert os.listdir(own) == ["own"]


@pytest.mark.parametrize(
    "planted", ["nothing", "config", "hooks", "alternates", "commondir", "replace", "worktree config"]
)
def test_what_git_left_in_its_repository_is_obeyed_by_no_later_git(tmp_path: Path, planted: str) -> None:
    """As if a git had been taken over by what it read: what it leaves has no power outside of its directory."""
    owned = tmp_path / "owned"
    own = tmp_path / "own"
    own.mkdir()
    repository = GitExchange(own, GitRuns(GitSandbox()))
    repository.create()
    bare = own / "repository"
    evil = f'[core]\n\talternateRefsCommand = "touch {owned};:"\n\tfsmonitor = "touch {owned}"\n'
    evil += f"\thooksPath = {bare}/hooks\n"
    if planted in ("config", "worktree config"):
        (bare / "config").write_text(evil + "[extensions]\n\tworktreeConfig = true\n")
        (bare / "config.worktree").write_text(evil)
    elif planted == "hooks":
        (bare / "hooks").mkdir()
        (bare / "hooks" / "reference-transaction").write_text(f"#!/bin/sh\ntouch {owned}\n")
        (bare / "hooks" / "reference-transaction").chmod(0o755)
    elif planted == "alternates":
        (bare / "objects" / "info" / "alternates").write_text(f"{tmp_path}/objects\n")
    elif planted == "commondir":
        (bare / "commondir").write_text(f"{tmp_path}\n")
    elif planted == "replace":
        (bare / "refs" / "replace").mkdir()
        (bare / "refs" / "replace" / ("1" * 40)).write_text("2" * 40)
    (tmp_path / "bundle").write_bytes(bundle_of_files({b"a": b"b"}))
    may_fail = contextlib.nullcontext() if planted == "nothing" else contextlib.suppress(SubletError)
    with open(tmp_path / "bundle", "rb") as bundle, may_fail:
        repository.take(bundle, max_bytes=1 << 20, max_names=10)
    assert not owned.exists()


def test_a_bundle_that_git_left_as_a_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = GitExchange(tmp_path / "own", GitRuns(GitSandbox()))
    repository.create()
    for make in (lambda to: to.symlink_to("/etc/passwd"), os.mkfifo):
        target = tmp_path / "own" / "whole.bundle"
        make(target)
        monkeypatch.setattr(GitExchange, "_run", lambda *_, **__: "")
        with pytest.raises(SubletError, match="left no bundle"):
            repository.bundle()
        target.unlink()


@pytest.mark.parametrize("what", ["missing", "broken"])
async def test_without_a_sandbox_the_transport_is_refused_naming_the_flag(tmp_path: Path, what: str) -> None:
    program = tmp_path / "bwrap"
    if what == "broken":
        program.write_text("#!/bin/sh\necho no namespaces for you >&2\nexit 1\n")
        program.chmod(0o755)
    sandbox = GitSandbox(program=str(program) if what == "broken" else None)
    with pytest.MonkeyPatch.context() as patch:
        if what == "missing":
            patch.setenv("PATH", str(tmp_path))
        with pytest.raises(SubletError) as refused:
            sandbox.check()
    assert refused.value.code is ErrorCode.DEP_MISSING
    assert "--unsandboxed" in refused.value.hint
    GitSandbox(confined=False, program=str(program)).check()


async def test_who_takes_the_risk_has_the_transport_without_a_sandbox(tmp_path: Path) -> None:
    carrier = GitCarrier(tmp_path / "clones", lambda: LIMITS, GitSandbox(confined=False, program="/nowhere"))
    assert not await attach(carrier, stream_of([META, file(b"w.bundle", bundle_of_files({b"a": b"b"}))]), "dlg_1")


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[DataPlane]:
    plane = DataPlane(asyncssh.generate_private_key("ssh-ed25519"), scratch=tmp_path / "scratch")
    await plane.start("127.0.0.1", 0)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(plane.serve())
        try:
            yield plane
        finally:
            serving.cancel()
    assert not (tmp_path / "scratch").exists() or os.listdir(tmp_path / "scratch") == []


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    (project / "code.txt").write_text("one\n")
    (project / ".env").write_text("TOKEN=1\n")
    (project / ".envrc").write_text("the lender's own\n")
    return project


async def give_back(plane: DataPlane, project: Path, bundle: bytes, **limits: int) -> str:
    """Send a bundle as the result of a lease, and return why the lender refused it; empty if it did not."""
    lent = LentDirectory("workspace", project, "rw", default_rules())
    export = Export("dlg_1", (lent,), public_line(KEY), 60, {}, ExportLimits(**limits), transport="git")
    plane.open(export)
    target = MountTarget(*plane.address, "dlg_1", plane.host_key_line)
    async with await connect(target, KEY, 5) as connection:
        channel = await ArchiveChannel.open(connection, lambda: None)
        try:
            await channel.plan([Planned((b"workspace.bundle",), "file", len(bundle))])
            await channel.upload(stream_of([file(b"workspace.bundle", bundle)]))
            await channel.finish()
        except SubletError as error:
            return error.message
        finally:
            channel.close()
            plane.revoke("dlg_1", "the end of a test")
    return ""


@pytest.mark.parametrize(
    "name", ["a tree that says it is large", "one difference of 4 GiB", "a branch of another name"]
)
async def test_a_hostile_result_is_refused_and_changes_nothing(plane: DataPlane, project: Path, name: str) -> None:
    assert "a bundle failed" in await give_back(plane, project, bomb(name))
    assert sorted(os.listdir(project)) == [".env", ".envrc", "code.txt"]
    assert (project / "code.txt").read_text() == "one\n"


async def test_a_result_is_bounded_by_what_the_lease_may_add(plane: DataPlane, project: Path) -> None:
    objects = Objects()
    small = [objects.blob(bytes([number]) * (9 << 20)) for number in range(8)]
    tree = objects.tree([(b"100644", b"%d" % number, blob) for number, blob in enumerate(small)])
    refused = await give_back(plane, project, objects.bundle(tree), max_total_bytes=1_000)
    assert "which is more than may come" in refused
    assert not (project / "0").exists()


async def test_names_that_the_lease_hides_or_locks_do_not_come_in_with_a_result(
    plane: DataPlane, project: Path
) -> None:
    objects = Objects()
    good, evil = objects.blob(b"two\n"), objects.blob(b"touch owned\n")
    out = objects.blob(b"/etc/passwd")
    names = [
        (b"100644", b".env", evil),
        (b"100755", b".envrc", evil),
        (b"100644", b"code.txt", good),
        (b"120000", b"out", out),
        (b"160000", b"sub", "3" * 40),
    ]
    assert await give_back(plane, project, objects.bundle(objects.tree(names))) == ""
    assert (project / "code.txt").read_text() == "two\n"
    assert (project / ".env").read_text() == "TOKEN=1\n"
    assert (project / ".envrc").read_text() == "the lender's own\n"
    assert sorted(os.listdir(project)) == [".env", ".envrc", "code.txt"]


@pytest.mark.parametrize("where", ["the directory itself", "a directory above"])
def test_a_directory_that_looks_like_a_repository_is_none_to_a_result_branch(tmp_path: Path, where: str) -> None:
    """Git would take it for a bare repository, and run what its configuration names."""
    owned = tmp_path / "owned"
    (tmp_path / "bench").mkdir()
    bench = StagedBench(tmp_path / "bench")
    root = bench.root if where == "the directory itself" else bench.root.parent
    subprocess.run(["git", "init", "-q", "--bare", str(root)], check=True)
    with (root / "config").open("a") as config:
        config.write(f'[core]\n\tfsmonitor = "touch {owned}"\n\tsshCommand = "touch {owned};:"\n')
        config.write("[extensions]\n\tpartialClone = evil\n[protocol]\n\tallow = always\n")
        config.write(f'[remote "evil"]\n\tpromisor = true\n\turl = ext::sh -c "touch% {owned}"\n')
    (root / "HEAD").write_text("1" * 40 + "\n")
    bench.write("a", "a")
    with bench.work() as view:
        (view / "a").write_text("A")
    with pytest.raises(SubletError, match="is in no git repository"):
        export_branch(bench.changes, KEY_OF_CHANGES, bench.rules, "work", "m")
    assert not owned.exists()


def test_what_an_executor_left_in_the_repository_changes_no_result_branch(tmp_path: Path) -> None:
    """Replacements, grafts and a configuration that fetches objects: the branch is built on what HEAD really is."""
    owned = tmp_path / "owned"
    (tmp_path / "bench").mkdir()
    bench = StagedBench(tmp_path / "bench")
    bench.write("a", "a")

    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=n", "-c", "user.email=e@localhost")
        done = subprocess.run(
            ["git", *identity, *arguments], cwd=bench.root, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "-q", "-b", "main")
    git("add", "-A")
    git("commit", "-qm", "first")
    head = git("rev-parse", "HEAD")
    bench.write("b", "forged")
    git("add", "-A")
    forged = git("commit-tree", "-m", "forged", git("write-tree"))
    git("reset", "-q", "--hard", head)
    git("replace", head, forged)
    (bench.root / ".git" / "info").mkdir(exist_ok=True)
    (bench.root / ".git" / "info" / "grafts").write_text(f"{head} {forged}\n")
    for name, value in (
        ("extensions.partialClone", "evil"),
        ("remote.evil.promisor", "true"),
        ("remote.evil.url", f"ext::sh -c touch% {owned}"),
        ("protocol.ext.allow", "always"),
        ("core.fsmonitor", f"touch {owned}"),
        ("core.worktree", "/"),
    ):
        git("config", name, value)
    with bench.work() as view:
        (view / "a").write_text("A")
    commit = export_branch(bench.changes, KEY_OF_CHANGES, bench.rules, "work", "m").commit
    environment = {**os.environ, "GIT_NO_REPLACE_OBJECTS": "1", "GIT_GRAFT_FILE": "/dev/null"}
    listed = subprocess.run(
        ["git", "--git-dir", str(bench.root / ".git"), "ls-tree", "-r", "--full-tree", "--name-only", commit],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert listed.split() == ["a"]
    assert not owned.exists()


def test_no_result_branch_where_git_can_not_be_confined(tmp_path: Path) -> None:
    bench = StagedBench(tmp_path)
    bench.changes.git = GitSandbox(program=str(tmp_path / "no-bwrap"))
    bench.write("a", "a")
    subprocess.run(["git", "init", "-q", str(bench.root)], check=True)
    with bench.work() as view:
        (view / "a").write_text("A")
    with pytest.raises(SubletError) as refused:
        export_branch(bench.changes, KEY_OF_CHANGES, bench.rules, "work", "m")
    assert refused.value.code is ErrorCode.DEP_MISSING
    assert "--unsandboxed" in refused.value.hint
    bench.changes.git = GitSandbox(confined=False)
    assert export_branch(bench.changes, KEY_OF_CHANGES, bench.rules, "work", "m").commit
