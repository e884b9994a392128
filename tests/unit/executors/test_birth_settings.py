"""The dry run sends the Job that JobSet would create, and the API server's answer becomes an outcome."""

from datetime import datetime
from typing import Any

import msgspec
import pytest

from recovery.core.model.birth_settings import BirthOutcome, BirthSettings, BirthTrial
from recovery.core.plan.actions import TryBirth
from recovery.executors.birth_settings import try_birth
from recovery.ports import (
    JOB_SETS,
    JOBS,
    ApiError,
    ApiRequest,
    ConflictError,
    ForbiddenError,
    NamespaceTerminatingError,
    NotFoundError,
    RefusedError,
    TryLaterError,
    UnauthorizedError,
)
from tests.unit.core.world import at
from tests.unit.fake_api import FakeApi

Object = dict[str, Any]
SINCE: datetime = at(0)
SETTINGS = BirthSettings(7, "jobset-1", "node", SINCE, nodes=12)
ANNOTATION = "recovery.trainjob.dev/birth-settings"


def job_set(name: str = "train", *, uid: str = "jobset-1", pods: Object | None = None, **spec: Any) -> Object:
    """A JobSet of two ReplicatedJobs, as the API server has it."""
    job = {"parallelism": 16, "completions": 16, "completionMode": "Indexed", "backoffLimit": 0}
    container = {"name": "node", "image": "torch", "volumeMounts": [{"name": "cache", "mountPath": "/cache"}]}
    node = {
        "name": "node",
        "replicas": 1,
        "groupName": "default",
        "template": {
            "metadata": {"labels": {"step": "trainer"}},
            "spec": {
                **job,
                "template": {
                    "metadata": {"annotations": {"rank": "yes"}},
                    "spec": {"restartPolicy": "Never", "containers": [container], **(pods or {})},
                },
            },
        },
    }
    first: Object = {"name": "first", "replicas": 2, "groupName": "default", "template": {"spec": {}}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": "ml", "uid": uid},
        "spec": {"replicatedJobs": [first, node], "network": {"enableDNSHostnames": True}, **spec},
        "status": {"restarts": 3},
    }


class Server(FakeApi):
    """Has one JobSet. It answers a create with the Job that was sent, with these annotations and this size.

    `elastic`: whether the size in the JobSet's template may change.
    """

    def __init__(
        self,
        found: Object,
        annotations: dict[str, str] | None = None,
        parallelism: int = 12,
        *,
        elastic: bool = False,
    ) -> None:
        super().__init__()
        self._elastic = elastic
        self._found = found
        self._annotations = annotations or {}
        self._parallelism = parallelism
        self.dry_runs: list[bool] = []

    async def answer(self, request: ApiRequest) -> bytes:
        if request.verb == "get":
            assert (request.resource, request.name, request.namespace) == (JOB_SETS, "train", "ml")
            return msgspec.json.encode(self._found)
        self.dry_runs.append(request.parameter("dryRun") == "All")
        if request.verb == "patch":
            assert (request.resource, request.name, request.namespace) == (JOB_SETS, "train", "ml")
            if not self._elastic:
                raise RefusedError("spec.replicatedJobs: field is immutable", status=422)
            return msgspec.json.encode(self._found)
        assert (request.verb, request.resource) == ("create", JOBS)
        metadata, spec = {"annotations": self._annotations}, {"parallelism": self._parallelism}
        return msgspec.json.encode({"metadata": metadata, "spec": spec})


async def trial(api: FakeApi, settings: BirthSettings = SETTINGS) -> BirthTrial:
    return await try_birth(api, "ml", TryBirth("train", settings))


async def asked(found: Object) -> Object:
    """The Job that the dry run sends."""
    api = Server(found)
    await trial(api)
    assert api.dry_runs == [True]
    (request,) = api.writes
    assert request.namespace == "ml"
    body: Object = request.body
    return body


# --- the Job ---------------------------------------------------------------------------------------------------------


async def test_it_has_the_template_and_the_marks_that_job_set_gives_it() -> None:
    body = await asked(job_set())
    marks = {
        "jobset.sigs.k8s.io/jobset-name": "train",
        "jobset.sigs.k8s.io/jobset-uid": "jobset-1",
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "jobset.sigs.k8s.io/restart-attempt": "3",
        "jobset.sigs.k8s.io/replicatedjob-replicas": "1",
        "jobset.sigs.k8s.io/job-index": "0",
        "jobset.sigs.k8s.io/group-name": "default",
    }
    assert (body["apiVersion"], body["kind"], body["metadata"]["namespace"]) == ("batch/v1", "Job", "ml")
    assert body["metadata"]["labels"] == {"step": "trainer", **marks}
    assert body["metadata"]["annotations"] == marks
    (owner,) = body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("JobSet", "jobset-1", True)
    assert "blockOwnerDeletion" not in owner, "that takes a right of its own in some clusters"
    spec = body["spec"]
    assert (spec["parallelism"], spec["completions"], spec["suspend"]) == (16, 16, False)
    assert spec["template"]["metadata"] == {"labels": marks, "annotations": {"rank": "yes", **marks}}
    assert spec["template"]["spec"]["subdomain"] == "train"
    assert spec["template"]["spec"]["containers"][0]["image"] == "torch"


async def test_of_a_suspended_set_it_is_suspended() -> None:
    assert (await asked(job_set(suspend=True)))["spec"]["suspend"] is True


