"""The commands of the written pages, run as they stand by two people at two machines; output is compared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.namespaces import needs_root
from support.pages.fences import PAGES, ROOT, fences
from support.pages.stage import Stage, stage_of, staged, stages

PLAYED = [page for page in PAGES if any(fence.is_run or fence.noted("output of") for fence in fences(page))]


@pytest.fixture(scope="module")
def shared_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("stage")) as stage:
        stage.prepare(dict(reversed(stages()["shared"].items())), stages()["placeholders"])
        yield stage


@needs_root
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PLAYED, ids=lambda page: page.name)
def test_the_commands_of_a_page_work_in_their_order(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    told = stage_of(page.relative_to(ROOT).as_posix())
    if "own" not in told:
        stage: Stage = request.getfixturevalue("shared_stage")
        for fence in fences(page):
            stage.play(fence, told)
        return
    with staged(tmp_path) as stage:
        stage.prepare(dict(sorted(told["own"].items(), reverse=True)), told["placeholders"])
        for fence in fences(page):
            stage.play(fence, told)
