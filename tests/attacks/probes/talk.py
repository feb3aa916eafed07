"""Failures in rooms: messages that are lost, doubled or late, files that are no files, and nobody who answers."""

from __future__ import annotations

from collections.abc import Sequence

from attacks.kit.as_probe import throwing
from attacks.probe import FailureProbe, Probe
from daemon.rooms import test_work_talk
from messaging import test_service
from messaging.extensions import test_collab, test_media, test_threads, test_watch

PROBES: Sequence[Probe] = (
    FailureProbe(
        name="rooms: a question of an agent that nobody answers",
        covers=("daemon.rooms.work_talk:WorkTalk.ask",),
        throw=throwing(
            test_work_talk.test_only_the_lending_side_answers_and_the_question_is_put_once,
            test_work_talk.test_a_follow_up_that_comes_while_it_asks_is_the_answer,
        ),
    ),
    FailureProbe(
        name="rooms: what is lost or doubled, and an index that fails",
        covers=("messaging.syncing.sync:Sync.run", "messaging.engine.rebuilding:rebuild_again"),
        throw=throwing(
            test_service.test_what_is_lost_or_doubled_is_healed,
            test_service.test_a_periodic_index_is_made_anew_even_after_it_failed,
        ),
    ),
    FailureProbe(
        name="rooms: what comes in place of a file",
        covers=("messaging.extensions.media:_fetched",),
        throw=throwing(test_media.test_what_comes_in_place_of_a_file_is_not_kept),
    ),
    FailureProbe(
        name="rooms: texts, threads and watches of many",
        covers=("messaging.texts.texts:Texts._current",),
        throw=throwing(
            test_collab.test_whoever_is_taken_off_the_list_keeps_what_was_written_by_then,
            test_threads.test_long_threads_are_read_by_pages,
            test_watch.test_watches_are_listed_and_end,
        ),
    ),
)
