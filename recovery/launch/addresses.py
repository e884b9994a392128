"""Classifies a host name: a pod of the job, a pod of another job, or a pod that will never exist.

JobSet names pods `<job>-<ReplicatedJob>-<Job>-<index>` and puts them into the domain of its headless Service. The
Service has the name of the JobSet unless `network.subdomain` says otherwise, and it has no other pods.
"""

import re
from enum import StrEnum

from recovery.launch.launch import Launch

_SUFFIX_OF_GENERATED = "xxxxx"


class Whose(StrEnum):
    """Whose host name it is."""

    OURS = "Ours"
    NO_POD = "NoPod"
    """The name is in the job's own domain, but no pod will have it."""
    WITHOUT_DOMAIN = "WithoutDomain"
    """The name of a pod of the job, without its domain."""
    ANOTHER_JOB = "AnotherJob"
    """The name has the form of a pod's name, but it is in another domain."""
    UNKNOWN = "Unknown"
    """A Service, a host or an address that the manifest does not show."""


def whose(launch: Launch, host: str) -> Whose:
    first, domain = _parts(host)
    if (launch.train_job is None and launch.runtime is not None) or launch.name.endswith(_SUFFIX_OF_GENERATED):
        return Whose.UNKNOWN  # the job's name is not known here
    if not launch.job_set.jobs or not all(job.name for job in launch.job_set.jobs):
        return Whose.UNKNOWN
    ours, built = launch.job_set.subdomain or launch.name, pod_of(launch, host) is not None
    if not domain:
        return Whose.WITHOUT_DOMAIN if built else Whose.UNKNOWN
    if domain == ours:
        if built and launch.job_set.dns_hostnames is not False:
            return Whose.OURS
        shared = launch.job_set.subdomain and not first.startswith(f"{launch.name}-")
        return Whose.UNKNOWN if shared else Whose.NO_POD
    return Whose.ANOTHER_JOB if re.fullmatch(rf"{re.escape(domain)}-.+-[0-9]+-[0-9]+", first) else Whose.UNKNOWN


def pod_of(launch: Launch, host: str) -> tuple[str, int, int] | None:
    """ReplicatedJob, Job and index of the pod with that name, in any domain. None: the job has no such pod."""
    first, _ = _parts(host)
    for job in launch.job_set.jobs:
        matched = re.fullmatch(rf"{re.escape(f'{launch.name}-{job.name}')}-([0-9]{{1,9}})-([0-9]{{1,9}})", first)
        replicas = 1 if job.replicas is None else job.replicas
        pods = job.completions if job.completions is not None else job.parallelism
        if matched and int(matched[1]) < replicas and int(matched[2]) < (1 if pods is None else pods):
            return job.name, int(matched[1]), int(matched[2])
    return None


def _parts(host: str) -> tuple[str, str]:
    """The name, and the domain that follows it. Empty: it has no domain."""
    labels = host.rstrip(".").split(".")
    return labels[0], labels[1] if len(labels) > 1 else ""
