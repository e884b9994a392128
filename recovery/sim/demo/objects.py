"""What the demo's user applies: the policy and the TrainJob, on this repository's own joined-probe runtime."""

from recovery.ports import RECOVERY_POLICIES, TRAIN_JOBS, Resource
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.kinds.trainjobs import CLUSTER_TRAINING_RUNTIMES
from recovery.sim.runtimes import joined_runtime

NAMESPACE = "team-a"
NAME = "llm"
TRAINING = f"{NAMESPACE}/{NAME}"
BUDGET_LIMIT = 4
BUDGET_WINDOW = "1h"
BACKOFF_INITIAL = "2s"
GRACE_SECONDS = 1
RESET_AFTER_SECONDS = 2


def objects(ranks: int, gpus_per_rank: int) -> list[tuple[Resource, Body]]:
    """In the order in which they are made."""
    runtime = joined_runtime()
    gpus = {"nvidia.com/gpu": str(gpus_per_rank)}
    trainer = {"numNodes": ranks, "resourcesPerNode": {"limits": gpus, "requests": dict(gpus)}}
    job = {
        "apiVersion": TRAIN_JOBS.api_version,
        "kind": TRAIN_JOBS.kind,
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {"runtimeRef": {"name": runtime["metadata"]["name"]}, "trainer": trainer},
    }
    return [(CLUSTER_TRAINING_RUNTIMES, runtime), (RECOVERY_POLICIES, policy()), (TRAIN_JOBS, job)]


def policy() -> Body:
    """Enforce; after two short incidents half of the budget is left for the crash loop."""
    return {
        "apiVersion": RECOVERY_POLICIES.api_version,
        "kind": RECOVERY_POLICIES.kind,
        "metadata": {"name": "demo", "namespace": NAMESPACE},
        "spec": {
            "mode": "Enforce",
            "budget": {"limit": BUDGET_LIMIT, "window": BUDGET_WINDOW},
            # A reset shorter than the pause between the incidents: only the crash loop is in a row.
            "backoff": {"initial": BACKOFF_INITIAL, "max": "8s", "resetAfter": f"{RESET_AFTER_SECONDS}s"},
            "teardown": {"graceSeconds": GRACE_SECONDS},
        },
    }
