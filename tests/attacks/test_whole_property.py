"""The two halves in one: nothing hidden or locked is shown, moved or changed, and the account equals a comparison.

A tree with links of both kinds, hidden and locked names, rules, and what they lead to as a lease begins; then random
requests of a hostile executor. The account is compared with the whole tree, what is hidden in it included: had
anything there changed, the comparison would name it and the account would not.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from attacks.kit.audited_lease import account, names_of, plain_account
from attacks.kit.view_lease import served
from attacks.test_view_property import MARK, act, guarded, operation, paths, shown, trees
from sublet.workspace.audit.auditor import Auditor
from sublet.workspace.export import ViewRules
from sublet.workspace.view.led_to import guarded as with_what_is_led_to
from sublet.workspace.view.own_rules import with_own
from sublet.workspace.view.rules import DEFAULT_CARRIED, DEFAULT_HIDDEN, DEFAULT_LOCKED, Rules
from support.budgets import examples

SEEDS = (1, 12, 333, 4_096, 20_261_129)
EXAMPLES = 40
PHASES = (Phase.generate, Phase.shrink)
NAMES = ("a", "b", "c.txt", ".env", "x.pem", ".claude", ".envrc", "AGENTS.md", "node_modules", ".pnp.cjs")
TARGETS = (
    ".",
    "..",
    "../..",
    "a",
    "../a",
    "b/c.txt",
    ".env",
    "../.env",
    "x.pem",
    ".envrc",
    "/etc/passwd",
    "outer0",
    "no",
)

more_paths = st.one_of(paths, st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join))
hard = st.lists(st.tuples(more_paths, more_paths), max_size=4)
symbolic = st.lists(st.tuples(st.sampled_from(TARGETS), more_paths), max_size=5)
PLACES = ("a", "b", "a/b", "b/a", "d", "a/d", "node_modules", "node_modules/a")
TRAVEL = st.tuples(
    st.sampled_from(("rename", "rename", "over", "mkdir", "rmdir", "link")),
    st.sampled_from(PLACES),
    st.sampled_from(PLACES),
)
"""What would carry names along with what holds them."""
operations = st.lists(
    st.one_of(st.tuples(st.one_of(operation, st.just("lead")), more_paths, more_paths), TRAVEL), min_size=1, max_size=30
)
held = st.lists(
    st.tuples(st.sampled_from(("a", "b", "a/b", "b/a", "node_modules", "node_modules/a")), st.sampled_from(NAMES)).map(
        "/".join
    ),
    max_size=6,
)
"""Files in the directories that are moved."""
Chosen = Callable[[Sequence[str], Sequence[str]], Rules]


def chosen(revealed: list[str], exclude: list[str], writable: list[str], only_adds: bool) -> Chosen:
    """Return what makes the rules of a lease, from what is led to beside the chosen ones."""

    def rules_of(locked: Sequence[str], hidden: Sequence[str]) -> Rules:
        return Rules(
            (*DEFAULT_HIDDEN, *hidden),
            (*DEFAULT_LOCKED, *locked),
            revealed,
            carried=DEFAULT_CARRIED,
            exclude=exclude,
            writable=writable,
            only_adds=only_adds,
        )

    return rules_of


rules = st.builds(
    chosen,
    st.sampled_from([[], ["x.pem"]]),
    st.sampled_from([[], [], ["c.txt"], ["/a/b"]]),
    st.sampled_from([[], [], [], ["a"], ["b/*.txt", "**/.aws"], ["a/b"]]),
    st.sampled_from([False, False, True]),
)


def build(root: Path, files: list[str], names: list[tuple[str, str]], links: list[tuple[str, str]]) -> None:
    """Make the tree of the lender: files, then names of the same files, then symbolic links."""
    for number, name in enumerate(files):
        _quietly(root / name, lambda place, number=number: place.write_bytes(MARK + b" %d" % number))  # type: ignore[misc]
    for old, new in names:
        if (root / old).is_file() and not (root / old).is_symlink():
            _quietly(root / new, lambda place, old=old: os.link(root / old, place))  # type: ignore[misc]
    for target, name in links:
        _quietly(root / name, lambda place, target=target: place.symlink_to(target))  # type: ignore[misc]


def _quietly(place: Path, make: Callable[[Path], object]) -> None:
    """Make ``place`` with what is above it, where nothing is and no link leads away."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.parent.resolve() == place.parent and not os.path.lexists(place):
            make(place)
    except (FileExistsError, NotADirectoryError):
        return


