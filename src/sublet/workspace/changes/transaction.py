"""Changing many names of a directory as one: all of the steps, or none, whatever ends the process in between.

What is new is prepared in a hidden directory of the directory itself, so that every step is one rename. What a step
displaces goes there, too, and is looked at when nobody else can reach it: if it is not what was planned for, somebody
has changed it meanwhile, and everything is put back. The plan is on the disk before the first step, and says by inode
which file is which, so that ``recover`` can tell what was done.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from sublet.disk.durable import sync_directory
from sublet.disk.openat2 import DIRECTORY_PATH, exchange, rename_noreplace
from sublet.protocol.change_counts import ChangeSetStatus
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.text import clean_name
from sublet.workspace.changes import transaction_plan
from sublet.workspace.changes.apply_dir import ApplyDir, displaced, prepared
from sublet.workspace.changes.edits import Step
from sublet.workspace.changes.transaction_plan import STAGE_PREFIX, GroupName, Plan, PlannedStep
from sublet.workspace.changes.tree import PathContents, Tree

T = TypeVar("T")

PLAN: Final = "plan.json"
DONE: Final = "done.json"
DISPLACED: Final = "displaced"


class ChangedMeanwhileError(Exception):
    """A path was not any more what the plan expects; nothing has been changed."""

    def __init__(self, path: bytes) -> None:
        super().__init__(clean_name(path))
        self.path = path


class StepError(OSError):
    """A step that failed, and the path that it was to change."""

    def __init__(self, path: bytes, cause: OSError) -> None:
        super().__init__(cause.errno, cause.strerror)
        self.path = path


def _named(path: bytes, action: Callable[[], T]) -> T:
    """Return what ``action`` returns; what fails in it names ``path``.

    Raises:
        StepError: the action failed.
    """
    try:
        return action()
    except OSError as exc:
        raise StepError(path, exc) from exc


class Transaction:
    """One change of one directory.

    Args:
        tree: the directory, open; its path is ``root``.
        root: its real path.
        directory: private directory for the plan and, afterwards, for what was displaced.
        on_step: called before each step with its number; tests stop there.
    """

    def __init__(self, tree: Tree, root: Path, directory: Path, on_step: Callable[[int], None] | None = None) -> None:
        self._tree = tree
        self._root = root
        self._directory = directory
        self._on_step = on_step

    def forward(self, steps: list[Step], outcome: ChangeSetStatus, group: GroupName | None = None) -> Plan:
        """Do all of ``steps``, or none. Afterwards ``commit`` or ``abandon`` has to follow; a crash takes it all back.

        Args:
            steps: in order.
            outcome: what the plan says becomes of the change set.
            group: with what other changes it is done or taken back.

        Raises:
            ChangedMeanwhileError: something is not as expected.
            SubletError: ``UNAVAILABLE`` for a full disk and the like.
        """
        status = os.fstat(self._tree.fd)
        name = STAGE_PREFIX + secrets.token_hex(8).encode()
        plan = Plan(self._root, (status.st_dev, status.st_ino), name, "preparing", outcome, (), group)
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._directory / PLAN
        transaction_plan.save(path, plan)
        try:
            with ApplyDir.make(self._tree, name) as apply_dir:
                planned = [
                    _named(step.path, partial(apply_dir.prepare, number, step))
                    for number, step in enumerate(_expanded(steps, apply_dir))
                ]
                apply_dir.sync()
                plan = dataclasses.replace(plan, phase="ready", steps=tuple(planned))
                transaction_plan.save(path, plan)
                self._forward(plan, apply_dir)
        except OSError as exc:
            _abandon(self._tree, plan, path)
            raise unchanged(self._root, exc) from None
        except BaseException:
            _abandon(self._tree, plan, path)
            raise
        return plan

    def commit(self, plan: Plan) -> None:
        """Make ``plan``, which was gone forward with, one that is not taken back any more.

        Raises:
            SubletError: ``UNAVAILABLE`` where that can't be written down; then it is taken back.
        """
        path = self._directory / PLAN
        try:
            transaction_plan.save(path, plan.at("committed"))
        except OSError as exc:
            try:
                # Perhaps it is on the disk all the same, and a crash must not find it so half way back.
                transaction_plan.save(path, plan)
            except OSError as worse:
                raise _left_behind(plan, worse) from None
            _abandon(self._tree, plan, path)
            raise unchanged(self._root, exc) from None

    def abandon(self, plan: Plan) -> None:
        """Take ``plan`` back, which was gone forward with.

        Raises:
            SubletError: ``UNAVAILABLE`` where something can't be put back.
        """
        _abandon(self._tree, plan, self._directory / PLAN)

    def finish(self, plan: Plan) -> None:
        """Tidy up after ``plan``, which was decided; what can't be done now ``recover`` tries again."""
        with contextlib.suppress(OSError):
            finish(self._tree, plan.at("committed"), self._directory)

    def _forward(self, plan: Plan, apply_dir: ApplyDir) -> None:
        for number, step in enumerate(plan.steps):
            if self._on_step is not None:
                self._on_step(number)
            _named(step.path, partial(_do, self._tree, apply_dir.fd, number, step))
        for path in {step.path.rpartition(b"/")[0] for step in plan.steps}:
            with contextlib.suppress(OSError):  # one that was dropped after all
                self._tree.sync(path)


