"""What the controller needs is checked before it starts. tests/unit/manifests compares the checks with the roles."""

import pytest
from structlog.testing import capture_logs

from recovery.cli.connection import CommandError, Connection
from recovery.cli.preflight import (
    OBSERVE,
    Permission,
    absent_resources,
    denied,
    install_words,
    permission_words,
)
from recovery.cli.run import check
from recovery.ports import JOB_SETS, JOBS, RECOVERY_GROUPS, RECOVERY_POLICIES, TRAIN_JOBS, Resource
from recovery.telemetry.observer import Telemetry
from tests.unit.cli.cluster import Middle, PlainCluster, StoppedClock


async def test_everything_is_there() -> None:
    cluster = PlainCluster()
    assert await absent_resources(cluster) == ()
    assert await denied(cluster, OBSERVE) == ()
    assert install_words(()) == ""


async def test_absent_resources_are_named_with_the_way_to_install_each() -> None:
    cluster = PlainCluster()
    cluster.absent = {"recoverypolicies", "recoverygroups", "trainjobs", "jobsets"}
    absent = await absent_resources(cluster)
    assert set(absent) == {RECOVERY_POLICIES, RECOVERY_GROUPS, TRAIN_JOBS, JOB_SETS}
    words = install_words(absent)
    assert "trainjobs.trainer.kubeflow.org, jobsets.jobset.x-k8s.io, recoverypolicies.recovery.trainjob.dev" in words
    assert words.endswith("install Kubeflow Trainer, install JobSet, kubectl apply --server-side -k manifests/crd")


@pytest.mark.parametrize(
    ("absent", "says"),
    [
        ((TRAIN_JOBS,), ""),
        ((JOB_SETS,), "jobsets.jobset.x-k8s.io; install JobSet"),
        (
            (TRAIN_JOBS, JOB_SETS),
            "trainjobs.trainer.kubeflow.org, jobsets.jobset.x-k8s.io; install Kubeflow Trainer, install JobSet",
        ),
        (
            (TRAIN_JOBS, RECOVERY_GROUPS),
            "recoverygroups.recovery.trainjob.dev; kubectl apply --server-side -k manifests/crd",
        ),
    ],
    ids=["trainer", "jobset", "both", "trainer-and-ours"],
)
def test_trainer_may_be_absent_where_jobset_is_there(absent: tuple[Resource, ...], says: str) -> None:
    assert install_words(absent) == (f"not installed in this cluster: {says}" if says else "")


async def test_a_resource_that_may_not_be_listed_is_not_absent() -> None:
    cluster = PlainCluster()
    cluster.denied = {("list", "recoverygroups")}
    assert await absent_resources(cluster) == ()


async def test_missing_permissions_are_named_by_verb_and_resource() -> None:
    cluster = PlainCluster()
    cluster.denied = {("patch", "recoverygroups/status"), ("watch", "pods"), ("list", "pods")}
    words = permission_words(await denied(cluster, OBSERVE))
    assert words == "list, watch pods; patch recoverygroups.recovery.trainjob.dev/status"


def test_permissions_of_one_resource_stand_together() -> None:
    permissions = (Permission("patch", JOBS), Permission("get", TRAIN_JOBS), Permission("delete", JOBS))
    assert permission_words(permissions) == "delete, patch jobs.batch; get trainjobs.trainer.kubeflow.org"


def connection(cluster: PlainCluster) -> Connection:
    return Connection(cluster, "https://plain", StoppedClock(), Middle())


async def test_the_controller_does_not_start_without_its_resources() -> None:
    cluster = PlainCluster()
    cluster.absent = {"recoveryincidents"}
    with pytest.raises(CommandError, match="not installed in this cluster: recoveryincidents"):
        await check(connection(cluster))


async def test_the_controller_does_not_start_without_its_permissions() -> None:
    cluster = PlainCluster()
    cluster.denied = {("create", "events")}
    with pytest.raises(CommandError, match=r"permissions are missing, in all namespaces .*: create events$"):
        await check(connection(cluster))


async def test_the_controller_starts_without_trainer_and_says_what_that_means() -> None:
    cluster = PlainCluster()
    cluster.absent = {"trainjobs"}
    # No role mentions a resource that is not installed.
    cluster.denied = {(verb, "trainjobs") for verb in ("get", "list", "watch", "patch")}
    with capture_logs() as lines:
        watched = await check(connection(cluster))
    assert [(line["log_level"], line["event"]) for line in lines] == [
        (
            "info",
            "Trainer is not installed: JobSets are watched, TrainJobs are not; restart the controller after installing "
            "it",
        )
    ]
    assert (TRAIN_JOBS in watched, JOB_SETS in watched) == (False, True)


async def test_with_trainer_its_jobs_are_watched_and_nothing_is_said() -> None:
    with capture_logs() as lines:
        assert TRAIN_JOBS in await check(connection(PlainCluster()))
    assert lines == []


async def test_the_controller_does_not_start_without_jobset() -> None:
    cluster = PlainCluster()
    cluster.absent = {"jobsets"}
    with pytest.raises(CommandError, match="not installed in this cluster: jobsets"):
        await check(connection(cluster))


@pytest.mark.parametrize("permission", OBSERVE, ids=lambda each: f"{each.verb}-{each.target}")
async def test_each_missing_permission_is_named_and_no_other(permission: Permission) -> None:
    cluster = PlainCluster()
    subresource = f"/{permission.subresource}" if permission.subresource else ""
    cluster.denied = {(permission.verb, f"{permission.resource.plural}{subresource}")}
    with pytest.raises(CommandError) as refusal:
        await check(connection(cluster))
    assert str(refusal.value).endswith(f": {permission.verb} {permission.target}")


async def test_what_is_missing_and_not_needed_for_a_start_is_exported() -> None:
    cluster = PlainCluster()
    cluster.denied = {("delete", "jobs"), ("patch", "nodes"), ("get", "leases")}
    telemetry = Telemetry(clock=StoppedClock(), version="1.2.3")
    await check(connection(cluster), None, telemetry)
    found = {
        (sample.labels["verb"], sample.labels["resource"])
        for family in telemetry.registry.collect()
        for sample in family.samples
        if sample.name == "recovery_missing_permissions"
    }
    assert found == {("delete", "jobs.batch"), ("patch", "nodes"), ("get", "leases.coordination.k8s.io")}


async def test_the_controller_starts_where_enforcing_is_withheld() -> None:
    cluster = PlainCluster()
    cluster.denied = {("delete", "jobs"), ("patch", "trainjobs"), ("patch", "jobsets/status")}
    with capture_logs() as lines:
        await check(connection(cluster))
    [line] = lines
    assert (line["log_level"], line["event"]) == ("warning", "policies in mode Enforce will be refused")
    assert line["missing_permissions"] == (
        "delete jobs.batch; patch trainjobs.trainer.kubeflow.org; patch jobsets.jobset.x-k8s.io/status"
    )
