from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sublet.daemon.config import paths
from sublet.daemon.config.paths import MAX_SOCKET_PATH, resolve_home
from sublet.protocol.errors import LocalCode, SubletError


def test_sublet_home_puts_everything_below_one_directory(tmp_path: Path) -> None:
    home = resolve_home({"SUBLET_HOME": str(tmp_path), "XDG_RUNTIME_DIR": "/run/user/1"})
    home.make()
    assert home.control_socket == f"{tmp_path}/run/control.sock"
    for directory in (home.config_dir, home.state_dir, home.runtime_dir):
        assert Path(directory).parent == tmp_path
        assert Path(directory).stat().st_mode & 0o777 == 0o700


def test_xdg_directories(tmp_path: Path) -> None:
    home = resolve_home({"HOME": "/home/u", "XDG_RUNTIME_DIR": "/run/user/7/", "XDG_CONFIG_HOME": "relative"})
    assert home.config_dir == "/home/u/.config/sublet"
    assert home.state_dir == "/home/u/.local/state/sublet"
    assert home.runtime_dir == "/run/user/7/sublet"
    assert resolve_home({"HOME": "/home/u"}).runtime_dir == "/home/u/.local/state/sublet/run"


def test_too_long_a_path_gets_a_private_substitute_that_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "FALLBACK_PARENT", str(tmp_path))
    monkeypatch.setattr(paths, "MAX_SOCKET_PATH", len(str(tmp_path)) + 50)
    deep = tmp_path / ("d" * 60)
    home = resolve_home({"SUBLET_HOME": str(deep)})
    assert home.temporary
    assert home.runtime_dir == resolve_home({"SUBLET_HOME": str(deep)}).runtime_dir
    assert home.runtime_dir != resolve_home({"SUBLET_HOME": str(deep) + "x"}).runtime_dir
    home.make()
    Path(home.control_socket).touch()
    home.clean_up()
    assert not Path(home.runtime_dir).exists()
    home.clean_up()


def test_substitute_fits_the_limit(tmp_path: Path) -> None:
    home = resolve_home({"SUBLET_HOME": "/" + "d" * 200})
    assert home.runtime_dir.startswith("/tmp/sublet-")
    assert len(os.fsencode(home.control_socket)) <= MAX_SOCKET_PATH


def test_a_squatted_runtime_directory_is_refused(tmp_path: Path) -> None:
    home = resolve_home({"SUBLET_HOME": str(tmp_path)})
    os.mkdir(home.runtime_dir, 0o777)
    os.chmod(home.runtime_dir, 0o777)
    with pytest.raises(SubletError) as refused:
        home.make()
    assert refused.value.code is LocalCode.UNAVAILABLE
    with pytest.raises(SubletError, match="others may enter"):
        home.verify_runtime()
    os.rmdir(home.runtime_dir)
    assert home.verify_runtime() is False
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    os.symlink(tmp_path / "elsewhere", home.runtime_dir)
    with pytest.raises(SubletError, match="not a directory"):
        home.verify_runtime()


def test_a_home_that_is_a_file_is_refused_with_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    home = resolve_home({"SUBLET_HOME": str(tmp_path / "file")})
    with pytest.raises(SubletError, match="Not a directory") as refused:
        home.verify_runtime()
    assert refused.value.code is LocalCode.UNAVAILABLE


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_a_runtime_directory_of_someone_else_is_refused(tmp_path: Path) -> None:
    home = resolve_home({"SUBLET_HOME": str(tmp_path)})
    os.mkdir(home.runtime_dir, 0o700)
    os.chown(home.runtime_dir, 12345, 12345)
    with pytest.raises(SubletError, match="belongs to user 12345"):
        home.verify_runtime()


def test_the_relay_pays_for_nothing_but_os() -> None:
    heavy = {"typing", "dataclasses", "pathlib", "enum", "json", "hashlib", "tempfile"}
    source = Path(paths.__file__)
    code = (
        "import sys, importlib.util as u\n"
        "before = set(sys.modules)\n"
        f"spec = u.spec_from_file_location('paths', {str(source)!r})\n"
        "m = u.module_from_spec(spec); spec.loader.exec_module(m); m.resolve_home()\n"
        "print(' '.join(sorted(set(sys.modules) - before)))\n"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert not heavy & set(done.stdout.split())