async def test_where_there_are_no_hostnames_there_is_no_subdomain() -> None:
    body = await asked(job_set(network={"enableDNSHostnames": False, "subdomain": "theirs"}))
    assert "subdomain" not in body["spec"]["template"]["spec"]
    body = await asked(job_set(network={"enableDNSHostnames": True, "subdomain": "theirs"}))
    assert body["spec"]["template"]["spec"]["subdomain"] == "theirs"


async def test_volumes_that_the_set_claims_are_there_where_a_container_mounts_them() -> None:
    """Otherwise the API server would refuse the Job, because the container would mount a missing volume."""
    claims = [{"templates": [{"metadata": {"name": "cache"}}, {"metadata": {"name": "unused"}}]}]
    pods = {"volumes": [{"name": "own", "emptyDir": {}}]}
    body = await asked(job_set(pods=pods, volumeClaimPolicies=claims))
    assert body["spec"]["template"]["spec"]["volumes"] == [
        {"name": "own", "emptyDir": {}},
        {"name": "cache", "persistentVolumeClaim": {"claimName": "cache-train"}},
    ]


@pytest.mark.parametrize("length", [1, 20, 40, 56, 60])
async def test_its_name_is_its_own_and_no_shorter_than_the_real_one(length: int) -> None:
    """Pod hostnames contain the Job's name, and the dry run must find a size whose extra digit makes them too long."""
    found, other = job_set("t" * length), job_set("t" * length, uid="jobset-2")
    name, real = (await asked(found))["metadata"]["name"], f"{'t' * length}-node-0"
    assert name.startswith("birth-trial-")
    assert len(name) == max(len(real), 32)
    assert name == (await asked(found))["metadata"]["name"]
    with pytest.raises(ConflictError):
        await asked(other)


# --- the answer ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotations", "parallelism", "outcome"),
    [
        ({ANNOTATION: "7"}, 12, BirthOutcome.APPLIED),
        ({}, 16, BirthOutcome.NOT_APPLIED),
        ({ANNOTATION: "6"}, 12, BirthOutcome.NOT_APPLIED),
        ({ANNOTATION: "7"}, 16, BirthOutcome.NOT_APPLIED),
    ],
    ids=["applied", "no policy", "settings of before", "somebody else has changed the size again"],
)
async def test_what_the_job_would_be_like(annotations: dict[str, str], parallelism: int, outcome: BirthOutcome) -> None:
    assert await trial(Server(job_set(), annotations, parallelism)) == BirthTrial(SETTINGS, outcome)


async def test_a_job_set_that_would_undo_the_size_overrules_it() -> None:
    """JobSet's feature gate ElasticJobSet is on, so another size in the template is admitted."""
    api = Server(job_set(), {ANNOTATION: "7"}, elastic=True)
    assert await trial(api) == BirthTrial(SETTINGS, BirthOutcome.OVERRULED)
    assert api.dry_runs == [True, True]
    patch = api.writes[-1].body
    assert [(each["op"], each["path"], each["value"]) for each in patch] == [
        ("test", "/metadata/uid", "jobset-1"),
        ("add", "/spec/replicatedJobs/1/template/spec/parallelism", 12),
        ("add", "/spec/replicatedJobs/1/template/spec/completions", 12),
    ]


async def test_without_a_size_the_revision_is_enough() -> None:
    settings = msgspec.structs.replace(SETTINGS, nodes=None, avoid_hosts=("n1",))
    found = await trial(Server(job_set(), {ANNOTATION: "7"}, 16), settings)
    assert found == BirthTrial(settings, BirthOutcome.APPLIED)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (RefusedError("spec.maxFailedIndexes: Invalid value: 15", status=422), BirthOutcome.REFUSED),
        (RefusedError("admission webhook denied the request", status=403), BirthOutcome.REFUSED),
        (ForbiddenError('User "a" cannot create resource "jobs"', status=403), BirthOutcome.NOT_ALLOWED),
    ],
)
async def test_a_refusal_is_an_answer_too(error: ApiError, outcome: BirthOutcome) -> None:
    api = Server(job_set())
    api.next("create", JOBS, error)
    assert await trial(api) == BirthTrial(SETTINGS, outcome, str(error))


@pytest.mark.parametrize(
    "error",
    [
        UnauthorizedError("who are you", status=401),
        NamespaceTerminatingError("it is being deleted", status=403),
        TryLaterError("too busy", status=429),
    ],
)
async def test_what_says_nothing_about_the_job_is_the_callers(error: ApiError) -> None:
    api = Server(job_set())
    api.next("create", JOBS, error)
    with pytest.raises(type(error)):
        await trial(api)


@pytest.mark.parametrize(
    "found", [job_set(uid="jobset-2"), job_set(replicatedJobs=[])], ids=["another JobSet", "another ReplicatedJob"]
)
async def test_a_job_set_that_is_another_one_is_read_again(found: Object) -> None:
    api = Server(found)
    with pytest.raises(ConflictError):
        await trial(api)
    assert not api.writes


async def test_a_dry_run_for_a_deleted_job_set_is_not_found() -> None:
    api = Server(job_set())
    api.next("get", JOB_SETS, NotFoundError("gone", status=404))
    with pytest.raises(NotFoundError):
        await trial(api)


def test_a_dry_run_is_no_write() -> None:
    """So the client retries it like a read, and it needs no leader's term."""
    request = ApiRequest("create", JOBS, "ml", query={"dryRun": "All"}, body=b"{}")
    assert (request.method, request.dry_run, request.writes) == ("POST", True, False)
    assert request.url("https://api") == "https://api/apis/batch/v1/namespaces/ml/jobs?dryRun=All"
    assert ApiRequest("create", JOBS, "ml", body=b"{}").writes
