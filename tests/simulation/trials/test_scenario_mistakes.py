"""The mistakes reported about wrong scenario files."""

import pytest

from tests.simulation.trials.scenario_files import refused, wrong, wrong_chaos


@pytest.mark.parametrize(
    ("chaos", "says"),
    [
        (
            "{kind: PodChoas, at: 1m}",
            "chaos[0].kind: 'PodChoas' is not known; did you mean 'PodChaos'?",
        ),
        (
            "{kind: PodChaos, at: 1m, action: pod-kil, selector: {job: llm}, mode: one}",
            "chaos[0].action: 'pod-kil' is not known; did you mean 'pod-kill'?",
        ),
        (
            "{kind: PodChaos, at: 1m, action: pod-kill, selector: {jobb: llm}, mode: one}",
            "chaos[0].selector.jobb: is no field; did you mean 'job'?",
        ),
        (
            "{kind: PodChaos, at: 1m, action: pod-kill, selector: {job: llm}, mode: one, graceperiod: 0}",
            "chaos[0].graceperiod: is no field; did you mean 'gracePeriod'?",
        ),
        (
            "{kind: PodChaos, at: 1m, selector: {job: llm}, mode: one}",
            "chaos[0].action: is missing",
        ),
        (
            "{kind: PodChaos, action: pod-kill, selector: {job: llm}, mode: one}",
            "chaos[0].at: is missing",
        ),
        (
            "{kind: PodChaos, at: 1m, action: pod-kill, selector: {job: llm}}",
            "chaos[0].mode: is missing; say one of one, all, fixed, fixed-percent",
        ),
        (
            "{kind: PodChaos, at: 1m, action: pod-kill, selector: {job: llm}, mode: fixed}",
            "chaos[0].value: is missing; mode fixed needs a number of pods",
        ),
        (
            "{kind: PodChaos, at: 1m, action: pod-kill, selector: {job: llm}, mode: fixed, value: 5}",
            "chaos[0].value: 5 does not make 1 to 4 pods; mode fixed needs a number of pods",
        ),
        (
            "{kind: PodChaos, at: 1m, action: pod-kill, selector: {job: llm}, mode: fixed-percent, value: 10}",
            "chaos[0].value: 10 does not make 1 to 4 pods; mode fixed-percent needs a number of per cent of the pods",
        ),
        (
            "{kind: PodChaos, at: ten minutes, action: pod-kill, selector: {job: llm}, mode: one}",
            "chaos[0].at: 'ten minutes' is not a duration; write it like 24h, 15m, 10s or 500ms",
        ),
        (
            "{kind: PodChaos, at: 1m, action: pod-kill, selector: {job: lm}, mode: one}",
            "chaos[0].selector.job: there is no job 'lm'; did you mean 'llm'?",
        ),
        (
            "{kind: PodChaos, at: 1m, action: pod-kill, selector: {job: llm, indexes: [3, 4]}, mode: one}",
            "chaos[0].selector.indexes: 4: job team-a/llm has the indexes 0 to 3",
        ),
        (
            "{kind: PodChaos, at: 1m, action: pod-kill, selector: {job: llm}, mode: one, gracePeriod: 10}",
            "chaos[0].gracePeriod: say 0, or leave it out: then each pod has its own, 30 s",
        ),
        (
            "{kind: PodChaos, at: 1m, action: pod-kill, selector: {job: llm}, mode: one, duration: 1m}",
            "chaos[0].duration: means nothing to pod-kill; leave it out",
        ),
        (
            "{kind: PodChaos, at: 1m, action: container-kill, selector: {job: llm}, mode: one, exitCode: 0}",
            "chaos[0].exitCode: 0 is no failure; say 1 to 255",
        ),
        (
            "{kind: PodChaos, at: 30m, action: pod-kill, selector: {job: llm}, mode: one}",
            "chaos[0].at: 30m is not before the end of all chaos, 30m",
        ),
        (
            "{kind: PodChaos, at: 29m, action: pod-stuck, selector: {job: llm}, mode: one, duration: 2m}",
            "chaos[0].duration: 2m reaches into healing; say 60s or less",
        ),
        (
            "{kind: UserChaos, at: 1m, action: suspend, selector: {job: llm}}",
            "chaos[0].duration: is missing: suspend needs one",
        ),
        (
            "{kind: UserChaos, at: 1m, action: policy-delete, duration: 1m, selector: {job: eval}}",
            "chaos[0].selector.job: job team-b/eval has no policy; give it one",
        ),
        (
            "{kind: TimeChaos, at: 1m, timeOffset: 5m, selector: {controller: 0}}",
            "chaos[0].event: say which request, or which line, by its number instead of at",
        ),
        (
            "{kind: TimeChaos, event: 5, timeOffset: 5m, selector: {controller: 2}}",
            "chaos[0].selector.controller: there is no 2; controllers are 0 to 1",
        ),
        (
            "{kind: HTTPChaos, event: 5, action: replace, code: 404, selector: {controller: 0}}",
            "chaos[0].action: action, target and code do not go together; there are abort of a Request",
        ),
        (
            "{kind: ClusterChaos, at: 1m, action: no-capacity, duration: 1m, selector: {job: llm}}",
            "chaos[0].selector.job: means nothing here; it affects the whole cluster",
        ),
        (
            "{kind: PodChaos, at: 1m, action: pod-kill, selector: {controller: 0}}",
            "chaos[0].action: pod-kill affects no controller; say container-kill",
        ),
        (
            "{kind: PodChaos, at: 1m, action: pod-kill, containerNames: [shipper], selector: {job: queued}, mode: one}",
            "chaos[0].containerNames: means nothing to pod-kill; say container-kill",
        ),
        (
            "{kind: PodChaos, at: 1m, action: container-kill, containerNames: [native], selector: {job: queued}, "
            "mode: one}",
            "chaos[0].containerNames: job team-b/queued has no sidecar native",
        ),
        (
            "{kind: PodChaos, at: 1m, action: container-kill, containerNames: [broken], selector: {job: queued}, "
            "mode: one}",
            "chaos[0].containerNames: broken does not run for long; it cannot be killed",
        ),
        (
            "{kind: PodChaos, at: 1m, action: container-kill, containerNames: [shipper], sign: xid, "
            "selector: {job: queued}, mode: one}",
            "chaos[0].sign: means nothing to sidecars, which the kernel kills; leave it out",
        ),
        (
            "{kind: KueueChaos, at: 1m, action: evict, duration: 2m, selector: {job: llm}}",
            "chaos[0].selector.job: job team-a/llm is none of Kueue's; give it admission: by-kueue",
        ),
        (
            "{kind: UserChaos, at: 1m, action: resize, selector: {job: llm}}",
            "chaos[0].value: say how many pods more, or with a minus how many fewer",
        ),
        (
            "{kind: UserChaos, at: 1m, action: delete, value: 2, selector: {job: llm}}",
            "chaos[0].value: means nothing to delete; leave it out",
        ),
    ],
)
def test_chaos_that_is_refused(chaos: str, says: str) -> None:
    problems = wrong_chaos(chaos)
    assert any(problem.startswith(says) for problem in problems), problems


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file: Expected `object`, got `null`"),
        ("{name: x, jobs: [", "the file is not YAML"),
        ("{name: x, name: y, jobs: [{name: llm}]}", "name: stands there twice, also on line 1; leave one out"),
        ("{name: x, jobs: []}", "jobs: is empty; there is nothing to recover"),
        ("{name: x, jobs: [{name: LLM}]}", "jobs[0].name: 'LLM' is no name"),
        ("{name: x, jobs: [{name: llm, pods: 0}]}", "jobs[0].pods: 0 is too few; say 1 or more"),
        ("{name: x, jobs: [{name: llm}, {name: llm}]}", "jobs[1].name: there is a job default/llm already"),
        ("{name: x, jobs: [{name: llm, runtime: shiped}]}", "jobs[0].runtime: 'shiped' is not known; did you mean"),
        ("{name: x, jobs: [{name: llm, gpusPerPod: 9}]}", "jobs[0].gpusPerPod: 9 do not fit on a node of 8 GPUs"),
        (
            "{name: x, jobs: [{name: llm, sidecars: [helper, helper]}]}",
            "jobs[0].sidecars: names one twice; leave one out",
        ),
        (
            "{name: x, jobs: [{name: llm, trainingContainer: nothing}]}",
            "jobs[0].trainingContainer: means nothing to a TrainJob, whose container is node; leave it out",
        ),
        (
            "{name: x, jobs: [{name: llm, admittedAfter: 2m}]}",
            "jobs[0].admittedAfter: means nothing to a job that starts at once; leave it out",
        ),
        (
            "{name: x, jobs: [{name: llm, runtime: bare-jobset, admission: by-kueue}]}",
            "jobs[0].admission: by-kueue is modelled of TrainJobs alone; take another runtime",
        ),
        (
            "{name: x, jobs: [{name: llm, runtime: bare-jobset, activeDeadlineSeconds: 600}]}",
            "jobs[0].activeDeadlineSeconds: is no field of a JobSet; take another runtime",
        ),
        (
            "{name: x, jobs: [{name: llm}], cluster: {nodes: 7}}",
            "cluster.nodes: 7 cannot hold the pods of all jobs; say 8",
        ),
        ("{name: x, jobs: [{name: llm}], cluster: {nodes: 9, spares: 1}}", "cluster.spares: cannot be said together"),
        ("{name: x, jobs: [{name: llm}], controllers: {replicas: 0}}", "controllers.replicas: 0 is too few"),
        ("{name: x, jobs: [{name: llm}], duration: 0s}", "duration: must be longer than 0s"),
        ("{name: x, jobs: [{name: llm}], duration: 90}", "duration: Expected `str`, got `int`"),
        ("{name: x, jobs: [{name: llm}], rates: {line: 2}}", "rates.line: 2 is no probability"),
        ("{name: x, jobs: [{name: llm}], durations: 1h}", "durations: is no field; did you mean 'duration'?"),
        (
            "{name: x, jobs: [{name: llm, policy: {mode: enforce}}]}",
            "jobs[0].policy.mode: 'enforce' is not known; did you mean 'Enforce'?",
        ),
        (
            "{name: x, jobs: [{name: llm, policy: {budget: {limits: 1}}}]}",
            "jobs[0].policy.budget.limits: is no field; did you mean 'limit'?",
        ),
        (
            "{name: x, jobs: [{name: llm, policy: {backoff: {initial: 10m}}}]}",
            "jobs[0].policy.backoff.max: 5m is shorter than jobs[0].policy.backoff.initial, 10m",
        ),
        ("{name: x, jobs: [{name: llm, policy: {selector: {}}}]}", "jobs[0].policy.selector: leave it out"),
    ],
)
def test_worlds_that_are_refused(text: str, says: str) -> None:
    problems = wrong(text)
    assert any(problem.startswith(says) for problem in problems), problems


