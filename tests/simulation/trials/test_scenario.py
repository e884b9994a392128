"""Scenario files: what they expand to, and the mistakes reported about wrong ones."""

import re
from pathlib import Path

import msgspec
import pytest

from recovery.scenario.failure_sign import Sign
from recovery.scenario.modelled_job import JobAdmission, PlannedRuntime, PodFailures, Sidecar, TrainingKind
from recovery.scenario.strict_input import BadInputError
from recovery.sim.trials.faults import FaultKey, FaultKind, TrialFault
from recovery.sim.trials.plan import FaultRates, JobPlan, Saves, TrialPlan, nodes_needed
from recovery.sim.trials.scenario import read_scenario
from recovery.sim.trials.trial import run_trial
from tests.simulation.trials.scenario_files import HEAD, faults, wrong, wrong_chaos

EXAMPLES = Path(__file__).parents[3] / "examples" / "scenarios"


def test_a_whole_file() -> None:
    scenario = read_scenario("""
        name: everything
        seed: 7
        duration: 30m
        healing: 1h
        controllers: {replicas: 3, leaseSeconds: 30}
        cluster: {nodes: 6, gpusPerNode: 4, allowFailJob: false}
        rates: {request: 0.01}
        jobs:
        - name: llm
          namespace: team-a
          runtime: prepared
          pods: 8
          gpusPerPod: 2
          gracePeriodSeconds: 5
          totalSteps: 1000
          policy: {mode: Enforce, budget: {limit: 3}}
          sidecars: [helper, native]
          admission: by-user
          admittedAfter: 2m
          activeDeadlineSeconds: 3600
          training: self-healing
          savesFor: 4s
          savesWith: 0
          podFailures: ignore
        chaos:
        - kind: PodChaos
          at: 10m
          action: container-kill
          selector: {job: llm, indexes: [1, 3]}
          mode: all
          exitCode: 42
    """)
    assert scenario.name == "everything"
    assert scenario.plan == TrialPlan(
        seed=7,
        jobs=(
            JobPlan(
                namespace="team-a",
                name="llm",
                runtime=PlannedRuntime.PREPARED,
                pods=8,
                gpus_per_pod=2,
                grace_seconds=5,
                total_steps=1000,
                policy={"mode": "Enforce", "budget": {"limit": 3}},
                sidecars=(Sidecar.HELPER, Sidecar.NATIVE),
                admission=JobAdmission.BY_USER,
                admitted_after_seconds=120.0,
                deadline_seconds=3600,
                training=TrainingKind.SELF_HEALING,
                saves=Saves(4.0, 0),
                pod_failures=PodFailures.IGNORE,
            ),
        ),
        faults=(
            TrialFault(
                FaultKey("world", 0, FaultKind.CONTAINER_KILL),
                at_seconds=600.0,
                job="team-a/llm",
                indexes=(1, 3),
                code=42,
            ),
        ),
        rates=FaultRates(request=0.01),
        active_seconds=1800.0,
        healing_seconds=3600.0,
        replicas=3,
        lease_seconds=30,
        config={"allow": {"failJob": False}},
        spare_nodes=2,
        node_gpus=4,
    )


def test_what_is_left_out_has_a_default() -> None:
    plan = read_scenario("{name: least, jobs: [{name: llm}]}").plan
    assert plan == TrialPlan(seed=0, jobs=(JobPlan("default", "llm", policy=None),))


