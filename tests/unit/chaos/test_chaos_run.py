"""A run names its pods before it acts, watches until the job has recovered, and leaves nodes as it found them."""

import pytest

from recovery.chaos.chaos_run import RunOutcome
from recovery.core.model.drill import DrillAction, DrillVerdict
from recovery.core.model.reason import Reason
from recovery.ports import NODES, PODS, RECOVERY_CONFIGS, RECOVERY_GROUPS, ApiRequest, ForbiddenError, TryLaterError
from recovery.sim.api.client import ModelClient
from recovery.sim.virtual_time import virtual_time
from tests.unit.chaos.world import FILE, ON_NODES, POD_KILL, RANKS, ChaosWorld, SendsFirst, add_group

EVICT = FILE + "chaos:\n- {kind: PodChaos, action: pod-evict, mode: one}\n"
CORDON_AND_5S_LATER_CONDITION = (
    "chaos:\n- {kind: PhysicalMachineChaos, action: cordon, mode: one}\n"
    "- {kind: PhysicalMachineChaos, action: condition, mode: one, at: 5s}\nhypothesis: {incidents: 0}\n"
)


def assert_ended(world: ChaosWorld, outcome: RunOutcome, reason: Reason) -> None:
    assert outcome.reason is reason, outcome.message
    end = world.drill().spec.end
    assert end is not None
    assert end.reason is reason


@virtual_time
async def test_a_killed_pod_that_is_replaced_passes() -> None:
    world = ChaosWorld()
    async with world.running():
        outcome = await world.run(POD_KILL)
    assert_ended(world, outcome, Reason.DRILL_DONE)
    assert (outcome.verdict, outcome.verdict_message, outcome.left_over) == (DrillVerdict.PASSED, "judged", ())
    [case] = outcome.cases
    assert (case.incidents, case.recovery_seconds, case.idle_gpu_seconds) == (("inc-1",), 6.0, 96.0)
    [named] = world.drill().spec.pods
    assert (named.number, named.repeat, named.action) == (1, 1, DrillAction.POD_KILL)


@virtual_time
async def test_no_pod_is_touched_before_the_controller_has_acknowledged_its_name() -> None:
    world = ChaosWorld()
    acknowledged = []

    def before(request: ApiRequest) -> None:
        if request.verb == "delete":
            acknowledged.append(world.drill().status.named)

    async with world.running():
        await world.run(POD_KILL + "repeat: 2\n", SendsFirst(ModelClient(world.server, "jane"), before))
    assert acknowledged == [1, 2]


@virtual_time
async def test_without_an_acknowledgment_nothing_happens_to_the_pods() -> None:
    world = ChaosWorld()
    world.acknowledges = False
    pods = world.pods()
    async with world.running():
        outcome = await world.run(POD_KILL)
    assert_ended(world, outcome, Reason.DRILL_PRECONDITION)
    assert "has not acknowledged" in outcome.message
    assert world.pods() == pods


@virtual_time
async def test_a_drill_that_the_controller_refuses_ends_with_its_reason() -> None:
    world = ChaosWorld()
    world.refusal = {"reason": "DrillLimitOfDay", "message": "12 drills in the last 24 hours"}
    pods = world.pods()
    async with world.running():
        outcome = await world.run(POD_KILL)
    assert_ended(world, outcome, Reason.DRILL_LIMIT_OF_DAY)
    assert (outcome.message, world.pods()) == ("12 drills in the last 24 hours", pods)


@virtual_time
async def test_each_repeat_names_other_pods_and_is_judged_by_its_own_incident() -> None:
    world = ChaosWorld()
    async with world.running():
        outcome = await world.run(POD_KILL + "repeat: 3\n")
    assert outcome.reason is Reason.DRILL_DONE
    assert [(pod.number, pod.repeat) for pod in world.drill().spec.pods] == [(1, 1), (2, 2), (3, 3)]
    assert len({pod.pod_uid for pod in world.drill().spec.pods}) == 3


@virtual_time
async def test_after_a_repeat_that_did_not_pass_no_further_one_is_run() -> None:
    world = ChaosWorld()
    async with world.running():
        outcome = await world.run(POD_KILL + "repeat: 3\nhypothesis: {resumesPast: checkpoint}\n")
    assert outcome.verdict is DrillVerdict.INCONCLUSIVE
    assert "no further one was run" in outcome.message
    assert {pod.repeat for pod in world.drill().spec.pods} == {1}


