"""The copy of a repository's configuration, hooks outside of it, and its references: nothing hostile comes through."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.audit.auditor import Auditor
from sublet.workspace.git.config import MAX_CONFIG_BYTES, read_config
from sublet.workspace.git.config_syntax import settings as read_settings
from sublet.workspace.git.refs import MovedRef, moved, read_refs
from sublet.workspace.git.repository import ELSEWHERE, NO_REPOSITORY, OTHER_STORAGE, look_at
from sublet.workspace.view.led_to import guarded
from sublet.workspace.view.rules import Rules
from support.budgets import examples
from support.views import default_rules

EXECUTED = """
[core]
    sshCommand = EVIL
    fsmonitor = EVIL
    hooksPath = EVIL
    pager = EVIL
    editor = EVIL
    attributesFile = EVIL
    worktree = /EVIL
    gitProxy = EVIL
    autocrlf = EVIL
[include]
    path = EVIL
[includeIf "gitdir:/"]
    path = EVIL
[filter "x"]
    clean = EVIL
[diff "x"]
    textconv = EVIL
[merge "x"]
    driver = EVIL
[alias]
    st = !EVIL
[credential]
    helper = EVIL
[credential "https://example.org"]
    username = EVIL
[http "https://example.org/"]
    extraheader = EVIL
[url "https://EVIL@x/"]
    insteadOf = https://x/
[remote "origin"]
    pushurl = https://EVIL@x/
    uploadpack = EVIL
    vcs = EVIL
    promisor = true
[user]
    name = EVIL
    signingKey = EVIL
[gpg]
    program = EVIL
[extensions]
    worktreeConfig = true
    partialClone = EVIL
[submodule "x"]
    url = EVIL
    update = !EVIL
[uploadpack]
    packObjectsHook = EVIL
[sendemail]
    smtpPass = EVIL
"""
ALLOWED_SECTIONS = {
    *("core", "extensions", "index", "init", "merge", "pull", "branch", "remote", "gc", "maintenance"),
    *("transfer", "fastimport"),
}


def entries(config: bytes) -> list[tuple[str, str]]:
    """Return what git itself reads in ``config``."""
    done = subprocess.run(
        ["git", "config", "--file", "-", "--no-includes", "--null", "--list"],
        input=config,
        capture_output=True,
        check=True,
        cwd="/",
        timeout=20,
    )
    return [(key, value) for key, _, value in (line.decode().partition("\n") for line in done.stdout.split(b"\0")[:-1])]


def test_nothing_that_git_executes_or_trusts_is_copied() -> None:
    copy = read_config(EXECUTED.encode()).copy
    assert b"EVIL" not in copy
    assert {key.partition(".")[0] for key, _ in entries(copy)} <= ALLOWED_SECTIONS


def test_what_git_needs_is_copied_and_its_own_settings_come_last() -> None:
    config = b"""[core]
