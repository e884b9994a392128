"""An entry affects the same pods for the same seed. A limit of the file counts all that it affects."""

import msgspec
import pytest

from recovery.chaos.node_pods import PodOnNode
from recovery.chaos.run_plan import plan_lines, planned
from recovery.chaos.strikes import Strike, aimed, drives_out, over_limit, reach_of
from recovery.chaos.tools import ChaosRefusedError
from recovery.core.model.demand import Toleration
from recovery.core.model.facts import GroupKey
from recovery.scenario.experiment import ExperimentLimits
from recovery.sim.virtual_time import virtual_time
from tests.unit.chaos.states import member
from tests.unit.chaos.world import FILE, POD_KILL, ChaosWorld, read

KEY = GroupKey("research", "llm")
MEMBERS = (*(member(index) for index in range(3)), member(3, node="gpu-2"))


def strike(entry: str, repeat: int = 1) -> Strike:
    experiment = read(f"{FILE}chaos:\n- {{{entry}}}\n")
    return aimed(experiment, experiment.chaos[0], repeat, MEMBERS)


CORDON = "kind: PhysicalMachineChaos, action: cordon, mode: one, selector: {indexes: [2]}"
NO_EXECUTE = (
    "kind: PhysicalMachineChaos, action: taint, mode: one, selector: {indexes: [2]}, taint: {effect: NoExecute}"
)


def other(**changes: object) -> PodOnNode:
    pod = PodOnNode("team-b", "web-1", "uid-web", GroupKey("team-b", ""), 2, (), False)
    return msgspec.structs.replace(pod, **changes)


def test_the_same_seed_hits_the_same_pod_and_other_repeats_hit_others() -> None:
    entry = "kind: PodChaos, action: pod-kill, mode: one"
    assert strike(entry) == strike(entry)
    assert len({strike(entry, repeat).members for repeat in range(1, 9)}) > 1


@pytest.mark.parametrize(("when", "indexes"), [("at: 5s", [1, 2]), ("during: TearingDown", [0, 1, 2])])
def test_pods_on_their_way_down_are_selected_only_where_the_entry_asks_for_that_phase(
    when: str, indexes: list[int]
) -> None:
    first = "- {kind: PodChaos, action: pod-kill, mode: one}\n"
    experiment = read(f"{FILE}chaos:\n{first}- {{kind: PodChaos, action: pod-kill, mode: all, {when}}}\n")
    members = (msgspec.structs.replace(member(0), going=True), member(1), member(2))
    assert [each.index for each in aimed(experiment, experiment.chaos[1], 1, members).members] == indexes


def test_an_action_on_a_node_affects_all_pods_of_the_job_there() -> None:
    assert [each.index for each in strike(CORDON).members] == [2, 3]


def test_an_action_on_a_node_counts_the_pods_of_others_there() -> None:
    reach = reach_of([strike(CORDON)], {"gpu-2": [other()]})
    assert (sorted(reach.nodes), reach.gpus) == (["gpu-2"], 18)


def test_a_pod_that_two_entries_affect_counts_once() -> None:
    kill = strike("kind: PodChaos, action: pod-kill, mode: one, selector: {indexes: [2]}")
    reach = reach_of([kill, strike(CORDON)], {"gpu-2": ()})
    assert (len(reach.nodes), reach.gpus) == (1, 16)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (ExperimentLimits(), ""),
        (ExperimentLimits(nodes=3, gpus=32), ""),
        (ExperimentLimits(nodes=2), "3 nodes; select fewer pods, or raise limits.nodes (2)"),
        (ExperimentLimits(gpus=31), "32 GPUs; select fewer pods, or raise limits.gpus (31)"),
    ],
)
def test_a_limit_names_its_field(limits: ExperimentLimits, words: str) -> None:
    every = strike("kind: PodChaos, action: pod-kill, mode: all")
    found = over_limit(reach_of([every], {}), limits)
    assert words in found
    assert bool(found) is bool(words)


@pytest.mark.parametrize(
    ("pod", "refused"),
    [
        (other(), True),
        (other(tolerations=(Toleration("recovery.trainjob.dev/drill", "Exists"),)), False),
        (other(of_daemon_set=True), False),
        (other(group=KEY), False),
    ],
    ids=["of others", "tolerates", "DaemonSet", "of the job"],
)
def test_a_taint_drives_out_no_pod_of_others(pod: PodOnNode, refused: bool) -> None:
    assert bool(drives_out(strike(NO_EXECUTE), {"gpu-2": [pod]}, KEY)) is refused


def test_a_taint_that_only_keeps_new_pods_off_drives_no_one_out() -> None:
    assert drives_out(strike(CORDON), {"gpu-2": [other()]}, KEY) == ""


@virtual_time
async def test_the_plan_says_what_will_be_affected_before_anything_is_done() -> None:
    world = ChaosWorld()
    later = "- {kind: PodChaos, action: pod-kill, mode: fixed-percent, value: 25, during: Rendezvous}\n"
    force = "chaos:\n- {kind: PodChaos, action: pod-kill, mode: one, gracePeriod: 0, selector: {indexes: [2]}}\n"
    experiment = read(FILE + force + later)
    lines = "\n".join(plan_lines(await planned(world.tools(), experiment), experiment, "https://plain", "prod"))
    pod = world.pods()[2]["metadata"]["name"]
    for words in (
        "https://plain (context prod)",
        "TrainJob research/llm, 4 ranks",
        f"pod-kill without a grace period: {pod} (rank 2, node gpu-2)",
        "pod-kill, mode fixed-percent 25, once the incident is in phase Rendezvous",
        "1 node, 8 GPUs",
        "steps since the checkpoint: not known",
        f"pods without a grace period: {pod}",
    ):
        assert words in lines
    assert world.drills() == []


@virtual_time
async def test_a_plan_is_refused_with_all_that_speaks_against_it() -> None:
    world = ChaosWorld()
    world.job |= {"paused": True}
    with pytest.raises(ChaosRefusedError) as refused:
        await planned(world.tools(), read(POD_KILL + "limits: {gpus: 4}\n"))
    assert len(refused.value.problems) == 2


@virtual_time
async def test_an_index_that_the_job_does_not_have_is_refused_with_its_path() -> None:
    world = ChaosWorld()
    text = FILE + "chaos:\n- {kind: PodChaos, action: pod-kill, mode: one, selector: {indexes: [9]}}\n"
    with pytest.raises(ChaosRefusedError, match=r"chaos\[0\]\.selector\.indexes: 9"):
        await planned(world.tools(), read(text))
