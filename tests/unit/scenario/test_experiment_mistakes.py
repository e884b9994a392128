"""The mistakes reported about wrong experiment files."""

import pytest

from recovery.scenario.cluster_actions import INSTEAD, ON_A_CLUSTER, SIMULATED_KINDS
from recovery.scenario.schema import MachineAction, PodAction
from tests.unit.scenario.experiment_files import KILL, refused, wrong


def test_three_mistakes_are_reported_at_once_each_with_its_line_and_its_fix() -> None:
    text = """name: lose-a-rank
target: {job: research/llm}
repeat: 100
chaos:
- {kind: PodChaos, action: pod-kil, mode: one}
- kind: PhysicalMachineChaos
  action: drain
  mode: one
"""
    assert refused(text) == [
        (3, "repeat: 100 is not 1 to 16"),
        (5, "chaos[0].action: 'pod-kil' is not known; did you mean 'pod-kill'?"),
        (7, "chaos[1].action: drain does not run on a cluster; say cordon and pod-evict"),
    ]


def test_mistakes_in_one_entry_hide_none_in_the_others() -> None:
    text = """name: x
target: {job: research/llm}
chaos:
- {kind: PodChoas, action: pod-kill, mode: one, at: soon}
- {kind: PhysicalMachineChaos, action: held, at: 9h, selector: {controller: 0}}
- {kind: StressChaos}
- 3
limits: {nodes: 0, checkpointAge: old}
"""
    assert [(line, said.partition(": ")[0]) for line, said in refused(text)] == [
        (4, "chaos[0].kind"),
        (4, "chaos[0].at"),
        (5, "chaos[1].mode"),
        (5, "chaos[1].action"),
        (5, "chaos[1].at"),
        (5, "chaos[1].selector.controller"),
        (6, "chaos[2].kind"),
        (7, "chaos[3]"),
        (8, "limits.nodes"),
        (8, "limits.checkpointAge"),
    ]


@pytest.mark.parametrize(
    ("chaos", "says"),
    [
        ("{kind: PodChaos, action: pod-kill}", "chaos[0].mode: is missing; say one of one, all, fixed, fixed-percent"),
        (
            "{kind: PodChaos, action: pod-kill, mode: fixed}",
            "chaos[0].value: is missing; mode fixed needs a number of pods",
        ),
        (
            "{kind: PodChaos, action: pod-kill, mode: fixed-percent, value: 101}",
            "chaos[0].value: 101 does not make some or all of the pods; mode fixed-percent needs a number of per cent",
        ),
        (
            "{kind: PodChaos, action: pod-kill, mode: fixed, value: 3, selector: {indexes: [0, 1]}}",
            "chaos[0].value: 3 does not make 1 to 2 pods; mode fixed needs a number of pods",
        ),
        ("{kind: PodChaos, action: pod-kill, mode: one, value: 1}", "chaos[0].value: means nothing to mode one"),
        (
            "{kind: PodChaos, action: pod-kill, mode: one, gracePeriod: 10}",
            "chaos[0].gracePeriod: say 0, or leave it out: then each pod has its own",
        ),
        (
            "{kind: PodChaos, action: pod-evict, mode: one, gracePeriod: 0}",
            "chaos[0].gracePeriod: means nothing to pod-evict; leave it out",
        ),
        (
            "{kind: PodChaos, action: process-kill, mode: one, sign: xid}",
            "chaos[0].sign: means nothing to process-kill on a cluster; leave it out",
        ),
        (
            "{kind: PodChaos, action: pod-kill, mode: one, duration: 5m}",
            "chaos[0].duration: means nothing to pod-kill on a cluster; leave it out",
        ),
        (
            "{kind: PhysicalMachineChaos, action: cordon, mode: one, duration: 5m}",
            "chaos[0].duration: what an experiment changes on nodes is taken back at the end of each repeat; leave it",
        ),
        (
            "{kind: PodChaos, action: pod-kill, mode: one, event: 3}",
            "chaos[0].event: numbers requests in the simulator; say at or during",
        ),
        (
            "{kind: PodChaos, action: pod-kill, mode: one, selector: {job: eval}}",
            "chaos[0].selector.job: 'eval' is not the target, research/llm; leave it out",
        ),
        (
            "{kind: PodChaos, action: pod-kill, mode: one, selector: {component: jobset-controller}}",
            "chaos[0].selector.component: means nothing to a job of a cluster; select by indexes",
        ),
        (
            "{kind: PodChaos, action: pod-kill, mode: all, selector: {indexes: [1, 1]}}",
            "chaos[0].selector.indexes: an index stands there twice",
        ),
        (
            "{kind: PodChaos, action: pod-kill, mode: all, selector: {indexes: [-1]}}",
            "chaos[0].selector.indexes: -1: completion indexes count from 0",
        ),
        (
            "{kind: PodChaos, action: pod-kill, mode: one, at: 4h}",
            "chaos[0].at: 4h is not within the longest drill, 4h; say less",
        ),
        (
            "{kind: PodChaos, action: pod-kill, mode: one, during: Rendezvous}",
            "chaos[0].during: waits for an incident, which the first entry causes; say at",
        ),
    ],
)
def test_chaos_that_is_refused(chaos: str, says: str) -> None:
    problems = wrong(chaos)
    assert len(problems) == 1
    assert problems[0].startswith(says), problems


