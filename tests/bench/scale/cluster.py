"""What happens in the fleet: pods are lost, and kubelets, Jobs, JobSets and a scheduler take their time.

It is no model of Kubernetes (`recovery/sim` is). It does what a restart needs, with the delays of a real cluster.
"""

import asyncio
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from recovery.ports import JOB_SETS, JOBS, TRAIN_JOBS
from tests.bench.scale.fleet import Fleet, Group, Job, Node, Pod, stamp

_KUBELET_SECONDS = (0.3, 1.0)
"""From a graceful delete until the pod has ended."""
_START_SECONDS = (0.5, 1.5)
"""From binding until the pod is Ready."""
_PODS_PER_SECOND = 500.0
"""How fast the Job controllers create pods: raised limits, so that the controller is the slowest part."""
_GARBAGE_SECONDS = 2.0
"""From the Job's delete until the garbage collector deletes its remaining pods."""


class Cluster:
    """Changes the fleet as a cluster would."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.frozen = False
        """Kubelets and controllers do nothing, so that only the controller under test uses the processors."""
        self._next_birth = 0.0

    @staticmethod
    def _later(seconds: float, action: Callable[..., None], *arguments: object) -> None:
        asyncio.get_running_loop().call_later(seconds, action, *arguments)

    # What goes wrong.

    def lose(self, pod: Pod) -> float:
        """The pod's object is gone at once, as after a forced delete. Returns when, in monotonic seconds."""
        self.fleet.remove_pod(pod)
        pod.deletion, pod.deletion_at, pod.grace = "counted", stamp(), 0
        self.fleet.pod_changed(pod, "DELETED")
        return time.monotonic()

    def silence(self, nodes: list[Node]) -> None:
        """As the node lifecycle controller marks silent nodes and their pods."""
        names = {node.name for node in nodes}
        for node in nodes:
            node.ready, node.since = "Unknown", stamp()
            node.taints = [
                {"key": "node.kubernetes.io/unreachable", "effect": effect, "timeAdded": stamp()}
                for effect in ("NoSchedule", "NoExecute")
            ]
            self.fleet.node_changed(node)
        for pod in self.fleet.pods.values():
            if pod.node in names:
                pod.state, pod.since = "silent", stamp()
                self.fleet.pod_changed(pod)

    # Deletion.

    def delete_pod(self, pod: Pod, grace: int) -> None:
        if grace == 0:
            self._gone(pod)
            return
        if pod.deletion and grace >= pod.grace:
            return
        first = not pod.deletion
        pod.deletion, pod.grace = "tracked", grace
        pod.deletion_at = stamp(datetime.now(UTC) + timedelta(seconds=grace))
        self.fleet.pod_changed(pod)
        node = self.fleet.nodes.get(pod.node)
        if first and not self.frozen and (node is None or node.ready == "True"):
            seconds = random.uniform(*_KUBELET_SECONDS)
            self._later(seconds * 0.2, self._counted, pod)
            self._later(seconds, self._ended, pod)

    def _counted(self, pod: Pod) -> None:
        if pod.name in pod.job.pods:
            pod.deletion = "counted"
            self.fleet.pod_changed(pod)

    def _ended(self, pod: Pod) -> None:
        if pod.name not in pod.job.pods:
            return
        if pod.state not in ("pending", "bound"):
            pod.state, pod.since = "failed", stamp()
            self.fleet.pod_changed(pod)
        pod.grace = 0
        self.fleet.pod_changed(pod)
        self._gone(pod)

    def _gone(self, pod: Pod) -> None:
        if not self.fleet.remove_pod(pod):
            return
        pod.deletion, pod.deletion_at = pod.deletion or "counted", pod.deletion_at or stamp()
        self.fleet.pod_changed(pod, "DELETED")
        group = pod.job.group
        if not pod.job.pods and group.job is pod.job and self._being_deleted(group):
            self._job_gone(group)

    def _being_deleted(self, group: Group) -> bool:
        job = self.fleet.objects[JOBS.plural].get(group.job_key)
        return job is not None and "deletionTimestamp" in job["metadata"]

    def delete_job(self, group: Group) -> None:
        metadata = self.fleet.objects[JOBS.plural][group.job_key]["metadata"]
        metadata.update(deletionTimestamp=stamp(), deletionGracePeriodSeconds=0, finalizers=["foregroundDeletion"])
        self.fleet.changed(JOBS.plural, group.job_key)
        self._count_ready(group, 0)
        if self.frozen:
            return
        job = group.lives()
        if not job.pods:
            self._job_gone(group)
        else:
            self._later(_GARBAGE_SECONDS, self._collect, job)

    def _collect(self, job: Job) -> None:
        for pod in list(job.pods.values()):
            if not pod.deletion and self.fleet.nodes[pod.node].ready == "True":
                self.delete_pod(pod, 30)

    def _job_gone(self, group: Group) -> None:
        group.job = None
        self.fleet.changed(JOBS.plural, group.job_key, "DELETED")
        self._later(0.05, self._job_born, group)

    # Rebirth.

    def _job_born(self, group: Group) -> None:
        job = self.fleet.add_job(group, stamp())
        self.fleet.set_job_status(group, active=0, ready=0)
        self.fleet.changed(JOBS.plural, group.job_key, "ADDED")
        self._later(0.02, self._job_started, job)

    def _job_started(self, job: Job) -> None:
        group, now = job.group, time.monotonic()
        self._write_job(job, 0)
        self._next_birth = max(self._next_birth, now)
        for index in range(group.size):
            self._next_birth += 1 / _PODS_PER_SECOND
            self._later(self._next_birth - now, self._pod_born, job, index)

    def _pod_born(self, job: Job, index: int) -> None:
        pod = self.fleet.add_pod(job, index, "", "pending", stamp())
        self.fleet.pod_changed(pod, "ADDED")
        self._later(0.02, self._bound, pod)

    def _bound(self, pod: Pod) -> None:
        if pod.name not in pod.job.pods:
            return
        while self.fleet.nodes[(name := random.choice(self.fleet.node_names))].ready != "True":
            pass
        pod.node, pod.state, pod.since = name, "bound", stamp()
        self.fleet.pod_changed(pod)
        self._later(random.uniform(*_START_SECONDS), self._running, pod)

    def _running(self, pod: Pod) -> None:
        job = pod.job
        if pod.name not in job.pods or pod.deletion:
            return
        pod.state, pod.since = "running", stamp()
        self.fleet.pod_changed(pod)
        ready = sum(each.state == "running" and not each.deletion for each in job.pods.values())
        if ready == job.group.size:
            self._write_job(job, ready)
            self._count_ready(job.group, 1)
        elif time.monotonic() - job.synced_at > 1.0:
            self._write_job(job, ready)

    def _write_job(self, job: Job, ready: int) -> None:
        job.synced_at = time.monotonic()
        self.fleet.set_job_status(job.group, active=job.group.size, ready=ready)
        self.fleet.changed(JOBS.plural, job.group.job_key)

    def _count_ready(self, group: Group, jobs: int) -> None:
        """Write how many Jobs are Ready, as the JobSet controller and the Trainer do."""
        jobset = self.fleet.objects[JOB_SETS.plural][group.key]
        jobset["status"]["replicatedJobsStatus"][0]["ready"] = jobs
        self.fleet.changed(JOB_SETS.plural, group.key)
        self.fleet.objects[TRAIN_JOBS.plural][group.key]["status"]["jobsStatus"][0]["ready"] = jobs
        self.fleet.changed(TRAIN_JOBS.plural, group.key)
