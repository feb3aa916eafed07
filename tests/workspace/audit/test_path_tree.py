"""A tree of paths is a mapping as any other, and tells what differs in the order of paths."""

from __future__ import annotations

import random

import pytest

from sublet.workspace.audit.path_tree import PathTree, differing

NAMES = (b"a", b"a-", b"a.", b"a0", b"aa", b"b", b".", b"\xff", b" ")


def some_paths(chance: random.Random) -> dict[bytes, int]:
    """Return paths of which one may be a directory of another, as a file that became one is."""
    count = chance.randrange(40)
    return {b"/".join(chance.choices(NAMES, k=chance.randrange(1, 5))): chance.randrange(3) for _ in range(count)}


@pytest.mark.parametrize("seed", range(50))
def test_it_holds_what_a_dictionary_holds(seed: int) -> None:
    chance = random.Random(seed)
    plain = some_paths(chance)
    tree = PathTree(plain.items())
    for path in chance.sample(sorted(plain), len(plain) // 3):
        del plain[path], tree[path]
    assert tree == plain
    assert plain == tree
    assert len(tree) == len(plain)
    assert dict(tree.items()) == dict(zip(tree, tree.values(), strict=True)) == plain
    assert list(tree.ordered()) == sorted(plain.items())
    for path in some_paths(chance):
        assert (path in tree) == (path in plain)
        assert tree.get(path) == plain.get(path)


@pytest.mark.parametrize("seed", range(50))
def test_it_tells_what_differs_in_order(seed: int) -> None:
    chance = random.Random(seed)
    before, after = some_paths(chance), some_paths(chance)
    after |= {path: before[path] for path in chance.sample(sorted(before), len(before) // 2)}
    expected = [
        (path, before.get(path), after.get(path))
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    ]
    assert list(differing(PathTree(before.items()), PathTree(after.items()))) == expected
    assert (PathTree(before.items()) == after) == (before == after)


def test_what_is_not_there_is_a_key_error() -> None:
    tree = PathTree(((b"a/b", 1),))
    for path in (b"a", b"b", b"a/c", b"c/b", b"a/b/c"):
        assert path not in tree
        with pytest.raises(KeyError):
            tree[path]
        with pytest.raises(KeyError):
            del tree[path]
