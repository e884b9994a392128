"""The verdict on a recovery: was it done exactly once, and is what the controller says about it true?

Every test that breaks something uses it. What happened comes from the training model's own trace. What was written
comes from the proxy's record. The controller's account is compared with both.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from recovery.core.model.annotations import JOINED_PROBE_ANNOTATION
from recovery.ports import JOB_SETS, RECOVERY_INCIDENTS, TRAIN_JOBS, Resource
from recovery.sim.training.trace import EventKind
from recovery.sim.trials.lost_time import API_TIME, Account, Booked, Dated, beyond, lost_time, outages
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.scene import Job, Object, until
from tests.cluster.stations import is_trigger

GPUS_PER_RANK = 8
_ORDER = ["Detected", "Decided", "TearingDown", "Scheduling", "Starting", "Rendezvous"]
_WRITES = {
    "POST recoverygroups",
    "PATCH recoverygroups/status",
    "POST recoveryincidents",
    "POST events",
    "DELETE jobs",
    "PATCH jobs",
    "DELETE pods",
    "PATCH recoverypolicies/status",
}
TIME_TOLERANCE = timedelta(seconds=2)
"""API times have whole seconds, and a rank that gets SIGTERM is lost a moment later."""


@dataclass(frozen=True)
class Member:
    """A rank's pod and node, as the incident's message must name them."""

    pod: str
    rank: int
    node: str

    def __str__(self) -> str:
        return f"pod {self.pod} (rank {self.rank}, node {self.node})"


@dataclass(frozen=True)
class Before:
    """What a test remembers of a training that it is about to break."""

    at: datetime
    step: int
    job_uid: str
    job_set_uid: str
    members: Sequence[Member]

    def __getitem__(self, rank: int) -> Member:
        return self.members[rank]


def member(pod: Object) -> Member:
    """The rank of a pod. `node` is empty while the pod has no node."""
    rank = int(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"])
    return Member(pod["metadata"]["name"], rank, pod["spec"].get("nodeName", ""))


async def remember(job: Job) -> Before:
    """The training as it is now, whole and undisturbed."""
    members = [member(pod) for pod in await job.pods()]
    job_set, job_uid = await _one(job, JOB_SETS), await job.child_uid()
    assert len(members) == job.ranks
    return Before(
        at=job.fleet.clock.now(),
        step=job.fleet.world.step_of(job.training),
        job_uid=job_uid,
        job_set_uid=job_set["metadata"]["uid"],
        members=sorted(members, key=lambda found: found.rank),
    )


async def assert_recovered_once(
    job: Job,
    proxy: ApiProxy,
    before: Before,
    *,
    suspects: Sequence[Member],
    exit_code: int | None = None,
    triggers: int = 1,
    then: str = "",
    last_kill_at: datetime | None = None,
    dated_at: datetime | None = None,
) -> Object:
    """The whole verdict. Returns the RecoveryIncident's spec, for further assertions of a test.

    `suspects`: the message must name one of them. `exit_code`: that of the first loss, if any. `triggers`: how many
    group restarts the failures require. `then`: how the message continues after a second loss. `last_kill_at`: when the
    last failure was caused, if it was not the first. `dated_at`: the earliest date that any object still shows, where
    the loss itself has left no trace in the objects.
    """
    history = await job.closed_incidents(1)
    since = last_kill_at or before.at
    await until(
        f"all ranks of {job.training} train past step {before.step}, which they had reached before the failure",
        lambda: job.fleet.world.passed(job.training, before.step, since),
    )
    ledger = await job.ledger()
    records = [item["spec"] for item in await job.items(RECOVERY_INCIDENTS)]
    assert [entry["outcome"] for entry in history] == ["Recovered"], json.dumps(history, indent=1)
    assert [record["id"] for record in records] == [history[0]["id"]], "one RecoveryIncident"
    incident: Object = records[0]
    _assert_charged_once(ledger, incident)
    _assert_triggered(job, proxy, ledger, incident, triggers)
    await _assert_wrote_no_more_than_it_had_to(job, proxy)
    await _assert_platform_is_whole(job, before)
    _assert_agrees_with_the_trace(job, incident, before, dated_at)
    _assert_conserves_lost_time(job, ledger, incident, before, dated_at)
    await _assert_knows_what_ready_means(job, incident)
    _assert_accounts_for_every_second(job, ledger, incident)
    _assert_sentence(job, incident, suspects, exit_code, then)
    return incident


def assert_one_trigger(proxy: ApiProxy) -> None:
    """One trigger was carried out. Earlier ones may have been refused, if a pod's loss had just changed the Job."""
    statuses = [seen.status for seen in proxy.writes(is_trigger)]
    assert statuses == [*[409] * (len(statuses) - 1), 200]