@pytest.mark.parametrize(
    ("chaos", "kind", "seconds"),
    [
        ("{kind: PodChaos, at: 1m, action: pod-kill, selector: {job: llm}, mode: one}", FaultKind.POD_KILL, 0),
        (
            "{kind: PodChaos, at: 1m, action: pod-kill, gracePeriod: 30, selector: {job: llm}, mode: one}",
            FaultKind.POD_KILL,
            0,
        ),
        (
            "{kind: PodChaos, at: 1m, action: pod-kill, gracePeriod: 0, selector: {job: llm}, mode: one}",
            FaultKind.POD_FORCE_DELETE,
            0,
        ),
        ("{kind: PodChaos, at: 1m, action: pod-evict, selector: {job: llm}, mode: one}", FaultKind.POD_EVICT, 0),
        (
            "{kind: PodChaos, at: 1m, action: pod-stuck, duration: 5m, selector: {job: llm}, mode: one}",
            FaultKind.POD_STUCK,
            300,
        ),
        (
            "{kind: PodChaos, at: 1m, action: pod-failure, duration: 5m, selector: {job: llm}}",
            FaultKind.CRASH_LOOP,
            300,
        ),
        (
            "{kind: PhysicalMachineChaos, at: 1m, action: power-loss, duration: 2m, selector: {job: llm}, mode: one}",
            FaultKind.NODE_POWER_LOSS,
            120,
        ),
        (
            "{kind: PhysicalMachineChaos, at: 1m, action: remove, duration: 2m, selector: {job: llm}, mode: one}",
            FaultKind.NODE_REMOVE,
            120,
        ),
        *(
            (
                f"{{kind: PhysicalMachineChaos, at: 1m, action: {action}, duration: 2m, selector: {{job: llm}}, "
                "mode: one}",
                kind,
                120,
            )
            for action, kind in (
                ("out-of-service", FaultKind.NODE_OUT_OF_SERVICE),
                ("drain", FaultKind.NODE_DRAIN),
                ("unhealthy", FaultKind.NODE_UNHEALTHY),
                ("monitored", FaultKind.NODE_MONITORED),
                ("held", FaultKind.NODE_HELD),
                ("black-hole", FaultKind.BLACK_HOLE),
                ("broken-runtime", FaultKind.BROKEN_RUNTIME),
                ("rack-power-loss", FaultKind.RACK_POWER_LOSS),
                ("rack-overheats", FaultKind.RACK_OVERHEATS),
            )
        ),
        ("{kind: PodChaos, at: 1m, action: cascade, sign: xid, selector: {job: llm}, mode: one}", FaultKind.CASCADE, 0),
        ("{kind: PodChaos, at: 1m, action: pod-preempt, selector: {job: llm}, mode: one}", FaultKind.POD_PREEMPT, 0),
        ("{kind: UserChaos, at: 1m, action: quarantine, selector: {job: llm}}", FaultKind.USER_QUARANTINE, 0),
        ("{kind: UserChaos, at: 1m, action: release}", FaultKind.USER_RELEASE, 0),
        ("{kind: UserChaos, at: 1m, action: untaint}", FaultKind.USER_UNTAINT, 0),
        ("{kind: UserChaos, at: 1m, action: reset-breaker}", FaultKind.USER_RESET_BREAKER, 0),
        (
            "{kind: NetworkChaos, at: 1m, action: partition, duration: 2m, selector: {job: llm}, mode: one}",
            FaultKind.NODE_PARTITION,
            120,
        ),
        ("{kind: ClusterChaos, at: 1m, action: no-capacity, duration: 2m}", FaultKind.NO_CAPACITY, 120),
        ("{kind: ClusterChaos, at: 1m, action: pods-refused, duration: 2m}", FaultKind.PODS_REFUSED, 120),
        ("{kind: ClusterChaos, at: 1m, action: job-without-pods, duration: 2m}", FaultKind.JOB_WITHOUT_PODS, 120),
        (
            "{kind: StressChaos, at: 1m, selector: {component: kube-controller-manager}, duration: 9s}",
            FaultKind.MANAGER_STALL,
            9,
        ),
        (
            "{kind: StressChaos, at: 1m, selector: {component: jobset-controller}, duration: 9s}",
            FaultKind.JOBSET_STALL,
            9,
        ),
        (
            "{kind: StressChaos, at: 1m, selector: {component: trainer-controller}, duration: 9s}",
            FaultKind.TRAINER_STALL,
            9,
        ),
        ("{kind: UserChaos, at: 1m, action: suspend, duration: 3m, selector: {job: llm}}", FaultKind.USER_SUSPEND, 180),
        ("{kind: UserChaos, at: 1m, action: delete-job, selector: {job: llm}}", FaultKind.USER_DELETE_JOB, 0),
        ("{kind: UserChaos, at: 1m, action: delete-jobset, selector: {job: llm}}", FaultKind.USER_DELETE_JOBSET, 0),
        ("{kind: UserChaos, at: 1m, action: resize, value: -1, selector: {job: llm}}", FaultKind.USER_RESIZE, 0),
        ("{kind: UserChaos, at: 1m, action: delete, selector: {job: llm}}", FaultKind.USER_DELETE, 0),
        ("{kind: UserChaos, at: 1m, action: recreate, selector: {job: llm}}", FaultKind.USER_RECREATE, 0),
        ("{kind: UserChaos, at: 1m, action: pause, duration: 3m, selector: {job: llm}}", FaultKind.USER_PAUSE, 180),
        ("{kind: UserChaos, at: 1m, action: restart, selector: {job: llm}}", FaultKind.USER_RESTART, 0),
        ("{kind: UserChaos, at: 1m, action: retry, selector: {job: llm}}", FaultKind.USER_RETRY, 0),
        ("{kind: UserChaos, at: 1m, action: reset-budget, selector: {job: llm}}", FaultKind.USER_RESET_BUDGET, 0),
        ("{kind: ClusterChaos, at: 1m, action: pause-all, duration: 2m}", FaultKind.PAUSE_ALL, 120),
        (
            "{kind: UserChaos, at: 1m, action: policy-observe, duration: 3m, selector: {job: llm}}",
            FaultKind.POLICY_OBSERVE,
            180,
        ),
        (
            "{kind: UserChaos, at: 1m, action: policy-delete, duration: 3m, selector: {job: llm}}",
            FaultKind.POLICY_DELETE,
            180,
        ),
        (
            "{kind: PodChaos, at: 1m, action: container-kill, duration: 4s, selector: {controller: 1}}",
            FaultKind.PROCESS_KILL,
            4,
        ),
        ("{kind: StressChaos, at: 1m, duration: 4s, selector: {controller: 1}}", FaultKind.PROCESS_FREEZE, 4),
    ],
)
def test_chaos_of_the_world_has_a_moment(chaos: str, kind: FaultKind, seconds: float) -> None:
    (fault,) = faults(chaos)
    assert (fault.key, fault.seconds, fault.at_seconds) == (FaultKey("world", 0, kind), seconds, 60.0)
    assert fault.job == ("" if fault.key.kind not in _OF_JOBS else "team-a/llm")


