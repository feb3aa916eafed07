"""Patterns of names: what file systems take for the same name, and which patterns are none."""

from __future__ import annotations

import pytest

from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.view.compiled import KEPT_COMPILED, compiled, from_the_root
from sublet.workspace.view.patterns import MAX_PATTERN_BYTES, AnyOf, PatternSet, fold

Parts = tuple[bytes, ...]


def parts(path: str) -> Parts:
    return tuple(path.encode().split(b"/"))


@pytest.mark.parametrize(
    ("name", "folded"),
    [
        ("Makefile", "makefile"),
        ("STRASSE", "strasse"),
        ("Straße", "strasse"),
        ("ÄRGER", "ärger"),
        ("A\u0308rger", "ärger"),
        ("\uff57\uff49\uff44\uff45", "wide"),
        (".g\u200cit", ".git"),
        (".\u2060ENV", ".env"),
        ("file:stream", "file"),
        ("file:stream:$DATA", "file"),
        ("file.", "file"),
        ("file . .", "file"),
        ("file. :x", "file"),
        (".git.", ".git"),
        ("GIT~1", ".git"),
        ("git~9:x", ".git"),
        ("git~10", "git~10"),
        ("git~", "git~"),
        ("xgit~1", "xgit~1"),
        ("...", "..."),
        (" ", " "),
        (":x", ":x"),
        ("a:b.", "a"),
    ],
)
def test_names_that_a_file_system_may_take_for_the_same(name: str, folded: str) -> None:
    assert fold(name.encode()) == folded.encode()


def test_bytes_that_are_no_text_stay_as_they_are() -> None:
    assert fold(b"A\xff\xc3(") == b"a\xff\xc3("


def matched(pattern: str, paths: str, *, folds: bool = False, smart_case: bool = False) -> list[str]:
    """Return which of the paths a pattern names exactly, by name or by path."""
    made = PatternSet([pattern], fold=folds, smart_case=smart_case)
    return [path for path in paths.split() if made.path_matches(parts(path)) or made.names.matches(parts(path)[-1])]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a", "a b/a b/b/a"),
        ("a/", "a b/a b/b/a"),
        ("/a", "a"),
        ("/a/", "a"),
        ("b/a", "b/a"),
        ("/b/a", "b/a"),
        ("**/a", "a b/a b/b/a"),
        ("**/b/a", "b/a b/b/a"),
        ("a/**", "a"),
        ("/a/**", "a"),
        ("**/a/**", "a b/a b/b/a"),
        ("b/a/**", "b/a"),
        ("**/b/a/**", "b/a b/b/a"),
        ("*", "a b b/a b/b/a A [a]"),
        ("[ab]", "a b b/a b/b/a"),
        ("[!a]", "b A"),
        ("[]]", ""),
        ("[[]a]", "[a]"),
        ("?", "a b b/a b/b/a A"),
        ("/*/?", "b/a"),
    ],
)
def test_where_a_pattern_holds(pattern: str, names: str) -> None:
    assert " ".join(matched(pattern, "a b b/a b/b/a A [a]")) == names


@pytest.mark.parametrize(
    ("pattern", "folds", "smart_case", "names"),
    [
        ("ab", True, False, "ab AB aB x/ab"),
        ("AB", True, False, "ab AB aB x/ab"),
        ("x/AB", True, False, "x/ab"),
        ("X/ab", True, False, "x/ab"),
        ("ab", True, True, "ab AB aB x/ab"),
        ("aB", True, True, "aB"),
        ("X/ab", True, True, ""),
        ("x/ab", True, True, "x/ab"),
        ("ab", False, False, "ab x/ab"),
        ("aB", False, True, "aB"),
    ],
)
def test_in_which_letters_a_pattern_holds(pattern: str, folds: bool, smart_case: bool, names: str) -> None:
    assert " ".join(matched(pattern, "ab AB aB x/ab", folds=folds, smart_case=smart_case)) == names