@virtual_time
async def test_the_next_repeat_waits_until_the_job_may_be_drilled_again() -> None:
    world = ChaosWorld()
    paused = world.later(8, lambda: world.job.update(paused=True))
    resumed = world.later(40, lambda: world.job.update(paused=False))
    async with world.running(), paused, resumed:
        outcome = await world.run(POD_KILL + "repeat: 2\n")
    assert outcome.reason is Reason.DRILL_DONE
    assert world.clock.monotonic_seconds() > 40


@virtual_time
async def test_a_job_that_may_not_be_drilled_again_within_ten_minutes_ends_the_run() -> None:
    world = ChaosWorld()
    async with world.running(), world.later(8, lambda: world.job.update(paused=True)):
        outcome = await world.run(POD_KILL + "repeat: 2\n")
    assert_ended(world, outcome, Reason.DRILL_PRECONDITION)
    assert "recovery resume llm" in outcome.message


@virtual_time
async def test_what_is_changed_on_nodes_is_marked_and_taken_back_at_the_end() -> None:
    world = ChaosWorld()
    before, seen = world.nodes(), []
    async with world.running(), world.later(10, lambda: seen.append(world.nodes())):
        outcome = await world.run(ON_NODES)
    assert outcome.reason is Reason.DRILL_DONE, outcome.message
    assert seen[0] != before
    assert world.nodes() == before


@virtual_time
async def test_where_no_incident_is_expected_none_makes_the_repeat_pass() -> None:
    world = ChaosWorld()
    async with world.running():
        outcome = await world.run(ON_NODES)
    [case] = outcome.cases or (None,)
    assert case is None or case.verdict is DrillVerdict.PASSED
    assert 20 <= world.clock.monotonic_seconds() < 40


@virtual_time
async def test_a_later_entry_selects_from_the_pods_that_exist_then() -> None:
    world = ChaosWorld()
    later = "- {kind: PodChaos, action: pod-kill, mode: one, during: Scheduling, selector: {indexes: [%d]}}\n"
    first = "chaos:\n- {kind: PodChaos, action: pod-kill, mode: one, selector: {indexes: [0]}}\n"
    async with world.running():
        outcome = await world.run(FILE + first + later % 2 + "hypothesis: {incidents: 2}\n")
    assert [(pod.number, pod.index) for pod in world.drill().spec.pods] == [(1, 0), (2, 2)]
    [case] = outcome.cases
    assert case.verdict is DrillVerdict.PASSED
    assert case.incidents == ("inc-1", "inc-2"), "a closed one comes from its record"
    assert world.clock.monotonic_seconds() < 60


@virtual_time
async def test_a_slow_acknowledgment_does_not_shorten_the_time_between_two_entries() -> None:
    world = ChaosWorld()
    world.acknowledges_after_seconds = 10.0
    changed_at: list[float] = []

    def before(request: ApiRequest) -> None:
        if request.verb == "patch" and request.resource is NODES:
            changed_at.append(world.clock.monotonic_seconds())

    async with world.running():
        api = SendsFirst(ModelClient(world.server, "jane"), before)
        await world.run(FILE + CORDON_AND_5S_LATER_CONDITION, api)
    cordon, condition, *_ = changed_at
    assert 5.0 <= condition - cordon < 7.0


@virtual_time
async def test_a_later_entry_waits_for_pods_while_the_job_recovers() -> None:
    """At its moment all pods of the group may be on their way down."""
    world = ChaosWorld()
    later = "- {kind: PodChaos, action: pod-kill, mode: one, at: 2s}\n"
    async with world.running():
        outcome = await world.run(POD_KILL.replace("mode: one", "mode: all") + later)
    assert outcome.reason is Reason.DRILL_DONE, outcome
    assert [pod.repeat for pod in world.drill().spec.pods] == [1] * (RANKS + 1)


