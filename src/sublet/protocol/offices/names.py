"""Names on the wire of A2C-SMCP 0.4: the namespace, the events and the codes."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

NAMESPACE: Final = "/smcp"
SOCKET_PATH: Final = "/socket.io/"
VERSION_FIELD: Final = "a2c_version"
TOKEN_FIELD: Final = "token"  # noqa: S105 - the name of a field, not a secret
DEFAULT_PROTOCOL_VERSION: Final = "0.4.0"

NOT_FOUND: Final = 404
BAD_REQUEST: Final = 400
TOO_MANY: Final = 429
VERSION_MISMATCH: Final = 4008
BLOB_NOT_ACCESSIBLE: Final = 4018
BLOB_WRITE_FAILED: Final = 4019


class Role(StrEnum):
    """What a member of an office is."""

    AGENT = "agent"
    COMPUTER = "computer"


class ServerEvent(StrEnum):
    """What a client asks of the server itself."""

    JOIN = "server:join_office"
    LEAVE = "server:leave_office"
    LIST_ROOM = "server:list_room"
    UPDATE_CONFIG = "server:update_config"
    UPDATE_TOOL_LIST = "server:update_tool_list"
    UPDATE_DESKTOP = "server:update_desktop"
    UPDATE_SKILLS = "server:update_skills"
    CANCEL = "server:tool_call_cancel"


class ClientEvent(StrEnum):
    """What an Agent asks of a Computer, by way of the server."""

    TOOL_CALL = "client:tool_call"
    GET_TOOLS = "client:get_tools"
    GET_CONFIG = "client:get_config"
    GET_DESKTOP = "client:get_desktop"
    GET_RESOURCES = "client:get_resources"
    GET_SKILLS = "client:get_skills"
    GET_SKILL = "client:get_skill"
    GET_BLOB = "client:get_blob"
    PUT_BLOB = "client:put_blob"


class Notice(StrEnum):
    """What the server tells the other members of an office."""

    ENTER = "notify:enter_office"
    LEAVE = "notify:leave_office"
    UPDATE_CONFIG = "notify:update_config"
    UPDATE_TOOL_LIST = "notify:update_tool_list"
    UPDATE_DESKTOP = "notify:update_desktop"
    UPDATE_SKILLS = "notify:update_skills"
    CANCEL = "notify:tool_call_cancel"


UPDATES: Final = {
    ServerEvent.UPDATE_CONFIG: Notice.UPDATE_CONFIG,
    ServerEvent.UPDATE_TOOL_LIST: Notice.UPDATE_TOOL_LIST,
    ServerEvent.UPDATE_DESKTOP: Notice.UPDATE_DESKTOP,
    ServerEvent.UPDATE_SKILLS: Notice.UPDATE_SKILLS,
}
"""Which notice an update of a Computer becomes."""
