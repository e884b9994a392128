"""Finds names that Kubernetes will refuse once Trainer, JobSet and the Job controller have extended them.

JobSet's webhook (pkg/webhooks/jobset_webhook.go, v0.12.0) requires that the longest Job name and pod name are DNS
labels of RFC 1035: at most 63 characters, with a letter first. The name of a pod is
`<job>-<ReplicatedJob>-<replica>-<pod>-<5 letters>`. Trainer itself requires this form only of the TrainJob's own name.
It accepts a TrainJob whose pod names are too long, and then no JobSet is created.
"""

import re
from collections.abc import Iterator

from recovery.launch.fields import fill_in, is_placeholder
from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch
from recovery.launch.views import ReplicatedJob

NAME_TOO_LONG = Code("name-too-long", Severity.ERROR, "names made of the job's name are too long")
NAME_NOT_DNS = Code("name-not-dns", Severity.ERROR, "the name of the job cannot be part of a host name")
CODES = (NAME_TOO_LONG, NAME_NOT_DNS)

MAX_LABEL = 63
"""Characters of a DNS label (RFC 1035)."""
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_POD_SUFFIX = "-xxxxx"
"""What the Job controller appends to a pod's name."""


def check(launch: Launch) -> Iterator[LintFinding]:
    """Checks the name of a TrainJob or a JobSet. A runtime's name does not become part of any other name."""
    if launch.train_job is None and launch.runtime is not None:
        return
    place = launch.place / "metadata" / "name"
    if not launch.name:
        return  # generateName, or missing: reported elsewhere
    if is_placeholder(launch.name):
        message = f"{launch.name!r} is a placeholder that nothing has filled in: the API server refuses such a name"
        yield LintFinding(NAME_NOT_DNS, place, message, fill_in(launch.name))
        return
    if not _LABEL.fullmatch(launch.name):
        message = f"{launch.name!r} is not a host name, and the pods are named after it: the API server refuses it"
        fix = "write lower-case letters, digits and dashes, a letter first and no dash at the end"
        yield LintFinding(NAME_NOT_DNS, place, message, fix)
        return
    longest = max((_longest(launch.name, job) for job in launch.job_set.jobs), key=len, default=launch.name)
    over = len(longest) - MAX_LABEL
    if over > 0:
        made = f"; a pod's would have {len(longest)} ({longest})" if longest != launch.name else ""
        message = f"the name has {len(launch.name)} characters{made} where {MAX_LABEL} are allowed: no pod can be made"
        yield LintFinding(NAME_TOO_LONG, place, message, _fix(len(launch.name) - over, launch))


def _fix(left: int, launch: Launch) -> str:
    if left < 1:
        return "shorten the names of the ReplicatedJobs: they leave no room for the job's"
    size = f" for {launch.nodes} pods" if launch.nodes else ""
    return f"choose a name of at most {left} characters{size}"


def _longest(name: str, job: ReplicatedJob) -> str:
    """The longest name of a pod, or of a Job if completions is not set, as JobSet checks them."""
    last_replica = max(1, job.replicas or 1) - 1
    job_name = f"{name}-{job.name}-{last_replica}"
    if job.completions is None:
        return job_name
    return f"{job_name}-{max(1, job.completions) - 1}{_POD_SUFFIX}"
