"""What a recovery proves, for how long, and what changes that: facts in, plan out."""

from collections.abc import Sequence
from datetime import timedelta

import msgspec
import pytest

from recovery.core.model.agent_facts import AgentRendezvous
from recovery.core.model.drill import DrillRef
from recovery.core.model.ledger import IncidentHandling, Ledger, Outcome
from recovery.core.model.proof import RecoveryProof
from recovery.core.model.reason import Reason
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode, PolicyError
from tests.unit.core.agents import with_agent
from tests.unit.core.decision import test_agent_rendezvous as agents
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

DIGEST = "sha256:" + "1" * 64
OTHER_DIGEST = "sha256:" + "2" * 64


def drilled(max_age: timedelta | None = timedelta(hours=1), *, digest: str = "p1", mode: Mode = Mode.ENFORCE) -> Policy:
    return msgspec.structs.replace(policy(mode), digest=digest, proof_max_age=max_age)


def shown_by_probe(world: World, images: Sequence[str] = (DIGEST,)) -> World:
    """Every rank reports that it has joined the others. The ranks run these images in turn."""
    for index in range(world.job.parallelism):
        (container,) = world.pod(index).containers
        running = msgspec.structs.replace(container, image=images[index % len(images)])
        world = world.with_pod(index, joined_probe=True, containers=(running,))
    return world


def back(world: World, seconds: float, images: Sequence[str] = (DIGEST,)) -> World:
    return shown_by_probe(world.recreated(seconds).all_ready(seconds + 10), images)


def recovered(
    terms: Policy | None = None, *, drill: DrillRef | None = None, images: Sequence[str] = (DIGEST,)
) -> tuple[Controller, World]:
    """Rank 3 failed at 0. All ranks have joined by 21, and the incident is recorded."""
    controller, world = Controller(terms or drilled()), training().pod_failed(3, 137, 0)
    controller.reconcile(world, 1)
    controller.ledger = controller.ledger.with_incident(drill=drill)
    whole = back(world, 10, images)
    controller.settle(whole, 21)
    return controller, whole


def proof_of(controller: Controller) -> RecoveryProof:
    assert controller.ledger.proof is not None
    return controller.ledger.proof


def condition(controller: Controller) -> tuple[str, Reason]:
    found = next(each for each in controller.ledger.conditions if each.type == "RecoveryProven")
    return found.status, Reason(found.reason)


def message(controller: Controller) -> str:
    return next(each.message for each in controller.ledger.conditions if each.type == "RecoveryProven")


# --- what proves ------------------------------------------------------------------------------------------------------


def test_an_unplanned_failure_proves_that_the_group_recovers() -> None:
    controller, _ = recovered()
    proof = proof_of(controller)
    assert (proof.proven_at, proof.seconds, proof.incident) == (at(21), 21.0, controller.recorded[0].id)
    assert (proof.verified, proof.source, proof.run, proof.step) == (True, "joined-probe", None, None)
    assert condition(controller) == ("True", Reason.RECOVERY_PROVEN)


def test_a_drill_proves_it_as_well_and_is_named() -> None:
    controller, _ = recovered(drill=DrillRef(name="one-pod-x7k2p", uid="drill-1"))
    assert proof_of(controller).run == "one-pod-x7k2p"
    assert condition(controller) == ("True", Reason.RECOVERY_PROVEN)


def test_while_the_first_incident_is_open_nothing_is_proven() -> None:
    controller = Controller(drilled())
    controller.reconcile(training().pod_failed(3, 137, 0), 1)
    assert controller.ledger.proof is None
    assert condition(controller) == ("Unknown", Reason.NEVER_PROVEN)


def test_an_incident_that_is_only_observed_proves_nothing() -> None:
    controller, world = Controller(drilled(mode=Mode.OBSERVE)), training().pod_failed(3, 137, 0)
    controller.reconcile(world, 1)
    controller.settle(back(world, 10), 21)
    assert [each.closing.outcome for each in controller.recorded if each.closing] == [Outcome.OBSERVED]
    assert controller.ledger.proof is None


@pytest.mark.parametrize("handling", [IncidentHandling.MANUAL, IncidentHandling.HELD])
def test_a_recovery_with_the_help_of_a_person_proves_nothing(handling: IncidentHandling) -> None:
    controller, world = Controller(drilled()), training().pod_failed(3, 137, 0)
    controller.reconcile(world, 1)
    controller.ledger = controller.ledger.with_incident(handling=handling)
    controller.settle(back(world, 10), 21)
    assert controller.recorded[0].closing is not None
    assert controller.recorded[0].closing.outcome is Outcome.RECOVERED
    assert controller.ledger.proof is None