def outside(base: Path) -> dict[str, tuple[bytes, int, int]]:
    """Return what lies beside the directory that is lent."""
    return {
        path.name: (path.read_bytes(), path.stat().st_mode, path.stat().st_mtime_ns)
        for path in base.iterdir()
        if path.is_file()
    }


def attacked(
    base: Path,
    rules_of: Chosen,
    files: list[str],
    names: list[tuple[str, str]],
    links: list[tuple[str, str]],
    outer: list[str],
    asked: list[tuple[str, str, str]],
) -> None:
    """Build the tree, do what is asked, and compare all of it."""
    root = base / "lent"
    root.mkdir()
    build(root, files, names, links)
    for number, name in enumerate(outer):
        if (root / name).is_file() and not (root / name).is_symlink():
            os.link(root / name, base / f"outer{number}")
    beside = outside(base)
    lent = with_what_is_led_to(root, rules_of)
    before, whole = guarded(root, lent), names_of(root)
    secret = {
        content for parts, (mode, _, content) in before.items() if stat.S_ISREG(mode) and lent.hidden(parts.split(b"/"))
    }
    auditor = Auditor(base / "state")
    baseline = auditor.baseline(root, lent)
    with served(root, lent) as lease:
        for what, one, other in asked:
            if what == "lead":
                lease.ask(20, _string(b"../" + other.encode()) + _string(b"/workspace/" + one.encode()))
            else:
                act(lease, what, one, other)
            assert not secret & set(shown(lease, b"").values())
        own, usage = set(lease.own()), lease.usage
    after = names_of(root)
    held = guarded(root, lent)
    assert {name: kept for name, kept in held.items() if name not in own} == before
    assert outside(base) == beside
    if lent.only_adds():
        assert after.keys() >= whole.keys()
    report = auditor.result(
        baseline, root, with_own(lent, usage.own.get("workspace")), usage.touched["workspace"], overflow=False
    )
    assert account(report) == plain_account(whole, after)
    assert report.unaudited == ()
    assert report.by_others == []


def _string(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big") + text


@pytest.mark.parametrize("number", SEEDS)
def test_nothing_guarded_is_reached_and_the_account_equals_a_comparison(number: int) -> None:
    @seed(number)
    @settings(
        max_examples=examples(EXAMPLES),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=PHASES,
    )
    @given(
        rules_of=rules,
        files=st.builds(lambda one, other: one + other, held, trees),
        names=hard,
        links=symbolic,
        outer=st.lists(more_paths, max_size=2),
        asked=operations,
    )
    def check(
        rules_of: Chosen,
        files: list[str],
        names: list[tuple[str, str]],
        links: list[tuple[str, str]],
        outer: list[str],
        asked: list[tuple[str, str, str]],
    ) -> None:
        base = Path(tempfile.mkdtemp(prefix="whole-")).resolve()
        try:
            attacked(base, rules_of, files, names, links, outer, asked)
        finally:
            shutil.rmtree(base)

    check()


def test_the_trees_hold_what_the_property_is_about(tmp_path: Path) -> None:
    """One tree by hand, so that a generator that makes too little would be noticed."""
    root = tmp_path / "lent"
    root.mkdir()
    build(
        root,
        ["a/c.txt", ".env", "b/AGENTS.md"],
        [(".env", "a/b")],
        [("../.env", "a/x.pem"), (".", "b/.envrc"), ("a", "no")],
    )
    made = names_of(root)
    assert made[b"a/b"][2] == made[b".env"][2]
    assert [kind for kind, _, _ in (made[name] for name in (b"a/x.pem", b"b/.envrc", b"no"))] == ["link"] * 3
    lent: ViewRules = with_what_is_led_to(root, chosen([], [], [], False))
    assert lent.hidden((b".env",))
    assert lent.locked((b"b", b"AGENTS.md"))