def test_all_that_is_wrong_is_told_at_once() -> None:
    assert wrong("""
        name: x
        jobs: [{name: llm, pods: 0, policy: {budget: {limit: -1}}}]
        controllers: {replicas: 0}
        chaos: [{kind: UserChaos, at: 2h, action: delete, selector: {job: lm}}]
    """) == [
        "jobs[0].pods: 0 is too few; say 1 or more",
        "jobs[0].policy.budget.limit: -1 is negative; 0 allows only recoveries that use no budget",
        "controllers.replicas: 0 is too few; say 1 or more",
        "chaos[0].selector.job: there is no job 'lm'; did you mean 'llm'?",
        "chaos[0].at: 2h is not before the end of all chaos, 90m",
    ]


def lines_and_paths(text: str) -> list[tuple[int, str]]:
    error = refused(text)
    return [(line, said.partition(": ")[0]) for line, said in zip(error.lines, error.problems, strict=True)]


def test_mistakes_of_every_kind_are_told_at_once_with_line_and_path() -> None:
    """An unknown field, an unknown action, a reference, an index and a type, in parts that are already wrong."""
    text = """name: x
duration: 30m
jobs:
- name: llm
  runtime: prepred
  pods: 8
  policy: {mode: Enforce, budget: {limits: 3}}
- {name: eval, gpusPerPod: many}
chaos:
- {kind: PodChaos, at: 5m, action: pod-kil, selector: {job: lm}, mode: one}
- kind: PhysicalMachineChaos
  at: 5m
  action: explode
  selector: {jobb: llm, indexes: [8]}
  mode: one
- {kind: PodChoas, at: 40m, action: pod-kill, selector: {job: llm}, mode: one}
"""
    assert lines_and_paths(text) == [
        (5, "jobs[0].runtime"),
        (7, "jobs[0].policy.budget.limits"),
        (8, "jobs[1].gpusPerPod"),
        (10, "chaos[0].action"),
        (10, "chaos[0].selector.job"),
        (11, "chaos[1].duration"),
        (13, "chaos[1].action"),
        (14, "chaos[1].selector.jobb"),
        (14, "chaos[1].selector.indexes"),
        (16, "chaos[2].kind"),
        (16, "chaos[2].at"),
    ]


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("{jobs: [{name: llm, pods: 0}], seed: x}", ["name", "jobs[0].pods", "seed"]),
        ("{name: x, rates: {line: 2}}", ["jobs", "rates.line"]),
        ("{name: x, jobs: 3, durations: 1h}", ["jobs", "durations"]),
        ("{name: x, jobs: [{name: llm}], chaos: [3, {at: 3h}]}", ["chaos[0]", "chaos[1].kind", "chaos[1].at"]),
        ("{name: x, jobs: [{name: a, pods: 2, pods: 0}, {}]}", ["jobs[0].pods", "jobs[0].pods", "jobs[1].name"]),
        ("{name: x, jobs: [{name: llm}], cluster: {config: {quarantine: {maxNodes: -1}}}}", None),
    ],
)
def test_what_is_missing_or_no_chaos_hides_nothing_else(text: str, paths: list[str] | None) -> None:
    assert sorted(path for _, path in lines_and_paths(text)) == sorted(paths or ["cluster.config.quarantine.maxNodes"])