@pytest.mark.parametrize("of_class", ["Manual", "Growth"])
def test_a_restart_without_a_failure_proves_nothing(of_class: str) -> None:
    controller, world = Controller(drilled()), training().pod_failed(3, 137, 0)
    controller.reconcile(world, 1)
    controller.ledger = controller.ledger.with_incident(disruption_class=of_class)
    controller.settle(back(world, 10), 21)
    assert controller.ledger.proof is None


@pytest.mark.parametrize(("first", "known"), [(1000, 1000), (0, None)], ids=["from a checkpoint", "from step 0"])
def test_the_step_that_the_ranks_continued_from_is_part_of_it_if_it_counts_from_the_beginning(
    first: int, known: int | None
) -> None:
    controller, world = Controller(agents.allows()), agents.lost()
    controller.reconcile(world, 0.2)
    joined = agents.back(world, 1.2, AgentRendezvous(2, at(1.4), at(2.0)))
    controller.settle(with_agent(joined, steps=agents.steps(1201, 4.0, first=first)), 4.2)
    assert (proof_of(controller).source, proof_of(controller).step) == ("agent", known)


# --- verified or not --------------------------------------------------------------------------------------------------


def only_ready(world: World, seconds: float) -> World:
    """The ranks are Ready, and nothing reports that they have joined."""
    whole = back(world, seconds)
    for index in range(whole.job.parallelism):
        whole = whole.with_pod(index, joined_probe=False)
    return whole


def test_ready_pods_alone_leave_it_unknown() -> None:
    controller, world = Controller(drilled()), training().pod_failed(3, 137, 0)
    controller.reconcile(world, 1)
    controller.settle(only_ready(world, 10), 21)
    assert not proof_of(controller).verified
    assert condition(controller) == ("Unknown", Reason.PROOF_NOT_VERIFIED)


def test_what_only_ready_pods_show_takes_no_place_of_a_proof_that_counts() -> None:
    controller, whole = recovered()
    first = proof_of(controller)
    failed = whole.pod_failed(3, 137, 100)
    controller.reconcile(failed, 101)
    controller.settle(only_ready(failed, 110), 121)
    assert len(controller.recorded) == 2
    assert proof_of(controller) == first
    assert condition(controller) == ("True", Reason.RECOVERY_PROVEN)


def test_it_takes_the_place_of_a_proof_that_has_expired() -> None:
    controller, whole = recovered()
    failed = whole.pod_failed(3, 137, 3700)
    controller.reconcile(failed, 3701)
    controller.settle(only_ready(failed, 3710), 3721)
    assert proof_of(controller).proven_at == at(3721)
    assert condition(controller) == ("Unknown", Reason.PROOF_NOT_VERIFIED)


def test_it_takes_the_place_of_a_proof_of_another_setup() -> None:
    controller, whole = recovered()
    controller.policy = drilled(digest="p2")
    failed = whole.pod_failed(3, 137, 100)
    controller.reconcile(failed, 101)
    controller.settle(only_ready(failed, 110), 121)
    assert proof_of(controller).proven_at == at(121)


def test_a_later_verified_recovery_takes_the_place_of_an_earlier_one() -> None:
    controller, whole = recovered()
    failed = whole.pod_failed(3, 137, 100)
    controller.reconcile(failed, 101)
    controller.settle(back(failed, 110), 121)
    assert proof_of(controller).proven_at == at(121)


# --- how long it counts -----------------------------------------------------------------------------------------------


def test_a_proof_expires_at_the_age_that_the_policy_allows() -> None:
    controller, whole = recovered()
    assert controller.reconcile(whole, 30).requeue_at == at(21 + 3600)
    controller.reconcile(whole, 3620)
    assert condition(controller) == ("True", Reason.RECOVERY_PROVEN)
    controller.reconcile(whole, 3621)
    assert condition(controller) == ("False", Reason.PROOF_EXPIRED)
    assert controller.reconcile(whole, 3622).requeue_at is None


