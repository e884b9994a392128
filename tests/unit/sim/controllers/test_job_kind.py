"""The defaults that the server sets in a Job, and what it refuses."""

from typing import Any

import pytest

from recovery.ports import JOBS
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.status_error import StatusError
from recovery.sim.virtual_time import virtual_time
from tests.unit.sim.controllers.job_world import JobWorld, job

BEGAN = "2026-11-02T08:00:00Z"


def _world() -> JobWorld:
    return JobWorld(per_second=20)


def _refusal(spec: dict[str, Any]) -> list[str]:
    with pytest.raises(StatusError) as refused:
        _world().create(**spec)
    assert refused.value.code == 422
    return [cause.field for cause in refused.value.causes]


@virtual_time
async def test_a_job_gets_the_defaults_of_the_api() -> None:
    body = job("train")
    for field in ("parallelism", "completions", "completionMode"):
        del body["spec"][field]
    created = _world().server.create(JOBS, body)
    spec = {key: value for key, value in created["spec"].items() if key not in {"template", "selector"}}
    assert spec == {
        "parallelism": 1,
        "completions": 1,
        "completionMode": "NonIndexed",
        "backoffLimit": 6,
        "suspend": False,
        "manualSelector": False,
        "podReplacementPolicy": "TerminatingOrFailed",
    }
    uid = created["metadata"]["uid"]
    assert created["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert created["metadata"]["labels"] == {"team": "blue"}
    assert created["metadata"]["generation"] == 1


@virtual_time
async def test_defaults_depend_on_the_policies() -> None:
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    created = _world().create(backoffLimitPerIndex=1, podFailurePolicy={"rules": [rule]})
    assert created["spec"]["backoffLimit"] == 2**31 - 1
    assert created["spec"]["podReplacementPolicy"] == "Failed"
    patterns = created["spec"]["podFailurePolicy"]["rules"][0]["onPodConditions"]
    assert patterns == [{"type": "DisruptionTarget", "status": "True"}]


def _codes(**more: Any) -> Body:
    return {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1], **more}}


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"backoffLimit": -1}, ["spec.backoffLimit"]),
        ({"completions": None}, ["spec.completions"]),
        ({"restart_policy": "Always"}, ["spec.template.spec.restartPolicy"]),
        (
            {"restart_policy": "OnFailure", "podFailurePolicy": {"rules": [_codes()]}},
            ["spec.template.spec.restartPolicy"],
        ),
        (
            {"podFailurePolicy": {"rules": [_codes()]}, "podReplacementPolicy": "TerminatingOrFailed"},
            ["spec.podReplacementPolicy"],
        ),
        ({"indexed": False, "backoffLimitPerIndex": 1}, ["spec.backoffLimitPerIndex"]),
        ({"maxFailedIndexes": 1}, ["spec.backoffLimitPerIndex"]),
        (
            {"podFailurePolicy": {"rules": [{**_codes(), "action": "FailIndex"}]}},
            ["spec.podFailurePolicy.rules[0].action"],
        ),
        (
            {"podFailurePolicy": {"rules": [_codes(values=[2, 1])]}},
            ["spec.podFailurePolicy.rules[0].onExitCodes.values"],
        ),
        (
            {"podFailurePolicy": {"rules": [_codes(values=[0, 1])]}},
            ["spec.podFailurePolicy.rules[0].onExitCodes.values[0]"],
        ),
        (
            {"podFailurePolicy": {"rules": [_codes(containerName="other")]}},
            ["spec.podFailurePolicy.rules[0].onExitCodes.containerName"],
        ),
        ({"podFailurePolicy": {"rules": [{"action": "FailJob"}]}}, ["spec.podFailurePolicy.rules[0]"]),
        ({"successPolicy": {"rules": []}}, ["spec.successPolicy.rules"]),
        ({"successPolicy": {"rules": [{"succeededCount": 3}]}}, ["spec.successPolicy.rules[0].succeededCount"]),
        *(
            (
                {"successPolicy": {"rules": [{"succeededIndexes": text}]}},
                ["spec.successPolicy.rules[0].succeededIndexes"],
            )
            for text in ("2", "0-2", "1-0", "1,1", "a", "0-", "0-0-1", "0,", "1-1")
        ),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused(spec: dict[str, Any], fields: list[str]) -> None:
    @virtual_time
    async def refused() -> None:
        assert _refusal(spec) == fields

    refused()


