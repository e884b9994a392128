"""Fields without which the API server refuses an object: which ones are missing, and which ones only seem to be."""

from typing import Any

import pytest

from recovery.launch.documents import document_of
from recovery.launch.reading import read
from tests.unit.launch.test_reading import told

TRAINER = "trainer.kubeflow.org/v1alpha1"


def missing(body: dict[str, Any]) -> list[str]:
    """The messages about missing fields of a TrainJob."""
    found = read(document_of({"apiVersion": TRAINER, "kind": "TrainJob", **body})).findings
    return [each.message for each in found if each.code.name == "missing-field"]


NAMED = {"metadata": {"name": "llama"}}
WITH_RUNTIME = {"spec": {"runtimeRef": {"name": "torch"}}}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (WITH_RUNTIME, "metadata.name"),
        ({"metadata": {"name": ""}, **WITH_RUNTIME}, "metadata.name"),
        ({"metadata": {"namespace": "research"}, **WITH_RUNTIME}, "metadata.name"),
        (NAMED, "spec.runtimeRef"),
        ({**NAMED, "spec": None}, "spec.runtimeRef"),
        ({**NAMED, "spec": {"trainer": {"numNodes": 2}}}, "spec.runtimeRef"),
        ({**NAMED, "spec": {"runtimeRef": {}}}, "spec.runtimeRef.name"),
        ({**NAMED, "spec": {"runtimeRef": {"name": ""}}}, "spec.runtimeRef.name"),
    ],
)
def test_what_the_api_server_asks_for_is_told_by_its_path(body: dict[str, Any], field: str) -> None:
    assert missing(body) == [f"{field} is missing: the API server refuses the object"]


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {"generateName": "llama-"}, **WITH_RUNTIME},
        # of another kind, which another finding reports
        {"metadata": [], **WITH_RUNTIME},
        {"metadata": {"name": 5}, **WITH_RUNTIME},
        {**NAMED, "spec": []},
        {**NAMED, "spec": {"runtimeRef": "torch"}},
        {**NAMED, "spec": {"runtimeRef": {"name": True}}},
    ],
)
def test_nothing_is_missing_where_it_is_generated_or_of_another_kind(body: dict[str, Any]) -> None:
    assert missing(body) == []


def test_a_job_whose_runtime_has_no_name_is_not_told_that_it_is_unknown() -> None:
    document = document_of({"apiVersion": TRAINER, "kind": "TrainJob", **NAMED})

    assert told(read(document)) == [("missing-field", "")]
