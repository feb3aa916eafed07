"""The documents of the control API are those of the code, and complete."""

from __future__ import annotations

import json
import re
from pathlib import Path

from sublet.daemon.api.operation import AsksInside
from sublet.daemon.operations.document import declarations, markdown, openapi, title_of

DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_and_the_openapi_document_are_drawn_from_the_code() -> None:
    assert (DOCS / "control-api.md").read_text(encoding="utf-8") == markdown(), "run `make documents`"
    assert (DOCS / "openapi.json").read_text(encoding="utf-8") == openapi(), "run `make documents`"


def test_every_operation_says_what_it_does_and_what_it_asks() -> None:
    names = []
    for module, stated in declarations():
        assert (module.__doc__ or "").startswith("Operations on "), module.__name__
        assert title_of(module)
        for constant, one in stated.items():
            names.append(one.name)
            assert constant == constant.upper()
            assert re.fullmatch(r"[a-z_]+\.[a-z_]+", one.name)
            assert re.fullmatch(r"[A-Z][^\n]*\.", one.summary), one.name
            assert one.path.startswith("/v1/")
            if isinstance(one.asks, AsksInside):
                assert one.asks.actions
                assert len(one.asks.reason) > 20
    assert len(set(names)) == len(names)


def test_every_reference_of_the_openapi_document_leads_somewhere() -> None:
    document = json.loads(openapi())
    schemas = document["components"]["schemas"]
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', openapi()))
    assert references == set(schemas)
    for path, items in document["paths"].items():
        for item in items.values():
            given = {one["name"] for one in item["parameters"] if one["in"] == "path"}
            assert given == set(re.findall(r"{(\w+)}", path))
