"""Kubeflow Trainer 2.3: it creates the JobSet of each TrainJob, and reports the JobSet's state in the TrainJob.

Sources: trainer v2.3 `pkg/controller/trainjob_controller.go`, `pkg/runtime/framework/plugins/jobset/jobset.go`,
`pkg/runtime/core/snapshot.go`.

Three of its quirks matter and are kept. A failed TrainJob is not finished: if its failed JobSet is deleted, by a client
or by its `ttlSecondsAfterFinished`, the training is recreated. A TrainJob that is being deleted is reconciled like any
other: after a foreground delete its JobSet is recreated each time that the garbage collector deletes it, until the
collector happens to be faster (seen on a real control plane: half a minute and more than twenty JobSets). The status is
read from the JobSet with the TrainJob's name, regardless of its owner: the JobSet of a deleted TrainJob can make a
recreated one Complete.

Differences from the real one:
- server-side apply is reduced to creating the JobSet, and to writing a few fields of an existing one: suspend,
  ttlSecondsAfterFinished, labels and annotations, and in its pod templates labels, annotations, nodeSelector,
  tolerations, schedulingGates and affinity, which JobSet then refuses;
- no Events, no managedBy, no finalizers on runtimes that are in use, no status of the training itself;
- its cache is always fresh.
"""

from datetime import datetime, timedelta
from typing import Any

import msgspec

from recovery.ports import JOB_SETS, TRAIN_JOBS, Clock, Entropy, PatchKind
from recovery.sim.api.kinds.core import CONFIG_MAPS
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.kinds.trainjobs import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES
from recovery.sim.api.metadata import timestamp
from recovery.sim.api.server import ApiServer
from recovery.sim.api.status_error import StatusError
from recovery.sim.api.store import ObjectChange
from recovery.sim.controllers.controller import ModelController
from recovery.sim.controllers.jobset_jobs import owner_reference
from recovery.sim.controllers.request_limiter import Limiter
from recovery.sim.controllers.trainer_jobset import build_jobset

Key = tuple[str, str]
"""Namespace and name of a TrainJob."""

DELAY_SECONDS = (0.009, 0.075)
"""Delay between a change and its sync, as measured on a real control plane."""
DEADLINE_EXCEEDED = "DeadlineExceeded"
_PLAIN = ("suspend", "ttlSecondsAfterFinished")
_CHANGEABLE = ("nodeSelector", "tolerations", "affinity", "schedulingGates")


