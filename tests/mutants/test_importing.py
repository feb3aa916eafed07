"""What can be imported before a module is changed: all that does not import it."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from mutants.decides import PACKAGE
from mutants.importing import _at_load, importers, name_of


def test_a_module_and_a_package_have_their_names() -> None:
    assert name_of("policy/globs.py") == "sublet.policy.globs"
    assert name_of("policy/__init__.py") == "sublet.policy"


def test_only_what_runs_as_a_module_is_loaded_is_looked_at() -> None:
    text = """
import one
if TYPE_CHECKING:
    import two
else:
    import three
class Some:
    import four
    def method(self):
        import five
"""
    names = {node.names[0].name for node in _at_load(ast.parse(text)) if isinstance(node, ast.Import)}
    assert names == {"one", "three", "four"}


@pytest.mark.parametrize("file", ["policy/globs.py", "supervisor/router/syntax.py", "protocol/canonical.py"])
def test_all_others_are_loaded_without_it(file: str) -> None:
    name = name_of(file)
    apart = importers(name)
    assert name in apart
    all_ours = {name_of(path.relative_to(PACKAGE).as_posix()) for path in PACKAGE.rglob("*.py")}
    area = {one for one in all_ours if one.split(".")[1:2] in (["protocol"], ["policy"], ["supervisor"])}
    others = sorted(one for one in area - apart if not one.endswith("__main__"))
    assert len(others) > 10
    text = f"""
import importlib, sys
for one in {others!r}:
    importlib.import_module(one)
print(sorted(set({sorted(apart)!r}) & sys.modules.keys()))
"""
    told = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert told.stdout == "[]\n"
