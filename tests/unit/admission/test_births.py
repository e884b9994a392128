"""A Job that JobSet creates gets the settings of its group. In doubt it is created as its template says."""

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import kopf
import pytest
from structlog.testing import capture_logs

from recovery.admission import births, webhooks
from recovery.admission.births import SettingsAtBirth
from recovery.admission.https_server import REQUEST_NAMESPACE
from recovery.core.model.annotations import BIRTH_SETTINGS_LABEL, BIRTH_SETTINGS_LABELLED
from recovery.core.model.ledger import SCHEMA_VERSION
from recovery.ports import RECOVERY_GROUPS, ApiRequest, PatchKind, TryLaterError
from recovery.sim.api.patches import patched
from tests.contract.test_birth_settings import AFFINITIES, HOSTS, as_job_set_makes_it, told_size
from tests.unit.admission.api import StillClock
from tests.unit.fake_api import Object, ObjectsApi

LABELS = {BIRTH_SETTINGS_LABEL: BIRTH_SETTINGS_LABELLED}
JOB_SET = {"metadata": {"name": "llm", "uid": "set-1"}}
OURS = "recovery.trainjob.dev/"


def job(affinity: Object | None = None, **pods: Any) -> Object:
    """A Job for four nodes in namespace `team`, as JobSet creates it."""
    made = as_job_set_makes_it(JOB_SET, affinity)
    made["metadata"]["namespace"] = "team"
    made["spec"] |= {"parallelism": 4, "completions": 4}
    made["spec"]["template"]["spec"] |= pods
    return made


def group(name: str = "llm", *, labels: Object | None = None, namespace: str = "team", **fields: Any) -> Object:
    """A RecoveryGroup. `fields` are its settings at birth; without fields it has no settings."""
    settings = {"revision": 3, "jobSetUID": "set-1", "replicatedJob": "node", "since": "2026-11-21T12:00:00Z", **fields}
    metadata = {"name": name, "namespace": namespace, "labels": LABELS if labels is None else labels}
    return {
        "metadata": metadata,
        "status": {"schemaVersion": SCHEMA_VERSION, **({"birthSettings": settings} if fields else {})},
    }


def api_with(*groups: Object) -> ObjectsApi:
    api = ObjectsApi()
    api.put(RECOVERY_GROUPS, *groups)
    return api


async def patch_of(made: Object, api: ObjectsApi) -> list[Any]:
    """The JSON patch in the webhook's answer."""
    body: Any = copy.deepcopy(made)
    patch = kopf.Patch(body=body)
    review = webhooks._birth(SettingsAtBirth(api, StillClock()))
    await review(new=body, patch=patch, headers={REQUEST_NAMESPACE: "team"})
    return list(patch.as_json_patch())


async def after(made: Object, *groups: Object) -> Object:
    """The Job after the API server has applied that patch."""
    return patched(made, await patch_of(made, api_with(*groups)), PatchKind.JSON)


async def test_the_size_is_set_wherever_someone_reads_it_and_nowhere_else() -> None:
    made = job(containers=told_size(4)["template"]["spec"]["containers"])
    answer = sorted(await patch_of(made, api_with(group(nodes=3))), key=lambda operation: str(operation["path"]))
    assert answer == [
        {"op": "add", "path": f"/metadata/annotations/{OURS.replace('/', '~1')}birth-settings", "value": "3"},
        {"op": "add", "path": f"/metadata/annotations/{OURS.replace('/', '~1')}nodes", "value": "3"},
        {"op": "replace", "path": "/spec/completions", "value": 3},
        {"op": "replace", "path": "/spec/parallelism", "value": 3},
        {"op": "add", "path": f"/spec/template/metadata/annotations/{OURS.replace('/', '~1')}nodes", "value": "3"},
        {"op": "replace", "path": "/spec/template/spec/containers/0/env/1/value", "value": "3"},
    ]


@pytest.mark.parametrize(("affinity", "expected"), AFFINITIES)
async def test_hosts_are_excluded_from_every_shape_of_affinity(affinity: Object | None, expected: Object) -> None:
    made = await after(job(affinity), group(avoidHosts=list(HOSTS)))
    assert made["spec"]["template"]["spec"]["affinity"] == expected
    assert (made["spec"]["parallelism"], made["metadata"]["annotations"][f"{OURS}birth-settings"]) == (4, "3")


NOT_FOR_IT = {
    "no group": [],
    "a group without settings": [group()],
    "one without a status": [{"metadata": {"name": "new", "namespace": "team", "labels": LABELS}}],
    "settings without the label": [group(nodes=3, labels={})],
    "those of another JobSet": [group(nodes=3, jobSetUID="set-2")],
    "those of another ReplicatedJob": [group(nodes=3, replicatedJob="launcher")],
    "those of another namespace": [group(nodes=3, namespace="other")],
}


