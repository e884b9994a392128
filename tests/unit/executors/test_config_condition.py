"""The condition of the RecoveryConfig that says that a controller holds for another one."""

import pytest

from recovery.core.model.writer_lease import WriterLease
from recovery.executors import config_condition
from recovery.ports import RECOVERY_CONFIGS, ConflictError
from tests.unit.core.world import at
from tests.unit.fake_api import Object, ObjectsApi

OURS = WriterLease("recovery-system", "lease-b", at(0), 15)
OLDER = WriterLease("ml-infra", "lease-a", at(-3600), 15)
ACCEPTED = {"type": "Accepted", "status": "True", "reason": "Accepted", "message": ""}
HOLDS = config_condition.holds(OURS, OLDER, at(60))
STALE = ConflictError("the object has been modified", status=409)


def api_with(*conditions: Object) -> ObjectsApi:
    api = ObjectsApi()
    metadata = {"name": "default", "uid": "config", "resourceVersion": "7", "generation": 3}
    api.put(RECOVERY_CONFIGS, {"metadata": metadata, "status": {"conditions": list(conditions)}})
    return api


def types(api: ObjectsApi) -> list[str]:
    found = api.find(RECOVERY_CONFIGS.plural, "", "default")
    assert found is not None
    return [each["type"] for each in found["status"]["conditions"]]


async def test_it_is_set_and_removed_beside_the_others() -> None:
    api = api_with(ACCEPTED)
    await config_condition.write(api, HOLDS)
    assert types(api) == ["Accepted", "SecondInstallation"]
    await config_condition.write(api, HOLDS)
    assert types(api) == ["Accepted", "SecondInstallation"]
    assert api.applied[-1].body["status"]["conditions"][1]["observedGeneration"] == 3
    await config_condition.write(api, None)
    assert types(api) == ["Accepted"]


async def test_its_message_names_both_leases() -> None:
    assert HOLDS.message.startswith("The controller of the Lease of namespace recovery-system, created at ")
    assert "that of the older Lease of namespace ml-infra, created at " in HOLDS.message


async def test_nothing_is_written_where_there_is_nothing_to_remove() -> None:
    api = api_with(ACCEPTED)
    await config_condition.write(api, None)
    assert api.writes == []


async def test_without_a_recovery_config_there_is_no_condition() -> None:
    api = ObjectsApi()
    await config_condition.write(api, HOLDS)
    assert api.writes == []


async def test_a_conflict_is_tried_again_a_few_times() -> None:
    api = api_with()
    api.next("patch", RECOVERY_CONFIGS, STALE, times=2)
    await config_condition.write(api, HOLDS)
    assert types(api) == ["SecondInstallation"]
    api.next("patch", RECOVERY_CONFIGS, STALE, times=3)
    with pytest.raises(ConflictError):
        await config_condition.write(api, HOLDS)
