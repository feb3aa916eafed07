"""Probes of what an executor leaves in a repository, and of what is read of indexes, snapshots and moved files."""

from __future__ import annotations

from functools import partial

from attacks import test_repository_left
from attacks.kit.as_probe import throwing
from attacks.probe import FailureProbe, Probe
from workspace.audit import test_blob_reader
from workspace.git import test_split_index, test_take
from workspace.kept import test_blocks

PROBES: tuple[Probe, ...] = (
    FailureProbe(
        name="repository: locks that an executor leaves",
        covers=("workspace.confined.left_drafts:_remove",),
        throw=throwing(test_repository_left.test_what_can_not_be_removed_is_told_within_bounds),
    ),
    FailureProbe(
        name="repository: a split index, and what it is a part of",
        covers=(
            "disk.plain_file:read_beginning",
            "workspace.git.index:_link",
            "workspace.git.split_index:_set_bits",
            "workspace.git.take:Looking._shared",
        ),
        throw=throwing(
            test_split_index.test_an_index_that_git_has_split_is_read_as_git_lists_it,
            test_take.test_a_shared_part_is_read_only_where_it_is_a_file_of_the_repository,
        ),
    ),
    FailureProbe(
        name="audit: a git that does not answer as it should",
        covers=(
            "workspace.audit.blob_reader:BlobReader._line",
            "workspace.audit.blob_reader:BlobReader._more",
            "workspace.audit.blob_reader:BlobReader._pass_over",
            "workspace.audit.blob_reader:BlobReader._take",
        ),
        throw=throwing(
            partial(
                test_blob_reader.test_what_is_larger_than_wanted_is_passed_over_and_the_next_is_read,
                large=test_blob_reader.HUGE,
                starts=2,
            ),
            partial(test_blob_reader.test_a_torn_answer_is_no_content, script="read a"),
        ),
    ),
    FailureProbe(
        name="kept: a moved file that another has changed",
        covers=("workspace.changes.befores:Befores._moved",),
        throw=throwing(
            partial(
                test_blocks.test_a_huge_file_that_was_only_moved_comes_back_unless_somebody_else_changed_it,
                then="changed",
            )
        ),
    ),
)
