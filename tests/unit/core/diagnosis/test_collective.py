"""What the program of a group is: the annotation decides, else the launch, else it is Required."""

from datetime import timedelta

import pytest

from recovery.core.diagnosis.collective import ProgramKind, collective_of
from recovery.core.diagnosis.group_conditions import COLLECTIVE_UNKNOWN, conditions_of
from recovery.core.model.annotations import COLLECTIVE_ANNOTATION
from recovery.core.model.collective import Collective, LaunchFacts
from recovery.core.model.container_template import ContainerTemplate
from recovery.core.model.facts import Snapshot
from recovery.core.model.reason import Reason
from tests.unit.core.decision.test_several_jobs import Pair, launcher_of
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

RESTARTS = LaunchFacts(Collective.SELF_HEALING, "torchrun --max-restarts=3")
MPIRUN = LaunchFacts(Collective.REQUIRED, "mpirun", starts_all=True)
FINISH_TIMEOUT = timedelta(minutes=10)
RAY = LaunchFacts(Collective.INDEPENDENT, "ray start")


def launched(*launches: LaunchFacts | None, on_template: str = "", on_workload: str = "") -> World:
    """A TrainJob whose container `node`, and others beside it, have these launches."""
    names = ("node", "log-shipper")
    containers = tuple(ContainerTemplate(name, launch=each) for name, each in zip(names, launches, strict=False))
    world = training().with_job(containers=containers, collective=on_template)
    return world.with_workload(annotations={COLLECTIVE_ANNOTATION: on_workload} if on_workload else {})


def kind(world: World) -> ProgramKind:
    return collective_of(world.snapshot())


@pytest.mark.parametrize(
    ("world", "collective", "reason"),
    [
        (training(), Collective.REQUIRED, Reason.COLLECTIVE_ASSUMED),
        (launched(None), Collective.REQUIRED, Reason.COLLECTIVE_ASSUMED),
        (launched(RESTARTS), Collective.SELF_HEALING, Reason.COLLECTIVE_BY_LAUNCH),
        (launched(RAY), Collective.INDEPENDENT, Reason.COLLECTIVE_BY_LAUNCH),
        (launched(MPIRUN), Collective.REQUIRED, Reason.COLLECTIVE_BY_LAUNCH),
        (launched(None, RESTARTS), Collective.REQUIRED, Reason.COLLECTIVE_ASSUMED),
        (launched(None, on_workload="SelfHealing"), Collective.SELF_HEALING, Reason.COLLECTIVE_ANNOTATED),
        (launched(None, on_template="Independent"), Collective.INDEPENDENT, Reason.COLLECTIVE_ANNOTATED),
        (launched(RESTARTS, on_template="Required"), Collective.REQUIRED, Reason.COLLECTIVE_ANNOTATED),
        (
            launched(None, on_template="Independent", on_workload="SelfHealing"),
            Collective.SELF_HEALING,
            Reason.COLLECTIVE_ANNOTATED,
        ),
        (launched(RESTARTS, on_workload="self-healing"), Collective.REQUIRED, Reason.COLLECTIVE_UNKNOWN),
        (launched(RESTARTS, on_template="elastic"), Collective.REQUIRED, Reason.COLLECTIVE_UNKNOWN),
    ],
)
def test_the_annotation_decides_the_collective_and_then_the_launch_of_the_program(
    world: World, collective: Collective, reason: Reason
) -> None:
    found = kind(world)
    assert (found.collective, found.why.reason) == (collective, reason)


def test_all_jobs_count_where_each_pod_starts_its_own_ranks() -> None:
    assert kind(launched(RESTARTS)).counts == {"job-1"}


def with_launcher(launcher: LaunchFacts | None, node: LaunchFacts | None, *, annotated: str = "") -> Snapshot:
    """A launcher in a Job of its own, before the Job of the nodes."""
    return Pair(launched(node, on_workload=annotated), launcher_of(launched(launcher))).snapshot()


def test_under_mpirun_only_the_launchers_processes_count() -> None:
    found = collective_of(with_launcher(MPIRUN, None))
    assert (found.collective, found.counts) == (Collective.REQUIRED, frozenset({"L-job-1"}))


def test_that_the_launcher_starts_all_ranks_does_not_depend_on_the_annotation() -> None:
    found = collective_of(with_launcher(MPIRUN, None, annotated="SelfHealing"))
    assert (found.collective, found.counts) == (Collective.SELF_HEALING, frozenset({"L-job-1"}))


def test_of_two_jobs_the_launch_that_asserts_less_about_the_others_decides() -> None:
    found = collective_of(with_launcher(RESTARTS, RAY))
    assert (found.collective, found.counts) == (Collective.INDEPENDENT, frozenset({"L-job-1", "job-1"}))


def test_a_container_that_no_rule_selects_may_be_the_one_that_trains() -> None:
    world = launched(None, RESTARTS).with_workload(kind="JobSet")
    assert kind(world).collective is Collective.SELF_HEALING


def test_a_value_that_the_annotation_cannot_have_is_a_condition() -> None:
    long = "x" * 1000
    (found,) = conditions_of(launched(None, on_workload=long).snapshot(), FINISH_TIMEOUT, at(0))
    assert found.type == COLLECTIVE_UNKNOWN
    assert len(found.message) < 250
    assert conditions_of(launched(None, on_workload="Required").snapshot(), FINISH_TIMEOUT, at(0)) == ()
