"""Costs of what policy compares of calls that agents and callers word themselves."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from attacks.probe import CostProbe, FailureProbe, Probe
from sublet.policy.commands import command_matcher, words
from sublet.policy.guardrail.guard import guarded
from sublet.policy.guardrail.options import GuardOptions, GuardrailFailed
from sublet.policy.path_denies import PathDenies
from sublet.policy.paths import lent_paths, touched_by
from sublet.policy.rules import Condition
from sublet.policy.tool_names import tool_defect, tool_exacts, tool_skeletons
from sublet.protocol.documents import Documented
from sublet.protocol.patterns import glob_source
from sublet.supervisor import closed_paths


def _tree(number: int) -> tuple[list[Path], PathDenies]:
    root = Path(tempfile.mkdtemp(prefix="probe-"))
    for one in range(number):
        (root / f"f{one}").touch()
    return [root], PathDenies([Condition(glob="**/.env")], [Condition(scopes=("infra",))])


async def _never_good(reply: str) -> None:
    """Have an agent that never answers as it has to asked again, as often as that is done."""

    async def ask(prompt: str) -> str:
        return reply

    async def emit(event: Documented) -> None:
        """Keep nothing."""

    with pytest.raises(GuardrailFailed):
        await guarded(ask, "Count.", {"type": "integer"}, GuardOptions(), emit)


async def _swapped() -> None:
    """Take a directory away, or put a link in its place, while what a sandbox has to close is looked for."""
    with tempfile.TemporaryDirectory(prefix="probe-") as name:
        root, outside = Path(name, "lent"), Path(name, "outside")
        for directory in (root / "a", root / "b", outside):
            directory.mkdir(parents=True)
            (directory / ".env").touch()
        denies = _Swapping(root, outside)
        with pytest.raises(OSError, match=r"symbolic link|Not a directory"):
            closed_paths._closed([root], denies)
        assert denies.seen == {"a", "b"}
        (root / "a").unlink()
        found = closed_paths._closed([root], PathDenies([Condition(glob="**/.env")], []))
        assert [one.path for one in found] == [root / "b/.env"]


class _Swapping(PathDenies):
    """Puts a link in the place of a directory as soon as both were seen."""

    def __init__(self, root: Path, outside: Path) -> None:
        super().__init__([Condition(glob="**/.env")], [])
        self._root, self._outside = root, outside
        self.seen: set[str] = set()

    def below(self, directory: str) -> bool:
        self.seen.add(directory)
        if self.seen == {"a", "b"} and not (self._root / "a").is_symlink():
            shutil.rmtree(self._root / "a")
            (self._root / "a").symlink_to(self._outside)
        return True


PROBES: Sequence[Probe] = (
    CostProbe(
        name="policy: a glob with brackets that end nowhere",
        covers=("protocol.patterns:_glob_pieces",),
        make=lambda size: "[*" * (size // 2),
        run=glob_source,
    ),
    FailureProbe(
        name="policy: directories that become links while they are looked through",
        covers=("supervisor.closed_paths:_closed", "supervisor.closed_paths:_Looking.below"),
        throw=_swapped,
    ),
    CostProbe(
        name="policy: a long command line",
        covers=("policy.commands:words",),
        make=lambda number: "make " + "'a b' x " * number,
        run=words,
        size=1_024,
    ),
    CostProbe(
        name="policy: a command of many words",
        covers=("policy.commands:command_matcher", "policy.commands:_text"),
        make=lambda number: ["make", *["x"] * number],
        run=lambda command: command_matcher("/make * y * z")(command),
        size=1_024,
    ),
    CostProbe(
        name="policy: a long name of a tool",
        covers=("policy.tool_names:tool_defect", "policy.tool_names:tool_exacts", "policy.tool_names:tool_skeletons"),
        make=lambda number: "acp." + "a." * number,
        run=lambda name: (tool_exacts(name), tool_skeletons(name), tool_defect(name)),
        size=1_024,
    ),
    CostProbe(
        name="policy: paths of a call",
        covers=("policy.paths:lent_paths", "policy.paths:touched_by"),
        make=lambda number: "a/../" * number,
        run=lambda path: (touched_by("file.read", {"path": path}), lent_paths([f"workspace/{path}"], ["workspace"])),
        size=1_024,
    ),
    CostProbe(
        name="policy: answers that never satisfy their schema",
        covers=("policy.guardrail.guard:guarded",),
        make=lambda number: '["' + "x" * number,
        run=lambda reply: anyio.run(_never_good, reply),
        size=4_096,
        most=1 << 20,
    ),
    CostProbe(
        name="policy: what a sandbox has to close",
        covers=("supervisor.closed_paths:_closed",),
        make=_tree,
        run=lambda given: closed_paths._closed(*given),
        size=64,
    ),
)
