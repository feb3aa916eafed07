"""What every program that works on a job finds around it: a home of its own, and an environment with nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from sublet.supervisor.model import Job, JobResource

ALWAYS: Final = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "TZ")
"""Variables of the daemon's that every program gets."""


def make_home(job: Job) -> Path:
    """Make the job's home and temporary directory, and return the home. Blocks, though never on the mount."""
    home = job.scratch / "home"
    for directory in (home, job.scratch / "tmp"):
        directory.mkdir(mode=0o700, exist_ok=True)
    write_private(home / ".gitconfig", git_settings(job))
    return home


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
        "HOME": str(job.scratch / "home"),
        "TMPDIR": str(job.scratch / "tmp"),
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

    Who commits is the agent, whoever the lender is.
    """
    paths = (str(lent.path).replace("\\", "\\\\").replace('"', '\\"') for lent in job.resources)
    trusted = "".join(f'\tdirectory = "{path}"\n' for path in paths)
    return f"[safe]\n{trusted}[user]\n\tname = agent\n\temail = agent@{job.delegation_id}\n".encode()


def _listed(resources: Sequence[JobResource]) -> str:
    """Return the directories of a job as JSON."""
    return json.dumps([{"name": r.name, "path": str(r.path), "access_mode": r.access_mode} for r in resources])


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only the owner reads. Blocks."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(data)
