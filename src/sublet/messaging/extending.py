"""All that a third party's extension imports, under one name that stays (docs/extensions.md)."""

from __future__ import annotations

from sublet.messaging.declaring.asking import AskingContext
from sublet.messaging.declaring.contexts import AfterRead, AfterWrite, Happened, Intent, PreSend
from sublet.messaging.declaring.declaration import (
    AfterReadHook,
    AfterWriteHook,
    Annotation,
    AnnotationPlace,
    Change,
    Datatype,
    Declaration,
    Hooks,
    Index,
    Operation,
    PreSendHook,
    Refresh,
    Trigger,
)
from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.ports.store import IndexEntry
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
