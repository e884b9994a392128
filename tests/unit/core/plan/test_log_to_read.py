"""Which log is read beside a trigger: its pod, container and instance."""

import msgspec
import pytest

from recovery.core.model.facts import ContainerFacts, ExitFacts
from recovery.core.model.ledger import Ledger, Suspect
from recovery.core.model.suspect_log import LOG_BYTES_MAX, LogAbsence, SuspectLog
from recovery.core.plan.actions import Action, DeleteJob, DeletePods, EmitEvent, Plan
from recovery.core.plan.log_to_read import log_to_read
from recovery.core.policy.spec import Mode
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

ANY = ("ready-but-not-running", "running-before-all-started")
TRIGGER = DeleteJob(1, "train-node-0", "job-1", "7")


def restarts_in_place() -> World:
    return training(4, restart_policy="OnFailure")


def planned(suspect: Suspect, *actions: Action) -> Plan:
    """A plan whose incident has that suspect."""
    plan = Controller().plan(training(4).pod_gone(2, 0), 1)
    ledger = plan.ledger.with_incident(suspects=(suspect,))
    return msgspec.structs.replace(plan, ledger=ledger, actions=actions or (TRIGGER,))


def known(world: World, exit_code: int | None = None, *, rank: int = 2) -> SuspectLog:
    """What is known of the suspect before its log is read."""
    plan = planned(Suspect(training(4).pod(rank).name, exit_code=exit_code))
    wanted = log_to_read(world.snapshot(live=True), plan)
    assert wanted is not None
    assert wanted.incident_id == plan.ledger.current_incident.id
    return wanted.known


def test_of_a_container_that_has_ended_and_not_restarted_the_present_instance_is_read() -> None:
    found = known(training(4).pod_failed(2, 1, 0, message="CUDA error"), 1)
    assert (found.previous, found.termination_message, found.absent) == (False, "CUDA error", None)
    assert (found.pod, found.container) == (training(4).pod(2).name, training(4).pod(2).containers[0].name)


def test_of_a_container_that_has_restarted_in_place_the_instance_before_is_read() -> None:
    found = known(restarts_in_place().container_exited(2, 1, 0, message="CUDA error").container_back(2, 1), 1)
    assert (found.previous, found.termination_message) == (True, "CUDA error")


def test_of_a_container_that_has_exited_once_more_since_the_instance_before_is_read() -> None:
    crashed = restarts_in_place().container_exited(2, 139, 0, message="CUDA error").container_back(2, 1)
    found = known(crashed.container_exited(2, 1, 3, message="no peers"), 139)
    assert (found.previous, found.termination_message) == (True, "CUDA error")


def test_an_exit_that_is_not_the_failure_is_no_evidence_of_it() -> None:
    """The container restarted last week. Now its node is lost."""
    assert known(restarts_in_place().container_restarted(2, 1, -600), None) == SuspectLog(
        training(4).pod(2).name, training(4).pod(2).containers[0].name
    )


def test_of_several_training_containers_the_one_is_read_that_failed() -> None:
    running = ContainerFacts("first", ready=True, running_since=at(-60))
    ended = ContainerFacts("second", exit=ExitFacts(139, "Error", "", at(-60), at(0)))
    assert known(training(4).although(*ANY).with_pod(2, containers=(running, ended)), 139).container == "second"


def test_a_pod_that_is_gone_has_no_log() -> None:
    assert known(training(4).pod_gone(2, 0)).absent is LogAbsence.NOT_FOUND


def test_a_pod_whose_containers_have_never_started_has_no_log() -> None:
    assert known(training(4).although(*ANY).with_pod(2, containers=())).absent is LogAbsence.NO_LOGS


def test_where_no_container_is_known_to_train_none_is_read() -> None:
    world = training(4).although(*ANY).with_pod(2, containers=(), training_known=False)
    assert known(world).absent is LogAbsence.NO_TRAINING_CONTAINER


def test_a_termination_message_is_bounded_and_harmless() -> None:
    found = known(training(4).pod_failed(2, 1, 0, message="\x1b[2J" + "ü" * 9000), 1)
    assert len(found.termination_message.encode()) <= LOG_BYTES_MAX
    assert "\x1b" not in found.termination_message


@pytest.mark.parametrize(
    "action", [DeletePods(1, (), None), EmitEvent("k", False, "r", "n")], ids=["teardown", "event"]
)
def test_without_a_trigger_nothing_is_read(action: Action) -> None:
    world = training(4).pod_failed(2, 1, 0)
    plan = planned(Suspect(world.pod(2).name, exit_code=1), action)
    assert log_to_read(world.snapshot(live=True), plan) is None


def test_an_incident_that_has_its_log_and_one_without_a_suspect_read_nothing() -> None:
    world = training(4).pod_failed(2, 1, 0)
    plan = planned(Suspect(world.pod(2).name, exit_code=1))
    for changes in ({"suspect_log": SuspectLog("p", absent=LogAbsence.TIMED_OUT)}, {"suspects": ()}):
        changed = msgspec.structs.replace(plan, ledger=plan.ledger.with_incident(**changes))
        assert log_to_read(world.snapshot(live=True), changed) is None


@pytest.mark.parametrize("mode", list(Mode))
def test_no_decision_depends_on_a_log(mode: Mode) -> None:
    """Two controllers see the same worlds. One has a log whose words would blame a node in a termination message."""
    blamed = SuspectLog("p", "node", tail="NVRM: Xid 79", termination_message="Xid 79 fell off the bus")
    world = training(4).pod_failed(2, 1, 0)
    worlds = [world, world.job_deleted(2), world.job_deleted(2).recreated(5).all_ready(20)]
    without, given = Controller(policy(mode)), Controller(policy(mode))
    for seconds, each in zip((1, 3, 21), worlds, strict=True):
        with_it = given.reconcile(each, seconds)
        assert bare(with_it.ledger) == without.reconcile(each, seconds).ledger
        assert given.triggers == without.triggers
        if given.ledger.incident is not None and given.ledger.incident.closing is None:
            given.ledger = given.ledger.with_incident(suspect_log=blamed)
        assert bare(given.ledger) == without.ledger


def bare(ledger: Ledger) -> Ledger:
    return ledger if ledger.incident is None else ledger.with_incident(suspect_log=None)
