"""Which Jobs of a JobSet without an owner fail and restart together, and how groups are found."""

import msgspec
import pytest

from recovery.core.model.facts import GroupKey, ReplicatedJobFacts
from recovery.workloads import WorkloadAdapter
from recovery.workloads.jobset import GROUPS_SELECTOR, BareJobSetAdapter, group_selector
from tests.unit.workloads.objects import job, jobset

ADAPTER: WorkloadAdapter = BareJobSetAdapter()


def test_a_group_is_found_by_the_name_of_its_job_set() -> None:
    assert GROUPS_SELECTOR == "jobset.sigs.k8s.io/jobset-name"
    assert group_selector(GroupKey("a", "llm")) == "jobset.sigs.k8s.io/jobset-name=llm"


@pytest.mark.parametrize(
    ("name", "member"), [("unpack", False), ("launcher", True), ("workers", True), ("dataset-initializer", True)]
)
def test_all_are_members_but_what_another_one_wants_complete(name: str, member: bool) -> None:
    of = jobset(
        ReplicatedJobFacts("unpack"),
        ReplicatedJobFacts("dataset-initializer"),
        ReplicatedJobFacts("launcher"),
        ReplicatedJobFacts("workers", waits_for_complete=("unpack",)),
    )
    assert ADAPTER.is_member(name, of, job()) is member
    assert ADAPTER.is_member(name, of, None) is member
    assert ADAPTER.is_member(name, of, job(complete=True)) is member, "by it the group is seen to be finishing"


@pytest.mark.parametrize(
    ("targets", "by_its_success"),
    [((), {"node"}), (("download",), {"download"}), (("node", "metrics"), {"node", "metrics"})],
    ids=["no-target", "another-one", "several"],
)
def test_a_job_that_is_complete_stays_a_member_where_the_training_ends_by_it(
    targets: tuple[str, ...], by_its_success: set[str]
) -> None:
    """Otherwise a side Job that has completed would keep the group from ever being whole."""
    parts = (ReplicatedJobFacts("download"), ReplicatedJobFacts("node", accelerators=8), ReplicatedJobFacts("metrics"))
    of = msgspec.structs.replace(jobset(*parts), success_targets=targets)
    for part in parts:
        assert ADAPTER.is_member(part.name, of, job())
        assert ADAPTER.is_member(part.name, of, job(complete=True)) is (part.name in by_its_success)


def test_without_its_job_set_every_job_is_one() -> None:
    assert ADAPTER.is_member("unpack", None, job())
