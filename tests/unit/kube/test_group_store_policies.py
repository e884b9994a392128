"""The user's settings: policies of the namespace and of the cluster, and the RecoveryConfig."""

from collections.abc import Callable

import msgspec
import pytest

from recovery.core.model.config import ConfigFacts
from recovery.core.policy.selection import PolicySet
from recovery.ports import (
    CLUSTER_RECOVERY_POLICIES,
    RECOVERY_CONFIGS,
    RECOVERY_POLICIES,
    TRAIN_JOBS,
    Resource,
)
from tests.unit.kube.store_world import (
    Body,
    World,
    cluster_policy,
    config,
    load,
)
from tests.unit.kube.testing import message


@pytest.mark.parametrize(
    ("resource", "body"), [(CLUSTER_RECOVERY_POLICIES, cluster_policy), (RECOVERY_CONFIGS, config)]
)
async def test_what_is_laid_down_for_the_cluster_is_reported_to_every_group(
    world: World, resource: Resource, body: Callable[[], Body]
) -> None:
    other = load("trainjob")
    other["metadata"] |= {"namespace": "elsewhere", "uid": "other"}
    await world.tell(TRAIN_JOBS, other)
    assert await world.tell(resource, body()) == {"default/llm": 1, "elsewhere/llm": 1}
    assert await world.tell(resource, body(), type_="DELETED") == {"default/llm": 1, "elsewhere/llm": 1}


async def test_the_policies_of_a_namespace_are_its_own_and_the_clusters(world: World) -> None:
    await world.tell(RECOVERY_POLICIES, load("recoverypolicy"))
    await world.tell(CLUSTER_RECOVERY_POLICIES, cluster_policy())
    await world.tell(RECOVERY_CONFIGS, config(paused=True, pauseReason="maintenance"))
    mine, others = world.store.policies("default"), world.store.policies("elsewhere")
    assert [policy.title for policy in mine.policies] == [
        "RecoveryPolicy default/standard",
        "ClusterRecoveryPolicy everywhere",
    ]
    assert [policy.title for policy in others.policies] == ["ClusterRecoveryPolicy everywhere"]
    assert mine.config is not None
    assert mine.config == others.config
    assert message(mine.config.pause) == "RecoveryConfig default pauses all recoveries: maintenance"
    await world.tell(CLUSTER_RECOVERY_POLICIES, cluster_policy(), type_="DELETED")
    await world.tell(RECOVERY_CONFIGS, config(), type_="DELETED")
    assert world.store.policies("elsewhere") == PolicySet()


async def test_a_status_that_records_what_was_known_wakes_no_group(world: World) -> None:
    """The controller writes it after each switch of the mode, and a policy of the cluster governs every group."""
    policy = cluster_policy()
    await world.tell(CLUSTER_RECOVERY_POLICIES, policy)
    [known] = world.store.policies("default").policies
    status = msgspec.to_builtins(known.enforcement)
    assert await world.tell(CLUSTER_RECOVERY_POLICIES, policy | {"status": status}) == {}
    [recorded] = world.store.policies("default").policies
    assert recorded.recorded == known.enforcement, "and the store has it"
    other = status | {"enforcedSince": "2099-01-01T00:00:00Z"}
    assert await world.tell(CLUSTER_RECOVERY_POLICIES, policy | {"status": other}) == {"default/llm": 1}


async def test_a_config_that_cannot_be_read_is_never_forgotten(world: World) -> None:
    await world.tell(RECOVERY_CONFIGS, config(), config(paused="yes"))
    found = world.store.policies("default").config
    assert found is not None
    assert "cannot be read" in message(found.pause)
    problem = "Expected `bool`, got `str` - at `$.spec.paused`"
    assert world.observed.unreadable == [("recoveryconfigs", "default", problem)]
    await world.tell(RECOVERY_CONFIGS, config())
    assert world.store.policies("default").config == ConfigFacts(
        "default", "c-1", 1, resource_version=str(world.version)
    )


async def test_a_config_of_another_name_governs_nothing(world: World) -> None:
    stray = config(paused=True)
    stray["metadata"] |= {"name": "strict", "uid": "c-2"}
    assert await world.tell(RECOVERY_CONFIGS, config(), stray) == {"default/llm": 1}
    assert await world.tell(RECOVERY_CONFIGS, stray, type_="DELETED") == {}
    found = world.store.policies("default").config
    assert found is not None
    assert not found.spec.paused
    assert world.observed.unreadable == [
        ("recoveryconfigs", "strict", "is ignored: the RecoveryConfig is called default")
    ]


@pytest.mark.parametrize(
    ("resource", "body", "name"),
    [
        (RECOVERY_POLICIES, lambda: load("recoverypolicy"), "default/standard"),
        (CLUSTER_RECOVERY_POLICIES, cluster_policy, "everywhere"),
    ],
)
async def test_a_policy_that_cannot_be_read_is_reported_and_allows_nothing(
    world: World, resource: Resource, body: Callable[[], Body], name: str
) -> None:
    await world.tell(resource, body())
    assert len(world.store.policies("default").policies) == 1
    broken = body()
    broken["spec"]["mode"] = "Automatic"
    await world.tell(resource, broken)
    assert world.store.policies("default") == PolicySet()
    assert world.observed.unreadable == [(resource.plural, name, "Invalid enum value 'Automatic' - at `$.spec.mode`")]
    await world.tell(resource, body())
    assert len(world.store.policies("default").policies) == 1