@virtual_time
async def test_completions_change_together_with_parallelism_only() -> None:
    world = _world()
    world.create(pods=4)
    world.patch(parallelism=3, completions=3)
    with pytest.raises(StatusError, match=r"can only be modified in tandem with spec\.parallelism"):
        world.patch(completions=2)
    world.patch(parallelism=2)
    assert world.job()["spec"]["completions"] == 3
    assert world.job()["metadata"]["generation"] == 3


@virtual_time
async def test_completions_of_a_job_without_indexes_do_not_change() -> None:
    world = _world()
    world.create(indexed=False, pods=4)
    with pytest.raises(StatusError, match="field is immutable"):
        world.patch(parallelism=3, completions=3)


@virtual_time
async def test_what_may_change_and_what_not() -> None:
    world = _world()
    world.create()
    world.patch(backoffLimit=7, activeDeadlineSeconds=60, suspend=True)
    world.patch(suspend=False)
    changes: list[tuple[str, Any]] = [
        ("completionMode", "NonIndexed"),
        ("podFailurePolicy", {"rules": [_codes()]}),
        ("selector", {"matchLabels": {"team": "blue"}}),
        ("template", {"spec": {"nodeSelector": {"zone": "b"}}}),
    ]
    for field, value in changes:
        with pytest.raises(StatusError) as refused:
            world.patch(**{field: value})
        assert f"spec.{field}" in [cause.field for cause in refused.value.causes]


@virtual_time
async def test_where_pods_may_go_changes_while_the_job_is_suspended() -> None:
    world = _world()
    world.create(suspend=True)
    world.patch(template={"metadata": {"labels": {"zone": "b"}}, "spec": {"nodeSelector": {"zone": "b"}}})
    with pytest.raises(StatusError, match="field is immutable"):
        world.patch(template={"spec": {"restartPolicy": "OnFailure"}})


@virtual_time
async def test_only_a_job_that_has_a_start_time_can_finish() -> None:
    world = _world()
    world.create(suspend=True)
    ended = [{"type": kind, "status": "True"} for kind in ("FailureTarget", "Failed")]
    with pytest.raises(StatusError, match="startTime is required for finished job"):
        world.set_job_status(conditions=ended)
    world.set_job_status(conditions=ended, startTime=BEGAN)


@virtual_time
async def test_a_suspended_job_may_lose_its_start_time_and_a_resumed_one_gets_another() -> None:
    world = _world()
    world.create(suspend=True)
    suspended = [{"type": "Suspended", "status": "True"}]
    world.set_job_status(conditions=suspended, startTime=BEGAN)
    world.set_job_status(conditions=suspended, startTime=None)
    world.set_job_status(conditions=suspended, startTime=BEGAN)
    world.patch(suspend=False)
    world.set_job_status(conditions=[{"type": "Suspended", "status": "False"}], startTime="2026-11-02T09:00:00Z")


@virtual_time
async def test_a_status_that_takes_back_an_end_or_skips_a_step_is_refused() -> None:
    world = _world()
    world.create()

    def write(*conditions: str, **status: Any) -> None:
        met = [{"type": kind, "status": "True"} for kind in conditions]
        world.set_job_status(**{"conditions": met, "startTime": BEGAN, **status})

    with pytest.raises(StatusError, match="without the FailureTarget=true condition"):
        write("Failed")
    write("FailureTarget", failed=2)
    with pytest.raises(StatusError, match="cannot decrease the failed counter"):
        write("FailureTarget", failed=1)
    with pytest.raises(StatusError, match="terminating>0 is invalid for finished job"):
        write("FailureTarget", "Failed", terminating=1)
    with pytest.raises(StatusError, match="field is immutable for unsuspended job once set"):
        write("FailureTarget", "Failed", startTime="2026-11-02T09:00:00Z")
    write("FailureTarget", "Failed")
    with pytest.raises(StatusError, match="cannot disable the terminal Failed=True condition"):
        write("FailureTarget")