@pytest.mark.parametrize(
    ("moment", "says"),
    [
        ("at: 5s, during: Starting", "chaos[1].during: cannot be said together with at; leave one out"),
        ("during: Held", "chaos[1].during: Held is not awaited; say one of Detected, Decided, Stopping, TearingDown,"),
        ("during: Fencing", "chaos[1].during: Fencing is not awaited"),
        ("during: Healthy", "chaos[1].during: Healthy is not awaited"),
        ("during: rendezvous", "chaos[1].during: 'rendezvous' is not known; did you mean 'Rendezvous'?"),
    ],
)
def test_moments_that_are_refused(moment: str, says: str) -> None:
    (problem,) = wrong(KILL, KILL.replace("}", f", {moment}}}"))
    assert problem.startswith(says)


def test_all_repeats_have_to_fit_into_the_longest_drill() -> None:
    late = KILL.replace("}", ", at: 2h}")
    assert wrong(late, more="repeat: 2") == [
        "chaos[0].at: 2h in each of 2 repeats is not within the longest drill, 4h; say less"
    ]


@pytest.mark.parametrize("action", [each for each in (*PodAction, *MachineAction) if each not in ON_A_CLUSTER])
def test_an_action_of_the_simulator_is_refused_with_what_to_use_instead(action: PodAction | MachineAction) -> None:
    kind = "PodChaos" if isinstance(action, PodAction) else "PhysicalMachineChaos"
    (problem,) = wrong(f"{{kind: {kind}, action: {action}, mode: one}}")
    instead = f"say {INSTEAD[action]}" if action in INSTEAD else "it stays with the simulator: `recovery simulate`"
    assert problem.startswith(f"chaos[0].action: {action} does not run on a cluster; {instead}")


@pytest.mark.parametrize("kind", sorted(SIMULATED_KINDS))
def test_a_kind_of_the_simulator_is_refused_whatever_else_its_entry_lacks(kind: str) -> None:
    (problem,) = wrong(f"{{kind: {kind}, mode: any}}")
    assert problem.startswith(f"chaos[0].kind: {kind} does not run on a cluster; it stays with the simulator")


def test_a_kind_that_is_no_word_is_refused() -> None:
    (problem,) = wrong("{kind: [3], mode: one}")
    assert problem.startswith("chaos[0].kind: '[3]' is not known; known: ClusterChaos, ")


def test_a_kind_of_the_simulator_is_refused_when_its_entry_is_right_too() -> None:
    (problem,) = wrong("{kind: UserChaos, at: 1m, action: delete, selector: {job: llm}}")
    assert problem.startswith("chaos[0].kind: UserChaos does not run on a cluster")