_OF_NODES = {FaultKind.USER_RELEASE, FaultKind.USER_UNTAINT, FaultKind.USER_RESET_BREAKER}
_BEGINNINGS = ("pod-", "container-", "cascade", "crash-", "node-", "black-", "broken-", "rack-", "user-", "policy-")
_OF_JOBS = {kind for kind in FaultKind if kind.startswith(_BEGINNINGS)} - _OF_NODES


@pytest.mark.parametrize(
    ("chaos", "kind", "seconds"),
    [
        ("kind: PodChaos, action: container-kill, target: Request, duration: 4s", FaultKind.PROCESS_KILL, 4),
        ("kind: PodChaos, action: container-kill, target: Response, duration: 4s", FaultKind.PROCESS_KILL_AFTER, 4),
        ("kind: StressChaos, duration: 4s", FaultKind.PROCESS_FREEZE, 4),
        ("kind: TimeChaos, timeOffset: -90s", FaultKind.CLOCK_JUMP, -90),
        ("kind: HTTPChaos, action: replace, code: 409", FaultKind.CONFLICT, 0),
        ("kind: HTTPChaos, action: replace, code: 429, retryAfter: 5s", FaultKind.TOO_MANY_REQUESTS, 5),
        ("kind: HTTPChaos, action: replace, code: 429", FaultKind.TOO_MANY_REQUESTS, 1),
        ("kind: HTTPChaos, action: replace, code: 500", FaultKind.SERVER_ERROR, 0),
        ("kind: HTTPChaos, action: replace, code: 500, target: Response", FaultKind.SERVER_ERROR_APPLIED, 0),
        ("kind: HTTPChaos, action: abort", FaultKind.TIMEOUT, 0),
        ("kind: HTTPChaos, action: abort, target: Response", FaultKind.TIMEOUT_APPLIED, 0),
        ("kind: HTTPChaos, action: delay, delay: 20s", FaultKind.DELAYED, 20),
        ("kind: HTTPChaos, action: abort, target: Watch", FaultKind.WATCH_DISCONNECT, 0),
        ("kind: HTTPChaos, action: replace, code: 410, target: Watch", FaultKind.WATCH_EXPIRED, 0),
        ("kind: HTTPChaos, action: delay, delay: 2s, target: Watch", FaultKind.WATCH_LAG, 2),
        ("kind: NetworkChaos, action: loss, duration: 30s", FaultKind.WATCH_STALL, 30),
        ("kind: NetworkChaos, action: duplicate", FaultKind.WATCH_DUPLICATE, 0),
    ],
)
def test_chaos_of_a_controllers_requests_has_their_number(chaos: str, kind: FaultKind, seconds: float) -> None:
    assert faults(f"{{{chaos}, event: 17, selector: {{controller: 1}}}}") == (
        TrialFault(FaultKey("controller-1", 17, kind), seconds=seconds),
    )


