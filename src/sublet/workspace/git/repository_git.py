"""Git on the delegator's own repository, in two sandboxes: one that reads objects, one that sees the references.

Executors may have added objects to the repository, so git reads them in a repository of ours, beside which the objects
of the delegator's can only be read. Only what has to see references sees them, and may write below ``refs/heads``. The
repository's configuration, hooks, attributes, replacements and grafts are seen by neither.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.git.place import RepositoryPlace
from sublet.workspace.git_runner import GitEnded, finish_git, git_environment, nameless_beside, start_git
from sublet.workspace.sandbox.git_sandbox import GitSandbox, git_variables

GIT_SECONDS: Final = 120.0
MAX_ANSWER_BYTES: Final = 4096
"""What git may say that does not go to a file: names of objects."""


class RepositoryGit:
    """Runs scripts of ours on one repository. Every method blocks: call it in a thread.

    Args:
        place: the delegator's repository.
        directory: a private and empty one, for this alone.
        sandbox: what git runs in.
        what_for: what can't be done without a sandbox, as it begins the message.

    Raises:
        SubletError: ``DEP_MISSING`` where git can't be confined.
    """

    def __init__(self, place: RepositoryPlace, directory: Path, sandbox: GitSandbox, what_for: str) -> None:
        sandbox.check(what_for)
        self.place = place
        self.own = directory / "own"
        """A repository of ours, which git may change."""
        self._directory = directory
        self._sandbox = sandbox
        for name in ("objects/pack", "objects/info", "refs/heads"):
            (self.own / name).mkdir(mode=0o700, parents=True)
        sha256 = b"sha256" in place.config.copy
        kind = "\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = sha256\n" if sha256 else ""
        (self.own / "HEAD").write_text("ref: refs/heads/result\n")
        (self.own / "config").write_text(f"[core]\n\tbare = true\n{kind}[fastimport]\n\tunpackLimit = 100000000\n")
        (directory / "config").write_bytes(place.config.copy)

    def on_objects(
        self, script: str, *arguments: str, stdin: IO[bytes] | None = None, stdout: IO[bytes] | None = None
    ) -> GitEnded:
        """Run a script that reads the delegator's objects, and makes new ones in ``own``.

        Args:
            script: as ``GitSandbox.wrap`` takes it.
            arguments: what varies of it.
            stdin: a file to read from.
            stdout: a file for what git says.

        Raises:
            SubletError: ``UNAVAILABLE`` where it takes too long.
        """
        objects = [self.place.objects, *self.place.alternates]
        environment = {
            "GIT_DIR": str(self.own),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": os.pathsep.join(_listed(path) for path in objects),
        }
        argv = self._sandbox.wrap(script, arguments, writable=[self.own], readable=objects)
        return self._run(argv, environment, stdin, stdout)

    def on_references(self, script: str, *arguments: str) -> GitEnded:
        """Run a script that sees the delegator's references, and may change what is below ``refs/heads``.

        Args:
            script: as ``on_objects``, and so ``arguments``.
            arguments: what varies of it.

        Raises:
            SubletError: as ``on_objects``.
        """
        common = self.place.common
        config = common / "config"
        argv = self._sandbox.wrap(
            script,
            arguments,
            writable=[self.own, common / "refs" / "heads"],
            readable=[common, *self.place.alternates],
            instead={config: self._directory / "config"} if config.is_file() else {},
        )
        return self._run(argv, {"GIT_DIR": str(common)}, None, None)

    def temporary(self) -> IO[bytes]:
        """``nameless_beside`` the directory of git's own."""
        return nameless_beside(self._directory)

    def _run(
        self, argv: Sequence[str], environment: dict[str, str], stdin: IO[bytes] | None, stdout: IO[bytes] | None
    ) -> GitEnded:
        variables = git_environment(TMPDIR=str(self.own), **git_variables(), **environment)
        with tempfile.TemporaryFile() as nothing:
            process = start_git(argv, variables, "/", stdin or nothing, *([stdout] if stdout else []))
            ended = finish_git(process, limit=MAX_ANSWER_BYTES, seconds=GIT_SECONDS)
        if ended.late:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"git took longer than {GIT_SECONDS:.0f} s on the repository",
                "Try again when the machine is less busy.",
            )
        return ended


def _listed(path: Path) -> str:
    """Return a path as a list of alternates holds it."""
    text = str(path)
    if os.pathsep in text or text.startswith('"') or "\n" in text:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    return text
