"""Whether all pods of a group are scheduled together."""

import pytest

from recovery.launch.launch import Launch
from recovery.launch.recoverability import gang
from recovery.launch.views import PodGroupPolicy, ReplicatedJob
from tests.unit.launch.groups import SPEC, TRAIN_JOB, group, job, names, only, pods

POLICY = SPEC / "podGroupPolicy"
VOLCANO = PodGroupPolicy(POLICY, "volcano")
COSCHEDULING = PodGroupPolicy(POLICY, "coscheduling")


def test_in_kueue_the_group_is_admitted_as_one() -> None:
    assert names(gang.check(group(queued=True))) == []


def test_without_any_gang_a_part_of_the_group_may_hold_gpus() -> None:
    finding = only(gang.check(group(queued=False)))
    assert finding.message == (
        "nothing schedules the 16 pods together: where there is room for some of them only, these hold up to 120 of "
        "128 GPUs and wait for the rest"
    )
    assert finding.fix == (
        "add a podGroupPolicy to the runtime, or queue the job in Kueue by the label kueue.x-k8s.io/queue-name"
    )
    assert finding.place == TRAIN_JOB


@pytest.mark.parametrize(
    "launch",
    [
        pytest.param(group(queued=False, nodes=1), id="one pod"),
        pytest.param(group(queued=False, gpus_per_pod=0), id="no GPUs held"),
        pytest.param(group(queued=False, runtime_alone=True), id="its jobs may be queued"),
        pytest.param(group(job(pods(scheduler_name="volcano")), queued=False), id="another scheduler"),
        pytest.param(group(job(pods(labels={"scheduling.x-k8s.io/pod-group": "a"})), queued=False), id="pod group"),
        pytest.param(group(job(pods(annotations={"scheduling.k8s.io/group-name": "a"})), queued=False), id="volcano"),
    ],
)
def test_where_no_one_need_be_told(launch: Launch) -> None:
    assert names(gang.check(launch)) == []


def test_two_pods_are_enough_for_that() -> None:
    assert "hold up to 8 of 16 GPUs" in only(gang.check(group(queued=False, nodes=2))).message


@pytest.mark.parametrize(("policy", "name"), [(VOLCANO, "volcano"), (COSCHEDULING, "scheduler-plugins-scheduler")])
def test_a_pod_group_that_no_scheduler_is_named_for(policy: PodGroupPolicy, name: str) -> None:
    finding = only(gang.check(group(queued=False, before=[initializer("default-scheduler")], pod_groups=policy)))
    assert (finding.code.name, finding.place) == ("gang-scheduler-unnamed", POLICY)
    assert finding.fix.endswith(f"as the scheduler is called there: {name}")


def initializer(scheduler: str) -> ReplicatedJob:
    return ReplicatedJob("dataset", SPEC, pods(scheduler_name=scheduler))


@pytest.mark.parametrize(("policy", "scheduler"), [(VOLCANO, "volcano"), (COSCHEDULING, "scheduler-plugins-scheduler")])
@pytest.mark.parametrize("waits", ["depends_on", "depends_on_ready"])
def test_a_gang_that_waits_for_pods_which_wait_for_it(policy: PodGroupPolicy, scheduler: str, waits: str) -> None:
    trains = job(pods(scheduler_name=scheduler), **{waits: ("dataset",)})
    finding = only(gang.check(group(trains, before=[initializer(scheduler)], pod_groups=policy)))
    state = "Complete" if waits == "depends_on" else "Ready"
    assert (finding.code.name, finding.code.severity) == ("gang-waits-for-itself", "error")
    assert f"those of node are made only once dataset is {state}" in finding.message


@pytest.mark.parametrize(
    "launch",
    [
        pytest.param(
            group(job(pods(scheduler_name="volcano")), before=[initializer("volcano")], pod_groups=VOLCANO),
            id="nobody waits",
        ),
        pytest.param(
            group(
                job(pods(scheduler_name="volcano"), depends_on=("dataset",)),
                before=[initializer("")],
                pod_groups=VOLCANO,
            ),
            id="the initializer is scheduled by another",
        ),
        pytest.param(
            group(
                job(pods(scheduler_name="mine"), depends_on=("dataset",)),
                before=[initializer("mine")],
                pod_groups=VOLCANO,
            ),
            id="a scheduler that is not known",
        ),
    ],
)
def test_an_error_is_told_only_where_it_is_sure(launch: Launch) -> None:
    assert names(gang.check(launch)) == []
