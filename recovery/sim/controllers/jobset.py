"""JobSet 0.12: it creates the child Jobs of JobSets, restarts all of them together, and reports their status.

Source: jobset v0.12 `pkg/controllers/jobset_controller.go`. A sync has the same order of steps as there, because a step
is reached only if no earlier step ended the sync.

Differences from the real one:
- no exclusive placement, neither its pod webhooks nor its pod controller;
- none of the alpha features: in-place restarts, restarts of single Jobs, elastic JobSets;
- no coordinator, managedBy, volumeClaimPolicies;
- no Events except that Jobs could not be created (`jobset_events`), because nothing reads the others;
- its cache is always fresh, so it gets fewer conflicts; only its delay and `stall` make it late;
- message patterns are Python's regular expressions, not RE2.
"""

from recovery.ports import JOB_SETS, JOBS, Clock, Entropy, Propagation, Resource
from recovery.sim.api.kinds.core import SERVICES
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.metadata import timestamp
from recovery.sim.api.server import ApiServer
from recovery.sim.api.status_error import StatusError
from recovery.sim.api.store import ObjectChange
from recovery.sim.controllers.controller import ModelController
from recovery.sim.controllers.job_ttl import seconds_left
from recovery.sim.controllers.jobset_events import JobSetEvents
from recovery.sim.controllers.jobset_jobs import (
    JOBSET_NAME,
    REPLICATED_JOB_NAME,
    Children,
    children,
    job_name,
    make_job,
    owner_reference,
    subdomain,
)
from recovery.sim.controllers.jobset_policies import (
    all_ready,
    apply_failure_policy,
    dependencies_met,
    in_order,
    started,
    succeeded,
)
from recovery.sim.controllers.jobset_status import Counts, JobSetStatus, count_jobs
from recovery.sim.controllers.request_limiter import Limiter

Key = tuple[str, str]
"""Namespace and name of a JobSet."""

WORKERS = 1
"""controller-runtime's default, which JobSet does not change."""
DELAY_SECONDS = (0.008, 0.04)
"""Delay between a change and its sync: the usual range measured on a real control plane."""