@pytest.mark.parametrize(
    "text",
    [
        # The number of pods is unknown, and so are the jobs, and how long chaos may last.
        "{jobs: [{name: llm, pods: x}], chaos: [CHAOS {job: llm, indexes: [90]}}]}",
        "{jobs: [{nam: llm}, {pods: 1}], chaos: [CHAOS {job: eval}}]}",
        "{jobs: [{name: llm}], duration: 1, chaos: [CHAOS {job: llm}}]}",
    ],
)
def test_nothing_is_said_that_only_follows_from_another_mistake(text: str) -> None:
    chaos = "{kind: PodChaos, at: 3h, action: pod-kill, mode: all, selector:"
    found = [path for _, path in lines_and_paths(text.replace("CHAOS", chaos))]
    assert not any("selector" in path for path in found), found
    assert ("chaos[0].at" in found) == ("duration: 1" not in text)


@pytest.mark.parametrize(
    ("text", "line"),
    [("name: x\njobs: [", 2), ("name: x\n\tjobs: []", 2), ("a: &a [*a]", 1), ("at: 2026-13-01", 1), ("\x00", 1)],
)
def test_what_is_no_yaml_is_refused_with_its_line(text: str, line: int) -> None:
    assert refused(text).lines == (line,)


def test_a_word_is_near_whatever_its_case() -> None:
    (problem,) = wrong("{name: x, jobs: [{name: llm, runtime: SHIPPED}]}")
    assert problem.endswith("did you mean 'shipped'?")


