"""Draws what other controllers do beside the controller: Kueue's configuration and priorities, brief preemptions, and a
client that deletes failed pods."""

import random
from collections.abc import Iterator

import msgspec

from recovery.scenario.modelled_job import JobAdmission, Marking, PlannedRuntime
from recovery.sim.trials.faults import FaultKey, FaultKind, TrialFault
from recovery.sim.trials.plan import JobPlan, KueueSettings, TrialPlan

_CLEANED_SHARE = 0.08
_CLEANS_WITHIN_SECONDS = (0.001, 0.03)
_BRIEFLY = (0.1, 5.0)
"""How long the other job of a brief preemption needs the quota. Old pods still terminate when Kueue admits the job
again."""
_AFTER_A_FAULT = (0.2, 1.0, 3.0, 10.0, 40.0)
_HELD_SECONDS = (30.0, 900.0)
_LAST_SECONDS = 60.0
"""No preemption begins so shortly before the healing."""


def with_neighbours(chance: random.Random, plan: TrialPlan) -> TrialPlan:
    """The plan with Kueue's settings, and perhaps with a client that deletes failed pods."""
    settings = _kueue(chance)
    priorities = [chance.choice((0, 0, 10)) for _ in plan.jobs]
    shared, cleaned, cleans = chance.random() < 0.4, chance.random(), chance.uniform(*_CLEANS_WITHIN_SECONDS)
    jobs = tuple(
        msgspec.structs.replace(job, priority=priority) if job.under_kueue else job
        for job, priority in zip(plan.jobs, priorities, strict=True)
    )
    queued = [job for job in jobs if job.under_kueue]
    if not queued:
        settings = KueueSettings()
    elif shared and len(queued) > 1:  # No two of them have quota at once.
        settings = msgspec.structs.replace(settings, gpus=max(job.pods * job.gpus_per_pod for job in queued))
    faults = plan.faults
    if faults:
        faults = (*faults, *_preemptions(chance, queued, plan))
    cleans_after_seconds = round(cleans, 4) if cleaned < _CLEANED_SHARE else None
    return msgspec.structs.replace(
        plan, jobs=jobs, faults=faults, kueue=settings, cleans_after_seconds=cleans_after_seconds
    )


def with_all_neighbours(plan: TrialPlan) -> TrialPlan:
    """The plan of a seed, changed so that each job is one of Kueue's, a health agent holds a node, and another client
    deletes failed pods."""
    chance = random.Random(f"all neighbours {plan.seed}")
    jobs = tuple(_queued(chance, job) for job in plan.jobs)
    plan = with_neighbours(chance, msgspec.structs.replace(plan, jobs=jobs))
    faults = plan.faults
    if not any(fault.key.kind is FaultKind.NODE_HELD for fault in faults):
        job, seconds = chance.choice(jobs), round(chance.uniform(*_HELD_SECONDS), 1)
        at_seconds = round(chance.uniform(60.0, plan.active_seconds - seconds - _LAST_SECONDS), 1)
        key = FaultKey("world", len(faults), FaultKind.NODE_HELD)
        faults = (*faults, TrialFault(key, seconds, at_seconds, str(job), (chance.randrange(job.pods),)))
    cleans_after_seconds = round(chance.uniform(*_CLEANS_WITHIN_SECONDS), 4)
    return msgspec.structs.replace(plan, faults=faults, cleans_after_seconds=cleans_after_seconds)


def _queued(chance: random.Random, job: JobPlan) -> JobPlan:
    seconds = round(chance.uniform(1.0, 60.0), 1)
    if job.under_kueue:
        return job
    runtime = PlannedRuntime.PREPARED if job.runtime is PlannedRuntime.BARE_JOBSET else job.runtime
    return msgspec.structs.replace(
        job,
        runtime=runtime,
        marking=Marking.ACCELERATORS,
        admission=JobAdmission.BY_KUEUE,
        admitted_after_seconds=seconds,
    )


def _kueue(chance: random.Random) -> KueueSettings:
    """Mostly shorter timeouts than the default of 30 minutes, which a trial rarely reaches."""
    return KueueSettings(
        ready_seconds=chance.choice((120.0, 300.0, 600.0, 1800.0)),
        recovery_seconds=chance.choice((60.0, 180.0, 600.0, 1800.0)),
        backoff_seconds=chance.choice((10.0, 60.0, 60.0)),
        longest_backoff_seconds=chance.choice((300.0, 3600.0)),
        backoff_limit=chance.choice((None, None, 0, 1, 3)),
    )


def _preemptions(chance: random.Random, queued: list[JobPlan], plan: TrialPlan) -> Iterator[TrialFault]:
    """Brief preemptions, most of them in the middle of a recovery from another fault."""
    number = len(plan.faults)
    for job in queued:
        for _ in range(chance.choice((0, 1, 2))):
            at_seconds = chance.uniform(60.0, plan.active_seconds)
            if chance.random() < 0.7:
                at_seconds = (chance.choice(plan.faults).at_seconds or 0.0) + chance.choice(_AFTER_A_FAULT)
            at_seconds = round(min(at_seconds, plan.active_seconds - _LAST_SECONDS), 1)
            seconds = round(chance.uniform(*_BRIEFLY), 1)
            yield TrialFault(FaultKey("world", number, FaultKind.KUEUE_EVICT), seconds, at_seconds, str(job), (0,))
            number += 1