def test_sidecars_are_killed_by_their_name() -> None:
    kill = "{kind: PodChaos, at: 1m, action: container-kill, containerNames: [shipper], selector: {job: queued}, "
    kill += "mode: all}"
    assert faults(kill) == (
        TrialFault(
            FaultKey("world", 0, FaultKind.SIDECAR_KILL),
            at_seconds=60.0,
            job="team-b/queued",
            indexes=(0, 1),
            container="log-shipper",
        ),
    )


def test_kueue_evicts_a_job_of_its_own() -> None:
    (fault,) = faults("{kind: KueueChaos, at: 1m, action: evict, duration: 2m, selector: {job: queued}}")
    assert (fault.key.kind, fault.job, fault.seconds) == (FaultKind.KUEUE_EVICT, "team-b/queued", 120.0)


def test_a_user_says_by_how_much_a_job_is_resized() -> None:
    (fault,) = faults("{kind: UserChaos, at: 1m, action: resize, value: -2, selector: {job: llm}}")
    assert fault.pods_more == -2


def test_every_fault_has_words() -> None:
    tested = {
        parameters[1]
        for test in (test_chaos_of_the_world_has_a_moment, test_chaos_of_a_controllers_requests_has_their_number)
        for parameters in test.pytestmark[0].args[1]  # type: ignore[attr-defined]
    }
    above = {FaultKind.CONTAINER_KILL, FaultKind.SIDECAR_KILL, FaultKind.KUEUE_EVICT}
    assert set(FaultKind) - tested == above


def test_the_seed_chooses_the_pods() -> None:
    kill = "{kind: PodChaos, at: 1m, action: pod-kill, selector: {job: llm}, mode: fixed, value: '2'}"
    (first,), (again,) = faults(kill), faults(kill)
    assert first == again
    assert len(first.indexes) == 2
    assert set(first.indexes) <= {0, 1, 2, 3}
    others = {read_scenario(f"seed: {seed}\n{HEAD}- {kill}").plan.faults[0].indexes for seed in range(20)}
    assert len(others) > 1