def test_without_an_age_in_the_policy_no_proof_expires() -> None:
    controller, whole = recovered(drilled(None))
    assert controller.reconcile(whole, 30).requeue_at is None
    controller.reconcile(whole, 400 * 86_400)
    assert condition(controller) == ("True", Reason.RECOVERY_PROVEN)


# --- what it is about -------------------------------------------------------------------------------------------------


def test_a_change_of_the_policy_outdates_it_at_once_and_its_return_restores_it() -> None:
    controller, whole = recovered()
    controller.policy = drilled(digest="p2")
    controller.reconcile(whole, 30)
    assert condition(controller) == ("False", Reason.PROOF_OUTDATED)
    assert message(controller).startswith("the policy changed")
    controller.policy = drilled()
    controller.reconcile(whole, 40)
    assert condition(controller) == ("True", Reason.RECOVERY_PROVEN)


def test_a_change_of_the_runtime_and_of_the_image_are_named() -> None:
    controller, whole = recovered()
    controller.reconcile(shown_by_probe(whole.with_job(pod_restart_policy="OnFailure"), [OTHER_DIGEST]), 30)
    assert condition(controller) == ("False", Reason.PROOF_OUTDATED)
    assert message(controller).startswith("the runtime and the image changed")


def test_the_recovery_itself_may_bring_the_new_image() -> None:
    """A tag was moved, and the restart has pulled what it names now: the proof is of that."""
    controller, whole = recovered(images=[OTHER_DIGEST])
    controller.reconcile(whole, 30)
    assert condition(controller) == ("True", Reason.RECOVERY_PROVEN)


def test_a_policy_that_was_edited_during_the_incident_is_not_proven() -> None:
    """The incident went by the terms that it had pinned."""
    controller, world = Controller(drilled()), training().pod_failed(3, 137, 0)
    controller.reconcile(world, 1)
    controller.policy = drilled(digest="p2")
    controller.settle(back(world, 10), 21)
    assert condition(controller) == ("False", Reason.PROOF_OUTDATED)


@pytest.mark.parametrize("without", [None, PolicyError("spec.budget.limit: -1")])
def test_without_a_usable_policy_the_proof_stays_as_it_was(without: PolicyError | None) -> None:
    controller, whole = recovered()
    controller.policy = without
    controller.reconcile(whole, 30)
    assert condition(controller) == ("True", Reason.RECOVERY_PROVEN)


def test_a_group_whose_images_are_not_known_has_a_proof_that_no_image_outdates() -> None:
    controller, whole = recovered(images=[""])
    assert proof_of(controller).setup.image == ""
    controller.reconcile(shown_by_probe(whole, [OTHER_DIGEST]), 30)
    assert condition(controller) == ("True", Reason.RECOVERY_PROVEN)


def test_what_was_outdated_stays_so_while_pods_are_missing() -> None:
    controller, whole = recovered()
    changed = shown_by_probe(whole, [OTHER_DIGEST])
    controller.reconcile(changed, 30)
    assert condition(controller) == ("False", Reason.PROOF_OUTDATED)
    controller.reconcile(changed.pod_failed(3, 137, 40), 41)
    assert condition(controller) == ("False", Reason.PROOF_OUTDATED)


# --- what is written --------------------------------------------------------------------------------------------------


def test_a_group_that_never_had_an_incident_is_not_written() -> None:
    controller = Controller(drilled())
    controller.reconcile(training(), 1)
    assert controller.ledger == Ledger()


def test_nothing_is_written_while_nothing_changes() -> None:
    controller, whole = recovered()
    known = controller.ledger
    for seconds in range(30, 3600, 300):
        assert controller.plan(whole, seconds).ledger == known
    controller.reconcile(whole, 3621)
    expired = controller.ledger
    assert controller.plan(whole, 9000).ledger == expired


def test_a_ledger_of_an_earlier_version_is_not_written_for_a_proof_that_it_lacks() -> None:
    controller, whole = recovered()
    kept = tuple(each for each in controller.ledger.conditions if each.type != "RecoveryProven")
    controller.ledger = msgspec.structs.replace(controller.ledger, proof=None, conditions=kept)
    assert controller.plan(whole, 30).ledger == controller.ledger


def test_the_condition_dates_from_its_last_change() -> None:
    controller, whole = recovered()
    controller.reconcile(whole, 3621)
    found = next(each for each in controller.ledger.conditions if each.type == "RecoveryProven")
    assert found.last_transition_time == at(3621)