def recover(directory: Path, open_tree: Callable[[Path], Tree], decided: Callable[[GroupName], bool]) -> Plan | None:
    """Finish or take back what a crash has left of a transaction, and return its plan; None where there was none.

    A committed plan is done, also one whose group has decided so; any other is taken back.

    Args:
        directory: as for the ``Transaction``.
        open_tree: opens the plan's directory.
        decided: tells whether a group has decided that its plans are done.

    Raises:
        SubletError: ``UNAVAILABLE`` where the directory is not there any more, or can't be changed.
    """
    try:
        plan = transaction_plan.load(directory / PLAN)
    except FileNotFoundError:
        return None
    try:
        with open_tree(plan.root) as tree:
            status = os.fstat(tree.fd)
            if (status.st_dev, status.st_ino) != plan.identity:
                raise OSError(errno.ESTALE, "it was replaced by another one")
            done = plan.phase == "ready" and plan.group is not None and decided(plan.group)
            if done or plan.phase == "committed":
                finish(tree, plan.at("committed"), directory)
            else:
                _abandon(tree, plan, directory / PLAN)
    except OSError as exc:
        raise _left_behind(plan, exc) from None
    return plan


def _abandon(tree: Tree, plan: Plan, path: Path) -> None:
    try:
        roll_back(tree, plan)
    except OSError as exc:
        raise _left_behind(plan, exc) from None
    path.unlink()


def unchanged(root: Path, exc: OSError) -> SubletError:
    """Return the error of a change that could not be made, and was taken back; it names the file where one failed."""
    where = f"{clean_name(exc.path)}: " if isinstance(exc, StepError) else ""
    return SubletError(
        LocalCode.UNAVAILABLE,
        f"nothing was changed in {clean_name(os.fsencode(root))}: {where}{exc.strerror or exc}",
        "Free space or change permissions there, then try again.",
    )


def _left_behind(plan: Plan, exc: OSError) -> SubletError:
    return SubletError(
        LocalCode.UNAVAILABLE,
        f"a change of {clean_name(os.fsencode(plan.root))} can't be finished or taken back: {exc.strerror}",
        f"What was there before is in its subdirectory {plan.apply_dir.decode()}; "
        "mend the cause and restart the daemon.",
    )


def _expanded(steps: list[Step], apply_dir: ApplyDir) -> Iterator[Step]:
    """Yield the steps, each exchange as two where the file system has none."""
    for step in steps:
        if step.operation == "swap" and not apply_dir.can_exchange:
            yield dataclasses.replace(step, operation="take", make=None)
            yield dataclasses.replace(step, operation="put")
        else:
            yield step


def _do(tree: Tree, apply_dir: int, number: int, step: PlannedStep) -> None:
    new, old = prepared(number), displaced(number)
    try:
        with tree.parent(step.path) as (directory, name):
            if step.operation in ("put", "mkdir"):
                rename_noreplace(apply_dir, new, directory, name)
                return
            if step.operation == "chmod":
                _chmod(tree, directory, name, step)
                return
            if step.operation == "swap":
                exchange(apply_dir, new, directory, name)
                old = new
            else:
                rename_noreplace(directory, name, apply_dir, old)
    except (FileNotFoundError, FileExistsError, NotADirectoryError):
        raise ChangedMeanwhileError(step.path) from None
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            raise ChangedMeanwhileError(step.path) from None
        raise
    if not _as_expected(tree, apply_dir, old, step):
        raise ChangedMeanwhileError(step.path)