def test_what_is_known_of_a_set_without_asking_it() -> None:
    made = PatternSet(["a", "/b", "C/d", "**/e/F"], fold=True, smart_case=True)
    assert (len(made.last_folded), len(made.last_written)) == (2, 2)
    assert len(made.paths) == 3
    assert [len(made.paths_ending_in(name)) for name in (b"a", b"b", b"B", b"d", b"F", b"f")] == [0, 1, 1, 1, 1, 0]
    assert made.floats
    assert [PatternSet([one], fold=True).floats for one in ("a", "/a", "a/b", "**/a", "**/a/b", "*")] == [
        *(True, False, False, True, True, True)
    ]
    assert PatternSet(["/a", "**/a/b", "/b"], fold=False).floats
    assert not PatternSet([], fold=True).floats
    nothing = AnyOf((), ())
    assert not nothing.matches(b"")
    assert not nothing.matches(b"a")
    either = AnyOf([b"a", b"b"], [b"C", b"D"])
    assert [name for name in b"abcdABCD" if either.matches(bytes((name,)))] == list(b"abABCD")


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("", "can never match"),
        ("/", "can never match"),
        (".", "can never match"),
        ("..", "can never match"),
        ("a/../b", "can never match"),
        ("a/./b", "can never match"),
        ("a//b", "can never match"),
        ("**/.", "can never match"),
        ("**", "elsewhere than at its beginning"),
        ("a/**/b", "elsewhere than at its beginning"),
        ("**/**", "elsewhere than at its beginning"),
        ("**/**/a", "elsewhere than at its beginning"),
        ("a**", "within a name"),
        ("x/a**", "within a name"),
        ("a[", "not closed"),
        ("a[]", "not closed"),
        ("a[!]", "not closed"),
        ("x/[a/b]", "not closed"),
        ("x" * (MAX_PATTERN_BYTES + 1), "longer than 1024 bytes"),
        ("é" * (MAX_PATTERN_BYTES // 2 + 1), "longer than 1024 bytes"),
        ("a\0b", "a NUL"),
    ],
)
def test_what_is_no_pattern(pattern: str, why: str) -> None:
    with pytest.raises(SubletError, match=why) as refused:
        PatternSet([pattern], fold=True)
    assert refused.value.code is LocalCode.INVALID_ARGUMENT


def test_the_longest_patterns_are_taken() -> None:
    assert MAX_PATTERN_BYTES == 1024
    for pattern in ("x" * 1024, "é" * 512, "[!]]", "[]a]", "[!a]x[b]", "[a]["[:3]):
        PatternSet([pattern], fold=True)
    assert PatternSet(["x" * 1024], fold=True).names.matches(b"x" * 1024)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("src", "/src"),
        ("./src", "/src"),
        ("docs/*.md", "/docs/*.md"),
        ("**/x", "**/x"),
        ("**", "/**"),
        ("x~", "/x~"),
        (" ", "/ "),
    ],
)
def test_what_is_writable_is_named_from_the_root(pattern: str, path: str) -> None:
    assert from_the_root(pattern) == path


@pytest.mark.parametrize("pattern", ["!a", "/a", "~/a", "~", "./!a", "./~", "", "./", ".//a"])
def test_what_is_writable_is_in_the_directory_and_has_no_exceptions(pattern: str) -> None:
    with pytest.raises(SubletError, match="no path in the directory") as refused:
        from_the_root(pattern)
    assert refused.value.code is LocalCode.INVALID_ARGUMENT


def test_the_same_patterns_are_compiled_once_for_all_leases() -> None:
    def made(hidden: str) -> object:
        return compiled((hidden,), ("b",), ("c",), ("d",), ("e",), ("f",), ("g", "!h"), ("/i",), False)

    assert KEPT_COMPILED == 16
    assert made("a") is made("a")
    assert compiled.cache_info().maxsize == 16


def test_each_kind_of_pattern_is_compiled_apart() -> None:
    kinds = ("names", "locked", "carried", "revealed", "unlocked", "include", "exclude", "writable")
    made = compiled(
        ("hIdden", "!excepted", "x/one"), ("locked", "Shut"), ("carried",), ("revealed",), ("unlocked",), ("include",),
        ("exclude", "!kept"), ("/writable",), False,
    )  # fmt: skip
    assert made.hidden.names.matches(b"HIDDEN")
    assert made.excepted.names.matches(b"EXCEPTED")
    assert made.excluded.names.matches(b"EXCLUDE")
    assert made.kept.names.matches(b"KEPT")
    for name, patterns in (("locked", made.locked), ("carried", made.carried)):
        assert patterns.names.matches(name.upper().encode())
    assert not made.locked.names.matches(b"shut")
    for name, exact in (("revealed", made.revealed), ("unlocked", made.unlocked), ("include", made.included)):
        assert exact is not None
        assert exact.names.matches(name.encode())
        assert not exact.names.matches(name.upper().encode())
    assert made.writable is not None
    assert made.writable.path_matches((b"writable",))
    assert not made.writable.path_matches((b"WRITABLE",))
    assert len(made.guards) == 1
    notable = [*kinds[1:], "hidden", "excepted", "kept", "one"]
    assert all(made.notable.matches(name.encode()) for name in notable)
    assert not made.notable.matches(b"other")
    assert not made.notable.matches(b"REVEALED")
    folding = compiled((), ("Shut",), ("Carried",), (), (), (), (), (), True)
    assert folding.locked.names.matches(b"shut")
    assert folding.carried.names.matches(b"carried")
    assert (folding.included, folding.writable) == (None, None)