@pytest.mark.parametrize(
    ("taint", "says"),
    [
        ("key: node.kubernetes.io/unreachable", "taint.key: node.kubernetes.io/unreachable belongs to Kubernetes; say"),
        (
            "key: node.cloudprovider.kubernetes.io/shutdown",
            "taint.key: node.cloudprovider.kubernetes.io/shutdown belongs",
        ),
        ("key: node-role.kubernetes.io/control-plane", "taint.key: node-role.kubernetes.io/control-plane belongs to"),
        ("key: recovery.trainjob.dev/quarantined", "taint.key: recovery.trainjob.dev/quarantined is the controller's"),
        ("key: not a key", "taint.key: 'not a key' is no key; write it like example.com/unhealthy"),
        ("value: not a value", "taint.value: 'not a value' is no value; use up to 63 of"),
        ("effect: NoRun", "taint.effect: 'NoRun' is not known; known: NoSchedule, PreferNoSchedule, NoExecute"),
    ],
)
def test_taints_that_are_refused(taint: str, says: str) -> None:
    problems = wrong(f"{{kind: PhysicalMachineChaos, action: taint, mode: one, taint: {{{taint}}}}}")
    assert len(problems) == 1
    assert problems[0].startswith(f"chaos[0].{says}"), problems


def test_only_a_taint_has_a_taint() -> None:
    cordon = "{kind: PhysicalMachineChaos, action: cordon, mode: one, taint: {value: x}}"
    assert wrong(cordon) == ["chaos[0].taint: means nothing to cordon; leave it out"]


def test_a_condition_has_no_type_but_its_own() -> None:
    condition = "{kind: PhysicalMachineChaos, action: condition, mode: one, type: Ready}"
    assert [problem.partition(";")[0] for problem in wrong(condition)] == ["chaos[0].type: is no field"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("repeat: 0", "repeat: 0 is not 1 to 16"),
        ("hypothesis: {incidents: -1}", "hypothesis.incidents: -1 is too few; say 0 or more"),
        ("hypothesis: {charged: 2}", "hypothesis.charged: 2 is more than hypothesis.incidents, 1"),
        ("hypothesis: {resumesPast: start}", "hypothesis.resumesPast: 'start' is not known; known: checkpoint"),
        ("slo: {recovery: fast}", "slo.recovery: 'fast' is not a duration"),
        ("slo: {recovery: 0s}", "slo.recovery: must be longer than 0s"),
        ("slo: {recovery: 5h}", "slo.recovery: 5h is longer than the longest drill, 4h"),
        ("slo: {idleGpuSeconds: 0}", "slo.idleGpuSeconds: 0 is no such time; say more than 0"),
        ("slo: {idleGpuSeconds: .inf}", "slo.idleGpuSeconds: inf is no such time; say more than 0"),
        ("limits: {gpus: 0}", "limits.gpus: 0 is too few; say 1 or more"),
        ("limits: {node: 1}", "limits.node: is no field; did you mean 'nodes'?"),
        ("jobs: [{name: llm}]", "target.job: jobs has no 'research/llm'; known: default/llm"),
    ],
)
def test_what_stands_beside_the_chaos_and_is_refused(more: str, says: str) -> None:
    problems = wrong(more=more)
    assert len(problems) == 1
    assert problems[0].startswith(says), problems


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("", ["the file: Expected `object`, got `null`"]),
        (
            f"{{name: x, chaos: [{KILL}]}}",
            [
                "target: is missing; add target: {job: namespace/name}, the job that the experiment strikes. A file "
                "without it is for `recovery simulate`"
            ],
        ),
        (
            f"{{name: x, target: {{job: a/b/c}}, chaos: [{KILL}]}}",
            ["target.job: 'a/b/c' is no job; write namespace/name, or a name"],
        ),
        (
            f"{{name: Lose a rank, target: {{job: llm}}, chaos: [{KILL}]}}",
            ["name: 'Lose a rank' is no name; use up to 40 of a-z, 0-9 and -, no - at an end"],
        ),
        ("{name: x, target: {job: llm}}", ["chaos: has no entry; say what happens to the job"]),
        (
            f"{{name: x, target: {{job: llm}}, jobs: [{{name: llm}}, {{name: llm, namespace: b}}], chaos: [{KILL}]}}",
            ["target.job: several of jobs are called 'llm'; write namespace/name"],
        ),
        (
            "{name: x, target: {job: llm}, choas: [3]}",
            ["choas: is no field; did you mean 'chaos'?", "chaos[0]: Expected `object`, got `int`"],
        ),
    ],
)
def test_files_that_are_refused(text: str, problems: list[str]) -> None:
    assert [problem for _, problem in refused(text)] == problems
