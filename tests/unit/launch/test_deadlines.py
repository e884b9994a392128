"""Deadlines that limit something else than they seem to, once a job recovers."""

import pytest

from recovery.launch.launch import Launch
from recovery.launch.places import written
from recovery.launch.recoverability import deadlines
from recovery.launch.views import FailurePolicy
from tests.unit.launch.groups import SPEC, group, job, names, only, pods
from tests.unit.launch.manifests import group as from_manifest

DAY = 86400
RESTARTS = FailurePolicy(SPEC, max_restarts=3)


def test_a_pod_s_deadline_takes_the_group_apart() -> None:
    finding = only(deadlines.check(group(job(pods(active_deadline_seconds=DAY)))))

    assert finding.code.name == "pod-deadline"
    assert finding.message.startswith(
        "activeDeadlineSeconds 86400 of the pod template fails each pod after 1 d, and the Job replaces it, up to "
        "backoffLimit 1000 times: the other 15 pods hang"
    )


def test_a_job_s_deadline_begins_again() -> None:
    finding = only(deadlines.check(group(job(active_deadline_seconds=DAY))))

    assert finding.code.name == "deadline-begins-again"
    assert "the job may run for 1 d after each of its recoveries" in finding.message


@pytest.mark.parametrize(
    "launch",
    [
        group(),
        group(job(pods(active_deadline_seconds=DAY)), nodes=1),
        group(job(pods(active_deadline_seconds=DAY), backoff_limit=0)),
        group(job(active_deadline_seconds=DAY, backoff_limit=0)),
        # native_policies judges it beside a failurePolicy.
        group(job(active_deadline_seconds=DAY), failure_policy=RESTARTS),
    ],
)
def test_a_deadline_that_ends_the_job_is_not_told_of(launch: Launch) -> None:
    assert names(deadlines.check(launch)) == []


@pytest.mark.parametrize(
    ("job_spec", "place"),
    [
        ("activeDeadlineSeconds: 60", "spec.replicatedJobs[0].template.spec.activeDeadlineSeconds"),
        (
            "template: {spec: {activeDeadlineSeconds: 60}}",
            "spec.replicatedJobs[0].template.spec.template.spec.activeDeadlineSeconds",
        ),
    ],
)
def test_of_a_jobset_the_budget_bounds_the_recoveries(job_spec: str, place: str) -> None:
    jobs = f"[{{name: worker, template: {{spec: {{{job_spec}}}}}}}]"
    finding = only(deadlines.check(from_manifest(f"kind: JobSet\nspec: {{replicatedJobs: {jobs}}}", base="jobset")))

    assert written(finding.place.path) == place
    assert "TrainJob" not in finding.fix
