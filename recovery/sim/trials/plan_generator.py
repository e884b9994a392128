"""Draws a trial from a seed: the jobs, their policies, the faults, and how bad the network is.

Three trials in ten have no API fault at all, so that they can be held to time limits. One in ten has no other fault,
to show that the controller leaves healthy jobs alone. The rest mix everything.
"""

import random
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from recovery.scenario.failure_sign import Sign
from recovery.scenario.modelled_job import JobAdmission, Marking, PlannedRuntime, PodFailures, Sidecar, TrainingKind
from recovery.sim.kubelets.processes import SIGTERM_CODE
from recovery.sim.trials.faults import FaultKey, FaultKind, TrialFault
from recovery.sim.trials.manifests import KILLABLE, NATIVE_CODE, container_name
from recovery.sim.trials.neighbours import with_neighbours
from recovery.sim.trials.plan import FaultRates, JobPlan, Saves, TrialPlan
from recovery.sim.trials.policy_generator import NAMESPACES, drawn_config, drawn_policy, with_interval, with_trust

_Seconds = tuple[float, float]

_OF_JOBS: tuple[tuple[FaultKind, float, _Seconds], ...] = (
    (FaultKind.POD_KILL, 8, (0, 0)),
    (FaultKind.POD_FORCE_DELETE, 2, (0, 0)),
    (FaultKind.POD_EVICT, 3, (0, 0)),
    (FaultKind.CONTAINER_KILL, 10, (0, 0)),
    (FaultKind.CASCADE, 6, (0, 0)),
    (FaultKind.POD_PREEMPT, 2, (0, 0)),
    (FaultKind.POD_STUCK, 2, (60, 600)),
    (FaultKind.CRASH_LOOP, 2, (120, 1500)),
    (FaultKind.NODE_POWER_LOSS, 3, (20, 900)),
    (FaultKind.NODE_PARTITION, 3, (20, 900)),
    (FaultKind.NODE_REMOVE, 1, (10, 300)),
    (FaultKind.NODE_OUT_OF_SERVICE, 2, (100, 900)),
    (FaultKind.NODE_DRAIN, 3, (60, 900)),
    (FaultKind.NODE_UNHEALTHY, 3, (20, 900)),
    (FaultKind.NODE_MONITORED, 2, (20, 900)),
    (FaultKind.BLACK_HOLE, 2, (30, 600)),
    (FaultKind.BROKEN_RUNTIME, 2, (30, 900)),
    (FaultKind.RACK_POWER_LOSS, 1.5, (60, 600)),
    (FaultKind.RACK_OVERHEATS, 3, (20, 600)),
    (FaultKind.NO_CAPACITY, 1, (60, 600)),
    (FaultKind.PODS_REFUSED, 2, (20, 400)),
    (FaultKind.JOB_WITHOUT_PODS, 2, (60, 600)),
    (FaultKind.MANAGER_STALL, 2, (5, 120)),
    (FaultKind.JOBSET_STALL, 2, (5, 120)),
    (FaultKind.TRAINER_STALL, 1, (5, 120)),
    (FaultKind.USER_SUSPEND, 3, (10, 600)),
    (FaultKind.USER_DELETE, 0.5, (0, 0)),
    (FaultKind.USER_RECREATE, 1, (0, 0)),
    (FaultKind.USER_PAUSE, 2, (10, 900)),
    (FaultKind.USER_RESTART, 2, (0, 0)),
    (FaultKind.USER_RETRY, 4, (0, 0)),
    (FaultKind.USER_RESET_BUDGET, 1, (0, 0)),
    (FaultKind.USER_QUARANTINE, 1.5, (0, 0)),
    (FaultKind.USER_RELEASE, 2, (0, 0)),
    (FaultKind.USER_UNTAINT, 3, (0, 0)),
    (FaultKind.USER_RESET_BREAKER, 4, (0, 0)),
    (FaultKind.PAUSE_ALL, 1, (10, 600)),
    (FaultKind.POLICY_OBSERVE, 2, (10, 600)),
    (FaultKind.POLICY_DELETE, 1, (10, 600)),
    (FaultKind.PROCESS_KILL, 2, (0.5, 120)),
    (FaultKind.PROCESS_FREEZE, 2, (5, 90)),
)
"""Kind of fault, its weight, and the least and most seconds that it lasts."""
_OF_RUNS: tuple[tuple[FaultKind, float, _Seconds], ...] = (
    (FaultKind.USER_SUSPEND, 0.1, (0.3, 8)),
    (FaultKind.USER_DELETE_JOB, 0.05, (0, 0)),
    (FaultKind.USER_DELETE_JOBSET, 0.05, (0, 0)),
    (FaultKind.NODE_PARTITION, 0.07, (42, 70)),
)
"""Kind of fault, the share of the jobs that have it, and the least and most seconds that it lasts."""
_CODES = (1, 1, 137, 139, 143, 255, NATIVE_CODE)
_SIGNS = (Sign.NONE, Sign.NONE, Sign.NONE, Sign.TRACEBACK, Sign.CUDA_OOM, Sign.HOST_OOM, Sign.XID, Sign.XID)
_GIVES_UP = frozenset({PlannedRuntime.SHIPPED, PlannedRuntime.INITIALIZED})
"""Runtimes whose JobSet fails permanently some seconds after eight exits."""
_RUNTIMES = tuple(each for each in PlannedRuntime if each is not PlannedRuntime.UNLIMITED)
"""Runtimes that are drawn for a job. Some of the native ones then become unlimited."""
_SEEN_BY_AGENT = frozenset({FaultKind.NODE_UNHEALTHY, FaultKind.RACK_OVERHEATS, FaultKind.USER_QUARANTINE})
"""Faults that a health agent sees too, besides exits with an Xid."""
_LEAVES_SIGNS = frozenset({FaultKind.CONTAINER_KILL, FaultKind.CASCADE, FaultKind.CRASH_LOOP})
_SHARES: Mapping[str, float] = {
    "sidecars": 0.3,
    "suspended": 0.25,
    "deadline": 0.12,
    "resize": 0.08,
    "unmarked": 0.3,
    "reports": 0.25,
    "saves": 0.08,
    "pod failures": 0.15,
    "ttl": 0.4,
    "unlimited": 0.35,
    "installations": 0.08,
    "ill": 0.8,
    "held": 0.2,
    "cordon": 0.4,
}
"""The share of the jobs that have sidecars, are created suspended, have a deadline, and are resized by their users; of
the bare JobSets in which no container requests accelerators; of the TrainJobs that report progress; of the jobs whose
ranks save on SIGTERM; of the jobs with restartPolicy Never that have a podFailurePolicy; of the jobs whose JobSet has a
TTL; of the jobs whose own policies decide that their JobSet restarts without a limit, and that crash in a loop; of the
trials with several replicas in which these are of two installations; of the trials with a policy that replaces bad
nodes in which a health agent finds one, of the others in which it holds a node; of the RecoveryConfigs by which a
quarantine cordons."""
_HELD_SECONDS = (30.0, 900.0)
_SIDECARS: tuple[tuple[Sidecar, ...], ...] = (
    (Sidecar.HELPER,),
    (Sidecar.BROKEN,),
    (Sidecar.SHIPPER,),
    (Sidecar.NATIVE,),
    (Sidecar.HELPER, Sidecar.BROKEN),
    (Sidecar.SHIPPER, Sidecar.NATIVE),
)
_DEADLINES_SECONDS = (2400, 6000, 20_000, 20_000)
_TTLS_SECONDS = (0, 5, 60, 600)
_BUSY_PER_SECOND, _BUSY_BURST = 5.0, 4
"""What other Jobs leave of the request limit of kube-controller-manager. The pods of a group take seconds to create."""
_LARGE_TRIAL_ONE_IN = 25
_MARGIN_SECONDS = 61.0
"""A fault without a duration may come with one that lasts up to this long."""
ACTIVE_SECONDS = 4500.0
HEALING_SECONDS = 2700.0


