"""What is still under way in a cluster whose objects have just stopped changing, so that the next step must wait.

A Job waits 10 s or more before it replaces a failed pod, and a controller under load may be seconds behind. During that
time nothing changes, but something will. A step in between would find a different state in each cluster.
"""

from collections.abc import Iterator, Set

from tests.contract.scene import Object, condition, deleting, ended
from tests.walks.history import Stories

STABLE_WAITS = frozenset({"ImagePullBackOff", "ErrImagePull"})
"""Waiting reasons of a container that nothing in the cluster will change."""
FINAL = ("Complete", "Completed", "Failed")
SHORT_SECONDS = 5
"""A deadline that passes at once, or soon after the Job is resumed."""
REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
COUNTS = ("active", "ready", "succeeded", "failed", "suspended")
BEGUN = ("ready", "succeeded", "failed")
"""Counts of Jobs that have started, now or earlier."""


def is_final(body: Object) -> bool:
    """Whether a TrainJob, a JobSet or a Job has ended."""
    return any(condition(body, kind) for kind in FINAL)


def is_owned(body: Object, owner: Object) -> bool:
    uid = owner["metadata"]["uid"]
    return any(each["uid"] == uid for each in body["metadata"].get("ownerReferences", ()))


def unsettled(stories: Stories, closed_nodes: Set[str], silent_nodes: Set[str]) -> str:
    """The first thing that is under way. Empty: nothing.

    `closed_nodes`: nodes that no pod can go to now. `silent_nodes`: nodes whose pods cannot end now.
    """
    return next(_UnderWay(stories, closed_nodes, silent_nodes).all(), "")


def _name(body: Object) -> str:
    return f"{body['kind']} {body['metadata']['name']}"


class _UnderWay:
    def __init__(self, stories: Stories, closed_nodes: Set[str], silent_nodes: Set[str]) -> None:
        self._stories = stories
        self._pods = list(stories.pods.present.values())
        self._jobs = list(stories.jobs.present.values())
        self._closed_nodes = closed_nodes | silent_nodes
        self._stuck = [
            pod
            for pod in self._pods
            if deleting(pod) and pod["spec"].get("nodeName") in silent_nodes and not ended(pod)
        ]
        """Pods that go only when their node is back."""

    def all(self) -> Iterator[str]:
        for story in self._stories.all():
            for body in story.present.values():
                if deleting(body) and not self._is_stuck(body):
                    yield f"{_name(body)} is being deleted"
        for pod in self._pods:
            if not ended(pod) and pod not in self._stuck:
                yield from self._starting(pod)
        for job in self._jobs:
            if not is_final(job) and not self._is_stuck(job):
                yield from self._incomplete(job)
        for job_set in self._stories.job_sets.present.values():
            yield from self._behind(job_set)
        for train_job in self._stories.train_jobs.present.values():
            yield from self._behind_its_job_set(train_job)

    def _is_stuck(self, body: Object) -> bool:
        """A pod that cannot go, or a Job that waits for one."""
        return body in self._stuck or any(is_owned(pod, body) for pod in self._stuck)

    def _starting(self, pod: Object) -> Iterator[str]:
        if not pod["spec"].get("nodeName"):
            if pod["spec"]["nodeSelector"]["kubernetes.io/hostname"] not in self._closed_nodes:
                yield f"{_name(pod)} has no node yet"
            return
        status = pod["status"]
        containers = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
        if not containers:
            yield f"{_name(pod)} has not been started"
        for container in containers:
            waiting = container["state"].get("waiting")
            if waiting and waiting.get("reason") not in STABLE_WAITS:
                yield f"{_name(pod)}: {container['name']} waits, {waiting.get('reason')}"

    def _incomplete(self, job: Object) -> Iterator[str]:
        """The Job is ending, will create missing pods, or has not counted its pods."""
        spec, status = job["spec"], job.get("status", {})
        for interim in ("FailureTarget", "SuccessCriteriaMet"):
            # A suspended Job without startTime cannot finish: the server refuses that until it is resumed.
            if condition(job, interim) and not (spec.get("suspend") and "startTime" not in status):
                yield f"{_name(job)} is ending"
        pods = [pod for pod in self._pods if is_owned(pod, job) and not ended(pod)]
        active = [pod for pod in pods if not deleting(pod)]
        ready = sum(condition(pod, "Ready") is not None for pod in active)
        counted = tuple(status.get(name, 0) for name in ("active", "ready", "terminating"))
        if (len(active), ready, len(pods) - len(active)) != counted:
            yield f"{_name(job)} has not counted its pods"
        yield from self._to_end(job, active)
        if _is_changing(job):
            yield f"{_name(job)} is being suspended or resumed"
        over = status.get("succeeded", 0) + _count(status.get("failedIndexes", ""))
        if not spec.get("suspend") and len(pods) < min(spec["parallelism"], spec["completions"] - over):
            yield f"{_name(job)} has too few pods"

    def _to_end(self, job: Object, active: list[Object]) -> Iterator[str]:
        """The cause of its end, or what it will count at its end, already exists."""
        spec = job["spec"]
        held = [pod for pod in self._pods if is_owned(pod, job) and ended(pod) and pod["metadata"].get("finalizers")]
        # With a limit per index, a failed pod keeps its finalizer until its successor is created.
        if held and "backoffLimitPerIndex" not in spec:
            yield f"{_name(job)} has not counted its finished pods"
        restarts = sum(
            each["restartCount"]
            for pod in active
            for name in ("initContainerStatuses", "containerStatuses")
            for each in pod["status"].get(name, ())
        )
        if spec["template"]["spec"]["restartPolicy"] == "OnFailure" and restarts >= max(1, spec["backoffLimit"]):
            yield f"{_name(job)} has reached its limit"
        if not spec.get("suspend") and spec.get("activeDeadlineSeconds", SHORT_SECONDS + 1) <= SHORT_SECONDS:
            yield f"{_name(job)} has almost reached its deadline"

    def _behind(self, job_set: Object) -> Iterator[str]:
        """The JobSet has not counted its Jobs, or has not reacted to their end."""
        of_attempt = self._jobs_of(job_set)
        counts: dict[str, tuple[int, ...]] = {}
        for replicated in job_set["spec"]["replicatedJobs"]:
            jobs = [job for job in of_attempt if _replicated_job(job) == replicated["name"]]
            totals = tuple(map(sum, zip(*map(_counts, jobs), strict=True)))
            counts[replicated["name"]] = totals or (0,) * len(COUNTS)
        said = {
            each["name"]: tuple(each.get(name, 0) for name in COUNTS)
            for each in job_set.get("status", {}).get("replicatedJobsStatus", ())
        }
        if said != counts:
            yield f"{_name(job_set)} has not counted its Jobs"
        if is_final(job_set):
            if not all(map(is_final, of_attempt)):
                yield f"{_name(job_set)} has ended and has not deleted its Jobs"
            return
        in_order = job_set["spec"]["startupPolicy"]["startupPolicyOrder"] == "InOrder"
        # A JobSet that starts in order is resumed only when it is the turn of its last Job, which may never come.
        if _is_changing(job_set) and (_is_suspended(job_set) or not in_order):
            yield f"{_name(job_set)} is being suspended or resumed"
        if _is_suspended(job_set) and not all(_is_suspended(job) or is_final(job) for job in of_attempt):
            yield f"{_name(job_set)} has not suspended its Jobs"
        if any(condition(job, "Failed") for job in of_attempt):
            yield f"{_name(job_set)} has not judged its failed Jobs"
        if not any(map(self._is_stuck, self._jobs)) and _lacks_jobs(
            job_set, counts, len(of_attempt), in_order=in_order
        ):
            yield f"{_name(job_set)} has too few Jobs"

    def _jobs_of(self, job_set: Object) -> list[Object]:
        """The Jobs of the present attempt."""
        attempt = str(job_set.get("status", {}).get("restarts", 0))
        jobs = (job for job in self._jobs if is_owned(job, job_set))
        return [job for job in jobs if job["metadata"]["labels"][ATTEMPT] == attempt]

    def _behind_its_job_set(self, train_job: Object) -> Iterator[str]:
        if _is_changing(train_job):
            yield f"{_name(train_job)} is being suspended or resumed"
        if is_final(train_job):
            return
        job_set = self._stories.job_sets.named(train_job["metadata"]["name"])
        if job_set is None or is_final(job_set):
            yield f"{_name(train_job)} has not noticed what became of its JobSet"
        elif _is_suspended(train_job) != _is_suspended(job_set):
            yield f"{_name(train_job)} has not suspended or resumed its JobSet"
        elif _by_name(train_job, "jobsStatus") != _by_name(job_set, "replicatedJobsStatus"):
            yield f"{_name(train_job)} has not read the counts of its JobSet"