@pytest.mark.parametrize(
    ("chaos", "says"),
    [
        (
            "{kind: PodChaos, at: 1m, action: process-kill, selector: {job: llm}, mode: one}",
            "chaos[0].action: process-kill needs target, a job of a cluster; say container-kill",
        ),
        (
            "{kind: PhysicalMachineChaos, at: 1m, action: cordon, duration: 1m, selector: {job: llm}, mode: one}",
            "chaos[0].action: cordon needs target, a job of a cluster; say drain or no-capacity",
        ),
        (
            "{kind: PhysicalMachineChaos, at: 1m, action: taint, duration: 1m, selector: {job: llm}, mode: one}",
            "chaos[0].action: taint needs target, a job of a cluster; say monitored",
        ),
        (
            "{kind: PhysicalMachineChaos, at: 1m, action: condition, duration: 1m, selector: {job: llm}, mode: one}",
            "chaos[0].action: condition needs target, a job of a cluster; say unhealthy",
        ),
        (
            "{kind: PodChaos, during: Rendezvous, action: pod-kill, selector: {job: llm}, mode: one}",
            "chaos[0].during: needs target, a job of a cluster; say at",
        ),
        (
            "{kind: TimeChaos, event: 5, during: Starting, timeOffset: 5m, selector: {controller: 0}}",
            "chaos[0].during: means nothing to what affects a controller; leave it out",
        ),
        (
            "{kind: PhysicalMachineChaos, at: 1m, action: drain, duration: 1m, selector: {job: llm}, mode: one, "
            "taint: {value: x}}",
            "chaos[0].taint: means nothing to drain; leave it out",
        ),
        (
            "{kind: PhysicalMachineChaos, at: 1m, action: drain, selector: {job: llm}, mode: one}",
            "chaos[0].duration: is missing: drain needs one",
        ),
        (
            "{kind: PhysicalMachineChaos, at: 1m, action: drain, duration: 5, selector: {job: llm}, mode: one}",
            "chaos[0].duration: Expected `str`, got `int`",
        ),
    ],
)
def test_chaos_that_only_an_experiment_has_is_refused_by_name(chaos: str, says: str) -> None:
    assert wrong_chaos(chaos) == [says]