\trepositoryformatversion = 1
\tbare
\tautocrlf = input
\ttrustctime = true
[extensions]
\tobjectFormat = sha256
[branch "to\\"pic\\\\"]
\tremote = origin
\tmerge = refs/heads/main
[remote "origin"]
\turl = git@example.org:team/x.git
\tfetch = +refs/heads/*:refs/remotes/origin/*
"""
    found = dict(entries(read_config(config).copy))
    assert found["core.repositoryformatversion"] == "1"
    assert found["core.bare"] == "true"
    assert found["core.autocrlf"] == "input"
    assert found["extensions.objectformat"] == "sha256"
    assert found['branch.to"pic\\.merge'] == "refs/heads/main"
    assert found["remote.origin.url"] == "git@example.org:team/x.git"
    assert found["core.trustctime"] == "false"
    assert found["core.hookspath"] == "/dev/null"


@pytest.mark.parametrize(
    ("url", "copied"),
    [
        ("https://user:TOKEN@example.org/x.git", "https://example.org/x.git"),
        ("https://TOKEN@example.org:8443/x.git?key=TOKEN#TOKEN", "https://example.org:8443/x.git"),
        ("ssh://git:TOKEN@example.org/x", "ssh://git@example.org/x"),
        ("ssh://TOKEN@[::1]:22/x", "ssh://[::1]:22/x"),
        ("TOKEN@example.org:x.git", "example.org:x.git"),
        ("/home/TOKEN/x.git", None),
        ("../TOKEN", None),
        ("file:///TOKEN", None),
        ("ext::sh -c TOKEN", None),
        ("https://example.org/x.git/TOKEN:y", None),
        ("https://exa mple/TOKEN", None),
        ("https://example.org:TOKEN/x", None),
        ("-oProxyCommand=TOKEN:x", None),
    ],
)
def test_addresses_are_copied_without_credentials_or_not_at_all(url: str, copied: str | None) -> None:
    copy = read_config(f'[remote "o"]\n\turl = "{url}"\n'.encode()).copy
    assert b"TOKEN" not in copy
    assert dict(entries(copy)).get("remote.o.url") == copied


WORDS = st.sampled_from(
    [
        *("[core]\n", '[remote "o"]\n', '[remote "a\\"]\\nb"]\n', "[user]\n", '[branch "x"]\n', "[include]\n"),
        *("url = ", "fetch = ", "bare = ", "path = ", "hooksPath = ", "sshCommand=", "merge = ", "remote = "),
        *("\n", "\\\n", '"', "\\n", "\\", ";", "#", "\t", "\0", "\x1b", "é", "true", "x", "EVIL", "]", "[", "!sh"),
        *("https://EVIL@h/", "+refs/*:refs/*", "\\\n[core]\\n sshCommand = EVIL"),
    ]
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(WORDS, max_size=30).map("".join).map(str.encode) | st.binary(max_size=200))
@example(b"")
@example(b"\xef\xbb\xbf[core]\n")
@example(b"[core" * 1000)
@example(b'[remote "x\\\n"]\n\turl = https://h/')
def test_whatever_is_written_the_copy_is_one_and_has_only_what_is_allowed(config: bytes) -> None:
    copy = read_config(config).copy
    for key, value in entries(copy):
        section, _, _ = key.partition(".")
        assert section in ALLOWED_SECTIONS
        assert "EVIL@" not in value
        assert key.lower() not in {"core.sshcommand", "core.pager", "core.editor", "core.worktree"}
    assert dict(entries(copy))["core.hookspath"] == "/dev/null"
    assert b"sshCommand" not in copy


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(WORDS, max_size=30).map("".join).map(str.encode))
@example(b'[a "b\\"c\\\\"]\n\tk = "x;y" ; comment\n\tflag\n[a.b]\nk=1 \\\n  2 # c')
@example(b"[a]\r\nk = v\r\n")
@example(b"[a]\nk = a  b\t\n")
@example(b"k = v\n")
@example(b'[a ""]\nk = v')
def test_a_configuration_is_read_as_git_reads_it(config: bytes) -> None:
    config = config.replace(b"\0", b"").replace(b"\t", b" ")  # git's versions differ in tabs within a value
    argv = ["git", "config", "--file", "-", "--no-includes", "--null", "--list"]
    done = subprocess.run(argv, input=config, capture_output=True, check=False, cwd="/", timeout=20)
    expected = []
    for line in done.stdout.split(b"\0")[:-1] if done.returncode == 0 else []:
        name, sign, value = line.partition(b"\n")
        expected.append((name.decode("utf-8", "replace"), value.decode("utf-8", "replace") if sign else None))
    assert read_settings(config, 1_000) == expected


def test_a_huge_configuration_is_cut() -> None:
    assert len(read_config(b'[branch "x"]\n' + b"\tmerge = refs/heads/x\n" * 100_000).copy) < MAX_CONFIG_BYTES


def repository(root: Path, config: str = "[core]\n\tbare = false\n") -> Path:
    for name in (".git/refs/heads", ".git/objects", ".git/refs/tags"):
        (root / name).mkdir(parents=True)
    (root / ".git" / "config").write_text(config)
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    return root


def test_what_is_no_repository_here_is_not_shown(tmp_path: Path) -> None:
    assert look_at(tmp_path).why_hidden == NO_REPOSITORY
    assert look_at(tmp_path / "missing").why_hidden == NO_REPOSITORY
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / ".git").write_text("gitdir: /elsewhere\n")
    assert look_at(tmp_path / "tree").why_hidden == ELSEWHERE
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / ".git").symlink_to(repository(tmp_path / "real") / ".git")
    assert look_at(tmp_path / "link").why_hidden == ELSEWHERE
    other = repository(tmp_path / "other", "[extensions]\n\trefStorage = reftable\n")
    assert look_at(other).why_hidden == OTHER_STORAGE
    assert look_at(other).shown("rw") == "hidden"


def test_a_configuration_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    root = repository(tmp_path / "x")
    (tmp_path / "secret").write_text('[remote "o"]\n\turl = https://example.org/secret\n')
    (root / ".git" / "config").unlink()
    (root / ".git" / "config").symlink_to(tmp_path / "secret")
    found = look_at(root)
    assert found.why_hidden
    assert not found.copies


@pytest.mark.parametrize(
    ("configured", "locked"),
    [
        ("scripts/hooks", "scripts/hooks/pre-commit"),
        ("./a/../scripts", "scripts/pre-push"),
        ("{root}/in[side]", "in[side]/x"),
        ("/usr/share/hooks", None),
        ("../outside", "outside/x"),
        (".", "pre-commit"),
        ("../..", None),
        (".git/hooks", None),
        ("~/hooks", None),
    ],
)
def test_hooks_that_are_kept_in_the_tree_are_locked(tmp_path: Path, configured: str, locked: str | None) -> None:
    root = repository(tmp_path / "x", f"[core]\n\thooksPath = {configured.format(root=tmp_path / 'x')}\n")
    found: list[str] = []

    def rules_of(locked: Sequence[str], _: Sequence[str]) -> Rules:
        found[:] = locked
        return Rules([], locked, [])

    rules = guarded(root, rules_of)
    assert bool(found) is (locked is not None)
    if locked is not None:
        assert rules.locked(locked.encode().split(b"/"))
        assert not rules.locked([b"src", b"main.py"])


def test_references_are_read_as_files_and_compared(tmp_path: Path) -> None:
    root = repository(tmp_path / "x")
    one, two = "1" * 40, "2" * 64
    (root / ".git" / "packed-refs").write_text(f"# pack-refs\n{one} refs/heads/main\n{one} refs/tags/v1\n^{two}\n")
    before = read_refs(root)
    assert before == {b"HEAD": b"ref: refs/heads/main", b"refs/heads/main": one.encode(), b"refs/tags/v1": one.encode()}
    (root / ".git" / "refs" / "heads" / "main").write_text(two + "\n")
    (root / ".git" / "refs" / "heads" / "link").symlink_to("/etc/hostname")
    (root / ".git" / "refs" / "heads" / "huge").write_bytes(b"x" * 100_000)
    after = read_refs(root)
    assert after[b"refs/heads/main"] == two.encode()
    assert b"refs/heads/link" not in after
    assert len(after[b"refs/heads/huge"]) <= 1024
    changed = moved(before, {**after, b"refs/heads/huge": b""})
    assert changed == [MovedRef(b"refs/heads/main", one.encode(), two.encode())]
    assert read_refs(tmp_path) == {}


def test_references_are_kept_beside_the_snapshot_that_they_belong_to(tmp_path: Path) -> None:
    root = repository(tmp_path / "x")
    (root / "file").touch()
    auditor = Auditor(tmp_path / "state")
    first = auditor.baseline(root, default_rules())
    with pytest.raises(SubletError) as caught:
        auditor.moved_refs(root, first)
    assert caught.value.code is LocalCode.NOT_FOUND
    auditor.watch_refs(root, first)
    assert auditor.moved_refs(root, first) == []
    (root / ".git" / "HEAD").write_text("ref: refs/heads/with space\n")
    assert auditor.moved_refs(root, first) == [
        MovedRef(b"HEAD", b"ref: refs/heads/main", b"ref: refs/heads/with space")
    ]


@pytest.mark.parametrize("name", ["config", "config.worktree", "HEAD", "packed-refs", "refs/replace/x", "included"])
def test_a_directory_in_the_place_of_a_file_of_the_repository_holds_nothing_and_leaves_nothing_open(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / ".git/refs/heads").mkdir(parents=True)
    (tmp_path / ".git/objects").mkdir()
    (tmp_path / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / ".git/config").write_text("[include]\n\tpath = included\n")
    place = tmp_path / ".git" / name
    place.unlink(missing_ok=True)
    place.mkdir(parents=True, exist_ok=True)
    before = len(os.listdir("/proc/self/fd"))
    look_at(tmp_path)
    read_refs(tmp_path)
    guarded(tmp_path, lambda locked, hidden: default_rules(hidden=hidden, locked=locked))
    assert len(os.listdir("/proc/self/fd")) == before