class JobSetController(ModelController[Key]):
    """JobSet's manager."""

    name = "jobset-controller"
    longest_retry_seconds = 1000.0  # controller-runtime's default; in kube-controller-manager it is 30

    def __init__(self, server: ApiServer, clock: Clock, entropy: Entropy, *, limiter: Limiter | None = None) -> None:
        """`limiter` None: 500 requests a second and a burst of 500, JobSet's default."""
        limiter = limiter or Limiter(clock, per_second=500.0, burst=500)
        super().__init__(server, clock, entropy, limiter=limiter, delay_seconds=DELAY_SECONDS, workers=WORKERS)
        self._events = JobSetEvents(server, clock)
        server.subscribe(self._on_change, JOB_SETS, JOBS, SERVICES)
        for jobset in server.objects(JOB_SETS):
            self.enqueue((jobset["metadata"]["namespace"], jobset["metadata"]["name"]))

    def _on_change(self, change: ObjectChange) -> None:
        meta = change.body["metadata"]
        if change.resource == JOB_SETS:
            self.enqueue((meta["namespace"], meta["name"]))
            return
        for owner in meta.get("ownerReferences", ()):
            if owner.get("controller") and owner["kind"] == JOB_SETS.kind:
                self.enqueue((meta["namespace"], owner["name"]))

    async def sync(self, key: Key) -> None:
        """Sync one JobSet. Its status is written at most once, at the end."""
        namespace, name = key
        jobset = self.server.find(JOB_SETS, name, namespace)
        if jobset is None or "deletionTimestamp" in jobset["metadata"]:
            return
        status = JobSetStatus(jobset, timestamp(self.clock.now()))
        await self._reconcile(jobset, status)
        if status.changed:
            # The body has the resourceVersion that was read, so any change since then causes a conflict and a new sync.
            body = {**jobset, "status": status.body()}
            await self.limiter.take()
            with self.server.acting(self.name):
                self.server.replace(JOB_SETS, body, namespace=namespace, subresource="status")

    async def _reconcile(self, jobset: Body, status: JobSetStatus) -> None:
        jobs = children(jobset, self.server.dependants(jobset["metadata"]["uid"]))
        counts = count_jobs(jobset, jobs)
        status.count(counts)
        if status.finished():
            await self._delete(JOBS, jobs.active)
            await self._expire(jobset, status)
            return
        await self._delete(JOBS, jobs.previous)
        suspended = bool(jobset["spec"].get("suspend"))
        if not suspended and all_ready(jobset, counts):
            status.jobs_ready()
        if jobs.failed:
            apply_failure_policy(jobset, jobs.failed, status)
            return
        if jobs.successful and succeeded(jobset, jobs):
            status.complete()
            return
        await self._create_service(jobset)
        await self._create_jobs(jobset, jobs, counts, status)
        if suspended:
            await self._suspend(jobs.active)
            status.suspend()
        else:
            await self._resume(jobset, jobs.active, counts, status)

    async def _expire(self, jobset: Body, status: JobSetStatus) -> None:
        """Delete a finished JobSet whose `ttlSecondsAfterFinished` is over, or sync it again when it will be."""
        ttl = jobset["spec"].get("ttlSecondsAfterFinished")
        if ttl is None:
            return
        left = seconds_left(status.finished_at(), ttl, self.clock.now())
        if left > 0:
            self.enqueue_after((jobset["metadata"]["namespace"], jobset["metadata"]["name"]), left)
        else:
            await self._delete(JOB_SETS, [jobset])

    async def _delete(self, resource: Resource, bodies: list[Body]) -> None:
        """Delete them in the foreground, so a name is free when its pods are gone. Skip those being deleted."""
        for body in bodies:
            meta = body["metadata"]
            if "deletionTimestamp" in meta:
                continue
            await self.limiter.take()
            try:
                with self.server.acting(self.name):
                    self.server.delete(
                        resource, meta["name"], namespace=meta["namespace"], propagation=Propagation.FOREGROUND
                    )
            except StatusError as error:
                if error.code != 404:
                    raise

    async def _create_service(self, jobset: Body) -> None:
        """Create the headless Service for the pods' DNS names, unless any Service with that name exists."""
        spec, meta = jobset["spec"], jobset["metadata"]
        name, namespace = subdomain(jobset), meta["namespace"]
        if not spec["network"]["enableDNSHostnames"] or self.server.find(SERVICES, name, namespace) is not None:
            return
        body: Body = {
            "apiVersion": SERVICES.api_version,
            "kind": SERVICES.kind,
            "metadata": {"name": name, "namespace": namespace, "ownerReferences": [owner_reference(jobset)]},
            "spec": {
                "clusterIP": "None",
                "selector": {JOBSET_NAME: meta["name"]},
                "publishNotReadyAddresses": spec["network"]["publishNotReadyAddresses"],
            },
        }
        await self._create(SERVICES, body)

    async def _create_jobs(self, jobset: Body, jobs: Children, counts: Counts, status: JobSetStatus) -> None:
        policy = jobset["spec"].get("failurePolicy") or {}
        blocked = bool(jobs.previous) and policy.get("restartStrategy") == "BlockingRecreate"
        ordered = in_order(jobset) and not jobset["spec"].get("suspend")
        taken = jobs.names()
        for replicated in jobset["spec"].get("replicatedJobs", ()):
            if not dependencies_met(jobset, replicated, counts) or (ordered and started(replicated, counts)):
                continue
            if not blocked:
                await self._create_replicas(jobset, replicated, taken)
            if ordered:
                status.starting_in_order()
                return
        if ordered:
            status.started_in_order()

    async def _create_replicas(self, jobset: Body, replicated: Body, taken: set[str]) -> None:
        """Create the Jobs whose names are not taken. If some are refused, the sync fails after all were tried."""
        refused: dict[str, StatusError] = {}
        for index in range(replicated["replicas"]):
            name = job_name(jobset, replicated, index)
            if name in taken:
                continue
            try:
                await self._create(JOBS, make_job(jobset, replicated, index))
            except StatusError as error:
                refused[name] = error
        if refused:
            words = (f'job "{name}" creation failed with error: {error.message}' for name, error in refused.items())
            with self.server.acting(self.name):
                self._events.jobs_refused(jobset, "\n".join(words))
            raise next(iter(refused.values()))

    async def _create(self, resource: Resource, body: Body) -> None:
        await self.limiter.take()
        with self.server.acting(self.name):
            self.server.create(resource, body, namespace=body["metadata"]["namespace"])

    async def _suspend(self, active: list[Body]) -> None:
        for job in active:
            if not job["spec"].get("suspend"):
                await self._replace({**job, "spec": {**job["spec"], "suspend": True}})

    async def _resume(self, jobset: Body, active: list[Body], counts: Counts, status: JobSetStatus) -> None:
        ordered = in_order(jobset)
        for replicated in jobset["spec"].get("replicatedJobs", ()):
            if not dependencies_met(jobset, replicated, counts) or (ordered and started(replicated, counts)):
                continue
            for job in active:
                if job["metadata"]["labels"][REPLICATED_JOB_NAME] == replicated["name"] and job["spec"].get("suspend"):
                    await self._resume_job(job, replicated["template"]["spec"]["template"])
            if ordered:
                status.starting_in_order()
                return
        status.resume()

    async def _resume_job(self, job: Body, template: Body) -> None:
        """Resume a Job. Its pod template may change only without startTime, so a separate write removes that first."""
        if "startTime" in job.get("status", {}):
            status = {key: value for key, value in job["status"].items() if key != "startTime"}
            job = await self._replace({**job, "status": status}, subresource="status")
        spec = {**job["spec"], "suspend": False, "template": merged_template(job["spec"]["template"], template)}
        await self._replace({**job, "spec": spec})

    async def _replace(self, job: Body, subresource: str = "") -> Body:
        await self.limiter.take()
        with self.server.acting(self.name):
            return self.server.replace(JOBS, job, namespace=job["metadata"]["namespace"], subresource=subresource)


def merged_template(pods: Body, wanted: Body) -> Body:
    """The Job's pod template with the additions made to the JobSet while it was suspended. Nothing is removed.

    Tolerations are compared like Go structs. `tolerationSeconds` is a pointer, so a toleration that has it never equals
    a present one, and each resume adds it once more (`pkg/util/collections`, MergeSlices).
    """
    metadata, spec = {**pods.get("metadata", {})}, {**pods["spec"]}
    for field in ("labels", "annotations"):
        if added := wanted.get("metadata", {}).get(field):
            metadata[field] = {**metadata.get(field, {}), **added}
    if added := wanted["spec"].get("nodeSelector"):
        spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **added}
    for field in ("tolerations", "schedulingGates"):
        present = spec.get(field, [])
        added = [each for each in wanted["spec"].get(field, ()) if "tolerationSeconds" in each or each not in present]
        if added:
            spec[field] = [*present, *added]
    return {**pods, "metadata": metadata, "spec": spec}