def test_what_only_an_experiment_has_is_refused_without_a_target() -> None:
    text = "{name: x, jobs: [{name: llm}], repeat: 2, hypothesis: {}, slo: {}, limits: {}}"
    assert wrong(text) == [
        f"{field}: means nothing without target; leave it out" for field in ("repeat", "hypothesis", "slo", "limits")
    ]


def test_a_file_without_jobs_and_target_is_refused() -> None:
    assert wrong("{name: x}") == ["jobs: is missing; say which jobs there are, or target for an experiment"]


def test_jobs_under_a_wrong_name_are_not_missing_too() -> None:
    assert wrong("{name: x, jbos: [{name: llm}]}") == ["jbos: is no field; did you mean 'jobs'?"]


def test_an_entry_that_is_none_is_reported_under_a_wrong_name_too() -> None:
    assert wrong("{name: x, jobs: [{name: llm}], choas: [3]}") == [
        "choas: is no field; did you mean 'chaos'?",
        "chaos[0]: Expected `object`, got `int`",
    ]


def test_mistakes_of_an_experiment_and_of_its_modelled_cluster_are_reported_at_once() -> None:
    text = """name: x
target: {job: llm}
jobs: [{name: lm, pods: 0}]
chaos:
- {kind: PodChaos, action: pod-kill, mode: fixed}
"""
    assert lines_and_paths(text) == [(2, "target.job"), (3, "jobs[0].pods"), (5, "chaos[0].value")]


def test_a_wrong_target_hides_nothing_and_is_reported_once() -> None:
    text = "{name: x, target: {job: a/b/c}, chaos: [{kind: NetworkChaos}], controllers: {replicas: 0}}"
    assert sorted(path for _, path in lines_and_paths(text)) == ["chaos[0].kind", "controllers.replicas", "target.job"]