class TrainerController(ModelController[Key]):
    """Trainer's manager."""

    name = "trainer-controller"

    def __init__(self, server: ApiServer, clock: Clock, entropy: Entropy, *, limiter: Limiter | None = None) -> None:
        """`limiter` None: 500 requests a second and a burst of 500, which is more than it needs."""
        limiter = limiter or Limiter(clock, per_second=500.0, burst=500)
        super().__init__(server, clock, entropy, limiter=limiter, delay_seconds=DELAY_SECONDS)
        self._deadlines: dict[Key, datetime] = {}
        """By TrainJob: the deadline at which a sync is already scheduled."""
        server.subscribe(self._on_change, TRAIN_JOBS, JOB_SETS)
        for trainjob in server.objects(TRAIN_JOBS):
            self.enqueue((trainjob["metadata"]["namespace"], trainjob["metadata"]["name"]))

    def _on_change(self, change: ObjectChange) -> None:
        meta = change.body["metadata"]
        if change.resource == TRAIN_JOBS:
            self.enqueue((meta["namespace"], meta["name"]))
            return
        for owner in meta.get("ownerReferences", ()):
            if owner.get("controller") and owner["kind"] == TRAIN_JOBS.kind:
                self.enqueue((meta["namespace"], owner["name"]))

    async def sync(self, key: Key) -> None:
        """Sync the JobSet, then the status. The status is written even if the write of the JobSet was refused."""
        namespace, name = key
        trainjob = self.server.find(TRAIN_JOBS, name, namespace)
        if trainjob is None:
            return
        status = TrainJobStatus(trainjob, self.clock.now())
        refused: StatusError | None = None
        if not status.finished():
            try:
                await self._apply(trainjob)
            except StatusError as error:
                refused = error
        status.suspend(suspended=trainjob["spec"]["suspend"])
        jobset = self.server.find(JOB_SETS, name, namespace)
        if jobset is not None:
            status.follow(jobset)
        elif not status.finished():
            missing = StatusError(404, "NotFound", f'jobsets.jobset.x-k8s.io "{name}" not found')
            refused = refused or missing
        await self._end_by_deadline(key, trainjob, status)
        if status.changed():
            await self.limiter.take()
            with self.server.acting(self.name):
                patch = {"status": status.body()}
                self.server.patch(
                    TRAIN_JOBS, name, patch, kind=PatchKind.MERGE, namespace=namespace, subresource="status"
                )
        if refused is not None:
            raise refused

    async def _apply(self, trainjob: Body) -> None:
        """Create or update the JobSet. An existing one is written only while it or the TrainJob is suspended."""
        meta = trainjob["metadata"]
        await self.limiter.take()
        jobset = self.server.find(JOB_SETS, meta["name"], meta["namespace"])
        if jobset is not None and not trainjob["spec"]["suspend"] and not jobset["spec"].get("suspend"):
            return
        wanted = build_jobset(trainjob, self._runtime(trainjob))
        with self.server.acting(self.name):
            if jobset is None:
                self.server.create(JOB_SETS, wanted, namespace=meta["namespace"])
                return
            applied = applied_to(jobset, wanted)
            if applied != jobset:
                self.server.replace(JOB_SETS, applied, namespace=meta["namespace"])

    def _runtime(self, trainjob: Body) -> Body:
        """The runtime as it was at the TrainJob's first sync. It is kept in a ConfigMap that the TrainJob owns."""
        meta, reference = trainjob["metadata"], trainjob["spec"]["runtimeRef"]
        name = f"{meta['name']}-runtime-snapshot"
        snapshot = self.server.find(CONFIG_MAPS, name, meta["namespace"])
        if snapshot is not None:
            if snapshot["metadata"]["ownerReferences"][0]["uid"] != meta["uid"]:
                message = "invalid runtime snapshot: a snapshot configmap exists but is owned by another object"
                raise StatusError(409, "Conflict", message)
            kept: Body = msgspec.json.decode(snapshot["data"]["runtime"])
            return kept
        if reference["kind"] == CLUSTER_TRAINING_RUNTIMES.kind:
            runtime = self.server.get(CLUSTER_TRAINING_RUNTIMES, reference["name"])
        else:
            runtime = self.server.get(TRAINING_RUNTIMES, reference["name"], namespace=meta["namespace"])
        body: Body = {
            "apiVersion": CONFIG_MAPS.api_version,
            "kind": CONFIG_MAPS.kind,
            "metadata": {
                "name": name,
                "namespace": meta["namespace"],
                "ownerReferences": [owner_reference(trainjob)],
            },
            "data": {"runtime": msgspec.json.encode(runtime).decode()},
        }
        with self.server.acting(self.name):
            self.server.create(CONFIG_MAPS, body, namespace=meta["namespace"])
        return runtime

    async def _end_by_deadline(self, key: Key, trainjob: Body, status: "TrainJobStatus") -> None:
        """activeDeadlineSeconds counts from the creation or the last resume. After it the JobSet is deleted."""
        seconds = trainjob["spec"].get("activeDeadlineSeconds", 0)
        if not seconds or status.finished() or trainjob["spec"]["suspend"]:
            return
        since = status.resumed_at() or trainjob["metadata"]["creationTimestamp"]
        deadline = datetime.fromisoformat(since) + timedelta(seconds=seconds)
        left_seconds = (deadline - self.clock.now()).total_seconds()
        if left_seconds >= 0:
            if self._deadlines.get(key) != deadline:
                self._deadlines[key] = deadline
                self.enqueue_after(key, left_seconds + 0.001)  # The sync must come after the deadline.
            return
        status.fail(DEADLINE_EXCEEDED, "TrainJob exceeded its active deadline")
        await self.limiter.take()
        try:
            with self.server.acting(self.name):
                self.server.delete(JOB_SETS, key[1], namespace=key[0])
        except StatusError as error:
            if error.code != 404:
                raise


