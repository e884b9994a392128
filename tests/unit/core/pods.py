"""The pods of a small world, and what changes on their way to Ready."""

from datetime import datetime

from recovery.core.model.facts import ContainerFacts, JobFacts, PodFacts

GPUS_PER_POD = 8


def new_pod(job: JobFacts, index: int, number: int, created_at: datetime) -> PodFacts:
    """A pod of that rank. `number`: how many the rank had before it."""
    return PodFacts(
        name=f"{job.name}-{index}-{job.uid[-1]}{number}",
        uid=f"pod-{job.uid}-{index}-{number}",
        job_uid=job.uid,
        job_name=job.name,
        index=index,
        created_at=created_at,
        gpus=GPUS_PER_POD,
        resource_version="1",
    )


def on_its_node(pod: PodFacts, since: datetime | None) -> dict[str, object]:
    """The changes of a pod that gets a node. `since` None: the facts do not say since when."""
    return {"node": f"gpu-{pod.index}", "scheduled_at": since, "conditions": ()}


def running(since: datetime) -> dict[str, object]:
    """The changes of a pod whose container starts then."""
    return {"phase": "Running", "containers": (ContainerFacts(name="node", running_since=since),)}
