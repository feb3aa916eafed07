"""The ignore engine: what is hidden, what is locked, and what revealing a name does."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.export import ViewRules
from sublet.workspace.view import rules as module
from sublet.workspace.view.rules import DEFAULT_HIDDEN, DEFAULT_LOCKED, Rules
from support.views import default_rules


def parts(path: str | bytes) -> tuple[bytes, ...]:
    raw = path.encode() if isinstance(path, str) else path
    return tuple(raw.split(b"/"))


@pytest.mark.parametrize(
    "path",
    [
        ".env",
        ".ENV",
        ".env.production",
        "deep/down/.env.local",
        "prod.env",
        "server.pem",
        "server.PEM",
        "tls/server.key",
        "id_rsa",
        "id_ed25519",
        "keys/id_ecdsa.bak",
        "credentials.json",
        "service-account-prod.json",
        ".npmrc",
        ".netrc",
        ".git-credentials",
        ".aws/config",
        "home/.ssh/known_hosts",
        ".docker/config.json",
        "home/.docker/Config.json",
        "vault.kdbx",
        ".git",
        ".git/config",
        "vendor/lib/.git",
        "vendor/lib/.GIT/hooks/pre-commit",
    ],
)
def test_secrets_and_repositories_are_hidden_at_any_depth(path: str) -> None:
    assert default_rules().hidden(parts(path))


@pytest.mark.parametrize(
    "path",
    ["", ".env.example", "a/.env.sample", ".env.template", "id_rsa.pub", "keys/id_ed25519.pub", ".gitignore", "env",
     "key", "src/pem.py", "keyboard.keys", ".docker/daemon.json", ".github/workflows/ci.yml", "environment.py",
     "config.json"],
)  # fmt: skip
def test_ordinary_names_stay_visible(path: str) -> None:
    assert not default_rules().hidden(parts(path))


@pytest.mark.parametrize(
    "path",
    [".envrc", "sub/.envrc", ".vscode", ".vscode/tasks.json", ".VSCode/tasks.json", ".claude/settings.json",
     ".mcp.json", ".idea/workspace.xml", ".husky/pre-commit", ".githooks/pre-push", ".devcontainer/devcontainer.json",
     ".bashrc", ".pre-commit-config.yaml", "lefthook.yml", "sub/HEAD", ".git/hooks/post-checkout",
     "dots/.config/fish/config.fish"],
)  # fmt: skip
def test_what_the_lenders_tools_run_is_locked_at_any_depth(path: str) -> None:
    assert default_rules().locked(parts(path))


@pytest.mark.parametrize(
    "path", ["", "Makefile", "src/head/a.ts", "package.json", "head", ".gitignore", ".github/x.yml"]
)
def test_ordinary_names_stay_writable(path: str) -> None:
    assert not default_rules().locked(parts(path))


def test_a_pattern_with_a_slash_is_anchored_at_the_root() -> None:
    rules = Rules(["conf/secret*", "/top"], [], [])
    assert rules.hidden(parts("conf/secrets/x"))
    assert not rules.hidden(parts("sub/conf/secret"))
    assert not rules.hidden(parts("conf"))
    assert rules.hidden(parts("top"))
    assert not rules.hidden(parts("sub/top"))


def test_a_directory_above_an_anchored_rule_is_guarded() -> None:
    rules = Rules(["a/b/secret"], ["**/.config/fish"], ["x/.env"])
    assert rules.guards_below(())
    assert rules.guards_below(parts("a"))
    assert rules.guards_below(parts("a/b"))
    assert not rules.guards_below(parts("a/b/secret"))
    assert not rules.guards_below(parts("b"))
    assert rules.guards_below(parts("deep/.config"))
    assert not rules.guards_below(parts("deep"))
    assert rules.guards_below(parts("x"))


def test_revealing_takes_exactly_what_it_names_out_of_the_hidden() -> None:
    rules = default_rules([".env", "conf/.npmrc"])
    assert not rules.hidden(parts("sub/.env"))
    assert rules.hidden(parts(".ENV"))
    assert rules.hidden(parts(".env.local"))
    assert not rules.hidden(parts("conf/.npmrc"))
    assert rules.hidden(parts(".npmrc"))


def test_a_name_below_a_hidden_directory_needs_the_directory_revealed_too() -> None:
    assert default_rules([".aws/config"]).hidden(parts(".aws/config"))
    assert not default_rules([".aws"]).hidden(parts(".aws/config"))


def test_a_revealed_repository_is_locked_and_keeps_its_tokens() -> None:
    rules = default_rules([".git"])
    assert not rules.hidden(parts("sub/.git/HEAD"))
    assert rules.locked(parts("sub/.git/HEAD"))
    assert rules.hidden(parts("sub/.git/config"))
    assert rules.hidden(parts(".git/modules/x/config"))


def test_names_that_are_not_utf8_match_byte_by_byte() -> None:
    rules = Rules(["caf\udce9*", "*.pem"], [], [])
    assert rules.hidden((b"caf\xe9.txt",))
    assert rules.hidden((b"\xff\xfe.pem",))
    assert rules.hidden((b"new\nline.pem",))
    assert not rules.hidden((b"caf\xc3\xa9",))


@pytest.mark.parametrize(
    "pattern",
    ["", "/", "a//b", "../up", "a/./b", "a/**/b", "/**", "**", "nul\0", "x" * 2000, "a**b", "a[b", "[]", "[!]"],
)
def test_a_pattern_that_is_none_is_refused(pattern: str) -> None:
    with pytest.raises(SubletError) as caught:
        Rules([pattern], [], [])
    assert caught.value.code is LocalCode.INVALID_ARGUMENT


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PATTERNS", 2)
    with pytest.raises(SubletError):
        Rules(["a"], ["b"], ["c"])
    monkeypatch.setattr(module, "MAX_CACHED_BYTES", 500)
    rules = Rules(["*.pem"], [], [])
    for i in range(10):
        assert rules.hidden((b"%d.pem" % i,))
        assert not rules.hidden((b"%d.txt" % i,))


name = st.binary(min_size=1, max_size=8).filter(lambda b: b"/" not in b and b"\0" not in b and b not in (b".", b".."))
path = st.lists(
    st.one_of(name, st.sampled_from([b".env", b".git", b".ENV", b"id_rsa.pub", b".vscode", b"config"])), max_size=5
)


@given(path, name)
@example([b".git"], b"config")
def test_whatever_lies_below_a_hidden_or_locked_name_is_so_too(above: list[bytes], child: bytes) -> None:
    rules: ViewRules = default_rules()
    if rules.hidden(above):
        assert rules.hidden([*above, child])
    if rules.locked(above):
        assert rules.locked([*above, child])


@given(path)
def test_the_cache_changes_no_answer(names: list[bytes]) -> None:
    used = default_rules()
    first = (used.hidden(names), used.locked(names), used.guards_below(names))
    assert (used.hidden(names), used.locked(names), used.guards_below(names)) == first


@given(path)
def test_name_patterns_agree_with_fnmatch(names: list[bytes]) -> None:
    """A second implementation, straight from the definition, of rules without slash, exception or capital."""
    hidden = [p for p in DEFAULT_HIDDEN if "/" not in p and not p.startswith("!")]
    locked = [p for p in DEFAULT_LOCKED if "/" not in p and p == p.lower()]
    rules = Rules(hidden, locked, [])
    lowered = [n.lower().decode("latin-1") for n in names]
    assert rules.hidden(names) == any(fnmatch.fnmatchcase(n, p) for n in lowered for p in hidden)
    assert rules.locked(names) == any(fnmatch.fnmatchcase(n, p) for n in lowered for p in locked)
