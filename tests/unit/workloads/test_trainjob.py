"""Which Jobs of a TrainJob fail and restart together."""

from datetime import UTC, datetime

import pytest

from recovery.core.facts import Condition, GroupKey, JobFacts, JobSetFacts, ReplicatedJobFacts
from recovery.workloads import WorkloadAdapter
from recovery.workloads.trainjob import TrainJobAdapter

NOW = datetime(2026, 11, 21, tzinfo=UTC)
ADAPTER: WorkloadAdapter = TrainJobAdapter()


def jobset(**ancestors: str) -> JobSetFacts:
    replicated = tuple(ReplicatedJobFacts(name, ancestor=step) for name, step in ancestors.items())
    return JobSetFacts("llm", "u", "1", 1, NOW, replicated_jobs=replicated)


def job(*, complete: bool = False) -> JobFacts:
    conditions = (Condition("Complete", "True"),) if complete else ()
    return JobFacts("llm-x-0", "u", "1", "js", "x", NOW, conditions=conditions)


def test_a_group_is_found_by_the_name_of_its_job_set() -> None:
    assert ADAPTER.selector == "jobset.sigs.k8s.io/jobset-name"
    assert ADAPTER.group_selector(GroupKey("a", "llm")) == "jobset.sigs.k8s.io/jobset-name=llm"


@pytest.mark.parametrize(
    ("name", "step", "while_running", "once_complete"),
    [
        ("node", "trainer", True, True),
        ("prepare", "dataset-initializer", False, False),
        ("dataset-initializer", "", False, False),
        ("model-initializer", "", False, False),
        ("dataset-initializer", "trainer", True, True),
        ("node", "", True, False),
    ],
)
def test_members(name: str, step: str, while_running: bool, once_complete: bool) -> None:
    of = jobset(**{name: step, "other": "dataset-initializer"})
    assert ADAPTER.is_member(name, of, job()) is while_running
    assert ADAPTER.is_member(name, of, job(complete=True)) is once_complete
    assert ADAPTER.is_member(name, of, None) is while_running, "its Job is gone, its pods are not"


def test_without_a_job_set_the_name_has_to_do() -> None:
    assert ADAPTER.is_member("node", None, job())
    assert not ADAPTER.is_member("model-initializer", None, job())