def draw_plan(seed: int) -> TrialPlan:
    """The trial of a seed."""
    chance = random.Random(f"trial {seed}")
    jobs = _jobs(chance)
    replicas = chance.choice((1, 2, 2))
    calm_api, calm_world = chance.random() < 0.3, chance.random() < 0.1
    faults = () if calm_world else _faults(chance, jobs, replicas)
    # Drawn from a separate generator, so that trials without these features stay the same.
    more = random.Random(f"features {seed}")
    jobs = tuple(_with_features(more, job) for job in jobs)
    reports = random.Random(f"progress {seed}")
    jobs = tuple(_with_reports(reports, job) for job in jobs)
    meeting = random.Random(f"meeting {seed}")
    jobs = tuple(_with_meeting(meeting, job) for job in jobs)
    ends = random.Random(f"ttl {seed}")
    jobs = tuple(_with_ttl(ends, job) for job in jobs)
    loops = random.Random(f"loops {seed}")
    jobs = tuple(_with_loops(loops, job) for job in jobs)
    if not calm_world:
        faults = (*faults, *_faults_of_features(more, jobs, faults))
        faults = (*faults, *_faults_of_runs(meeting, jobs, faults))
        faults = (*faults, *_faults_of_loops(loops, jobs, faults))
    busy = any(job.admission is not JobAdmission.AT_ONCE for job in jobs) and more.random() < 0.5
    rates = FaultRates()
    if not calm_api:
        rates = FaultRates(
            process=chance.choice((0.0, 0.002, 0.01)),
            request=chance.choice((0.0, 0.01, 0.05)),
            line=chance.choice((0.0, 0.0005, 0.003)),
        )
    lease_seconds = chance.choice((15, *(60,) * 7, *(120,) * 8))
    config = with_trust(random.Random(f"trust {seed}"), drawn_config(chance))
    agent = random.Random(f"agent {seed}")
    config["quarantine"]["cordon"] = agent.random() < _SHARES["cordon"]
    if not calm_world:
        faults = (*faults, *_faults_of_agent(agent, jobs, config, faults))
    intervals = random.Random(f"interval {seed}")
    jobs = tuple(msgspec.structs.replace(job, policy=with_interval(intervals, job.policy)) for job in jobs)
    plan = TrialPlan(
        seed=seed,
        jobs=jobs,
        faults=faults,
        rates=rates,
        active_seconds=ACTIVE_SECONDS,
        healing_seconds=HEALING_SECONDS,
        replicas=replicas,
        installations=_installations(random.Random(f"installations {seed}"), replicas),
        lease_seconds=lease_seconds,
        config=config,
        spare_nodes=chance.choice((0, 1, 2)),
        manager_requests_per_second=_BUSY_PER_SECOND if busy else 20.0,
        manager_burst=_BUSY_BURST if busy else 30,
    )
    return with_neighbours(random.Random(f"neighbours {seed}"), plan)