def _assert_charged_once(ledger: Object, incident: Object) -> None:
    assert incident["charged"] is True
    assert (ledger["totals"]["incidents"], ledger["totals"]["charged"], len(ledger["budget"]["charges"])) == (1, 1, 1)


def _assert_triggered(job: Job, proxy: ApiProxy, ledger: Object, incident: Object, expected: int) -> None:
    """The server took one child Job deletion for each epoch increment that was not adopted, and each Job UID once."""
    deletes = proxy.writes(lambda seen: seen.method == "DELETE" and seen.resource == "jobs")
    taken = [delete for delete in deletes if delete.status is not None and 200 <= delete.status < 300]
    options = [json.loads(delete.body) for delete in taken]
    assert all(option["propagationPolicy"] == "Foreground" for option in options)
    assert all(option["preconditions"].keys() == {"uid", "resourceVersion"} for option in options)
    uids = [option["preconditions"]["uid"] for option in options]
    actions = [attempt["action"] for attempt in incident["attempts"]]
    adopted = actions.count("Adopted")
    story = f"attempts {actions}, epoch {ledger['epoch']}, deleted Jobs {uids}"
    assert len(set(uids)) == len(uids), f"no Job is deleted twice: {story}"
    assert len(taken) == ledger["epoch"] - adopted == actions.count("RecreateGroup") == expected, story
    assert ledger["totals"]["restarts"] == ledger["epoch"]
    assert all(delete.path.endswith(f"/jobs/{job.child}") for delete in taken)


async def _assert_wrote_no_more_than_it_had_to(job: Job, proxy: ApiProxy) -> None:
    """It wrote the ledger before the action, and the Job's claim or trigger before it deleted pods. It deleted no pod
    of the running group, and wrote nothing else."""
    done = [write for write in proxy.writes() if write.status is not None and write.status < 300]
    kinds = [f"{write.method} {write.resource}" for write in done]
    unexpected = {kind for kind in kinds if kind not in _WRITES and not kind.startswith("POST selfsubject")}
    assert not unexpected
    first = min(kinds.index(kind) for kind in ("PATCH jobs", "DELETE jobs") if kind in kinds)
    assert kinds.index("PATCH recoverygroups/status") < first
    deleted = [json.loads(write.body)["preconditions"]["uid"] for write in done if write.resource == "pods"]
    if deleted:
        assert first < kinds.index("DELETE pods")
    assert not {pod["metadata"]["uid"] for pod in await job.pods()} & set(deleted), "it deleted a pod of the new group"