def _as_expected(tree: Tree, apply_dir: int, old: bytes, step: PlannedStep) -> bool:
    found = tree.look_in(apply_dir, old)
    if step.operation != "drop":
        return found.kind == step.expect.kind and found.content == step.expect.content
    if found.kind != "directory":
        return False
    fd = os.open(old, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=apply_dir)
    try:
        return not os.listdir(fd)
    finally:
        os.close(fd)


def _chmod(tree: Tree, directory: int, name: bytes, step: PlannedStep) -> None:
    found = tree.look_in(directory, name)
    if found.inode != step.expect.inode or found.content != step.expect.content:
        raise ChangedMeanwhileError(step.path)
    _set_permissions(directory, name, found, step.permissions)


def _set_permissions(directory: int, name: bytes, found: PathContents, permissions: int) -> None:
    # Opened to be looked at only: what nobody may read can be given other permissions all the same.
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        status = os.fstat(fd)
        if status.st_ino == found.inode and not stat.S_ISLNK(status.st_mode):
            os.chmod(f"/proc/self/fd/{fd}", permissions)
    finally:
        os.close(fd)


def roll_back(tree: Tree, plan: Plan) -> None:
    """Put back what the plan's steps have displaced, as far as they were done, and remove what it has prepared.

    Raises:
        OSError: something can't be put back; it stays in the directory that was made for it.
    """
    with contextlib.suppress(FileNotFoundError), ApplyDir.open(tree, plan.apply_dir) as apply_dir:
        for number, step in reversed(list(enumerate(plan.steps))):
            _revert(tree, apply_dir.fd, number, step)
        apply_dir.remove()


def _revert(tree: Tree, apply_dir: int, number: int, step: PlannedStep) -> None:
    new, old = prepared(number), displaced(number)
    if step.operation in ("take", "drop"):
        if tree.look_in(apply_dir, old).kind != "absent":
            _put_back(tree, apply_dir, old, step.path)
    elif step.operation == "chmod":
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), tree.parent(step.path) as (directory, name):
            found = tree.look_in(directory, name)
            if found.inode == step.expect.inode and found.permissions == step.permissions:
                _set_permissions(directory, name, found, step.expect.permissions)
    elif step.operation == "swap":
        there = tree.look_in(apply_dir, new)
        if there.kind == "absent" or there.inode == step.new_inode:
            return  # not done yet
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), tree.parent(step.path) as (directory, name):
            if tree.look_in(directory, name).inode == step.new_inode:
                exchange(apply_dir, new, directory, name)
                return
        _put_back(tree, apply_dir, new, step.path)
    elif tree.look_in(apply_dir, new).kind == "absent":
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), tree.parent(step.path) as (directory, name):
            found = tree.look_in(directory, name)
            if found.inode != step.new_inode or (step.make is not None and found.content != step.make.content):
                return  # somebody else's by now
            if step.operation == "mkdir":
                with contextlib.suppress(OSError):  # somebody has put something there: it is theirs now
                    os.rmdir(name, dir_fd=directory)
            else:
                rename_noreplace(directory, name, apply_dir, new)


def _put_back(tree: Tree, apply_dir: int, old: bytes, path: bytes) -> None:
    """Give what was displaced its place again, or where somebody has taken that, a name beside it."""
    tree.make_directories(path.rpartition(b"/")[0])
    for suffix in (b"", b".before-apply", b".before-apply-" + secrets.token_hex(4).encode()):
        with tree.parent(path) as (directory, name), contextlib.suppress(FileExistsError):
            rename_noreplace(apply_dir, old, directory, name[: 255 - len(suffix)] + suffix)
            return
    raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))


def finish(tree: Tree, plan: Plan, directory: Path) -> None:
    """Keep what a committed plan has displaced in ``directory``, and remove the apply directory.

    It can be repeated after a crash.

    Raises:
        OSError: it can't be moved; that directory stays.
    """
    keep = directory / DISPLACED
    keep.mkdir(mode=0o700, exist_ok=True)
    with contextlib.suppress(FileNotFoundError), ApplyDir.open(tree, plan.apply_dir) as apply_dir:
        target = os.open(keep, DIRECTORY_PATH)
        try:
            for number, step in enumerate(plan.steps):
                if step.operation in ("take", "swap"):
                    apply_dir.keep(displaced(number) if step.operation == "take" else prepared(number), target, number)
        finally:
            os.close(target)
        apply_dir.remove()
    sync_directory(keep)
    transaction_plan.save(directory / DONE, plan)
    with contextlib.suppress(FileNotFoundError):
        (directory / PLAN).unlink()
