"""What a workload is, and where it lives."""

import pytest

from recovery.core.model.facts import WorkloadFacts
from recovery.ports import JOB_SETS, TRAIN_JOBS, Resource
from recovery.workloads import adapter_of, resource_of
from tests.unit.workloads.objects import NOW


@pytest.mark.parametrize("resource", [TRAIN_JOBS, JOB_SETS])
def test_a_workload_is_written_to_where_its_kind_lives(resource: Resource) -> None:
    assert resource_of(WorkloadFacts(resource.kind, "llm", "u", "1", 1, NOW)) is resource


def test_what_is_left_of_a_workload_that_is_gone_is_read_as_a_train_jobs() -> None:
    assert adapter_of(None).resource is TRAIN_JOBS
