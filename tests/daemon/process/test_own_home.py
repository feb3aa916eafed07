"""A home knows where it was last: moved, it goes on; a copy beside the other one does not start."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sublet.daemon.process.own_home import FILE, is_copy, make_own, own_token, problem
from sublet.protocol.errors import LocalCode, SubletError


@pytest.fixture
def home(tmp_path: Path) -> Path:
    state = tmp_path / "home"
    (state / "keys").mkdir(parents=True)
    (state / "keys" / "identity.key").write_bytes(b"k")
    (state / "sublet.db").write_bytes(b"d")
    return state


def from_elsewhere(home: Path) -> None:
    said = json.loads((home / FILE).read_text())
    said["place"]["machine"] = "another"
    (home / FILE).write_text(json.dumps(said))


def test_it_has_one_token_as_long_as_it_stays(home: Path, tmp_path: Path) -> None:
    token = own_token(home)
    assert own_token(home) == token
    assert not is_copy(home)
    moved = home.rename(tmp_path / "other")
    assert own_token(moved) == token, "its directory has another name, and is the same"
    assert own_token(moved) == token


def test_a_copy_beside_the_other_one_is_refused_and_one_alone_is_not(home: Path, tmp_path: Path) -> None:
    token = own_token(home)
    copy = Path(shutil.copytree(home, tmp_path / "copy"))
    assert is_copy(copy)
    with pytest.raises(SubletError, match=f"a copy of {home}") as refused:
        own_token(copy)
    assert refused.value.code is LocalCode.HOME_COPIED
    assert problem(copy) is not None
    assert problem(home) is None
    assert own_token(home) == token
    shutil.rmtree(home)
    assert problem(copy) is None
    moved = own_token(copy)
    assert moved.comes_from(token)
    assert own_token(copy) == moved


def test_one_from_another_machine_has_a_token_of_its_own(home: Path) -> None:
    token = own_token(home)
    from_elsewhere(home)
    assert own_token(home).comes_from(token)
    assert is_copy(home)


def test_made_its_own_it_begins_anew_and_keeps_what_it_had(home: Path, tmp_path: Path) -> None:
    token = own_token(home)
    copy = Path(shutil.copytree(home, tmp_path / "copy"))
    (copy / "daemon.lock").touch()
    kept = make_own(copy)
    assert sorted(one.name for one in copy.iterdir()) == ["copied-home-1", "daemon.lock"]
    assert (kept / "keys" / "identity.key").read_bytes() == b"k"
    own = own_token(copy)
    assert not own.comes_from(token)
    assert own.token != token.token
    assert make_own(copy).name == "copied-home-2"


@pytest.mark.parametrize("torn", [b"", b"{", b'{"home": "x", "place": {}}', b'{"home": 1, "place": {"machine": 1}}'])
def test_a_file_that_can_t_be_read_is_begun_anew(home: Path, torn: bytes) -> None:
    (home / FILE).write_bytes(torn)
    assert own_token(home) == own_token(home)
    assert problem(home) is None
