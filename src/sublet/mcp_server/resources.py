"""Delegations as MCP resources, ``sublet://delegations/{id}``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mcp.types as t

from sublet.daemon.api.delegation_fields import ListNewest, OneDelegation
from sublet.daemon.api.delegations import GET_DELEGATION, LIST_DELEGATIONS
from sublet.mcp_server.present import present
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ids import WIRE_DELEGATION_ID
from sublet.protocol.text import clean_line

if TYPE_CHECKING:
    from sublet.daemon.operations.calling import Calls

URI_PREFIX = "sublet://delegations/"
URI_TEMPLATE = URI_PREFIX + "{id}"
MAX_LISTED = 50
MAX_TITLE_CHARS = 100


def uri_of(delegation_id: str) -> str:
    """Return the resource of a delegation."""
    return URI_PREFIX + delegation_id


def delegation_id_of(uri: str) -> str:
    """Return the delegation that ``uri`` names.

    Raises:
        SubletError: ``NOT_FOUND`` for anything but a delegation's resource.
    """
    found = uri.removeprefix(URI_PREFIX)
    if found == uri or WIRE_DELEGATION_ID.match(found) is None:
        raise SubletError(LocalCode.NOT_FOUND, "there is no such resource", f"Resources look like {URI_TEMPLATE}.")
    return found


async def resource_page(calls: Calls, before: str | None) -> tuple[list[t.Resource], str | None]:
    """Return a page of delegations as resources, the newest first, and the one before which the next page begins.

    Args:
        calls: asks as the host.
        before: the delegation with which the page before ended.
    """
    views = await calls.call(LIST_DELEGATIONS, ListNewest(limit=MAX_LISTED, before=before))
    found = [
        t.Resource(
            uri=uri_of(view.delegation_id),
            name=view.delegation_id,
            title=f"{view.state}: {clean_line(view.description, MAX_TITLE_CHARS)}",
            description=f"Delegation to {view.peer}",
            mime_type="text/plain",
        )
        for view in views
    ]
    return found, views[-1].delegation_id if len(views) == MAX_LISTED else None


async def read_resource(calls: Calls, uri: str) -> t.ReadResourceResult:
    """Return the delegation that ``uri`` names as text, the peer's part of it quoted and labelled."""
    view = await calls.call(GET_DELEGATION, OneDelegation(delegation_id=delegation_id_of(uri)))
    text = t.TextResourceContents(uri=uri, mime_type="text/plain", text=present(view).as_text())
    return t.ReadResourceResult(contents=[text])
