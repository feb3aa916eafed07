"""What A2A does to a data part on its way."""

from __future__ import annotations

from typing import cast

from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Struct

from sublet.protocol.canonical import JsonValue


def through_struct(body: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return ``body`` as it arrives: through protobuf's bytes, every number a double, keys in any order."""
    sent = ParseDict(body, Struct())
    return cast("dict[str, JsonValue]", MessageToDict(Struct.FromString(sent.SerializeToString())))
