"""What hooks put off until the change that they were told of is durable, such as writes of their own.

Rules: it runs on the engine's thread after the commit; of several values for one field the last is written. What is
refused then is logged, since whoever made the first change has its answer. Weak: what was put off is lost when the
daemon is killed before it runs.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from sublet.messaging.schema.fields import Written
from sublet.messaging.writing.writing import Writing
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.ids import EntityId, RefId

log = structlog.get_logger(__name__)


class Later:
    """What is put off.

    Args:
        writing: writes fields.
    """

    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        self._waiting: list[Callable[[], object]] = []
        self._fields: dict[tuple[EntityId, str, RefId | None, tuple[str, ...]], Written] = {}

    def after_commit(self, run: Callable[[], object]) -> None:
        """Put something off until what is being written is durable."""
        self._waiting.append(run)

    def set_field(
        self, entity: EntityId, doc_id: str, target: RefId | None, path: tuple[str, ...], value: Written
    ) -> None:
        """Put off writing a field; of several values the last one is written."""
        key = (entity, doc_id, target, path)
        if key not in self._fields:
            self.after_commit(lambda: self._writing.set_field(*key, self._fields.pop(key)))
        self._fields[key] = value

    def run(self) -> bool:
        """Run what was put off; tell whether there was any."""
        waiting, self._waiting = self._waiting, []
        for run in waiting:
            try:
                run()
            except SubletError as error:
                log.warning("what a hook wrote was refused", error=str(error))
        return bool(waiting)

    def forget(self) -> None:
        """Forget what was put off, after a commit that failed."""
        self._waiting.clear()
        self._fields.clear()
