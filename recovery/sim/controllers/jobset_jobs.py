"""The child Jobs of a JobSet: listing them, sorting them by outcome, and making new ones.

Source: jobset v0.12 `pkg/controllers/jobset_controller.go` (getChildJobs, constructJob, labelAndAnnotateObject).
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from recovery.ports import JOBS
from recovery.sim.api.kinds.kind import Body

PREFIX = "jobset.sigs.k8s.io/"
JOBSET_NAME = f"{PREFIX}jobset-name"
REPLICATED_JOB_NAME = f"{PREFIX}replicatedjob-name"
RESTART_ATTEMPT = f"{PREFIX}restart-attempt"


@dataclass(frozen=True)
class Children:
    """The Jobs that a JobSet controls, in order of creation. They include Jobs that are being deleted."""

    previous: list[Body] = field(default_factory=list)
    """Jobs of earlier attempts, which must be deleted."""
    active: list[Body] = field(default_factory=list)
    successful: list[Body] = field(default_factory=list)
    failed: list[Body] = field(default_factory=list)

    def names(self) -> set[str]:
        jobs = (*self.previous, *self.active, *self.successful, *self.failed)
        return {job["metadata"]["name"] for job in jobs}


def children(jobset: Body, dependants: Iterable[Body]) -> Children:
    """Sort the Jobs among `dependants`. A Job with FailureTarget is still active until it is Failed."""
    found = Children()
    restarts = jobset.get("status", {}).get("restarts", 0)
    for job in dependants:
        if job["kind"] != JOBS.kind:
            continue
        if int(job["metadata"]["labels"][RESTART_ATTEMPT]) < restarts:
            found.previous.append(job)
        elif condition(job, "Failed"):
            found.failed.append(job)
        elif condition(job, "Complete"):
            found.successful.append(job)
        else:
            found.active.append(job)
    return found


def condition(body: Body, of_type: str) -> dict[str, Any] | None:
    """The condition of that type if its status is True, else None."""
    for each in body.get("status", {}).get("conditions", ()):
        if each["type"] == of_type and each["status"] == "True":
            found: dict[str, Any] = each
            return found
    return None


def job_name(jobset: Body, replicated: dict[str, Any], index: int) -> str:
    return f"{jobset['metadata']['name']}-{replicated['name']}-{index}"


def subdomain(jobset: Body) -> str:
    """The subdomain of the JobSet's pods, which is also the name of its Service."""
    return str(jobset["spec"]["network"].get("subdomain") or jobset["metadata"]["name"])


def make_job(jobset: Body, replicated: dict[str, Any], index: int) -> Body:
    """The Job as JobSet creates it, suspended if the JobSet is."""
    template = replicated["template"]
    pods = template["spec"]["template"]
    marks = _marks(jobset, replicated, index)
    metadata = _marked(template.get("metadata", {}), marks)
    pod_spec = dict(pods["spec"])
    if jobset["spec"]["network"]["enableDNSHostnames"]:
        pod_spec["subdomain"] = subdomain(jobset)
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {
            "name": job_name(jobset, replicated, index),
            "namespace": jobset["metadata"]["namespace"],
            "labels": metadata["labels"],
            "annotations": metadata["annotations"],
            "ownerReferences": [owner_reference(jobset)],
        },
        "spec": {
            **template["spec"],
            "suspend": bool(jobset["spec"].get("suspend")),
            "template": {**pods, "metadata": _marked(pods.get("metadata", {}), marks), "spec": pod_spec},
        },
    }


def owner_reference(owner: Body) -> dict[str, Any]:
    """A controller's owner reference, as controller-runtime's SetControllerReference and Trainer write it."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _marked(metadata: dict[str, Any], marks: dict[str, str]) -> dict[str, Any]:
    """The metadata with the marks as labels and as annotations. The Job and its pods have the same marks."""
    labels = {**metadata.get("labels", {}), **marks}
    return {**metadata, "labels": labels, "annotations": {**metadata.get("annotations", {}), **marks}}


def _marks(jobset: Body, replicated: dict[str, Any], index: int) -> dict[str, str]:
    meta = jobset["metadata"]
    everything = jobset["spec"]["replicatedJobs"]
    group = [each for each in everything if each["groupName"] == replicated["groupName"]]
    key = f"{meta['namespace']}/{job_name(jobset, replicated, index)}"
    return {
        JOBSET_NAME: meta["name"],
        f"{PREFIX}jobset-uid": meta["uid"],
        REPLICATED_JOB_NAME: replicated["name"],
        RESTART_ATTEMPT: str(jobset.get("status", {}).get("restarts", 0)),
        f"{PREFIX}replicatedjob-replicas": str(replicated["replicas"]),
        f"{PREFIX}global-replicas": str(sum(each["replicas"] for each in everything)),
        f"{PREFIX}job-index": str(index),
        f"{PREFIX}job-key": hashlib.sha1(key.encode(), usedforsecurity=False).hexdigest(),
        f"{PREFIX}job-global-index": str(_before(everything, replicated) + index),
        f"{PREFIX}group-name": replicated["groupName"],
        f"{PREFIX}group-replicas": str(sum(each["replicas"] for each in group)),
        f"{PREFIX}job-group-index": str(_before(group, replicated) + index),
    }


def _before(replicated_jobs: list[dict[str, Any]], replicated: dict[str, Any]) -> int:
    """How many Jobs come before the first Job of `replicated`."""
    names = [each["name"] for each in replicated_jobs]
    return sum(each["replicas"] for each in replicated_jobs[: names.index(replicated["name"])])