def _installations(chance: random.Random, replicas: int) -> int:
    return 2 if replicas > 1 and chance.random() < _SHARES["installations"] else 1


def _with_features(more: random.Random, job: JobPlan) -> JobPlan:
    """The job, perhaps with sidecars, with a deadline, or suspended when it is created."""
    found: dict[str, object] = {}
    bare = job.runtime is PlannedRuntime.BARE_JOBSET
    if more.random() < _SHARES["sidecars"]:
        found["sidecars"] = more.choice(_SIDECARS)
    if bare and more.random() < _SHARES["unmarked"]:
        found["marking"] = more.choice((Marking.ANNOTATION, Marking.NOTHING))
        found.setdefault("sidecars", more.choice(_SIDECARS))
    if more.random() < _SHARES["suspended"]:
        kueue = more.choice((JobAdmission.BY_KUEUE, JobAdmission.BY_KUEUE, JobAdmission.BY_KUEUE_WITHOUT_QUEUE))
        found["admission"] = JobAdmission.BY_USER if bare or more.random() < 0.4 else kueue
        found["admitted_after_seconds"] = round(more.uniform(1.0, 300.0), 1)
    if not bare and more.random() < _SHARES["deadline"]:
        found["deadline_seconds"] = more.choice(_DEADLINES_SECONDS)
    return msgspec.structs.replace(job, **found)


def _with_reports(chance: random.Random, job: JobPlan) -> JobPlan:
    """The job, perhaps with a training that reports progress, sometimes less often than the controller waits for it."""
    if job.runtime is PlannedRuntime.BARE_JOBSET or chance.random() >= _SHARES["reports"]:
        return job
    found: dict[str, object] = {"reports_every_seconds": chance.choice((5.0, 30.0, 30.0, 240.0))}
    if job.policy is not None and chance.random() < 0.5:
        timeouts = {**job.policy.get("timeouts", {}), "resume": chance.choice(("0s", "2m", "2m", "15m"))}
        found["policy"] = {**job.policy, "timeouts": timeouts}
    return msgspec.structs.replace(job, **found)


