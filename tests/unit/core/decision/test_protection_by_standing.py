"""A group that hangs is not protected, and neither is one with a silent node. Facts in, code out."""

import msgspec
import pytest

from recovery.core.model.ledger import Ledger
from recovery.core.model.protection import ProtectionReason
from recovery.core.model.standing import Broken, Standing
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import FencingMode, Mode, Restart
from recovery.core.sentences.protection import remedy, sentence
from tests.unit.core.decision.test_protection import annotated, breaker_open, found
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import group, training
from tests.unit.core.world import World, at

HANGS = Ledger(
    standing=Standing.BROKEN,
    broken=Broken(
        since=at(-5),
        booked_from=at(10),
        incident="uid-train-1",
        disruption_class="PodDeleted",
        gpus=32,
        message="pod train-node-0-2 ended",
    ),
)


def test_a_broken_group_is_not_protected() -> None:
    answer = found(training(), policy(), HANGS)
    assert (answer.reason, answer.protected) == (ProtectionReason.BROKEN, False)
    assert (answer.incident, answer.since, answer.forced) == ("uid-train-1", at(-5), False)
    assert sentence(answer) == (
        f"The group has been Broken since {at(-5):%Y-%m-%d %H:%M:%S}Z: pod train-node-0-2 ended. Its other ranks hang."
    )
    assert remedy(answer) == "Run recovery retry train to restart the group."


@pytest.mark.parametrize("terms", [policy(limit=0), policy(restart=Restart.NONE)], ids=["budget", "restart"])
def test_a_broken_group_is_reported_as_broken_before_an_exhausted_budget_or_restart_none(terms: Policy) -> None:
    assert found(training(), terms, HANGS).reason is ProtectionReason.BROKEN


@pytest.mark.parametrize(
    ("world", "terms"),
    [
        (training(), policy(Mode.OBSERVE)),
        (training(), breaker_open()),
        (annotated("paused", "true"), policy()),
    ],
    ids=["observe", "breaker", "paused"],
)
def test_where_the_controller_does_not_act_only_a_forced_restart_repairs_it(world: World, terms: Policy) -> None:
    answer = found(world, terms, HANGS)
    assert (answer.reason, answer.forced) == (ProtectionReason.BROKEN, True)
    assert remedy(answer) == "Run recovery restart train --reason TEXT --force to restart the group."


def test_under_a_global_pause_the_pause_comes_first() -> None:
    paused = policy(global_pause="RecoveryConfig default pauses it")
    assert found(training(), paused, HANGS).reason is ProtectionReason.PAUSED_GLOBALLY


def test_without_a_policy_no_one_says_that_it_still_hangs() -> None:
    assert found(training(), None, HANGS).reason is ProtectionReason.NO_POLICY


def test_a_broken_group_that_is_over_needs_no_protection() -> None:
    assert found(training().suspended(), policy(), HANGS).reason is ProtectionReason.SUSPENDED
    assert found(training().jobset_completed(), policy(), HANGS).reason is ProtectionReason.FINISHED


def test_in_an_incident_the_incident_is_the_answer() -> None:
    controller, lost = Controller(policy()), training().pod_failed(2, 1, 0)
    controller.reconcile(lost, 1)
    hangs = msgspec.structs.replace(controller.ledger, standing=Standing.BROKEN)
    assert found(lost, policy(), hangs, seconds=2).reason is ProtectionReason.PROTECTED


def test_a_group_with_a_silent_node_may_hang_already() -> None:
    answer = found(training().node_silent("gpu-2", 500), policy())
    assert (answer.reason, answer.protected) == (ProtectionReason.NODE_SILENT, False)
    assert sentence(answer).startswith("Unknown whether the group trains: node gpu-2 has not answered since ")
    assert found(training().node_silent("gpu-2", 500).node_back("gpu-2"), policy()).reason is ProtectionReason.PROTECTED


def test_a_node_that_is_assumed_dead_later_is_silent_until_then() -> None:
    terms = policy(fencing=FencingMode.ASSUME_DEAD, may_assume_dead=True)
    silent = training().node_silent("gpu-2", 500)
    assert found(silent, terms, seconds=510).reason is ProtectionReason.NODE_SILENT
    assert found(silent, terms, seconds=5000).reason is ProtectionReason.PROTECTED


def test_what_a_person_has_set_goes_before_a_silent_node() -> None:
    assert found(training().node_silent("gpu-2", 500), policy(Mode.OBSERVE)).reason is ProtectionReason.OBSERVE


def test_a_silent_node_leaves_no_rank_hanging_before_the_group_has_run_whole() -> None:
    started = group().started(0, 10).started(1, 10)
    assert found(started.node_silent("gpu-1", 500), policy()).reason is ProtectionReason.NOT_STARTED
