"""How the command line's packages lie: no circle of imports, modules of a bearable size, one name for one thing."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp

import sublet.cli

SOURCE = Path(sublet.cli.__file__).parent
MAX_LINES = 400


def test_no_import_goes_in_a_circle_not_even_of_types() -> None:
    graph = grimp.build_graph("sublet", cache_dir=None)
    ours = {module for module in graph.modules if module.startswith("sublet.cli.")}
    imported = {module: graph.find_modules_directly_imported_by(module) & ours for module in ours}
    try:
        TopologicalSorter(imported).prepare()
    except CycleError as error:
        raise AssertionError(error.args[1]) from None


def test_commands_are_found_in_packages_and_loosely_there_is_only_the_way_to_them() -> None:
    loose = {file.stem for file in SOURCE.glob("*.py")} - {"__init__"}
    assert loose == {"app", "command_table", "dashes", "entry", "errors", "help", "standard_streams"}
    assert [file.name for file in (SOURCE / "commands").glob("*.py")] == ["__init__.py"]


def test_modules_are_named_for_what_they_hold_and_not_for_their_kind() -> None:
    """Their package says the kind already."""
    wrong = [file.name for file in SOURCE.rglob("*.py") if file.stem.endswith(("_cmd", "_cmds", "_options"))]
    assert wrong + [file.name for file in SOURCE.rglob("render_*.py")] == []


def test_no_module_is_too_long() -> None:
    counted = {file.name: len(file.read_text(encoding="utf-8").splitlines()) for file in SOURCE.rglob("*.py")}
    assert {name: lines for name, lines in counted.items() if lines > MAX_LINES} == {}
