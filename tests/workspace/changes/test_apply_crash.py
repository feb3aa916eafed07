"""A result is applied, or taken back, as a whole or not at all: whatever fails, and wherever the process is killed."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sublet.protocol.errors import SubletError
from sublet.workspace.changes import apply_dir as apply_dir_module
from support.apply_killed import Countdown, perform
from support.apply_unprivileged import NOBODY
from support.staged import KEY, OTHER_KEY, StagedBench, read_tree, write

MAX_POINTS = 400
MEMORY = Path("/dev/shm")
SUPPORT = Path(__file__).parents[2] / "support"
TEXT = "".join(f"line {n}\n" for n in range(12))


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """Return a directory in memory where that is possible: a kill does not ask what is on the disk already."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="slt-", dir=MEMORY) as place:
        yield Path(place)


@pytest.fixture
def bench(tmp_path: Path) -> StagedBench:
    """A pending result with every kind of step, and a text to merge."""
    bench = StagedBench(tmp_path)
    for path, content in {"merge": TEXT, "swap": "s", "gone": "g", "d/a": "a", "d/e/b": "b", "f": "f"}.items():
        bench.write(path, content)
    bench.write("tool", "t")
    bench.write("was", "dir or file")
    with bench.work() as view:
        write(view, "merge", TEXT.replace("line 1\n", "line one\n"))
        write(view, "swap", "S")
        (view / "gone").unlink()
        for path in ("d/a", "d/e/b", "was"):
            (view / path).unlink()
        (view / "d/e").rmdir()
        (view / "d").rmdir()
        write(view, "d", "a file now")
        write(view, "was/a/directory", "now")
        (view / "tool").chmod(0o755)
        (view / "link").symlink_to("swap")
        (view / "empty/deep").mkdir(parents=True)
    bench.write("merge", TEXT.replace("line 9\n", "line nine\n"))
    return bench


def state(bench: StagedBench) -> dict[str, tuple[int, object]]:
    return {name: (mode, content) for name, (mode, content, _) in bench.state_of().items()}


