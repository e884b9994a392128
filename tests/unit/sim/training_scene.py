"""A training of modelled ranks, bound to nodes one by one."""

from contextlib import AbstractAsyncContextManager

from recovery.sim.training.rounds import TrainingSettings
from recovery.sim.training.training import TrainingWorld
from tests.unit.sim.cluster import AT_ONCE, QUICK, Cluster, cluster

NAME = "default/llm"


SETTINGS = TrainingSettings(
    step_seconds=1.0,
    checkpoint_every_steps=10,
    nccl_timeout_seconds=60.0,
    nccl_jitter_seconds=5.0,
    join_timeout_seconds=100.0,
    term_seconds=0.5,
    initializer_seconds=3.0,
)


Training = Cluster[TrainingWorld]


def training_cluster(settings: TrainingSettings = SETTINGS, nodes: int = 4) -> AbstractAsyncContextManager[Training]:
    return cluster(lambda api, clock, entropy: TrainingWorld(api, clock, entropy, settings), AT_ONCE, nodes)


async def bind_rank(
    c: Training,
    index: int,
    *,
    job: str = "llm-node-0",
    size: str = "4",
    suffix: str = "a",
    jobs: str = "1",
    probe_seconds: int | None = None,
    **details: str,
) -> str:
    """Bind a pod of the training `llm`, as Trainer and JobSet make it, to the node of its index."""
    name = f"{job}-{index}-{suffix}"
    await c.bind(
        name,
        node=f"node-{index}",
        job=job,
        index=index,
        env={"PET_NNODES": size} if size else {},
        labels={
            "jobset.sigs.k8s.io/jobset-name": "llm",
            "jobset.sigs.k8s.io/replicatedjob-name": "node",
            "jobset.sigs.k8s.io/global-replicas": jobs,
        },
        probe_seconds=probe_seconds,
        **{"restart_policy": "OnFailure", **details},
    )
    return name


async def bind_group(
    c: Training, pods: int = 4, *, job: str = "llm-node-0", probe_seconds: int | None = None, **details: str
) -> list[str]:
    names = [await bind_rank(c, index, job=job, probe_seconds=probe_seconds, **details) for index in range(pods)]
    await c.pass_seconds(QUICK)
    return names
