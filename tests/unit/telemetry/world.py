"""A clock that tests set, a store that holds what they put in, and a ledger that goes through incidents."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property

import msgspec
from prometheus_client import Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from recovery.core.incident import lifecycle, phases, sizes
from recovery.core.incident.closed_incident import totals_of_broken
from recovery.core.model.config import ConfigFacts
from recovery.core.model.drill import DrillFacts, DrillRef
from recovery.core.model.facts import GroupKey, NodeFacts, PodFacts, Snapshot, UndecodableObject, WorkloadFacts
from recovery.core.model.group_size import ElasticState
from recovery.core.model.group_totals import Totals
from recovery.core.model.ledger import (
    AttemptAction,
    Closing,
    Incident,
    Ledger,
    Outcome,
    Phase,
    Target,
)
from recovery.core.model.ledger_condition import LedgerCondition
from recovery.core.model.ledger_object import LedgerObject
from recovery.core.model.pinned_policy import PinnedPolicy
from recovery.core.model.progress import Progress
from recovery.core.model.reason import Reason
from recovery.core.model.standing import BROKEN_SECONDS, Broken, Standing
from recovery.core.model.step import WAITING, Step, StepType
from recovery.core.policy.resolved import PolicyFacts
from recovery.core.policy.selection import PolicySet
from recovery.ports import GroupChanged
from recovery.telemetry.metrics import Metrics

BEGIN = datetime(2026, 11, 2, 8, tzinfo=UTC)
KEY = GroupKey("team-a", "llm")
UID = "11111111-2222"


class SetClock:
    """`ports.Clock` that only a test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=self.seconds)

    def monotonic_seconds(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class HeldStore:
    """`ports.GroupStore` over plain collections."""

    def __init__(self) -> None:
        self.groups: dict[str, LedgerObject] = {}
        self.snapshots: dict[GroupKey, Snapshot] = {}
        self.policy_facts: tuple[PolicyFacts, ...] = ()
        self.config_facts: ConfigFacts | None = None
        self.undecodable_objects: dict[str, int] = {}
        self.stale_since: dict[str, datetime] = {}

    def synced(self) -> bool:
        return True

    def keys(self) -> Iterable[GroupKey]:
        return tuple(self.snapshots)

    def snapshot(self, key: GroupKey) -> Snapshot:
        return self.snapshots.get(key, Snapshot(key, None, None, (), ()))

    def progress(self, key: GroupKey) -> Progress | None:
        workload = self.snapshots[key].workload
        return workload.progress if workload is not None else None

    def policies(self, namespace: str) -> PolicySet:
        return PolicySet(tuple(policy for policy in self.policy_facts if policy.namespace == namespace))

    def every_policy(self) -> Iterable[PolicyFacts]:
        return tuple(self.policy_facts)

    def orphans(self, key: GroupKey) -> Sequence[LedgerObject]:
        raise AssertionError("metrics are not about them")

    async def read_policies_live(self, namespace: str) -> PolicySet:
        raise AssertionError("metrics cost no request")

    def ledger_object(self, key: GroupKey, workload_uid: str) -> LedgerObject | None:
        return self.groups.get(workload_uid)

    def ledgers_of(self, key: GroupKey) -> Sequence[LedgerObject]:
        raise AssertionError("metrics are about all of them")

    def ledger_objects(self) -> Iterable[LedgerObject]:
        return tuple(self.groups.values())

    def collected(self) -> Iterable[GroupKey]:
        raise AssertionError("metrics are not about them")

    def stale(self) -> Mapping[str, datetime]:
        return self.stale_since

    def undecodable(self) -> Mapping[str, int]:
        return self.undecodable_objects

    def unidentified_ledgers(self) -> Sequence[UndecodableObject]:
        raise AssertionError("metrics are not about them")

    def nodes(self) -> Mapping[str, NodeFacts]:
        return {}

    def config(self) -> ConfigFacts | None:
        return self.config_facts

    def drills(self) -> Iterable[DrillFacts]:
        return ()

    def saw_drill(self, body: bytes) -> None:
        raise NotImplementedError

    async def read_incidents_live(self, namespace: str, workload_uid: str) -> Sequence[Incident]:
        raise NotImplementedError

    async def read_config_live(self) -> ConfigFacts | None:
        raise AssertionError("metrics cost no request")

    async def read_node_live(self, name: str) -> NodeFacts | None:
        raise AssertionError("metrics cost no request")

    def subscribe(self, changed: GroupChanged) -> None:
        raise NotImplementedError

    async def read_live(self, key: GroupKey) -> Snapshot:
        raise NotImplementedError

    async def read_ledger_live(self, key: GroupKey, workload_uid: str) -> LedgerObject | None:
        raise NotImplementedError


def terms(*, restart: str = "RecreateGroupOnPodRestart") -> PinnedPolicy:
    return PinnedPolicy(
        policy_name="default",
        policy_uid="p",
        policy_generation=1,
        restart=restart,
        budget_limit=2,
        budget_window_seconds=3600,
        start_timeout_seconds=900,
    )


def workload(uid: str = UID) -> WorkloadFacts:
    return WorkloadFacts(kind="TrainJob", name=KEY.name, uid=uid, resource_version="1", generation=1, created_at=BEGIN)


def pod(index: int, *, node: str = "gpu-0", phase: str = "Running", gpus: int = 8) -> PodFacts:
    return PodFacts(
        name=f"llm-{index}",
        uid=f"pod-{index}",
        job_uid="job",
        job_name="llm-node-0",
        index=index,
        created_at=BEGIN,
        node=node,
        phase=phase,
        gpus=gpus,
    )


class Group:
    """One group's ledger. Like a controller, it writes every step to the store and reports it to the metrics."""

    def __init__(self, clock: SetClock, store: HeldStore, metrics: Metrics | None = None) -> None:
        self._clock = clock
        self._store = store
        self._metrics = metrics
        self.ledger = Ledger()
        store.snapshots[KEY] = Snapshot(KEY, workload(), None, (), ())
        self._put()

    def fails(
        self,
        *,
        ago: float = 0.0,
        gpus: int = 16,
        mode: str = "Enforce",
        restart: str | None = None,
        probe: bool = False,
        drill: DrillRef | None = None,
    ) -> None:
        """A member was lost `ago` seconds ago, and an incident is opened. `probe`: its ranks have a joined probe.
        `drill`: it has caused the loss."""
        now = self._clock.now()
        number = self.ledger.totals.incidents + 1
        opened = Incident(
            id=f"{UID[:8]}-{number}",
            number=number,
            started_at=now - timedelta(seconds=ago),
            detected_at=now,
            disruption_class="Killed",
            cause="Exit137",
            mode=mode,
            pinned=terms(restart=restart) if restart else terms(),
            step=WAITING,
            gpus=gpus,
            ranks=2,
            probe_proven=probe,
            drill=drill,
        )
        failures = dict(self.ledger.totals.failures)
        failures[opened.booked_class] = failures.get(opened.booked_class, 0) + 1
        totals = msgspec.structs.replace(self.ledger.totals, incidents=number, failures=failures)
        ledger = msgspec.structs.replace(self.ledger, incident=opened, totals=totals)
        self._write(phases.enter(phases.enter(ledger, Phase.DETECTED, opened.started_at), Phase.DECIDED, now))

    def attempt(
        self,
        action: AttemptAction = AttemptAction.RECREATE_GROUP,
        *,
        reason: Reason = Reason.DEFAULT_RESTART,
        free_of_charge: bool = False,
    ) -> None:
        now = self._clock.now()
        self._write(
            lifecycle.add_attempt(self.ledger, action, Target(), reason, "because", now, free_of_charge=free_of_charge)
        )

    def enters(self, phase: Phase) -> None:
        self._write(phases.enter(self.ledger, phase, self._clock.now()))

    def closes(self, outcome: Outcome = Outcome.RECOVERED, *, ago: float = 0.0, source: str = "ready") -> None:
        """The incident ended `ago` seconds ago."""
        at = self._clock.now() - timedelta(seconds=ago)
        closing = Closing(outcome=outcome, outcome_reason=Reason.ALL_RANKS_READY, ended_at=at, source=source)
        self._write(lifecycle.close(self.ledger, closing))

    def is_held_for_an_error(self) -> None:
        """The hold is not for its budget: only a person, or a lasting restart by the kubelet, ends it."""
        self._write(self.ledger.with_incident(step=Step(StepType.HELD, reason=Reason.MEMBER_LOST)))

    def is_recorded(self) -> None:
        """The closed incident goes into the history."""
        self._write(lifecycle.into_history(self.ledger, Snapshot(KEY, workload(), None, (), ())))

    def hangs(self, *, gpus: int = 16) -> None:
        """The incident has closed without repairing the group, and its ranks hang from its end on."""
        last = self.ledger.history[0]
        broken = Broken(last.started_at, last.ended_at, last.id, last.disruption_class, gpus)
        self._write(msgspec.structs.replace(self.ledger, standing=Standing.BROKEN, broken=broken))

    def hangs_no_more(self, *, ago: float = 0.0) -> None:
        """All ranks have met again, `ago` seconds ago."""
        broken, totals = self.ledger.broken, self.ledger.totals
        assert broken is not None
        until = self._clock.now() - timedelta(seconds=ago)
        seconds = (until - broken.booked_from).total_seconds() * broken.gpus
        by_class = dict(totals.idle_gpu_seconds_by_class.get(broken.disruption_class, {}))
        by_class[BROKEN_SECONDS] = by_class.get(BROKEN_SECONDS, 0.0) + seconds
        booked = msgspec.structs.replace(
            totals,
            idle_gpu_seconds={**totals.idle_gpu_seconds, BROKEN_SECONDS: by_class[BROKEN_SECONDS]},
            idle_gpu_seconds_by_class={**totals.idle_gpu_seconds_by_class, broken.disruption_class: by_class},
        )
        owed = (*self.ledger.uncounted, totals_of_broken(UID, broken, seconds))
        self._write(
            msgspec.structs.replace(self.ledger, standing=Standing.MET, broken=None, totals=booked, uncounted=owed)
        )

    def owes_nothing(self) -> None:
        """What the ledger owed is in the totals of the fleet, or there is no RecoveryConfig."""
        self._write(msgspec.structs.replace(self.ledger, uncounted=()))

    def has_size(self, size: ElasticState | None) -> None:
        self._write(msgspec.structs.replace(self.ledger, elastic=size))

    def ends_what_it_ran(self, *, ago: float = 0.0) -> None:
        """Book what the group ran with fewer nodes, as for a failure `ago` seconds ago."""
        self._write(sizes.booked(self.ledger, self._clock.now() - timedelta(seconds=ago)))

    def set_totals(self, totals: Totals) -> None:
        self._write(msgspec.structs.replace(self.ledger, totals=totals))

    def says(self, condition: LedgerCondition) -> None:
        """The group has this condition, and no other."""
        self._write(msgspec.structs.replace(self.ledger, conditions=(condition,)))

    def _write(self, ledger: Ledger) -> None:
        before, self.ledger = self.ledger, ledger
        self._put()
        if self._metrics is not None:
            self._metrics.ledger_written(KEY, before, ledger)

    def _put(self) -> None:
        self._store.groups[UID] = LedgerObject(
            name=f"llm-{UID}",
            namespace=KEY.namespace,
            uid="rg-1",
            resource_version="5",
            workload_uid=UID,
            group=KEY.name,
            ledger=self.ledger,
        )


class Scrape(Collector):
    """What Prometheus would read. Its text is written and parsed only for tests that ask for it: that is slow."""

    def __init__(self, metrics: Metrics) -> None:
        self._collected = [*metrics.registry.collect()]
        self.samples = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in self._collected
            for sample in family.samples
        }

    def collect(self) -> Iterable[Metric]:
        return self._collected

    @cached_property
    def text(self) -> str:
        return generate_latest(self).decode()

    @cached_property
    def families(self) -> dict[str, str]:
        """The type of each family."""
        return {family.name: family.type for family in text_string_to_metric_families(self.text)}

    def value(self, name: str, /, **labels: str) -> float | None:
        """The sample with exactly these labels. None: there is none."""
        return self.samples.get((name, tuple(sorted(labels.items()))))

    def of_job(self, name: str, /, **labels: str) -> float | None:
        return self.value(name, namespace=KEY.namespace, job_name=KEY.name, **labels)

    def by(self, name: str, label: str) -> dict[str, float]:
        """The nonzero samples of a metric, by the value of a label."""
        return {
            dict(labels)[label]: value for (found, labels), value in self.samples.items() if found == name and value
        }