def _with_meeting(chance: random.Random, job: JobPlan) -> JobPlan:
    """The job, perhaps with a training that does not hang as one of NCCL does, or whose ranks save on SIGTERM."""
    found: dict[str, object] = {}
    several = job.runtime is PlannedRuntime.SEVERAL_JOBS
    draws = {TrainingKind.SELF_HEALING: 0.06, TrainingKind.INDEPENDENT: 0.06, TrainingKind.LAUNCHER: 0.3 * several}
    drawn = chance.random()
    for kind, share in draws.items():
        if 0 <= drawn < share:
            found["training"] = kind
        drawn -= share
    seconds, code = round(chance.uniform(1.0, 12.0), 1), chance.choice((0, SIGTERM_CODE, SIGTERM_CODE))
    if chance.random() < _SHARES["saves"] and job.grace_seconds > 1:
        found["saves"] = Saves(min(seconds, job.grace_seconds - 1.0), code)
    failures = chance.choice((PodFailures.IGNORE, PodFailures.IGNORE, PodFailures.FAIL_INDEX))
    if chance.random() < _SHARES["pod failures"] and job.never_restarts:
        found["pod_failures"] = failures
    return msgspec.structs.replace(job, **found)


def _with_ttl(chance: random.Random, job: JobPlan) -> JobPlan:
    """The job, perhaps with a JobSet that expires, mostly soon after its end. Plain jobs stay plain."""
    drawn, seconds = chance.random(), chance.choice(_TTLS_SECONDS)
    features = (
        job.sidecars,
        job.deadline_seconds,
        job.reports_every_seconds,
        job.admission is not JobAdmission.AT_ONCE,
    )
    return msgspec.structs.replace(job, ttl_seconds=seconds) if drawn < _SHARES["ttl"] and any(features) else job


def _with_loops(chance: random.Random, job: JobPlan) -> JobPlan:
    """The job. If its own policies decide, perhaps with a JobSet that restarts without a limit."""
    if job.runtime is not PlannedRuntime.NATIVE or chance.random() >= _SHARES["unlimited"]:
        return job
    return msgspec.structs.replace(job, runtime=PlannedRuntime.UNLIMITED)


def _faults_of_features(
    more: random.Random, jobs: tuple[JobPlan, ...], others: tuple[TrialFault, ...]
) -> Iterator[TrialFault]:
    """Sidecar kills, Kueue evictions and resizes by users, some of them close to the other faults."""
    wanted: list[tuple[JobPlan, FaultKind]] = []
    for job in jobs:
        if any(name in KILLABLE for name in map(container_name, job.sidecars)):
            wanted += [(job, FaultKind.SIDECAR_KILL)] * more.choice((1, 2, 4))
        if job.under_kueue:
            wanted += [(job, FaultKind.KUEUE_EVICT)] * more.choice((0, 1, 2))
        if job.admission is not JobAdmission.AT_ONCE:
            wanted += [(job, more.choice((FaultKind.POD_KILL, FaultKind.CONTAINER_KILL)))] * more.choice((1, 2))
        if more.random() < _SHARES["resize"]:
            wanted.append((job, FaultKind.USER_RESIZE))
    for number, (job, kind) in enumerate(wanted, start=len(others)):
        seconds = round(more.uniform(20.0, 600.0), 1) if kind is FaultKind.KUEUE_EVICT else 0.0
        near = more.choice(others) if others else None
        killable = [name for name in map(container_name, job.sidecars) if name in KILLABLE]
        yield TrialFault(
            FaultKey("world", number, kind),
            seconds,
            _moment(more, seconds, near),
            str(job),
            tuple(sorted(more.sample(range(job.pods), more.choice((1, 1, 2))))),
            code=more.choice(_CODES) if kind is FaultKind.CONTAINER_KILL else 0,
            container=more.choice(killable) if kind is FaultKind.SIDECAR_KILL else "",
            pods_more=more.choice((-1, -1, 1)) if kind is FaultKind.USER_RESIZE else 0,
        )