@virtual_time
async def test_a_later_entry_that_does_not_fit_a_job_that_has_recovered_ends_the_run() -> None:
    world = ChaosWorld()
    later = "- {kind: PodChaos, action: pod-kill, mode: one, selector: {indexes: [9]}, at: 30s}\n"
    async with world.running():
        outcome = await world.run(POD_KILL + later)
    assert_ended(world, outcome, Reason.DRILL_ACT_FAILED)
    assert "chaos[1].selector.indexes: 9" in outcome.message


@virtual_time
async def test_a_repeat_whose_incident_does_not_come_ends_after_half_an_hour() -> None:
    world = ChaosWorld()
    async with world.running():
        outcome = await world.run(POD_KILL + "hypothesis: {incidents: 2}\n")
    assert 1800 <= world.clock.monotonic_seconds() < 1900
    assert (outcome.verdict, outcome.cases[0].reason) == (DrillVerdict.FAILED, Reason.DRILL_UNEXPECTED_INCIDENTS)


@virtual_time
async def test_an_act_that_is_forbidden_ends_the_run_with_the_right_that_is_missing() -> None:
    world = ChaosWorld()

    def before(request: ApiRequest) -> None:
        if request.verb == "delete":
            raise ForbiddenError('User "jane" cannot delete resource "pods" in API group ""', status=403)

    async with world.running():
        outcome = await world.run(POD_KILL, SendsFirst(ModelClient(world.server, "jane"), before))
    assert_ended(world, outcome, Reason.DRILL_ACT_FAILED)
    assert isinstance(outcome.error, ForbiddenError)
    assert 'cannot delete resource "pods"' in outcome.message


@virtual_time
async def test_a_person_of_one_namespace_sees_the_incidents_of_that_namespace() -> None:
    world = ChaosWorld()

    def before(request: ApiRequest) -> None:
        if request.resource == RECOVERY_GROUPS and request.namespace is None:
            raise ForbiddenError("in all namespaces", status=403)

    async with world.running():
        outcome = await world.run(POD_KILL, SendsFirst(ModelClient(world.server, "jane"), before))
    assert outcome.verdict is DrillVerdict.PASSED


@virtual_time
async def test_an_api_server_that_is_away_for_a_while_is_waited_for() -> None:
    world = ChaosWorld()

    def before(request: ApiRequest) -> None:
        if request.resource == RECOVERY_GROUPS and 10 < world.clock.monotonic_seconds() < 40:
            raise TryLaterError("no answer")

    async with world.running():
        outcome = await world.run(ON_NODES, SendsFirst(ModelClient(world.server, "jane"), before))
    assert outcome.reason is Reason.DRILL_DONE


@virtual_time
async def test_an_entry_whose_phase_does_not_come_ends_the_run() -> None:
    world = ChaosWorld()
    later = "- {kind: PodChaos, action: pod-kill, mode: one, during: Rendezvous}\n"
    async with world.running():
        outcome = await world.run(POD_KILL + later)
    assert_ended(world, outcome, Reason.DRILL_ACT_FAILED)
    assert "not seen in phase Rendezvous" in outcome.message


@pytest.mark.parametrize(
    ("slo", "reason"),
    [("recovery: 3s", Reason.DRILL_TOO_SLOW), ("idleGpuSeconds: 40", Reason.DRILL_TOO_COSTLY)],
)
def test_a_recovery_beyond_its_objective_is_stopped_while_it_goes_on(slo: str, reason: Reason) -> None:
    @virtual_time
    async def runs() -> None:
        world = ChaosWorld()
        world.recovers_after_seconds = 60.0
        async with world.running():
            outcome = await world.run(POD_KILL + f"slo: {{{slo}}}\n")
            assert_ended(world, outcome, reason)
            assert world.clock.monotonic_seconds() < 50

    runs()


@virtual_time
async def test_a_limit_of_the_file_stops_a_later_entry_before_it_acts() -> None:
    world = ChaosWorld()
    later = "- {kind: PodChaos, action: pod-kill, mode: fixed, value: 2, at: 8s}\n"
    async with world.running():
        outcome = await world.run(POD_KILL + later + "limits: {gpus: 16}\n")
    assert_ended(world, outcome, Reason.DRILL_LIMIT)
    assert len(world.drill().spec.pods) == 1