def _is_suspended(body: Object) -> bool:
    return bool(body["spec"].get("suspend"))


def _is_changing(body: Object) -> bool:
    """Its condition does not yet say that it is suspended, or that it no longer is."""
    return _is_suspended(body) != (condition(body, "Suspended") is not None)


def _lacks_jobs(job_set: Object, counts: dict[str, tuple[int, ...]], there: int, *, in_order: bool) -> bool:
    """Whether there are fewer Jobs than those whose turn it is."""
    replicas = {each["name"]: each["replicas"] for each in job_set["spec"]["replicatedJobs"]}
    succeeded = {name: count[COUNTS.index("succeeded")] for name, count in counts.items()}
    begun = {name: sum(count[COUNTS.index(each)] for each in BEGUN) for name, count in counts.items()}
    due = 0
    for replicated in job_set["spec"]["replicatedJobs"]:
        needed = replicated.get("dependsOn", ())
        met = {"Complete": succeeded, "Ready": begun}
        if any(met[each["status"]][each["name"]] != replicas[each["name"]] for each in needed):
            continue
        due += replicated["replicas"]
        if in_order and not _is_suspended(job_set) and begun[replicated["name"]] != replicated["replicas"]:
            break
    return there < due


def _replicated_job(job: Object) -> str:
    return str(job["metadata"]["labels"][REPLICATED_JOB])


def _counts(job: Object) -> tuple[int, ...]:
    """What one Job adds to the counts of its ReplicatedJob, in the order of COUNTS."""
    if is_final(job):
        return (0, 0, int(condition(job, "Complete") is not None), int(condition(job, "Failed") is not None), 0)
    spec, status = job["spec"], job.get("status", {})
    ready = status.get("succeeded", 0) + status.get("ready", 0) >= min(spec["parallelism"], spec["completions"])
    return (int(status.get("active", 0) > 0), int(ready), 0, 0, int(_is_suspended(job)))


def _by_name(body: Object, field: str) -> dict[str, Object]:
    return {each["name"]: each for each in body.get("status", {}).get(field, ())}


def _count(indexes: str) -> int:
    """The number of indexes in a text such as `1,3-5`."""
    total = 0
    for interval in indexes.split(",") if indexes else ():
        first, _, last = interval.partition("-")
        total += int(last or first) - int(first) + 1
    return total
