"""The objects that the demo applies: the policy and the TrainJob, with this repository's joined-probe runtime."""

from enum import StrEnum

from recovery.core.model.config import CONFIG_NAME
from recovery.ports import RECOVERY_CONFIGS, RECOVERY_POLICIES, TRAIN_JOBS, Resource
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.kinds.trainjobs import CLUSTER_TRAINING_RUNTIMES
from recovery.sim.runtimes import joined_runtime

NAMESPACE = "team-a"
NAME = "llm"
TRAINING = f"{NAMESPACE}/{NAME}"
BUDGET_LIMIT = 5
BUDGET_WINDOW = "1h"
BACKOFF_INITIAL = "2s"
GRACE_SECONDS = 1
RESET_AFTER_SECONDS = 2
ASSUME_DEAD_AFTER = "1s"
JOBSET_RESTARTS = 10


class Restarter(StrEnum):
    """Who restarts the job as a whole when it has lost a member."""

    CONTROLLER = "controller"
    JOBSET = "JobSet"
    """JobSet restarts it by its failurePolicy when the Job has failed. With backoffLimit 0 the Job fails with its first
    pod."""
    NONE = "no restart"
    """The Job only replaces single pods."""


def objects(ranks: int, gpus_per_rank: int, restarter: Restarter) -> list[tuple[Resource, Body]]:
    """All objects, in the order of creation."""
    runtime = runtime_for(restarter)
    gpus = {"nvidia.com/gpu": str(gpus_per_rank)}
    trainer = {"numNodes": ranks, "resourcesPerNode": {"limits": gpus, "requests": dict(gpus)}}
    job = {
        "apiVersion": TRAIN_JOBS.api_version,
        "kind": TRAIN_JOBS.kind,
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {"runtimeRef": {"name": runtime["metadata"]["name"]}, "trainer": trainer},
    }
    of_user = [(CLUSTER_TRAINING_RUNTIMES, runtime), (TRAIN_JOBS, job)]
    if restarter is not Restarter.CONTROLLER:
        return of_user
    return [(RECOVERY_CONFIGS, config()), (RECOVERY_POLICIES, policy()), *of_user]


def runtime_for(restarter: Restarter) -> Body:
    """The same runtime for every restarter, apart from the failurePolicy and backoffLimit for JobSet."""
    runtime = joined_runtime()
    if restarter is Restarter.JOBSET:
        jobset = runtime["spec"]["template"]["spec"]
        jobset["failurePolicy"] = {"maxRestarts": JOBSET_RESTARTS}
        jobset["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] = 0
    return runtime


def config() -> Body:
    """Allows policies to assume that a silent node is dead."""
    return {
        "apiVersion": RECOVERY_CONFIGS.api_version,
        "kind": RECOVERY_CONFIGS.kind,
        "metadata": {"name": CONFIG_NAME},
        "spec": {"allow": {"assumeDead": True}},
    }


def policy() -> Body:
    """Mode Enforce. After three short incidents, the budget leaves two recoveries for the crash loop."""
    return {
        "apiVersion": RECOVERY_POLICIES.api_version,
        "kind": RECOVERY_POLICIES.kind,
        "metadata": {"name": "demo", "namespace": NAMESPACE},
        "spec": {
            "mode": "Enforce",
            "budget": {"limit": BUDGET_LIMIT, "window": BUDGET_WINDOW},
            # The reset is shorter than the pause between incidents, so only the crash loop raises the backoff.
            "backoff": {"initial": BACKOFF_INITIAL, "max": "8s", "resetAfter": f"{RESET_AFTER_SECONDS}s"},
            "teardown": {
                "graceSeconds": GRACE_SECONDS,
                "fencing": {"mode": "AssumeDead", "assumeDeadAfter": ASSUME_DEAD_AFTER},
            },
        },
    }