@virtual_time
async def test_a_pause_of_all_recoveries_stops_the_run() -> None:
    world = ChaosWorld()

    def pause() -> None:
        world.server.create(RECOVERY_CONFIGS, {"metadata": {"name": "default"}, "spec": {"paused": True}})

    async with world.running(), world.later(3, pause):
        outcome = await world.run(POD_KILL)
    assert_ended(world, outcome, Reason.GLOBAL_PAUSE)


@virtual_time
async def test_an_incident_of_another_job_that_begins_meanwhile_stops_the_run() -> None:
    world = ChaosWorld()
    add_group(world, "bert")
    async with world.running(), world.later(3, lambda: world.begin_incident("Scheduling", None, group="bert")):
        outcome = await world.run(POD_KILL)
    assert_ended(world, outcome, Reason.DRILL_INCIDENT_ELSEWHERE)
    assert "job research/bert" in outcome.message


@virtual_time
async def test_an_incident_of_another_job_that_was_open_before_stops_nothing() -> None:
    world = ChaosWorld()
    add_group(world, "bert")
    world.begin_incident("Scheduling", None, group="bert")
    async with world.running():
        outcome = await world.run(POD_KILL)
    assert outcome.reason is Reason.DRILL_DONE, outcome.message


@virtual_time
async def test_a_failure_that_the_drill_did_not_cause_makes_the_repeat_inconclusive() -> None:
    world = ChaosWorld()
    world.writes_verdicts = False
    async with world.running(), world.later(5, lambda: world.begin_incident("Scheduling", None)):
        outcome = await world.run(ON_NODES)
    assert outcome.cases[-1].reason is Reason.DRILL_DISTURBED


@virtual_time
async def test_an_eviction_that_a_disruption_budget_refuses_is_tried_again_and_reported() -> None:
    world = ChaosWorld()
    refused: list[ApiRequest] = []

    def before(request: ApiRequest) -> None:
        if request.subresource == "eviction" and len(refused) < 3:
            refused.append(request)
            raise TryLaterError("Cannot evict pod as it would violate the pod's disruption budget.", status=429)

    async with world.running():
        outcome = await world.run(EVICT, SendsFirst(ModelClient(world.server, "jane"), before))
    assert outcome.verdict is DrillVerdict.PASSED
    assert any("disruption budget" in note for note in world.notes)


@virtual_time
async def test_an_eviction_that_is_refused_for_a_minute_ends_the_run() -> None:
    world = ChaosWorld()

    def before(request: ApiRequest) -> None:
        if request.subresource == "eviction":
            raise TryLaterError("Cannot evict pod as it would violate the pod's disruption budget.", status=429)

    async with world.running():
        outcome = await world.run(EVICT, SendsFirst(ModelClient(world.server, "jane"), before))
    assert_ended(world, outcome, Reason.DRILL_ACT_FAILED)
    assert "refused for 60 s" in outcome.message


@virtual_time
async def test_a_process_is_killed_in_the_training_container() -> None:
    world = ChaosWorld()
    text = FILE + "hypothesis: {incidents: 0}\nchaos:\n- {kind: PodChaos, action: process-kill, mode: all}\n"
    async with world.running():
        await world.run(text)
    assert len(world.killer.killed) == 4
    assert all(each.endswith("/node") for each in world.killer.killed)


@virtual_time
async def test_pods_that_have_changed_since_the_plan_was_shown_are_not_touched() -> None:
    world = ChaosWorld()
    run = await world.prepared(POD_KILL)
    for pod in world.pods():
        world.server.delete(PODS, pod["metadata"]["name"], namespace="research", grace_seconds=0)
    for index in range(4):
        world.add_pod(index)
    outcome = await run.run()
    assert outcome.reason is Reason.DRILL_PRECONDITION
    assert (outcome.drill, world.drills(), len(world.pods())) == ("", [], 4)


@virtual_time
async def test_a_controller_that_writes_no_verdict_makes_the_run_inconclusive() -> None:
    world = ChaosWorld()
    world.writes_verdicts = False
    async with world.running():
        outcome = await world.run(POD_KILL)
    assert (outcome.verdict, outcome.reason) == (DrillVerdict.INCONCLUSIVE, Reason.DRILL_DONE)
    assert "no verdict within 30 s" in outcome.verdict_message
