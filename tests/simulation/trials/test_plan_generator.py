"""The plans that seeds draw can be run, end in time, and together reach everything."""

import itertools
from collections import Counter
from functools import cache

import msgspec
import pytest

from recovery.scenario.modelled_job import JobAdmission, Marking, PlannedRuntime, PodFailures, Sidecar, TrainingKind
from recovery.sim.trials.faults import FaultKind
from recovery.sim.trials.manifests import config_of, objects_of
from recovery.sim.trials.plan import FaultRates, JobPlan, TrialPlan
from recovery.sim.trials.plan_generator import ACTIVE_SECONDS, HEALING_SECONDS, draw_plan
from recovery.sim.trials.request_faults import HIT_LINES, HIT_REQUESTS

SEEDS = range(600)
OF_THE_WORLD = frozenset(FaultKind) - HIT_LINES - HIT_REQUESTS | {
    FaultKind.PROCESS_KILL,
    FaultKind.PROCESS_FREEZE,
}


@cache
def plans() -> list[TrialPlan]:
    return [draw_plan(seed) for seed in SEEDS]


def test_the_same_seed_draws_the_same_plan() -> None:
    assert [draw_plan(seed) for seed in SEEDS] == plans()
    encoded = {msgspec.json.encode(msgspec.structs.replace(plan, seed=0)) for plan in plans()}
    assert len(encoded) == len(SEEDS), "different seeds draw different ones"


def test_every_fault_begins_after_the_start_and_is_over_before_the_healing() -> None:
    for plan in plans():
        assert (plan.active_seconds, plan.healing_seconds) == (ACTIVE_SECONDS, HEALING_SECONDS)
        for fault in plan.faults:
            assert fault.at_seconds is not None
            assert fault.at_seconds >= 30.0
            assert fault.at_seconds + fault.seconds < ACTIVE_SECONDS


def test_every_fault_has_a_number_of_its_own_and_hits_someone_who_is_there() -> None:
    for plan in plans():
        assert [fault.key.number for fault in plan.faults] == list(range(len(plan.faults)))
        pods = {str(job): job.pods for job in plan.jobs}
        for fault in plan.faults:
            assert fault.key.actor == "world"
            assert fault.indexes == tuple(sorted(set(fault.indexes))) != ()
            of_processes = fault.key.kind in {FaultKind.PROCESS_KILL, FaultKind.PROCESS_FREEZE}
            assert max(fault.indexes) < (plan.replicas if of_processes else pods[fault.job])


def test_jobs_are_told_apart_by_their_names() -> None:
    for plan in plans():
        assert len({job.name for job in plan.jobs}) == len(plan.jobs) >= 1
        config_of(plan)
        for job in plan.jobs:
            assert objects_of(job)


def test_between_them_they_reach_every_kind_and_every_runtime() -> None:
    kinds = Counter(fault.key.kind for plan in plans() for fault in plan.faults)
    assert kinds.keys() == OF_THE_WORLD
    assert {job.runtime for plan in plans() for job in plan.jobs} == set(PlannedRuntime)
    assert {plan.replicas for plan in plans()} == {1, 2}
    assert {job.pods for plan in plans() for job in plan.jobs} >= {2, 8, 16}
    assert any(job.policy is None for plan in plans() for job in plan.jobs)


def test_they_reach_every_kind_of_job_and_what_hits_it() -> None:
    jobs = [job for plan in plans() for job in plan.jobs]
    assert {sidecar for job in jobs for sidecar in job.sidecars} == set(Sidecar)
    assert {job.admission for job in jobs} == set(JobAdmission)
    assert {job.marking for job in jobs} == set(Marking)
    assert {job.training for job in jobs} == set(TrainingKind)
    assert {job.pod_failures for job in jobs} == set(PodFailures)
    assert {job.saves.code for job in jobs if job.saves is not None} == {0, 143}
    assert {job.deadline_seconds is None for job in jobs} == {True, False}
    assert {(plan.manager_requests_per_second, plan.manager_burst) for plan in plans()} == {(5.0, 4), (20.0, 30)}
    every_seconds = {job.reports_every_seconds for job in jobs}
    assert every_seconds == {None, 5.0, 30.0, 240.0}
    killed = {fault.container for plan in plans() for fault in plan.faults if fault.container}
    assert killed == {"log-shipper", "native-sidecar"}


def test_a_job_has_only_what_its_kind_can_have() -> None:
    for plan in plans():
        by_name = {str(job): job for job in plan.jobs}
        for job in plan.jobs:
            bare = job.runtime is PlannedRuntime.BARE_JOBSET
            assert bare or job.marking is Marking.ACCELERATORS
            assert not (bare and job.reports_every_seconds is not None)
            launches = job.training is TrainingKind.LAUNCHER
            assert job.runtime is PlannedRuntime.SEVERAL_JOBS or not launches
            assert job.never_restarts or job.pod_failures is PodFailures.NONE
            assert job.saves is None or 0 < job.saves.seconds < job.grace_seconds
            assert not (bare and (job.under_kueue or job.deadline_seconds is not None))
            assert (job.admitted_after_seconds > 0) is (job.admission is not JobAdmission.AT_ONCE)
        for fault in plan.faults:
            assert (fault.key.kind is FaultKind.SIDECAR_KILL) is bool(fault.container)
            assert (fault.key.kind is FaultKind.USER_RESIZE) is bool(fault.pods_more)
            if fault.key.kind is FaultKind.USER_DELETE_JOBSET:
                assert by_name[fault.job].runtime is not PlannedRuntime.BARE_JOBSET
            if fault.key.kind is FaultKind.KUEUE_EVICT:
                assert by_name[fault.job].under_kueue


def test_many_jobs_are_plain() -> None:
    plain = [job for plan in plans() for job in plan.jobs if job == _plain(job)]
    assert len(plain) > sum(len(plan.jobs) for plan in plans()) / 3


def _plain(job: JobPlan) -> JobPlan:
    least = JobPlan(job.namespace, job.name, job.runtime, job.pods)
    fields = ("grace_seconds", "total_steps", "training", "saves", "pod_failures", "policy")
    return msgspec.structs.replace(least, **{field: getattr(job, field) for field in fields})


@pytest.mark.parametrize(
    ("what", "share"),
    [("no fault of the API", 0.3), ("no fault of the world", 0.1), ("several replicas", 2 / 3)],
)
def test_trials_have_a_purpose(what: str, share: float) -> None:
    found = {
        "no fault of the API": [plan for plan in plans() if plan.rates == FaultRates()],
        "no fault of the world": [plan for plan in plans() if not plan.faults],
        "several replicas": [plan for plan in plans() if plan.replicas > 1],
    }[what]
    assert len(found) / len(SEEDS) == pytest.approx(share, rel=0.35)


def test_failures_come_close_to_one_another_in_many_trials() -> None:
    close = 0
    for plan in plans():
        moments = [fault.at_seconds or 0.0 for fault in plan.faults]
        close += any(0.0 <= later - earlier <= 25.0 for earlier, later in itertools.pairwise(moments))
    assert close > len(SEEDS) / 2
