"""What a route is decided from: its defaults, its bounds, and how it is written."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from sublet.supervisor.router.route import (
    MAX_CANDIDATES,
    MAX_MODULES,
    MAX_OPTIONS,
    MAX_REPLY_CHARS,
    MAX_TEXT_JOURNALLED,
    Asker,
    Candidate,
    Classification,
    GivenAnswer,
    Route,
    RouterConfig,
    RouteRequest,
    RouterPart,
    SkillFacts,
)

LEAST: dict[type[RouterPart], dict[str, Any]] = {
    SkillFacts: {"id": "x"},
    Candidate: {"agentId": "x"},
    RouterConfig: {},
    RouteRequest: {"text": ""},
    Asker: {"kind": "human", "action": "", "at": 0.5},
    GivenAnswer: {"text": ""},
    Route: {"decision": "reject", "confidence": 0.5, "reason": "", "rule": "none"},
    Classification: {"decision": "reject", "confidence": 0.5},
}
DEFAULTS: dict[type[RouterPart], dict[str, Any]] = {
    SkillFacts: {"name": "", "description": "", "tags": ()},
    Candidate: {"role": "", "provider": "", "skills": (), "cost": 1, "trust": 1, "load": 0, "denied": ""},
    RouterConfig: {"defaultRoute": "", "defaultProvider": "", "minConfidence": 0.4, "remember": True, "hub": True},
    RouteRequest: {
        "agent": "",
        "candidates": (),
        "modules": (),
        "lastRoute": None,
        "snapshotChanged": False,
        "config": {"defaultRoute": "", "defaultProvider": "", "minConfidence": 0.4, "remember": True, "hub": True},
    },
    Asker: {"name": "", "role": ""},
    GivenAnswer: {"options": ()},
    Route: {"target": "", "message": "", "options": ()},
    Classification: {"target": "", "reason": "", "reply": ""},
}


@pytest.mark.parametrize("model", LEAST)
def test_what_is_left_out_has_its_default(model: type[RouterPart]) -> None:
    made = model.model_validate(LEAST[model])
    assert made.model_dump(by_alias=True) == {**LEAST[model], **DEFAULTS[model]}
    assert model(**made.model_dump()) == made  # by the names of Python as well
    with pytest.raises(ValidationError, match="frozen"):
        setattr(made, next(iter(type(made).model_fields)), "x")
    with pytest.raises(ValidationError, match="Extra inputs"):
        model.model_validate({**LEAST[model], "other": 1})


def test_a_model_is_made_when_it_is_needed() -> None:
    class Part(RouterPart):
        """Not used."""

        one: int

    assert not Part.__pydantic_complete__  # the command line starts without it


@pytest.mark.parametrize(
    ("model", "field", "values", "others"),
    [
        (SkillFacts, "id", ["x" * 200, "x"], ["x" * 201, ""]),
        (SkillFacts, "name", ["x" * 500], ["x" * 501]),
        (SkillFacts, "description", ["x" * 500], ["x" * 501]),
        (SkillFacts, "tags", [[""] * 32], [[""] * 33, ["x" * 501]]),
        (Candidate, "agentId", ["x" * 200], ["", "x" * 201]),
        (Candidate, "skills", [[{"id": "x"}] * 64], [[{"id": "x"}] * 65]),
        (Candidate, "cost", [0, 1_000_000], [-0.1, 1_000_000.5]),
        (Candidate, "trust", [0, 0.5, 1], [-0.1, 1.1]),
        (Candidate, "load", [0, 5], [-0.1]),
        (RouterConfig, "minConfidence", [0, 1], [-0.1, 1.1]),
        (RouteRequest, "candidates", [[{"agentId": "x"}] * 64], [[{"agentId": "x"}] * 65]),
        (RouteRequest, "modules", [["x"] * 256], [["x"] * 257, [""]]),
        (GivenAnswer, "options", [["x"] * 8], [["x"] * 9, [""]]),
        (Route, "options", [["x"] * 8], [["x"] * 9, [""]]),
        (Route, "confidence", [0, 1], [-0.1, 1.1]),
        (Classification, "reason", ["x" * 300], ["x" * 301]),
        (Classification, "reply", ["x" * 4000], ["x" * 4001]),
    ],
)
def test_bounds(model: type[RouterPart], field: str, values: list[object], others: list[object]) -> None:
    for value in values:
        model.model_validate({**LEAST[model], field: value})
    for value in others:
        with pytest.raises(ValidationError):
            model.model_validate({**LEAST[model], field: value})


def test_the_bounds_that_others_keep() -> None:
    assert (MAX_CANDIDATES, MAX_MODULES, MAX_OPTIONS, MAX_REPLY_CHARS) == (64, 256, 8, 4000)
    assert MAX_TEXT_JOURNALLED == 20_000  # what is kept of a request, which a replay decides from
