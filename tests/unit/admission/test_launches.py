"""What admission says about TrainJobs and runtimes: the findings of `recovery lint`, and which of them refuse."""

from typing import Any

import pytest
import yaml

from recovery.admission.launches import (
    CLUSTER_TRAINING_RUNTIMES,
    LINE_CHARACTERS_MAX,
    REFUSALS_MAX,
    TRAINING_RUNTIMES,
    WARNING_CHARACTERS_MAX,
    WARNINGS_MAX,
    RuntimeName,
    asks_to_be_prepared,
    changed,
    changes_of,
    record_of,
    runtime_name,
    verdict_of,
)
from recovery.launch.documents import document_of
from recovery.launch.findings import Severity
from recovery.launch.lint import lint
from tests.unit.launch.pages import BASES, merged

Object = dict[str, Any]
JOB, RUNTIME = (each for each in yaml.safe_load_all((BASES / "torch.yaml").read_text()) if each)
RESERVED: Object = {"trainer": {"env": [{"name": "PET_NNODES", "value": "2"}]}}
"""An error in the TrainJob, but only because of its runtime."""
NO_NODES: Object = {"trainer": {"numNodes": 0}}
"""An error in the TrainJob, whatever its runtime."""
NO_SIDECAR: Object = {
    "mlPolicy": {"torch": {"envInjection": {"targets": [{"jobName": "node", "containerNames": ["side"]}]}}}
}
"""An error in the runtime."""
LATE: Object = {"template": {"spec": {"tolerations": None, "terminationGracePeriodSeconds": 3600}}}
"""Two warnings about the runtime, as the Job template has them."""


def job(spec: Object | None = None) -> Object:
    changed_job: Object = merged(JOB, {"spec": spec or {}})
    return changed_job


def runtime(spec: Object | None = None) -> Object:
    changed_runtime: Object = merged(RUNTIME, {"spec": spec or {}})
    return changed_runtime


