"""The metric of groups that have not started: a scrape shows what the last reconcile of each has found."""

import pytest

from recovery.core.decision.decide import decide
from recovery.core.model.facts import ContainerFacts, GroupKey
from recovery.core.model.ledger import Ledger
from recovery.core.policy.resolved import Policy
from recovery.telemetry.observer import Telemetry
from tests.unit.core.driver import policy
from tests.unit.core.groups import group, training
from tests.unit.core.world import World, at
from tests.unit.telemetry.world import HeldStore, Scrape

KEY = GroupKey("ml", "train")
NAME = "recovery_gpus_not_started"


def told(metrics: Telemetry) -> dict[tuple[str, str, str], float]:
    """Waiting GPUs, by namespace, job and reason."""
    samples = ((dict(labels), value) for (name, labels), value in Scrape(metrics).samples.items() if name == NAME)
    return {(each["namespace"], each["job_name"], each["reason"]): value for each, value in samples}


class ReportingController:
    """A controller that reconciles one group and reports each reconcile to the metrics."""

    def __init__(self, metrics: Telemetry, store: HeldStore) -> None:
        self._metrics = metrics
        self._store = store

    def reconcile(self, world: World, terms: Policy | None) -> dict[str, float]:
        """Reconcile, and return what the metrics then show for the group, by reason."""
        self._store.snapshots[KEY] = world.snapshot(live=True)
        plan = decide(self._store.snapshots[KEY], Ledger(), terms, at(1))
        self._metrics.decided(KEY, Ledger(), plan)
        return {reason: gpus for (_, _, reason), gpus in told(self._metrics).items()}


@pytest.fixture
def reporting(metrics: Telemetry, store: HeldStore) -> ReportingController:
    return ReportingController(metrics, store)


def waiting_for(reason: str) -> World:
    """Four ranks of 8 GPUs that all have a node. Rank 2 waits for that reason."""
    world = group().all_scheduled()
    for index in (0, 1, 3):
        world = world.started(index, -3590)
    return world.with_pod(2, containers=(ContainerFacts(name="node", waiting_reason=reason),))


@pytest.mark.parametrize(
    ("world", "found"),
    [
        (group().scheduled(0).scheduled(1).unschedulable(2, "0/4 nodes are available"), {"Unschedulable": 16}),
        (group().unschedulable(0, "0/4 nodes are available"), {"Unschedulable": 0}),
        (waiting_for("ErrImagePull"), {"ImagePull": 32}),
        (waiting_for("ImagePullBackOff"), {"ImagePull": 32}),
        (waiting_for("CreateContainerConfigError"), {"CreateContainer": 32}),
        (waiting_for("RunContainerError"), {"CreateContainer": 32}),
        (waiting_for("ReasonOfTomorrow"), {"Other": 32}),
        (waiting_for("ContainerCreating"), {"NoneKnown": 32}),
        (training(), {}),
    ],
)
def test_gpus_that_wait_are_told_by_one_of_a_few_reasons(
    reporting: ReportingController, world: World, found: dict[str, float]
) -> None:
    assert reporting.reconcile(world, policy()) == found


def test_a_series_moves_with_the_reason_and_ends_with_the_start(
    reporting: ReportingController, metrics: Telemetry
) -> None:
    assert reporting.reconcile(waiting_for("ErrImagePull"), policy()) == {"ImagePull": 32}
    assert reporting.reconcile(waiting_for("ContainerCreating"), policy()) == {"NoneKnown": 32}
    assert told(metrics) == {("ml", "train", "NoneKnown"): 32}
    assert reporting.reconcile(training(), policy()) == {}


def test_a_silent_node_does_not_hide_that_the_group_has_not_started(reporting: ReportingController) -> None:
    assert reporting.reconcile(waiting_for("ErrImagePull").node_silent("gpu-1", -60), policy()) == {"ImagePull": 32}


def test_what_no_one_watches_or_someone_has_stopped_is_not_told(reporting: ReportingController) -> None:
    world = waiting_for("ErrImagePull")
    for quiet, terms in ((world.suspended(), policy()), (world.paused(), policy()), (world, None)):
        assert reporting.reconcile(world, policy()) == {"ImagePull": 32}
        assert reporting.reconcile(quiet, terms) == {}


def test_an_incident_takes_the_place_of_it(reporting: ReportingController) -> None:
    """The incident reports the GPUs as idle, so nothing counts twice."""
    assert reporting.reconcile(waiting_for("ErrImagePull"), policy()) == {"ImagePull": 32}
    assert reporting.reconcile(training().pod_failed(2, 1, 0), policy()) == {}


def test_a_job_that_is_gone_tells_nothing(reporting: ReportingController, metrics: Telemetry, store: HeldStore) -> None:
    reporting.reconcile(waiting_for("ErrImagePull"), policy())
    del store.snapshots[KEY]
    assert told(metrics) == {}


def test_only_who_leads_tells_and_a_new_term_begins_with_its_own_reconciles(
    reporting: ReportingController, metrics: Telemetry
) -> None:
    reporting.reconcile(waiting_for("ErrImagePull"), policy())
    metrics.leadership_changed(leads=False)
    assert told(metrics) == {}
    metrics.leadership_changed(leads=True)
    assert told(metrics) == {}
    assert reporting.reconcile(waiting_for("ErrImagePull"), policy()) == {"ImagePull": 32}
