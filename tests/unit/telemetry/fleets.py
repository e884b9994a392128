"""A store full of jobs of 128 pods, for tests of what a scrape may cost."""

from datetime import timedelta

import msgspec

from recovery.core.incident import lifecycle, phases
from recovery.core.model.facts import GroupKey, JobFacts, JobSetFacts, PodFacts, Snapshot, WorkloadFacts
from recovery.core.model.ledger import AttemptAction, Incident, Ledger, Phase, Target
from recovery.core.model.ledger_object import LedgerObject
from recovery.core.model.reason import Reason
from recovery.core.model.step import WAITING
from recovery.core.policy.resolved import PolicyFacts
from recovery.core.policy.spec import Mode, PolicySpec
from tests.unit.telemetry.world import BEGIN, HeldStore, terms

NAMESPACE = "team-a"
GPUS_OF_POD = 8


class CountingStore(HeldStore):
    """Counts how often a scrape reads the pods of a job."""

    def __init__(self) -> None:
        super().__init__()
        self.snapshots_read = 0

    def snapshot(self, key: GroupKey) -> Snapshot:
        self.snapshots_read += 1
        return super().snapshot(key)


def fleet(*, jobs: int, pods: int, ledgers: int = 0) -> CountingStore:
    """A store of jobs that a policy in mode Enforce selects. `ledgers`: how many of them have had an incident."""
    store = CountingStore()
    spec = PolicySpec(mode=Mode.ENFORCE)
    store.policy_facts = (PolicyFacts("default", NAMESPACE, "p", 1, spec, BEGIN, BEGIN),)
    for number in range(jobs):
        key = GroupKey(NAMESPACE, f"pretrain-70b-{number:04}")
        store.snapshots[key] = snapshot_of(key, pods)
        if number < ledgers:
            put(store, key, Ledger())
    return store


def snapshot_of(key: GroupKey, pods: int) -> Snapshot:
    uid = uid_of(key)
    workload = WorkloadFacts("TrainJob", key.name, uid, "1", 1, BEGIN)
    jobset = JobSetFacts(key.name, f"jobset-{uid}", "1", 1, BEGIN)
    job = JobFacts(
        f"{key.name}-node-0", f"job-{uid}", "1", jobset.uid, "node", BEGIN, parallelism=pods, completions=pods
    )
    members = tuple(
        PodFacts(
            name=f"{job.name}-{index}",
            uid=f"{uid}-{index}",
            job_uid=job.uid,
            job_name=job.name,
            index=index,
            created_at=BEGIN,
            node=f"gpu-{index}",
            phase="Running",
            ready=True,
            training_known=False,
            gpus=GPUS_OF_POD,
        )
        for index in range(pods)
    )
    return Snapshot(key, workload, jobset, (job,), members)


def put(store: HeldStore, key: GroupKey, ledger: Ledger) -> None:
    """Give the job's RecoveryGroup this status."""
    uid = uid_of(key)
    store.groups[uid] = LedgerObject(f"{key.name}-{uid}", key.namespace, f"rg-{uid}", "5", uid, key.name, ledger)


def in_an_incident(number: int, gpus: int, ranks: int) -> Ledger:
    """A ledger whose group was restarted and is in phase Rendezvous."""
    opened = Incident(
        id=f"{number:08}-1",
        number=1,
        started_at=BEGIN,
        detected_at=BEGIN + timedelta(seconds=1),
        disruption_class="NodeLost",
        cause="NodeLost",
        mode="Enforce",
        pinned=terms(),
        step=WAITING,
        gpus=gpus,
        ranks=ranks,
    )
    totals = msgspec.structs.replace(Ledger().totals, incidents=1, failures={"NodeLost": 1})
    ledger = Ledger(incident=opened, totals=totals)
    ledger = phases.enter(phases.enter(ledger, Phase.DETECTED, BEGIN), Phase.DECIDED, opened.detected_at)
    restart = AttemptAction.RECREATE_GROUP
    at = opened.detected_at
    ledger = lifecycle.add_attempt(ledger, restart, Target(), Reason.DEFAULT_RESTART, "because", at)
    for phase in (Phase.TEARING_DOWN, Phase.SCHEDULING, Phase.STARTING, Phase.RENDEZVOUS):
        at += timedelta(seconds=5)
        ledger = phases.enter(ledger, phase, at)
    return ledger


def uid_of(key: GroupKey) -> str:
    return f"uid-{key.name}"