@pytest.mark.parametrize(
    ("mode", "pods"),
    [("mode: one", 1), ("mode: all", 4), ("mode: fixed, value: 3", 3), ("mode: fixed-percent, value: '60'", 2)],
)
def test_modes(mode: str, pods: int) -> None:
    (fault,) = faults(f"{{kind: PodChaos, at: 1m, action: pod-kill, selector: {{job: llm}}, {mode}}}")
    assert len(fault.indexes) == pods


def test_each_node_is_a_fault_of_its_own() -> None:
    found = faults(
        "{kind: NetworkChaos, at: 1m, action: partition, selector: {job: llm}, mode: all, duration: 1m}",
        "{kind: PodChaos, at: 2m, action: pod-kill, selector: {job: eval}, mode: all}",
    )
    assert [(fault.key.number, fault.indexes) for fault in found] == [
        (0, (0,)),
        (1, (1,)),
        (2, (2,)),
        (3, (3,)),
        (4, (0, 1)),
    ]


def test_a_name_without_a_namespace_must_be_the_only_one() -> None:
    text = """
        name: x
        jobs: [{name: llm, namespace: team-a}, {name: llm, namespace: team-b}]
        chaos: [{kind: UserChaos, at: 1m, action: delete, selector: {job: llm}}]
    """
    assert wrong(text) == ["chaos[0].selector.job: several jobs are called 'llm'; write namespace/name"]
    (fault,) = read_scenario(text.replace("job: llm", "job: team-b/llm")).plan.faults
    assert fault.job == "team-b/llm"


def test_one_event_meets_with_one_fault() -> None:
    """A request and a line may have the same number."""
    lost = "{kind: HTTPChaos, action: abort, event: 5, selector: {controller: 0}}"
    line = "{kind: NetworkChaos, action: duplicate, event: 5, selector: {controller: 0}}"
    assert len(faults(lost, line, lost.replace("controller: 0", "controller: 1"))) == 3
    assert wrong_chaos(f"{lost}\n- {line}\n- {lost.replace('abort', 'delay, delay: 5s')}") == [
        "chaos[2].event: 5 of controller-0 meets with another fault already"
    ]


@pytest.mark.parametrize(
    ("pods", "gpus", "nodes"),
    [(8, 8, 8), (8, 4, 4), (3, 5, 3), (5, 3, 3)],
)
def test_pods_are_not_split_over_nodes(pods: int, gpus: int, nodes: int) -> None:
    assert nodes_needed([JobPlan("a", "b", pods=pods, gpus_per_pod=gpus)], node_gpus=8) == nodes


def test_small_pods_fill_what_large_ones_leave() -> None:
    jobs = [JobPlan("a", "small", pods=2, gpus_per_pod=2), JobPlan("a", "large", pods=2, gpus_per_pod=6)]
    assert nodes_needed(jobs, node_gpus=8) == 2


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_are_right(path: Path) -> None:
    scenario = read_scenario(path.read_text())
    assert scenario.name == path.stem
    assert scenario.plan.faults
    assert msgspec.json.decode(msgspec.json.encode(scenario.plan), type=TrialPlan) == scenario.plan


def test_the_scenario_of_the_documentation_is_right() -> None:
    text = (EXAMPLES.parents[1] / "docs" / "simulation.md").read_text()
    (shown,) = re.findall(r"```yaml\n(name:.*?)```", text, re.DOTALL)
    assert len(read_scenario(shown).plan.faults) == 2


def test_there_are_examples() -> None:
    assert len(list(EXAMPLES.glob("*.yaml"))) >= 4


def test_a_sign_comes_with_an_exit() -> None:
    head = "{kind: PodChaos, at: 1m, selector: {job: llm}, mode: one"
    (fault,) = faults(f"{head}, action: container-kill, sign: traceback}}")
    assert fault.sign is Sign.TRACEBACK
    for words, path in (
        ("action: pod-kill, sign: xid", "sign"),
        ("action: cascade, sign: xid, exitCode: 3", "exitCode"),
    ):
        with pytest.raises(BadInputError, match=path):
            faults(f"{head}, {words}}}")


