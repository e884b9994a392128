"""The joined probe on a real control plane. Ready means "this rank has met all the others", and so ends a recovery.

Modelled kubelets and a modelled training run the probe of policies/runtime-joined-probe.yaml, as docs/joined-probe.md
describes it.
"""

import asyncio
from datetime import datetime, timedelta

import pytest
import yaml

from recovery import api_verbs
from recovery.core.model.annotations import JOINED_PROBE_ANNOTATION
from recovery.ports import JOBS, PODS, Propagation
from recovery.sim.training.rounds import RankState
from tests.cluster.acts import lose, running_pods
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controller_record import has_reconciled, recovery, workload_writes
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import REPOSITORY, Fleet, Job, Object
from tests.cluster.verdict import moment

PREPARED = "torch-recoverable-joined"
RANKS = 3
LATE = timedelta(seconds=15)


def ready_since(pod: Object) -> datetime | None:
    """None: the pod is not Ready."""
    found = next((each for each in pod["status"].get("conditions", []) if each["type"] == "Ready"), None)
    return moment(found["lastTransitionTime"]) if found and found["status"] == "True" else None


async def all_ready(job: Job) -> list[Object]:
    """Wait until every rank has a Ready pod; returns the pods."""
    async with asyncio.timeout(GUARD_SECONDS):
        while True:
            pods = await running_pods(job)
            if len(pods) == job.ranks and all(ready_since(pod) for pod in pods):
                return pods
            await asyncio.sleep(0.05)


async def runs_again(job: Job, rank: int, old: str) -> Object:
    """Wait until the replacement of the lost pod runs; returns it."""
    async with asyncio.timeout(GUARD_SECONDS):
        while True:
            for pod in await running_pods(job):
                name = pod["metadata"]["name"]
                if name.startswith(f"{job.child}-{rank}-") and name != old:
                    return pod
            await asyncio.sleep(0.05)


async def test_trainer_and_jobset_hand_annotation_and_probe_on_to_the_pods(training: StartsTraining) -> None:
    job = await training(runtime=PREPARED, ranks=RANKS, gpus=1, with_policy=False)
    runtime = yaml.safe_load((REPOSITORY / "policies" / "runtime-joined-probe.yaml").read_text())
    [replicated_job] = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    [given] = replicated_job["template"]["spec"]["template"]["spec"]["containers"]
    pods = await job.pods()
    assert len(pods) == RANKS
    for pod in pods:
        assert pod["metadata"]["annotations"][JOINED_PROBE_ANNOTATION] == "readiness"
        [container] = pod["spec"]["containers"]
        defaults = {"timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3}
        assert container["readinessProbe"] == given["readinessProbe"] | defaults
    services = await job.get("services")
    assert [service["spec"].get("publishNotReadyAddresses") for service in services["items"]] == [True]


async def test_no_pod_is_ready_while_one_rank_is_kept_from_starting(
    training: StartsTraining, fleet: Fleet, namespace: str
) -> None:
    fleet.kubelets.delay_start("llm-node-0-1-", LATE.total_seconds(), namespace=namespace)
    job = await training(runtime=PREPARED, ranks=RANKS, gpus=1, with_policy=False)
    pods = await all_ready(job)

    [formed] = fleet.world.rounds(job.training)
    whole_second = formed.formed_at.replace(microsecond=0)
    began = [moment(pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]) for pod in pods]
    assert sum(formed.formed_at - at > LATE / 2 for at in began) == RANKS - 1, "the others ran long before they had met"
    assert [since for since in map(ready_since, pods) if since is None or since < whole_second] == []


@pytest.mark.central
async def test_an_incident_closes_when_all_have_joined_and_says_how_it_knows(
    training: StartsTraining, controller: StartsController, installed: ControlPlane
) -> None:
    job = await training(runtime=PREPARED, ranks=RANKS, gpus=1)
    async with controller():
        job.fleet.kubelets.delay_start(f"{job.child}-2-", LATE.total_seconds(), namespace=job.namespace)
        await lose(job, 1)
        [closed] = await job.closed_incidents(1)
        kubeconfig = ("--kubeconfig", str(installed.kubeconfig))
        told = await recovery("explain", "llm", "-n", job.namespace, "--incident", closed["id"], *kubeconfig)
        ready = [since for since in map(ready_since, await all_ready(job)) if since is not None]

    formed = job.fleet.world.rounds(job.training)[-1]
    assert len(job.fleet.world.rounds(job.training)) == 2
    assert (closed["outcome"], closed["source"], closed["verified"]) == ("Recovered", "joined-probe", True)
    ended_at = moment(closed["endedAt"])
    assert formed.formed_at <= ended_at
    assert max(ready) <= ended_at <= max(ready) + timedelta(seconds=1), "the API dates Ready in whole seconds"
    assert told.exit_code == 0
    assert f"all {RANKS} ranks have joined (source: joined-probe, verified: true)" in told.out


async def test_a_hold_does_not_end_by_a_replacement_that_runs_but_cannot_join_ranks_that_hang(
    training: StartsTraining, controller: StartsController, proxy: ApiProxy
) -> None:
    """Nor does it without the probe, as the job `beside` shows: the ranks that hang have met the lost one."""
    job = await training(name="probed", runtime=PREPARED, ranks=RANKS, gpus=1, budget={"limit": 0})
    beside = await training(name="beside", ranks=RANKS, gpus=1, with_policy=False)
    async with controller() as process:
        await asyncio.gather(*(is_held_with_a_replacement_that_runs(each) for each in (job, beside)))
        await has_reconciled(process, job, beside)
        for each in (job, beside):
            ledger = await each.ledger()
            assert (ledger["phase"], ledger.get("history", [])) == ("Held", [])
            assert each.fleet.world.ranks(each.training) == {RankState.HUNG: RANKS - 1, RankState.WAITING: 1}
        unready = [pod["metadata"]["name"] for pod in await running_pods(job) if ready_since(pod) is None]
        assert unready == [await job.pod_of_rank(1)]

        await restart_by_hand(job)
        [closed] = await job.closed_incidents(1)
    assert (closed["outcome"], closed["source"], closed["verified"]) == ("Recovered", "joined-probe", True)
    assert moment(closed["endedAt"]) >= job.fleet.world.rounds(job.training)[-1].formed_at
    assert workload_writes(proxy) == []


async def is_held_with_a_replacement_that_runs(job: Job) -> None:
    """The replacement starts late, so that the hold is seen before it runs."""
    await all_ready(job)
    job.fleet.kubelets.delay_start(f"{job.child}-1-", LATE.total_seconds(), namespace=job.namespace)
    old = await lose(job, 1)
    await job.reaches("Held")
    await runs_again(job, 1, old)
    job.fleet.kubelets.delay_start(f"{job.child}-1-", 0.0, namespace=job.namespace)


async def restart_by_hand(job: Job) -> None:
    """Do `kubectl delete job --cascade=foreground`, and give its hung pods 1 s instead of their own grace."""
    await api_verbs.delete(job.fleet.api, JOBS, job.child, namespace=job.namespace, propagation=Propagation.FOREGROUND)
    for pod in await job.pods():
        await api_verbs.delete(job.fleet.api, PODS, pod["metadata"]["name"], namespace=job.namespace, grace_seconds=1)