def of_pods(job_spec: Object) -> Object:
    """A runtime whose ReplicatedJob has this Job spec."""
    return runtime({"template": {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": job_spec}}]}}})


def reserved(*names: str) -> Object:
    return {"trainer": {"env": [{"name": name, "value": "2"} for name in names]}}


def codes(lines: tuple[str, ...]) -> list[str]:
    return [line.partition(": ")[0] for line in lines]


# --- refused ---------------------------------------------------------------------------------------------------------


def test_a_good_one_is_admitted_without_a_word() -> None:
    verdict = verdict_of(job(), None, runtime())
    assert (verdict.errors, verdict.warnings) == ((), ())
    assert verdict_of(runtime(), None, None) == verdict


def test_each_error_of_the_object_refuses_it_with_the_words_of_the_lint() -> None:
    bad = job({"trainer": {**NO_NODES["trainer"], **RESERVED["trainer"]}})
    found = lint([document_of(bad), document_of(runtime(), number=1)])
    verdict = verdict_of(bad, None, runtime())
    assert verdict.errors == tuple(f"{each.code.name}: {each.message} ({each.fix})" for each in found)
    assert codes(verdict.errors) == ["bad-number", "reserved-env"]


def test_an_error_of_the_runtime_warns_the_owner_of_a_train_job_and_refuses_the_runtime() -> None:
    of_job = verdict_of(job(), None, runtime(NO_SIDECAR))
    assert of_job.errors == ()
    [told] = of_job.warnings
    assert told.startswith("ClusterTrainingRuntime torch-prepared: injection-target: envInjection names container side")
    assert codes(verdict_of(runtime(NO_SIDECAR), None, None).errors) == ["injection-target"]


# --- restraint -------------------------------------------------------------------------------------------------------

OLD: dict[str, tuple[Object, Object, list[str]]] = {
    "it was wrong before": (RESERVED, job(RESERVED), []),
    "it was wrong otherwise": (RESERVED, job(NO_NODES), ["reserved-env"]),
    "it was right": (RESERVED, job(), ["reserved-env"]),
}


@pytest.mark.parametrize(("new", "old", "refused"), OLD.values(), ids=OLD.keys())
def test_a_change_is_refused_for_what_it_makes_wrong_only(new: Object, old: Object, refused: list[str]) -> None:
    verdict = verdict_of(job(new), old, runtime())
    assert codes(verdict.errors) == refused
    assert codes(verdict.errors + verdict.warnings).count("reserved-env") == 1, "what is wrong is told in any case"


def test_one_that_is_created_suspended_may_be_patched_yet_and_is_warned() -> None:
    verdict = verdict_of(job({**RESERVED, "suspend": True}), None, runtime())
    assert (codes(verdict.errors), codes(verdict.warnings)) == ([], ["reserved-env"])
    assert codes(verdict_of(job({**NO_NODES, "suspend": True}), None, runtime()).errors) == ["bad-number"]


def test_without_the_runtime_nothing_is_said_that_depends_on_it() -> None:
    verdict = verdict_of(job(RESERVED), None, None)
    assert (verdict.errors, verdict.warnings) == ((), ())


UNCHANGED: dict[str, tuple[Object, Object | None, bool]] = {
    "it is made": (job(), None, True),
    "its trainer": (job(NO_NODES), job(), True),
    "labels and status": ({**job(), "status": {"x": 1}, "metadata": {"labels": {"a": "b"}}}, job(), False),
    "Kueue resumes it": (job({"suspend": False}), job({"suspend": True}), False),
    "the controller suspends it": (job({"suspend": True}), job(), False),
}


@pytest.mark.parametrize(("new", "old", "expected"), UNCHANGED.values(), ids=UNCHANGED.keys())
def test_what_is_judged(new: Object, old: Object | None, expected: bool) -> None:
    assert changed(new, old) is expected


# --- warnings --------------------------------------------------------------------------------------------------------


def test_warnings_are_few_the_jobs_own_come_first_and_the_rest_is_counted() -> None:
    told = verdict_of(job({"trainer": {"numProcPerNode": 4}}), None, of_pods(LATE)).warnings
    where = "ClusterTrainingRuntime torch-prepared"
    assert codes(told) == ["processes-not-gpus", where, where]
    names = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
    many = job({"suspend": True, "trainer": {"numProcPerNode": 4, **reserved(*names)["trainer"]}})
    told = verdict_of(many, None, of_pods(LATE)).warnings
    assert codes(told[:WARNINGS_MAX]) == ["reserved-env"] * 5, "errors come before warnings"
    assert told[WARNINGS_MAX:] == ("and 3 more; `recovery lint` shows all",)


def long_names(number: int) -> Object:
    """A runtime with that many ReplicatedJobs, each with a warning that quotes its long name."""
    spec = runtime()["spec"]["template"]["spec"]["replicatedJobs"][0]
    jobs = [{**spec, "name": letter * 900, "replicas": 2} for letter in "abcdefgh"[:number]]
    return runtime({"template": {"spec": {"replicatedJobs": jobs}}})


def test_warnings_stay_below_what_the_api_server_would_cut() -> None:
    told = verdict_of(job(), None, long_names(8)).warnings
    assert 1 < len(told) <= WARNINGS_MAX
    assert sum(len(line) for line in told) < WARNING_CHARACTERS_MAX + 100 < 4096
    assert told[-1].endswith("more; `recovery lint` shows all")


def test_a_long_value_is_cut() -> None:
    targets = {"envInjection": {"targets": [{"jobName": "node", "containerNames": ["x" * 5000]}]}}
    [told] = verdict_of(job(), None, runtime({"mlPolicy": {"torch": targets}})).warnings
    assert (len(told), told[-1]) == (LINE_CHARACTERS_MAX, "…")
    many = job(reserved(*["PET_NNODES"] * 200))
    refused = verdict_of(many, None, runtime()).errors
    assert len(refused) == REFUSALS_MAX + 1
    assert refused[-1] == "and 180 more; `recovery lint` shows all"


def test_a_warning_is_one_line_whatever_users_write() -> None:
    targets = {"envInjection": {"targets": [{"jobName": "node", "containerNames": ["side\ncar"]}]}}
    [told] = verdict_of(job(), None, runtime({"mlPolicy": {"torch": targets}})).warnings
    assert "container side car of" in told


def test_notes_are_left_to_the_lint() -> None:
    silent = of_pods({"template": {"spec": {"containers": [{"name": "node", "terminationMessagePolicy": None}]}}})
    found = lint([document_of(job()), document_of(silent, number=1)])
    assert [each.code.severity for each in found] == [Severity.NOTE]
    assert verdict_of(job(), None, silent).warnings == ()


# --- the runtime -----------------------------------------------------------------------------------------------------

REFERENCES: dict[str, tuple[Object, RuntimeName | None]] = {
    "by default": ({"runtimeRef": {"name": "a"}}, RuntimeName(CLUSTER_TRAINING_RUNTIMES, "", "a")),
    "of the namespace of the request, not of the job": (
        {"runtimeRef": {"name": "a", "kind": "TrainingRuntime"}},
        RuntimeName(TRAINING_RUNTIMES, "team", "a"),
    ),
    "of another group": ({"runtimeRef": {"name": "a", "apiGroup": "other.example"}}, None),
    "of another kind": ({"runtimeRef": {"name": "a", "kind": "Other"}}, None),
    "Trainer manages it": (
        {"runtimeRef": {"name": "a"}, "managedBy": "trainer.kubeflow.org/trainjob-controller"},
        RuntimeName(CLUSTER_TRAINING_RUNTIMES, "", "a"),
    ),
    "it runs elsewhere": ({"runtimeRef": {"name": "a"}, "managedBy": "kueue.x-k8s.io/multikueue"}, None),
    "none": ({"runtimeRef": None}, None),
}


@pytest.mark.parametrize(("spec", "expected"), REFERENCES.values(), ids=REFERENCES.keys())
def test_where_the_runtime_is(spec: Object, expected: RuntimeName | None) -> None:
    assert runtime_name(job(spec), "team") == expected


@pytest.mark.parametrize("body", [RUNTIME, {"kind": "TrainJob"}, {**JOB, "spec": "text"}, {**JOB, "metadata": None}])
def test_what_is_no_train_job_has_none_and_nothing_breaks(body: Object) -> None:
    assert (runtime_name(body, "team") is None) is (body.get("metadata", {}) is not None)
    assert changed(body, None)
    assert not asks_to_be_prepared(body)
    assert changes_of(body, RUNTIME) == ()


# --- what anyone may read --------------------------------------------------------------------------------------------


OF_NAMESPACE: Object = {"runtimeRef": {"kind": "TrainingRuntime"}}


def of_namespace(spec: Object | None = None) -> Object:
    """The TrainingRuntime to which such a job refers."""
    namespace = {"kind": "TrainingRuntime", "metadata": {"namespace": JOB["metadata"]["namespace"]}}
    found: Object = merged(runtime(spec), namespace)
    return found


def test_nothing_is_quoted_of_a_training_runtime_because_anybody_can_ask() -> None:
    """A request may claim any namespace, because nothing proves that it comes from the API server."""
    secret = {"mlPolicy": {"torch": {"envInjection": {"targets": [{"jobName": "node", "containerNames": ["hidden"]}]}}}}
    theirs = of_namespace(secret)
    verdict = verdict_of(job({**RESERVED, **OF_NAMESPACE}), None, theirs)
    told = " ".join((*verdict.errors, *verdict.warnings))
    assert codes(verdict.errors) == ["reserved-env"]
    assert "injection-target" in told
    assert "recovery lint --cluster" in told
    assert "hidden" not in told
    assert "hidden" in " ".join(verdict_of(job(), None, runtime(secret)).warnings), "of one of the cluster it is"


def test_what_is_wrong_with_the_job_itself_is_told_in_full_with_a_training_runtime_too() -> None:
    theirs = of_namespace()
    bad = job({**NO_NODES, **OF_NAMESPACE})
    assert verdict_of(bad, None, theirs).errors == verdict_of(job(NO_NODES), None, runtime()).errors


# --- preparing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "expected"), [("true", True), ("True", False), ("false", False), (None, False)])
def test_who_asks_to_be_prepared(value: str | None, expected: bool) -> None:
    annotations = {"recovery.trainjob.dev/prepare-launch": value} if value is not None else {}
    assert asks_to_be_prepared({"metadata": {"annotations": annotations}}) is expected


def test_what_is_changed_is_recorded() -> None:
    cpus = {"requests": {"cpu": 4, "nvidia.com/gpu": None}, "limits": {"cpu": 8, "nvidia.com/gpu": None}}
    found = changes_of(job({"trainer": {"numProcPerNode": None, "resourcesPerNode": cpus}}), runtime())
    assert [(change.path, change.value) for change in found] == [(("spec", "trainer", "numProcPerNode"), 8)]
    assert record_of(found) == {
        "recovery.trainjob.dev/prepared": (
            "spec.trainer.numProcPerNode=8 (one for each CPU of the limit of 8, rounded up)"
        )
    }
    assert changes_of(job(), None) == ()