@pytest.fixture
def states(bench: StagedBench) -> tuple[dict[str, tuple[int, object]], dict[str, tuple[int, object]]]:
    """The directory before and after."""
    before = state(bench)
    bench.applier.apply(KEY, bench.rules)
    after = state(bench)
    bench.applier.undo(KEY)
    assert state(bench) == before
    assert after != before
    return before, after


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[Callable[[str, int], str]]:
    """Apply or undo in a process that is killed at the given point; returns whether it was."""
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT.parent)}
    argv = [sys.executable, str(SUPPORT / "apply_killed.py"), str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def order(what: str, point: int) -> str:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{what} {point}\n")
            process.stdin.flush()
            return process.stdout.readline().strip()

        yield order
        process.stdin.close()


Orders = Callable[[str, int], str]
States = tuple[dict[str, tuple[int, object]], dict[str, tuple[int, object]]]


def test_killed_anywhere_in_an_apply_it_is_all_or_nothing(bench: StagedBench, killed: Orders, states: States) -> None:
    before, after = states
    seen = set()
    for point in range(MAX_POINTS):
        answer = killed("apply", point)
        bench.applier.recover(KEY)
        found = state(bench)
        assert found in (before, after), f"torn by a kill at point {point}"
        applied = found == after
        seen.add(applied)
        assert bench.changes.get(KEY).status == ("applied" if applied else "undone")
        if applied:
            assert bench.applier.undo(KEY).conflicts == ()
            assert state(bench) == before
        if answer == "done":
            assert applied
            break
        assert answer == "killed"
    else:
        pytest.fail("it never came to its end")
    assert seen == {True, False}


def test_killed_anywhere_in_an_undo_it_is_all_or_nothing(bench: StagedBench, killed: Orders, states: States) -> None:
    before, after = states
    bench.applier.apply(KEY, bench.rules)
    for point in range(MAX_POINTS):
        answer = killed("undo", point)
        bench.applier.recover(KEY)
        found = state(bench)
        assert found in (before, after), f"torn by a kill at point {point}"
        undone = found == before
        assert bench.changes.get(KEY).status == ("undone" if undone else "applied")
        if undone:
            bench.applier.apply(KEY, bench.rules)
            assert state(bench) == after
        if answer == "done":
            assert undone
            break
        assert answer == "killed"
    else:
        pytest.fail("it never came to its end")


@pytest.mark.parametrize("what", ["apply", "undo"])
def test_whatever_fails_it_is_all_or_nothing(bench: StagedBench, states: States, what: str) -> None:
    before, after = states
    if what == "undo":
        bench.applier.apply(KEY, bench.rules)
    start, end = (before, after) if what == "apply" else (after, before)

    def fail() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for point in range(MAX_POINTS):
        # an OSError comes from the state directory, before or after the change itself
        with Countdown(point, fail) as countdown, contextlib.suppress(SubletError, OSError):
            perform(bench, what)
        bench.applier.recover(KEY)
        found = state(bench)
        assert found in (start, end), f"torn by a failure at point {point}"
        if found == end:
            if not countdown.reached:
                break
            bench.applier.undo(KEY) if what == "apply" else bench.applier.apply(KEY, bench.rules)
            assert state(bench) == start
    else:
        pytest.fail("it never came to its end")


def test_where_names_cannot_be_exchanged_two_steps_do(
    bench: StagedBench, states: States, killed: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_exchange(*_: object) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(apply_dir_module, "exchange", no_exchange)
    before, after = states
    for number in range(MAX_POINTS):

        def fail(step: int, at: int = number) -> None:
            if step == at:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        bench.applier._on_step = fail  # the same applier, which fails one step later each time
        try:
            bench.applier.apply(KEY, bench.rules)
        except SubletError:
            assert state(bench) == before
        else:
            break
    assert state(bench) == after
    bench.applier._on_step = None
    assert bench.applier.undo(KEY).conflicts == ()
    assert state(bench) == before


def test_an_unprivileged_user_stages_applies_and_undoes() -> None:
    """As another user, where this one is root, who is stopped by no mode."""
    if os.geteuid() != 0:
        pytest.skip("the other tests run unprivileged already")
    base = Path("/tmp") / f"sublet-apply-{os.getpid()}"
    base.mkdir(mode=0o755)
    try:
        os.chown(base, NOBODY, NOBODY)
        done = subprocess.run(
            [sys.executable, str(SUPPORT / "apply_unprivileged.py"), str(base)],
            env={**os.environ, "PYTHONPATH": str(SUPPORT.parent)},
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    finally:
        shutil.rmtree(base)


def test_what_root_applies_belongs_to_the_owner_of_the_directory(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    bench = StagedBench(tmp_path)
    bench.write("f", "f")
    bench.write("theirs", "t")
    os.chown(bench.root, 1234, 1235)
    os.chown(bench.root / "f", 4321, 4322)
    with bench.work() as view:
        write(view, "f", "F")
        write(view, "new/g", "g")
        (view / "link").symlink_to("f")
        (view / "theirs").unlink()
    bench.applier.apply(KEY, bench.rules)
    owners = {p.name: (p.lstat().st_uid, p.lstat().st_gid) for p in bench.root.rglob("*")}
    ours = (1234, 1235)
    assert owners == {"f": (4321, 4322), "new": ours, "g": ours, "link": ours}
    bench.applier.undo(KEY)
    assert (bench.root / "f").stat().st_uid == 4321
    assert (bench.root / "theirs").stat().st_uid == 0


def test_what_a_person_did_between_crash_and_recovery_is_kept(
    bench: StagedBench, states: States, killed: Orders
) -> None:
    """The displaced file comes back under a name beside the person's."""
    before, _ = states
    for point in range(MAX_POINTS):
        killed("apply", point)
        if not (bench.root / "gone").exists() and any(bench.root.glob(".sublet-apply-*/old-*")):
            break
    else:
        pytest.fail("no kill fell between two steps")
    bench.write("gone", "made anew by the person")
    assert bench.applier.recover_all() == {KEY: None}
    assert bench.read("gone") == "made anew by the person"
    assert bench.read("gone.before-apply") == "g"
    rest = {name: found for name, found in state(bench).items() if not name.startswith("gone")}
    assert rest == {name: found for name, found in before.items() if name != "gone"}


def test_recovery_without_the_directory_says_so_and_can_be_repeated(
    bench: StagedBench, states: States, killed: Orders
) -> None:
    before, _ = states
    for point in range(MAX_POINTS):
        killed("apply", point)
        if any(bench.root.glob(".sublet-apply-*")):
            break
    bench.root.rename(bench.root.with_name("moved"))
    bench.root.mkdir()
    error = bench.applier.recover_all()[KEY]
    assert error is not None
    assert ".sublet-apply-" in error.hint
    bench.root.rmdir()
    bench.root.with_name("moved").rename(bench.root)
    assert bench.applier.recover_all() == {KEY: None}
    assert bench.applier.recover_all() == {}
    assert state(bench) == before


BOTH = (KEY, OTHER_KEY)
Pair = tuple[dict[str, object], dict[str, object]]


@pytest.fixture
def pair(tmp_path: Path) -> StagedBench:
    """Pending results in two directories."""
    bench = StagedBench(tmp_path)
    write(bench.root, "swap", "s")
    write(bench.other, "swap", "s")
    write(bench.other, "gone", "g")
    for key in BOTH:
        with bench.work(key) as view:
            write(view, "swap", "S")
            (view / "gone").unlink(missing_ok=True)
    return bench


def both(bench: StagedBench) -> Pair:
    return {**read_tree(bench.root)}, {**read_tree(bench.other)}


@pytest.mark.parametrize("what", ["apply-all", "undo-all"])
def test_killed_anywhere_two_directories_change_together_or_not_at_all(
    pair: StagedBench, killed: Orders, what: str
) -> None:
    before = both(pair)
    perform(pair, "apply-all")
    after = both(pair)
    assert before != after
    start, end = (after, before) if what == "undo-all" else (before, after)
    if what == "apply-all":
        perform(pair, "undo-all")
    seen = set()
    for point in range(MAX_POINTS):
        answer = killed(what, point)
        assert not any(pair.applier.recover_all().values())
        found = both(pair)
        assert found in (before, after), f"torn by a kill at point {point}"
        seen.add((answer, found == end))
        statuses = {pair.changes.get(key).status for key in BOTH}
        assert statuses == {"applied" if found == after else "undone"}
        assert not list(pair.state.rglob("decided.json")), "nothing is left to decide"
        assert pair.applier.recover_all() == {}
        if found == end:
            perform(pair, "undo-all" if what == "apply-all" else "apply-all")
            assert both(pair) == start
        if answer == "done":
            break
    else:
        pytest.fail("it never came to its end")
    assert seen == {("killed", False), ("killed", True), ("done", True)}


def test_whatever_fails_two_directories_change_together_or_not_at_all(pair: StagedBench) -> None:
    before = both(pair)
    perform(pair, "apply-all")
    after = both(pair)
    perform(pair, "undo-all")

    def fail() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for point in range(MAX_POINTS):
        with Countdown(point, fail) as countdown, contextlib.suppress(SubletError, OSError):
            perform(pair, "apply-all")
        # Nothing waits for the next start but tidying up.
        seen = tuple({k: v for k, v in tree.items() if not k.startswith(".sublet-apply-")} for tree in both(pair))
        assert seen in (before, after), f"torn by a failure at point {point}"
        pair.applier.recover_all()
        found = both(pair)
        assert found in (before, after)
        if found == after:
            if not countdown.reached:
                break
            perform(pair, "undo-all")
            assert both(pair) == before
    else:
        pytest.fail("it never came to its end")


def test_a_conflict_in_the_second_directory_leaves_the_first_as_it_was(pair: StagedBench) -> None:
    before = both(pair)
    write(pair.other, "swap", "mine")
    reports = pair.applier.apply_all(dict.fromkeys(BOTH, pair.rules))
    assert reports[KEY].paths == ()
    assert [conflict.path for conflict in reports[OTHER_KEY].conflicts] == [b"swap"]
    assert both(pair) == (before[0], {**before[1], "swap": "mine"})
    assert {pair.changes.get(key).status for key in BOTH} == {"pending"}
    assert not list(pair.root.glob(".sublet-apply-*"))
    pair.applier.apply_all(dict.fromkeys(BOTH, pair.rules), partial=True)
    assert [pair.changes.get(key).status for key in BOTH] == ["applied", "partly_applied"]
