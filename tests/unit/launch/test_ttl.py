"""`ttlSecondsAfterFinished`: what it begins again."""

import pytest
from msgspec.structs import replace

from recovery.launch.launch import Launch
from recovery.launch.places import written
from recovery.launch.recoverability import native_policies, pods, ttl
from recovery.launch.recoverability.outlook import outlook
from recovery.launch.views import FailurePolicy, ReplicatedJob
from tests.unit.launch.groups import SPEC, group, job, names, only
from tests.unit.launch.manifests import group as from_manifest

AGAIN = "until its ttlSecondsAfterFinished (3600) deletes it, and Trainer trains the job again"


def expiring(launch: Launch) -> Launch:
    return replace(launch, job_set=replace(launch.job_set, ttl_seconds=3600))


@pytest.mark.parametrize("launch", [group(queued=False), group(queued=False, runtime_alone=True)])
def test_a_failed_job_trains_again(launch: Launch) -> None:
    finding = only(ttl.check(expiring(launch)))
    assert (finding.code.name, finding.code.severity) == ("failed-job-trains-again", "error")
    assert finding.message == (
        "ttlSecondsAfterFinished 3600 deletes a failed JobSet after 1 h, and Trainer 2.3 creates it again: the job "
        "trains again, with all its restarts, each time that it has failed"
    )


def test_under_kueue_it_runs_outside_its_quota() -> None:
    finding = only(ttl.check(expiring(group())))
    assert finding.message.endswith("that it has failed, outside the quota, which Kueue released when it failed")


def test_no_one_creates_a_jobset_of_its_user_again() -> None:
    assert names(ttl.check(replace(expiring(group()), train_job=None, runtime=None))) == []


@pytest.mark.parametrize(
    ("launch", "when"),
    [
        (group(job(ttl_seconds=60)), "if JobSet has not seen it end by then"),
        (group(job(ttl_seconds=60, replicas=2)), "while another one runs"),
        (group(before=[replace(job(ttl_seconds=60), ancestor="dataset-initializer")]), "while another one runs"),
    ],
    ids=["the only one", "one of two", "an initializer"],
)
def test_a_job_that_is_done_runs_again(launch: Launch, when: str) -> None:
    finding = only(ttl.check(launch))
    assert (finding.code.name, finding.code.severity) == ("complete-job-runs-again", "error")
    assert finding.message == (
        "ttlSecondsAfterFinished 60 deletes the Job of ReplicatedJob node 1 min after its end, and JobSet creates it "
        f"again {when}: what it has done is done twice"
    )


def test_without_a_ttl_what_has_ended_stays_ended() -> None:
    assert names(ttl.check(group())) == []


def test_where_they_are_written() -> None:
    spec = (
        "{ttlSecondsAfterFinished: 0, replicatedJobs: [{name: node, template: {spec: {ttlSecondsAfterFinished: 0}}}]}"
    )
    launch = from_manifest(f"kind: ClusterTrainingRuntime\nspec: {{template: {{spec: {spec}}}}}")
    assert [written(finding.place.path) for finding in ttl.check(launch)] == [
        "spec.template.spec.ttlSecondsAfterFinished",
        "spec.template.spec.replicatedJobs[0].template.spec.ttlSecondsAfterFinished",
    ]


NO_RETRY: ReplicatedJob = job(backoff_limit=0)


@pytest.mark.parametrize(
    "launch",
    [
        group(NO_RETRY),
        group(NO_RETRY, failure_policy=FailurePolicy(SPEC)),
        group(NO_RETRY, failure_policy=FailurePolicy(SPEC, max_restarts=2)),
    ],
    ids=["no failurePolicy", "no restarts", "restarts"],
)
def test_no_outlook_says_that_such_a_job_fails_for_good(launch: Launch) -> None:
    assert "for good" in outlook(launch)[0]
    assert "for good" not in "".join(outlook(expiring(launch)))
    assert AGAIN in outlook(expiring(launch))[0]


@pytest.mark.parametrize(
    "launch",
    [group(NO_RETRY), group(job(backoff_limit=6)), group(NO_RETRY, failure_policy=FailurePolicy(SPEC))],
)
def test_no_finding_does_either(launch: Launch) -> None:
    found = [each.message for check in (pods.check, native_policies.check) for each in check(expiring(launch))]
    assert AGAIN in "".join(found)
    assert "for good" not in "".join(found)
