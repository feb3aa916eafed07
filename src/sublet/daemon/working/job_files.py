"""The files of a job's lease, for providers whose tools are ours: ``workspace`` opens what ``supervisor`` names."""

from __future__ import annotations

from pathlib import Path

from sublet.supervisor.job import Job
from sublet.supervisor.lease_files import LeaseFiles
from sublet.workspace.export import META, AccessMode
from sublet.workspace.lease_files import MountedFiles


def job_files(job: Job) -> LeaseFiles:
    """Return the files of ``job``: every lent directory with its own access, and what tells about the task."""
    roots: dict[str, tuple[Path, AccessMode]] = {META: (job.meta, "ro")}
    for lent in job.resources:
        roots[lent.name] = (lent.path, "ro" if job.access_mode == "ro" else lent.access_mode)
    return MountedFiles(roots)