@pytest.mark.parametrize("groups", NOT_FOR_IT.values(), ids=NOT_FOR_IT.keys())
async def test_without_settings_of_its_own_a_job_stays_as_it_is(groups: list[Object]) -> None:
    assert await patch_of(job(), api_with(*groups)) == []


async def test_of_several_groups_its_own_counts() -> None:
    made = await after(job(), group("other", nodes=1, jobSetUID="set-2"), group(nodes=3), group("empty"))
    assert made["spec"]["parallelism"] == 3


async def test_nothing_is_read_for_a_job_of_no_job_set() -> None:
    api, made = api_with(group(nodes=3)), job()
    made["metadata"]["labels"] = {}
    assert (await patch_of(made, api), api.requests) == ([], [])


async def test_each_job_costs_one_list_in_its_namespace() -> None:
    api = api_with(group(nodes=3))
    await patch_of(job(), api)
    [request] = api.requests
    assert (request.verb, request.resource, request.namespace) == ("list", RECOVERY_GROUPS, "team")


# --- never an obstacle ---------------------------------------------------------------------------------------------


def refuses(api: ObjectsApi) -> None:
    api.denied.add(("list", RECOVERY_GROUPS.plural))


def breaks(api: ObjectsApi) -> None:
    async def fail(request: ApiRequest) -> bytes:
        raise TryLaterError(f"{request}: connection refused")

    api.answer = fail  # type: ignore[method-assign]


def is_silent(api: ObjectsApi) -> None:
    async def wait(request: ApiRequest) -> bytes:
        await asyncio.Event().wait()
        raise AssertionError(f"{request}: unreachable")

    api.answer = wait  # type: ignore[method-assign]


@pytest.mark.parametrize("trouble", [refuses, breaks, is_silent])
async def test_a_job_whose_settings_cannot_be_read_in_time_is_created_as_it_is_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, trouble: Callable[[ObjectsApi], None]
) -> None:
    monkeypatch.setattr(births, "READ_SECONDS_MAX", 0.01)
    api = api_with(group(nodes=3))
    trouble(api)
    with capture_logs() as lines:
        assert await patch_of(job(), api) == []
    assert [(line["log_level"], line["namespace"]) for line in lines] == [("warning", "team")]


class HeldApi(ObjectsApi):
    """Answers each request only when the test allows it."""

    def __init__(self, *groups: Object) -> None:
        super().__init__()
        self.put(RECOVERY_GROUPS, *groups)
        self.turn = asyncio.Semaphore(0)

    async def answer(self, request: ApiRequest) -> bytes:
        await self.turn.acquire()
        return await super().answer(request)


async def asked(settings: SettingsAtBirth, jobs: int, namespace: str = "team") -> list[asyncio.Task[Any]]:
    tasks = [asyncio.create_task(settings.of_namespace(namespace)) for _ in range(jobs)]
    await asyncio.sleep(0)
    return tasks


async def test_jobs_that_are_created_at_once_share_a_list_that_is_newer_than_all_of_them() -> None:
    api = HeldApi()
    settings = SettingsAtBirth(api, StillClock())
    first = await asked(settings, 1)
    api.put(RECOVERY_GROUPS, group(nodes=3))
    others = await asked(settings, 50)
    assert len(api.requests) == 1
    for _ in range(2):
        api.turn.release()
    found = await asyncio.gather(*first, *others)
    assert [[each["nodes"] for each in settings] for settings in found[1:]] == [[3]] * 50
    assert len(api.requests) == 2
    assert settings._namespaces == {}, "nothing is kept of namespaces in which no Job is being created"


async def test_a_list_that_fails_is_shared_with_no_one() -> None:
    api = HeldApi(group(nodes=3))
    settings = SettingsAtBirth(api, StillClock())
    tasks = await asked(settings, 3)
    tasks[0].cancel()
    api.turn.release()
    found = await asyncio.gather(*tasks[1:])
    assert [[each["nodes"] for each in settings] for settings in found] == [[3]] * 2
    assert len(api.requests) == 2


async def test_lists_have_a_rate_and_above_it_jobs_are_created_as_they_are() -> None:
    api = api_with(group(nodes=3))
    settings = SettingsAtBirth(api, StillClock())
    at_once = int(births.LISTS_PER_SECOND_MAX)
    with capture_logs() as lines:
        found = [await settings.of_namespace("team") for _ in range(at_once + 5)]
    assert [len(each) for each in found] == [1] * at_once + [0] * 5
    assert len(api.requests) == at_once
    assert len(lines) == 1