def _faults_of_runs(
    chance: random.Random, jobs: tuple[JobPlan, ...], others: tuple[TrialFault, ...]
) -> Iterator[TrialFault]:
    """What ends the run of a group without the loss of a rank, or looks as if it did: suspensions that end before the
    pods have, deleted Jobs and JobSets, and nodes that are silent for less long than Kubernetes waits."""
    wanted: list[tuple[JobPlan, FaultKind, _Seconds]] = []
    for job in jobs:
        for kind, share, lasts in _OF_RUNS:
            # Where ranks save, more pods of the old run are still there when the next one begins.
            likelier = 5 if job.saves is not None and kind is FaultKind.USER_SUSPEND else 1
            if chance.random() < share * likelier:
                wanted.append((job, _fitting(kind, job), lasts))
    for number, (job, kind, lasts) in enumerate(wanted, start=len(others)):
        seconds, near = round(chance.uniform(*lasts), 1), chance.choice(others) if others else None
        at_seconds, index = _moment(chance, seconds, near), chance.randrange(job.pods)
        yield TrialFault(FaultKey("world", number, kind), seconds, at_seconds, str(job), (index,))


def _faults_of_loops(
    chance: random.Random, jobs: tuple[JobPlan, ...], others: tuple[TrialFault, ...]
) -> Iterator[TrialFault]:
    """A crash loop of each job whose JobSet restarts it without a limit."""
    looping = [job for job in jobs if job.runtime is PlannedRuntime.UNLIMITED]
    for number, job in enumerate(looping, start=len(others)):
        seconds = round(chance.uniform(120.0, 900.0), 1)
        key, at_seconds = FaultKey("world", number, FaultKind.CRASH_LOOP), _moment(chance, seconds, None)
        yield TrialFault(key, seconds, at_seconds, str(job), (0,), code=chance.choice((1, 137, NATIVE_CODE)))


def _faults_of_agent(
    chance: random.Random, jobs: tuple[JobPlan, ...], config: Mapping[str, Any], others: tuple[TrialFault, ...]
) -> Iterator[TrialFault]:
    """What a health agent does to nodes, mostly because of a fault for which the controller quarantines them: before
    it does so, during the quarantine, or after the release."""
    seen = [fault for fault in others if fault.key.kind in _SEEN_BY_AGENT or fault.sign is Sign.XID]
    number = len(others)
    replacing = [job for job in jobs if _replaces_nodes(job, config)]
    if replacing and chance.random() < _SHARES["ill"]:
        job, seconds = chance.choice(replacing), round(chance.uniform(60.0, 600.0), 1)
        at_seconds, index = _moment(chance, seconds + _HELD_SECONDS[1], None), chance.randrange(job.pods)
        key = FaultKey("world", number, FaultKind.NODE_UNHEALTHY)
        seen = [TrialFault(key, seconds, at_seconds, str(job), (index,))]
        yield from seen
        number += 1
    elif chance.random() >= _SHARES["held"]:
        return
    for each in range(number, number + chance.choice((1, 1, 2))):
        job, seconds = chance.choice(jobs), round(chance.uniform(*_HELD_SECONDS), 1)
        name, index, at_seconds = str(job), chance.randrange(job.pods), _moment(chance, seconds, None)
        if seen and chance.random() < 0.8:
            fault, latest = chance.choice(seen), ACTIVE_SECONDS - seconds - _MARGIN_SECONDS
            name, index = fault.job, fault.indexes[0]
            lasts = fault.seconds
            later = chance.choice((8.0, 20.0, lasts * chance.random(), max(2.0, lasts - 5.0), lasts + 60.0))
            at_seconds = round(min((fault.at_seconds or 0.0) + later, latest), 1)
        yield TrialFault(FaultKey("world", each, FaultKind.NODE_HELD), seconds, at_seconds, name, (index,))


def _replaces_nodes(job: JobPlan, config: Mapping[str, Any]) -> bool:
    """A monitor's report about a node of the job makes the controller quarantine the node."""
    rules = (job.policy or {}).get("rules", ())
    return bool(config["allow"]["cordon"]) and any(rule["name"] == "bad-gpu" for rule in rules)


