"""Which questions are about looking only: their answer changes nothing, whatever it is."""

from __future__ import annotations

from typing import Final

from sublet.policy.decision import Action, Resource
from sublet.policy.tool_names import LOOKING_TOOLS, tool_plain

_LISTED: Final = frozenset({Action.PEER_MANAGE, Action.TOKEN_MANAGE, Action.LEND_ROOT_MANAGE})
"""Asked for ``*``, they list."""
_LOOKS: Final = frozenset({"status", "doctor"})


def only_looks(action: Action, resource: Resource) -> bool:
    """Tell whether ``action`` on ``resource`` changes nothing here or elsewhere."""
    if action.value.endswith(".read") or action in (Action.DELEGATION_REVIEW, Action.OFFICE_LOOK):
        return True
    if action in _LISTED:
        return resource.name == "*"
    if action is Action.DAEMON_CONTROL:
        return resource.name in _LOOKS
    return action is Action.TOOL_CALL and tool_plain(resource.name) in LOOKING_TOOLS


def may_only_look(action: Action) -> bool:
    """Tell whether ``action`` changes nothing on some resource at least."""
    return (
        action in _LISTED
        or action in (Action.DAEMON_CONTROL, Action.TOOL_CALL, Action.DELEGATION_REVIEW)
        or only_looks(action, Resource("*"))
    )