async def _assert_platform_is_whole(job: Job, before: Before) -> None:
    """A new Job runs, nothing is left of the old one, and neither the JobSet nor the TrainJob has failed."""
    owners = {pod["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] for pod in await job.pods()}
    job_uid = await job.child_uid()
    assert job_uid != before.job_uid
    assert owners == {job_uid}, "no pod of an old Job UID is left"
    job_set = await _one(job, JOB_SETS)
    assert job_set["metadata"]["uid"] == before.job_set_uid
    assert not job_set["status"].get("terminalState"), job_set["status"]
    train_job = await _one(job, TRAIN_JOBS)
    assert "Failed" not in {condition["type"] for condition in train_job["status"].get("conditions", [])}


def _assert_agrees_with_the_trace(job: Job, incident: Object, before: Before, dated_at: datetime | None) -> None:
    """The incident starts and ends when the model says so, and two incarnations never ran at the same time."""
    trace = job.fleet.world.trace
    assert trace.overlaps(job.training) == []
    lost_at = next(r.at for r in trace.of(job.training, EventKind.RANK_LOST) if r.at >= before.at)
    formed_at = trace.of(job.training, EventKind.ROUND_FORMED)[-1].at
    started_at = moment(incident["startedAt"])
    assert abs(started_at - (dated_at or lost_at)) <= TIME_TOLERANCE, (started_at, dated_at, lost_at)
    assert abs(moment(incident["endedAt"]) - formed_at) <= TIME_TOLERANCE, (incident["endedAt"], formed_at)


def _assert_conserves_lost_time(
    job: Job, ledger: Object, incident: Object, before: Before, dated_at: datetime | None
) -> None:
    """The incident books all time in which the training did not run, except before the first dated evidence. It books
    no other time.

    Kubernetes dates evidence and Ready in whole seconds. So the incident may begin up to 1 s before the stop, and end
    up to 1 s after the ranks met. A rank that gets SIGTERM is lost a moment after its deletion, and a kubelet takes a
    moment to run a readiness probe. `TIME_TOLERANCE` covers both.
    """
    now = job.fleet.clock.now()
    stops = [each for each in outages(job.fleet.world.rounds(job.training), now) if each.until > before.at]
    mine = Booked(incident["id"], moment(incident["startedAt"]), moment(incident["endedAt"]), incident["outcome"])
    dated = [Dated(dated_at, seen_at=dated_at)] if dated_at else [Dated(stop.since, stop.since) for stop in stops]
    lost = [each for stop in stops for each in lost_time(stop, [mine], dated)]
    of_another = [each for each in lost if each.account not in {Account.BOOKED, Account.UNDATED}]
    assert sum(each.seconds for each in of_another) <= TIME_TOLERANCE.total_seconds(), of_another
    besides = list(beyond(mine, stops))
    assert all(each.seconds <= TIME_TOLERANCE.total_seconds() for each in besides), besides
    undated = sum(each.seconds for each in lost if each.account == Account.UNDATED)
    expected = max(0.0, (dated_at - stops[0].since).total_seconds()) if dated_at else 0.0
    assert abs(undated - expected) <= API_TIME.total_seconds(), (undated, expected)
    lost_gpu_seconds = sum(each.seconds for each in (*lost, *besides)) * incident["gpus"]
    accounted = [undated, *(each.seconds for each in of_another)]
    booked = sum(ledger["totals"]["idleGpuSeconds"].values()) + ledger["totals"].get("releasedGpuSeconds", 0.0)
    rounding = 0.001 * len(incident["phases"]) + 1e-3
    assert abs(booked + sum(accounted) * incident["gpus"] - lost_gpu_seconds) <= rounding, (booked, lost_gpu_seconds)


async def _assert_knows_what_ready_means(job: Job, incident: Object) -> None:
    """The recovery is verified exactly where Ready means that a rank has joined."""
    joined = all(JOINED_PROBE_ANNOTATION in pod["metadata"]["annotations"] for pod in await job.pods())
    source, verified, done = ("joined-probe", True, "have joined") if joined else ("ready", False, "are Ready")
    assert (incident["source"], incident.get("verified", False)) == (source, verified)
    proof = f"(source: {source}, verified: {str(verified).lower()})"
    assert incident["message"].endswith(f"all {job.ranks} ranks {done} {proof}"), incident["message"]


def _assert_accounts_for_every_second(job: Job, ledger: Object, incident: Object) -> None:
    """Phases are contiguous from the failure to the end, and each GPU of the group is idle throughout."""
    gpus, spans = job.ranks * GPUS_PER_RANK, incident["phases"]
    names = [span["phase"] for span in spans]
    triggers = sum(attempt["action"] == "RecreateGroup" for attempt in incident["attempts"])
    assert names[:2] == ["Detected", "Decided"]
    backwards = [other for one, other in pairwise(names) if _ORDER.index(other) <= _ORDER.index(one)]
    assert backwards == ["Decided"] * (triggers - 1), names
    assert incident["gpus"] == gpus
    assert spans[0]["startedAt"] == incident["startedAt"]
    assert spans[-1]["endedAt"] == incident["endedAt"]
    assert all(one["endedAt"] == other["startedAt"] for one, other in pairwise(spans)), spans
    seconds = (moment(incident["endedAt"]) - moment(incident["startedAt"])).total_seconds()
    rounding = 0.001 * len(spans)
    assert abs(incident["idleGpuSeconds"] - seconds * gpus) <= rounding
    assert abs(sum(span.get("idleGpuSeconds", 0.0) for span in spans) - seconds * gpus) <= rounding
    assert abs(sum(ledger["totals"]["idleGpuSeconds"].values()) - seconds * gpus) <= rounding


def _assert_sentence(job: Job, incident: Object, suspects: Sequence[Member], exit_code: int | None, then: str) -> None:
    """The message names pod, rank, node, exit code, the rule or default that decided, and the action."""
    sentence: str = incident["message"]
    first, _, rest = sentence.partition("; then ")
    named = [suspect for suspect in suspects if str(suspect) in first]
    assert named, f"{first!r} names none of {[str(suspect) for suspect in suspects]}"
    assert (f"exit code {exit_code}" in first) if exit_code is not None else ("exit code" not in first), first
    assert "no rule matched, so the default of policy default (RecreateGroupOnPodRestart) applies" in first
    assert f"deleting Job {job.child} so that all {job.ranks} ranks restart together" in first
    assert then in rest if then else not rest, sentence
    root = incident["suspects"][0]
    assert Member(root["pod"], root["index"], root["node"]) in named
    assert root.get("exitCode") == exit_code


def moment(text: str) -> datetime:
    """Parse an API time."""
    return datetime.fromisoformat(text)


async def _one(job: Job, resource: Resource) -> Object:
    """The object that has the job's name."""
    found = [item for item in await job.items(resource) if item["metadata"]["name"] == job.name]
    assert len(found) == 1, f"one {resource.kind} {job.name}"
    only: Object = found[0]
    return only