def _fitting(kind: FaultKind, job: JobPlan) -> FaultKind:
    if kind is FaultKind.USER_DELETE_JOBSET and job.runtime is PlannedRuntime.BARE_JOBSET:
        return FaultKind.USER_DELETE_JOB  # To delete its JobSet is to delete the job.
    if kind is FaultKind.USER_SUSPEND and job.under_kueue:
        return FaultKind.KUEUE_EVICT  # Kueue would undo the user's suspension.
    return kind


def _jobs(chance: random.Random) -> tuple[JobPlan, ...]:
    if chance.random() < 1 / _LARGE_TRIAL_ONE_IN:
        return (_job(chance, 0, pods=16),)
    return tuple(_job(chance, number, pods=chance.choice((2, 3, 4, 8))) for number in range(chance.choice((1, 1, 2))))


def _job(chance: random.Random, number: int, pods: int) -> JobPlan:
    return JobPlan(
        namespace=chance.choice(NAMESPACES),
        name=f"job-{number}",
        runtime=chance.choice(_RUNTIMES),
        pods=pods,
        grace_seconds=chance.choice((0, 5, 30)),
        total_steps=chance.choice((None, None, None, 30_000)),
        policy=drawn_policy(chance),
    )


def _faults(chance: random.Random, jobs: tuple[JobPlan, ...], replicas: int) -> tuple[TrialFault, ...]:
    weights = [weight for _, weight, _ in _OF_JOBS]
    found: list[TrialFault] = []
    for _ in range(chance.choice((1, 3, 5, 8, 12))):
        kind, _, lasts = chance.choices(_OF_JOBS, weights)[0]
        job = chance.choice(jobs)
        if job.runtime is PlannedRuntime.NATIVE and chance.random() < 0.25:
            kind, lasts = FaultKind.CONTAINER_KILL, (0, 0)  # what its podFailurePolicy is about
        seconds = round(chance.uniform(*lasts), 1)
        at_seconds = _moment(chance, seconds, found[-1] if found else None)
        code = chance.choice((*_CODES, *(NATIVE_CODE,) * 6 * (job.runtime is PlannedRuntime.NATIVE)))
        if kind in {FaultKind.PROCESS_KILL, FaultKind.PROCESS_FREEZE}:
            indexes = tuple(range(replicas)) if chance.random() < 0.2 else (chance.randrange(replicas),)
        elif chance.random() < 0.25:
            indexes = tuple(range(job.pods))
        else:
            indexes = tuple(sorted(chance.sample(range(job.pods), chance.choice((1, 1, 2)))))
        if kind is FaultKind.CONTAINER_KILL and job.runtime in _GIVES_UP and job.pods >= 8 and chance.random() < 0.5:
            # All ranks end while no controller runs. The shipped runtime gives up before the controller is back.
            indexes = tuple(range(job.pods))
            away = TrialFault(
                FaultKey("world", len(found), FaultKind.PROCESS_KILL), 60.0, at_seconds, "", tuple(range(replicas))
            )
            found.append(away)
        if kind is FaultKind.JOB_WITHOUT_PODS and chance.random() < 0.8:
            # The fault shows only in a Job that is created while it lasts, so kill a pod too.
            key = FaultKey("world", len(found), FaultKind.POD_KILL)
            found.append(TrialFault(key, 0.0, round(at_seconds + chance.uniform(0.5, 5.0), 1), str(job), (0,)))
        sign = chance.choice(_SIGNS) if kind in _LEAVES_SIGNS else Sign.NONE
        key = FaultKey("world", len(found), kind)
        found.append(TrialFault(key, seconds, at_seconds, str(job), indexes, code=code, sign=sign))
    return tuple(found)


def _moment(chance: random.Random, seconds: float, before: TrialFault | None) -> float:
    """When a fault begins, so that it ends before the healing.

    A third of the faults come close to the one before. Then two failures may be one incident, one failure may interrupt
    the recovery from the other, or a person may request something about it.
    """
    last = ACTIVE_SECONDS - seconds - _MARGIN_SECONDS
    at_seconds = chance.uniform(30.0, last)
    if before is not None and before.at_seconds is not None and chance.random() < 0.35:
        at_seconds = before.at_seconds + chance.choice((0.0, 0.3, 2.0, 8.0, 25.0, 120.0))
    return round(min(at_seconds, last), 1)