def test_the_recovery_config_is_read_like_a_policy() -> None:
    job = "name: it, jobs: [{name: llm}]"
    assert read_scenario(f"{{{job}, cluster: {{config: {{allow: {{cordon: true}}}}}}}}").plan.config == {
        "allow": {"cordon": True}
    }
    with pytest.raises(BadInputError, match=r"cluster\.config\.allow\.cordn"):
        read_scenario(f"{{{job}, cluster: {{config: {{allow: {{cordn: true}}}}}}}}")


@pytest.mark.parametrize(
    ("cluster", "policy", "installed"),
    [
        ("{}", "{mode: Enforce}", False),
        ("{}", "{elastic: {minNodes: 2, maxNodes: 4}}", True),
        ("{birthSettings: false}", "{elastic: {minNodes: 2, maxNodes: 4}}", False),
        ("{birthSettings: true}", "{mode: Enforce}", True),
    ],
)
def test_settings_at_birth_are_installed_where_a_policy_is_elastic(cluster: str, policy: str, installed: bool) -> None:
    text = f"{{name: x, cluster: {cluster}, jobs: [{{name: llm, pods: 4, policy: {policy}}}]}}"
    assert read_scenario(text).plan.birth_settings is installed


def test_an_elastic_group_loses_a_rack_goes_on_and_grows_back() -> None:
    outcome = run_trial(read_scenario((EXAMPLES / "elastic.yaml").read_text()).plan)
    assert outcome.violations == ()
    assert [formed.size for formed in outcome.evidence.rounds("team-a/llm")] == [8, 4, 4, 8]


def test_an_experiment_is_run_on_a_job_that_stands_in_for_its_target() -> None:
    scenario = read_scenario(
        "{name: x, target: {job: research/llm}, chaos: [{kind: PodChaos, action: pod-kill, mode: one}]}"
    )
    assert [(str(job), job.runtime, job.pods, job.policy) for job in scenario.plan.jobs] == [
        ("research/llm", PlannedRuntime.JOINED, 8, {"mode": "Enforce"})
    ]
    assert (scenario.plan.faults, scenario.plan.drills, scenario.plan.healing_seconds) == ((), True, 900.0)
    assert scenario.experiment is not None
    assert (scenario.experiment.namespace, scenario.experiment.job) == ("research", "llm")


def test_an_experiment_gets_the_namespace_of_the_modelled_job() -> None:
    scenario = read_scenario("""
        name: x
        target: {job: llm}
        healing: 1h
        jobs: [{name: eval}, {name: llm, namespace: research}]
        chaos: [{kind: PodChaos, action: pod-kill, mode: one}]
    """)
    assert scenario.experiment is not None
    assert (scenario.experiment.namespace, scenario.plan.healing_seconds) == ("research", 3600.0)


def test_the_target_reports_its_checkpoints_if_the_experiment_limits_their_age() -> None:
    text = "{name: x, target: {job: llm}, chaos: [{kind: PodChaos, action: pod-kill, mode: one}]%s}"
    reports = [
        read_scenario(text % more).plan.jobs[0].reports_every_seconds
        for more in ("", ", limits: {nodes: 1}", ", limits: {checkpointAge: 30m}")
    ]
    assert reports[:2] == [None, None]
    assert reports[2] is not None


def test_an_experiment_can_describe_the_modelled_cluster() -> None:
    plan = read_scenario("""
        name: x
        target: {job: research/llm}
        jobs: [{name: llm, namespace: research, pods: 2}, {name: eval, pods: 1}]
        cluster: {spares: 5}
        duration: 10m
        chaos: [{kind: PodChaos, action: process-kill, mode: one}]
    """).plan
    assert ([str(job) for job in plan.jobs], plan.spare_nodes, plan.active_seconds, plan.faults) == (
        ["research/llm", "default/eval"],
        5,
        600.0,
        (),
    )
