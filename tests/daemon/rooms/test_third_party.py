"""What config.json may name as an extension, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sublet.daemon.config.config_file import MessagingConfig
from sublet.daemon.rooms.third_party import GROUP, load_third_party
from sublet.protocol.errors import LocalCode, SubletError

MODULE = """
from sublet.messaging.extending import Declaration
from sublet.messaging.declaring.declaration import Origin
GOOD = Declaration(id="good", version="1")
BUILT_IN = Declaration(id="forged", version="1", origin=Origin.BUILT_IN)
TEXT = "good"
"""


def installed(directory: Path, name: str, **points: str) -> None:
    metadata = directory / f"{name}-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    lines = [f"{point} = {value}" for point, value in points.items()]
    (metadata / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines]) + "\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "made_for_tests.py").write_text(MODULE)
    (tmp_path / "made_to_fail.py").write_text("raise RuntimeError('broken')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in ("made_for_tests", "made_to_fail"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    installed(
        tmp_path,
        "first",
        good="made_for_tests:GOOD",
        forged="made_for_tests:BUILT_IN",
        text="made_for_tests:TEXT",
        renamed="made_for_tests:GOOD",
        broken="made_to_fail:GOOD",
        gone="made_for_tests:NOTHING",
        twice="made_for_tests:GOOD",
    )
    installed(tmp_path, "second", twice="made_for_tests:GOOD")
    return tmp_path


def test_an_installed_extension_is_loaded_once(site: Path) -> None:
    assert [one.id for one in load_third_party(["good", "good"])] == ["good"]
    assert load_third_party([]) == ()
    assert "made_to_fail" not in sys.modules, "nothing runs that was not asked for"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nothing", "is not installed"),
        ("made_for_tests", "is not installed"),
        ("twice", "more than once"),
        ("broken", "fails: broken"),
        ("gone", "fails:"),
        ("forged", "no declaration"),
        ("text", "no declaration"),
        ("renamed", "no declaration"),
    ],
)
def test_anything_else_is_refused_with_the_reason(site: Path, name: str, why: str) -> None:
    with pytest.raises(SubletError, match=why) as caught:
        load_third_party([name])
    assert caught.value.code == LocalCode.UNAVAILABLE
    assert name in str(caught.value)


@pytest.mark.parametrize("name", ["../x", "a.b", "Polls", "a:b", "", "x" * 33, "a\n"])
def test_a_name_is_never_a_path_or_a_module(name: str) -> None:
    with pytest.raises(ValueError, match="extensions"):
        MessagingConfig(extensions=[name])
