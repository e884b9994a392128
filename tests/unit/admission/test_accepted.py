"""The condition Accepted is set on every object, written only where it differs, and nothing else is changed."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from recovery.admission.accepted import Register
from recovery.admission.objects import from_request
from recovery.admission.verdict import AdmissionVerdict
from recovery.ports import RECOVERY_POLICIES, ForbiddenError
from tests.unit.admission.api import Key, PolicyApi, StillClock, recovery_config, recovery_policy
from tests.unit.fake_api import Object
from tests.unit.patience import GUARD_SECONDS

POLICY: Key = ("recoverypolicies", "team", "default")
CONFIG: Key = ("recoveryconfigs", "", "default")


@asynccontextmanager
async def keeping(api: PolicyApi, clock: StillClock | None = None) -> AsyncIterator[Register]:
    """Run one replica."""
    register = Register(api, clock=clock or StillClock(), entropy=random.Random(1))
    works = [informer.run() for informer in register.informers.values()]
    tasks = [asyncio.create_task(work) for work in (*works, register.keep_conditions())]
    try:
        yield register
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def comes(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(GUARD_SECONDS):
        while not holds():
            await asyncio.sleep(0)


async def rest() -> None:
    """Yield long enough for all work under way to end."""
    for _ in range(200):
        await asyncio.sleep(0)


def condition(api: PolicyApi, key: Key = POLICY) -> Object:
    conditions = api.object(key).get("status", {}).get("conditions", [])
    return next((dict(each) for each in conditions if each["type"] == "Accepted"), {})


async def test_what_was_there_before_gets_its_condition_at_the_start() -> None:
    api = PolicyApi(recovery_policy(), recovery_policy("base", ""), recovery_config())
    async with keeping(api):
        await comes(lambda: len(api.patches) == 3)
    assert condition(api) == {
        "type": "Accepted",
        "status": "True",
        "reason": "Accepted",
        "message": "",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-03-01T12:00:00Z",
    }
    assert condition(api, CONFIG)["status"] == "True"
    assert condition(api, ("clusterrecoverypolicies", "", "base"))["status"] == "True"


async def test_what_slipped_past_the_webhook_is_refused_in_its_status() -> None:
    api = PolicyApi()
    async with keeping(api):
        api.store(recovery_policy(budget={"limit": -1, "window": "7d"}))
        await comes(lambda: bool(condition(api)))
    assert (condition(api)["status"], condition(api)["reason"]) == ("False", "Refused")
    assert condition(api)["message"].startswith(
        "spec.budget.limit: -1 is negative; 0 allows only recoveries that use no budget; spec.b"
    )


async def test_neither_spec_nor_metadata_nor_other_conditions_are_touched() -> None:
    theirs = {"type": "Reviewed", "status": "True", "reason": "ByHand", "message": "", "approvedBy": "ann"}
    found = recovery_policy(mode="Enforce")
    found["status"] = {"observedGeneration": 7, "conditions": [theirs]}
    api = PolicyApi(found)
    async with keeping(api):
        await comes(lambda: bool(condition(api)))
        api.store({**api.object(POLICY), "spec": {"budget": {"limit": -1}}})
        await comes(lambda: condition(api)["status"] == "False")
    assert api.object(POLICY)["status"]["conditions"][0] == theirs
    assert api.object(POLICY)["status"]["observedGeneration"] == 7
    for _, operations in api.patches:
        assert operations[0]["op"] == "test"
        assert operations[0]["path"] == "/metadata/resourceVersion"
        assert [operation["path"].split("/")[1] for operation in operations[1:]] == ["status"]


async def test_a_status_without_conditions_gets_them() -> None:
    found = recovery_policy()
    found["status"] = {"observedGeneration": 1}
    api = PolicyApi(found)
    async with keeping(api):
        await comes(lambda: bool(condition(api)))
    assert api.object(POLICY)["status"]["observedGeneration"] == 1


async def test_what_is_said_already_is_not_written_again() -> None:
    api = PolicyApi(recovery_policy())
    async with keeping(api):
        await comes(lambda: bool(condition(api)))
    async with keeping(api):
        await rest()
    assert len(api.writes) == 1


async def test_the_time_is_that_of_the_last_change_of_status() -> None:
    api, clock = PolicyApi(recovery_policy()), StillClock()
    async with keeping(api, clock):
        await comes(lambda: bool(condition(api)))
        clock.time += timedelta(minutes=5)
        changed: dict[str, Any] = {**api.object(POLICY), "spec": {"priority": 1}}
        changed["metadata"]["generation"] = 2
        api.store(changed)
        await comes(lambda: condition(api)["observedGeneration"] == 2)
        assert condition(api)["lastTransitionTime"] == "2026-03-01T12:00:00Z"
        api.store({**api.object(POLICY), "spec": {"budget": {"limit": -1}}})
        await comes(lambda: condition(api)["status"] == "False")
        assert condition(api)["lastTransitionTime"] == "2026-03-01T12:05:00Z"


async def test_a_policy_is_judged_again_when_another_object_changes() -> None:
    api = PolicyApi(recovery_policy(mode="Enforce", budget={"onExhausted": "FailJob"}))
    async with keeping(api):
        await comes(lambda: "is not allowed in this cluster" in condition(api).get("message", ""))
        api.store(recovery_config(allow={"failJob": True}))
        await comes(lambda: condition(api)["message"] == "")
        api.store(recovery_policy("twin", "elsewhere"))
        api.store(recovery_policy("twin"))
        await comes(lambda: "RecoveryPolicy team/twin has the same" in condition(api)["message"])
        api.remove(*CONFIG)
        await comes(lambda: "is not allowed in this cluster" in condition(api)["message"])


async def test_before_all_is_known_only_the_object_itself_is_judged() -> None:
    register = Register(PolicyApi(), clock=StillClock(), entropy=random.Random(1))
    fails_jobs = recovery_policy(mode="Enforce", budget={"onExhausted": "FailJob"})
    assert register.judge(from_request(RECOVERY_POLICIES, fails_jobs)) == AdmissionVerdict()
    [error] = register.judge(from_request(RECOVERY_POLICIES, recovery_policy(budget={"limit": -1}))).errors
    assert error.startswith("spec.budget.limit")


async def test_a_policy_that_is_being_deleted_is_left_alone() -> None:
    found = recovery_policy(budget={"limit": -1})
    found["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    api = PolicyApi(found)
    async with keeping(api):
        await rest()
    assert len(api.writes) == 0


async def test_two_replicas_write_a_condition_once() -> None:
    api = PolicyApi(recovery_policy(), recovery_config())
    async with keeping(api), keeping(api):
        await comes(lambda: bool(condition(api)) and bool(condition(api, CONFIG)))
        await rest()
    assert len(api.patches) == 2


async def test_a_replica_of_another_version_is_contradicted_once_and_not_for_ever() -> None:
    api = PolicyApi(recovery_policy())
    async with keeping(api):
        await comes(lambda: bool(condition(api)))
        for _ in range(3):
            other = dict(api.object(POLICY))
            other["status"] = {"conditions": [{**condition(api), "message": "in other words"}]}
            api.store(other)
            await rest()
        assert condition(api)["message"] == "in other words"
        assert len(api.patches) == 1
        gone = {key: value for key, value in api.object(POLICY).items() if key != "status"}
        api.store(gone)
        await comes(lambda: condition(api).get("message") == "")


async def test_a_write_that_is_refused_is_tried_again_later() -> None:
    api, clock = PolicyApi(recovery_policy()), StillClock()
    api.next("patch", RECOVERY_POLICIES, ForbiddenError("cannot patch recoverypolicies/status", status=403), times=2)
    async with keeping(api, clock):
        for _ in range(2):
            async with asyncio.timeout(GUARD_SECONDS):
                await clock.sleeping.wait()
            assert not condition(api)
            clock.wake()
        await comes(lambda: bool(condition(api)))
    assert len(api.writes) == 3