class TrainJobStatus:
    """The status during one sync of a TrainJob."""

    def __init__(self, trainjob: Body, now: datetime) -> None:
        """The old Failed condition is dropped, unless it is by the deadline: a failed JobSet reports it again."""
        self._before: dict[str, Any] = trainjob.get("status", {})
        self._conditions = [each for each in self._before.get("conditions", ()) if not _is_forgotten(each)]
        self._jobs: list[dict[str, Any]] = self._before.get("jobsStatus", [])
        self._now = timestamp(now)

    def body(self) -> dict[str, Any]:
        """The status as a merge patch, which removes fields that are empty now."""
        return {"conditions": self._conditions or None, "jobsStatus": self._jobs or None}

    def changed(self) -> bool:
        before = (self._before.get("conditions", []), self._before.get("jobsStatus", []))
        return (self._conditions, self._jobs) != before

    def finished(self) -> bool:
        return any(each["type"] in {"Complete", "Failed"} and each["status"] == "True" for each in self._conditions)

    def suspend(self, *, suspended: bool) -> None:
        if suspended:
            self._set("Suspended", "True", "Suspended", "TrainJob is suspended", self._now)
        elif any(each["type"] == "Suspended" and each["status"] == "True" for each in self._conditions):
            self._set("Suspended", "False", "Resumed", "TrainJob is resumed", self._now)

    def resumed_at(self) -> str | None:
        """When the TrainJob was last resumed. None: it was never suspended, or it is suspended now."""
        for each in self._conditions:
            if each["type"] == "Suspended" and each["status"] == "False":
                return str(each["lastTransitionTime"])
        return None

    def fail(self, reason: str, message: str) -> None:
        self._set("Failed", "True", reason, message, self._now)

    def follow(self, jobset: Body) -> None:
        """Take over the JobSet's end and its counts of Jobs. A failure by the deadline stays as it is."""
        status = jobset.get("status", {})
        by_deadline = next((each for each in self._conditions if each["type"] == "Failed"), None)
        for each in status.get("conditions", ()):
            of_type = {"Completed": "Complete", "Failed": "Failed"}.get(each["type"])
            if of_type and each["status"] == "True" and not (of_type == "Failed" and by_deadline):
                self._set(of_type, "True", each["reason"], each["message"], each["lastTransitionTime"])
        self._jobs = status.get("replicatedJobsStatus", [])

    def _set(self, of_type: str, status: str, reason: str, message: str, at: str) -> None:
        """Set a condition. `at`: its transition time if the status changes."""
        met = {"type": of_type, "status": status, "reason": reason, "message": message}
        for number, each in enumerate(self._conditions):
            if each["type"] == of_type:
                since = each["lastTransitionTime"] if each["status"] == status else at
                self._conditions[number] = {**met, "lastTransitionTime": since}
                return
        self._conditions.append({**met, "lastTransitionTime": at})


def _is_forgotten(condition: dict[str, Any]) -> bool:
    return bool(condition["type"] == "Failed" and condition["reason"] != DEADLINE_EXCEEDED)


def applied_to(jobset: Body, wanted: Body) -> Body:
    """The JobSet with the changeable fields of `wanted`. Its pod templates lose such fields that `wanted` lacks."""
    meta = dict(jobset["metadata"])
    for field in ("labels", "annotations"):
        if field in wanted["metadata"]:
            meta[field] = {**meta.get(field, {}), **wanted["metadata"][field]}
    wanted_pods = {each["name"]: each["template"]["spec"]["template"] for each in wanted["spec"]["replicatedJobs"]}
    replicated_jobs = [
        _applied(each, wanted_pods[each["name"]]) if each["name"] in wanted_pods else each
        for each in jobset["spec"]["replicatedJobs"]
    ]
    plain = {
        field: wanted["spec"][field] for field in ("suspend", "ttlSecondsAfterFinished") if field in wanted["spec"]
    }
    spec = {**jobset["spec"], **plain, "replicatedJobs": replicated_jobs}
    return {**jobset, "metadata": meta, "spec": spec}


def _applied(replicated: dict[str, Any], pods: dict[str, Any]) -> dict[str, Any]:
    template = replicated["template"]
    present = template["spec"]["template"]
    spec = _with(present["spec"], pods["spec"], _CHANGEABLE)
    metadata = _with(present.get("metadata", {}), pods.get("metadata", {}), ("labels", "annotations"))
    changed = {**present, "spec": spec} if not metadata else {**present, "metadata": metadata, "spec": spec}
    return {**replicated, "template": {**template, "spec": {**template["spec"], "template": changed}}}


def _with(present: dict[str, Any], wanted: dict[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    kept = {key: value for key, value in present.items() if key not in fields}
    return kept | {field: wanted[field] for field in fields if field in wanted}
