"""What every program that works on a job finds around it: a home of its own, and an environment with nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from sublet.disk.plain_file import read_plain
from sublet.disk.private_dir import PrivateDir
from sublet.supervisor.job import Job, JobResource

ALWAYS: Final = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "TZ")
"""Variables of the daemon's that every program gets."""
HOME: Final = "home"
TMP: Final = "tmp"
PROMPT: Final = "prompt.txt"
MAX_LOGIN_BYTES: Final = 1 << 20


def make_home(job: Job) -> None:
    """Make the job's home and temporary directory. Blocks, though never on the mount.

    The agent of an earlier prompt may have put anything in their place: see ``PrivateDir``.

    Raises:
        OSError: they can't be made.
    """
    with PrivateDir.open(job.scratch) as scratch:
        with scratch.directory(HOME) as home:
            home.write(".gitconfig", git_settings(job))
        scratch.directory(TMP).close()


def write_prompt(job: Job) -> int:
    """Write the job's prompt into its private directory, and return a descriptor to read it by. Blocks.

    Raises:
        OSError: it can't be written.
    """
    with PrivateDir.open(job.scratch) as scratch:
        scratch.write(PROMPT, job.prompt.encode("utf-8", "replace"))
        return scratch.open_file(PROMPT)


def copy_login(job: Job, source: Path, name: str) -> None:
    """Copy a login file into the job's home, so that the agent can use it but change only its copy. Blocks.

    Args:
        job: the job, whose home is made.
        source: the file; where there is none, nothing is copied, and the agent itself will say so.
        name: of the copy, with the directories below the home that it is in.

    Raises:
        OSError: it can't be written.
    """
    try:
        data = read_plain(source, MAX_LOGIN_BYTES)
    except OSError:
        return
    *directories, file = name.split("/")
    with PrivateDir.open(job.scratch) as scratch, scratch.directory(HOME, *directories) as place:
        place.write(file, data)


def job_environment(job: Job, environ: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return the environment of a program that works on ``job``.

    Args:
        job: the job.
        environ: the daemon's environment.
        names: variables of it that the program gets besides those in ``ALWAYS``.
    """
    env = {name: environ[name] for name in (*ALWAYS, *names) if name in environ}
    env.setdefault("PATH", os.defpath)
    env.setdefault("LANG", "C.UTF-8")
    return env | {
        "HOME": str(job.scratch / HOME),
        "TMPDIR": str(job.scratch / TMP),
        "SUBLET_DELEGATION_ID": job.delegation_id,
        "SUBLET_DEADLINE": job.expires_at,
        "SUBLET_REMAINING_SECONDS": str(int(job.remaining_seconds)),
        "SUBLET_WORKSPACE": str(job.workspace),
        "SUBLET_RESOURCES": _listed(job.resources),
        "SUBLET_META": str(job.meta),
        "SUBLET_ACCESS_MODE": job.access_mode,
    }


def git_settings(job: Job) -> bytes:
    """Return git settings for the agent: it may use the lent directories, which look like somebody else's to it.

    Who commits is the agent, whoever the delegator is.
    """
    paths = (str(lent.path).replace("\\", "\\\\").replace('"', '\\"') for lent in job.resources)
    trusted = "".join(f'\tdirectory = "{path}"\n' for path in paths)
    return f"[safe]\n{trusted}[user]\n\tname = agent\n\temail = agent@{job.delegation_id}\n".encode()


def _listed(resources: Sequence[JobResource]) -> str:
    """Return the directories of a job as JSON."""
    return json.dumps([{"name": r.name, "path": str(r.path), "access_mode": r.access_mode} for r in resources])
