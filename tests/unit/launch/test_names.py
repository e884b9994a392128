"""The maximum length of a name, by the size of the group."""

import pytest

from recovery.launch.names import check
from recovery.launch.places import written
from tests.unit.launch.manifests import group, runtime_alone, told


@pytest.mark.parametrize(("nodes", "longest"), [(1, 48), (10, 48), (11, 47), (100, 47), (101, 46), (1001, 45)])
def test_the_longest_name_for_a_size(nodes: int, longest: int) -> None:
    def named(length: int) -> list[str]:
        name = "a" * length
        return told(
            check, group(f"kind: TrainJob\nmetadata: {{name: {name}}}\nspec: {{trainer: {{numNodes: {nodes}}}}}")
        )

    assert named(longest) == []
    (sentence,) = named(longest + 1)
    assert sentence.endswith(f"(choose a name of at most {longest} characters for {nodes} pods)")


def test_the_sentence_shows_the_name_of_the_pod() -> None:
    name = "llama-3-405b-continued-pretraining-of-2026-11-21"

    assert told(check, group(f"kind: TrainJob\nmetadata: {{name: {name}}}")) == [
        f"name-too-long: the name has 48 characters; a pod's would have 64 ({name}-node-0-15-xxxxx) where 63 are "
        "allowed: no pod can be made (choose a name of at most 47 characters for 16 pods)"
    ]


def test_of_a_job_set_the_replicas_count_as_well() -> None:
    launch = group(
        f"""
kind: JobSet
metadata: {{name: {"a" * 47}}}
spec: {{replicatedJobs: [{{name: worker, replicas: 12}}]}}
""",
        base="jobset",
    )
    (sentence,) = told(check, launch)

    assert "-worker-11-7-xxxxx" in sentence
    assert "at most 45 characters for 96 pods" in sentence


def test_of_a_job_set_without_completions_only_the_name_of_the_job_counts() -> None:
    """JobSet checks the name of a pod only if it knows the number of pods."""
    without = "spec: {replicatedJobs: [{name: worker, template: {spec: {completions: null}}}]}"

    def named(length: int) -> list[str]:
        launch = group(f"kind: JobSet\nmetadata: {{name: {'a' * length}}}\n{without}", base="jobset")
        return [each.code.name for each in check(launch)]

    assert (named(54), named(55)) == ([], ["name-too-long"])


def test_names_of_replicated_jobs_may_leave_no_room() -> None:
    jobs = f"[{{name: {'w' * 60}, template: {{spec: {{completions: 8}}}}}}]"
    launch = group(f"kind: JobSet\nspec: {{replicatedJobs: {jobs}}}", base="jobset")
    (sentence,) = told(check, launch)

    assert sentence.endswith("(shorten the names of the ReplicatedJobs: they leave no room for the job's)")


def test_a_job_whose_runtime_is_not_known_may_have_63() -> None:
    def named(length: int) -> list[str]:
        return told(
            check, group(f"kind: TrainJob\nmetadata: {{name: {'a' * length}}}\nspec: {{runtimeRef: {{name: other}}}}")
        )

    assert named(63) == []
    assert named(64) == [
        "name-too-long: the name has 64 characters where 63 are allowed: no pod can be made "
        "(choose a name of at most 63 characters)"
    ]


@pytest.mark.parametrize("name", ["3d", "Llama", "llama.3", "llama-", "-llama", "llama_3", "café"])
def test_names_that_are_no_host_names(name: str) -> None:
    assert [each.partition(":")[0] for each in told(check, group(f"kind: TrainJob\nmetadata: {{name: {name}}}"))] == [
        "name-not-dns"
    ]


def test_the_line_is_that_of_the_name() -> None:
    (finding,) = check(group("kind: TrainJob\nmetadata: {name: 3d}"))

    assert written(finding.place.path) == "metadata.name"


def test_the_name_of_a_runtime_is_no_part_of_another() -> None:
    text = f"""
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {{name: "3.{"a" * 80}"}}
spec: {{template: {{spec: {{replicatedJobs: [{{name: node}}]}}}}}}
"""

    assert told(check, runtime_alone(text)) == []
