"""All that a third party's extension imports, under one name that stays (docs/extensions.md)."""

from __future__ import annotations

from sublet.messaging.declaring.after_read import AfterRead
from sublet.messaging.declaring.after_write import AfterWrite
from sublet.messaging.declaring.asking import AskingContext
from sublet.messaging.declaring.declaration import (
    AfterReadHook,
    AfterWriteHook,
    Declaration,
    Hooks,
    Index,
    Operation,
    PreSendHook,
    Refresh,
    Trigger,
)
from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.declaring.pre_send import PreSend
from sublet.messaging.ports.rows import IndexEntry
from sublet.messaging.schema.changes import Happened, Intent
from sublet.messaging.schema.datatypes import Annotation, AnnotationPlace, Change, Datatype
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.roots import StorageType

__all__ = (
    "AfterRead",
    "AfterReadHook",
    "AfterWrite",
    "AfterWriteHook",
    "Annotation",
    "AnnotationPlace",
    "AskingContext",
    "Change",
    "Datatype",
    "Declaration",
    "Happened",
    "Hooks",
    "Index",
    "IndexEntry",
    "Intent",
    "LocalCode",
    "Operation",
    "OperationContext",
    "PreSend",
    "PreSendHook",
    "Refresh",
    "StorageType",
    "SubletError",
    "Trigger",
    "doc_id",
)
