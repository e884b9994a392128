"""Ranks that hang are never called Healthy: all pods run again, and the ranks still wait for the one that ended.

The training model says which ranks have met: a group trains again only when it counts another round.
"""

import asyncio
import json
from typing import Any

import pytest
import yaml

from recovery.core.model.standing import Standing
from recovery.ports import EVENTS
from recovery.sim.training.rounds import RankState
from tests.cluster.acts import (
    exit_rank,
    exit_ranks,
    incidents_of,
    lose,
    second_is_over,
    until_replaced,
    until_rounds,
    until_standing,
)
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.conftest import MakesRuntime, StartsController, StartsTraining
from tests.cluster.controller_record import (
    POLICY_STATUS,
    Samples,
    has_reconciled,
    recovery,
    scrape,
    workload_writes,
    writes,
)
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.idle_jobs import until_quiet
from tests.cluster.scene import REPOSITORY, ControllerProcess, Fleet, Job, Object, apply, policy, train_job, until
from tests.cluster.stations import WAITING, in_phase
from tests.cluster.verdict import moment

pytestmark = pytest.mark.usefixtures("no_complaints")

RANKS = 4
FLEET = 24
IGNORES: dict[str, Any] = {"rules": [{"name": "leave-it", "when": {"onClass": ["PodDeleted"]}, "action": "Ignore"}]}
OBSERVES = {"mode": "Observe"}


async def run(job: Job, verb: str, *options: str) -> str:
    """Run `recovery VERB JOB` as a user does. Returns what it prints."""
    where = ("-n", job.namespace, "--kubeconfig", str(job.control_plane.kubeconfig))
    done = await recovery(verb, job.name, *options, *where)
    assert (done.exit_code, done.err) == (0, ""), done
    return done.out


async def row(job: Job) -> Object:
    """The job as `recovery status -o json` shows it."""
    where = ("-n", job.namespace, "--kubeconfig", str(job.control_plane.kubeconfig))
    done = await recovery("status", "-o", "json", *where)
    assert done.exit_code == 0, done
    [found] = json.loads(done.out)
    shown: Object = found
    return shown


def shown(line: Object) -> tuple[Any, ...]:
    """Phase, standing, idle GPUs and protection of a row of `status`."""
    protection = line["protection"]
    return line["phase"], line["standing"], line["idleGPUs"], protection["protected"], protection["reason"]


def of_job(job: Job, samples: Samples, name: str, label: str) -> dict[str, float]:
    """The series of the job that are not 0, keyed by that label."""
    found = samples.by(label, name, namespace=job.namespace, job_name=job.name)
    return {key: value for key, value in found.items() if value}


async def events_of(job: Job, reason: str) -> list[Object]:
    return [event for event in await job.items(EVENTS) if event["reason"] == reason]


def hanging(job: Job) -> int:
    """How many ranks hang, by the training model."""
    return job.fleet.world.ranks(job.training)[RankState.HUNG]


async def trains_again(job: Job, process: ControllerProcess, *, rounds: int) -> Object:
    """Wait until all ranks have met for that many times and no incident is open. Returns the ledger.

    The job is then shown as healthy.
    """
    await until_rounds(job, rounds)
    ledger = await until_standing(job, Standing.MET)
    await has_reconciled(process, job)
    assert shown(await row(job))[:3] == ("Healthy", "Met", 0)
    assert of_job(job, await scrape(process), "recovery_gpus_idle", "reason") == {}
    return ledger


async def hung(job: Job, process: ControllerProcess) -> Object:
    """Rank 1 is lost, its Job replaces it, and the incident closes. Returns the ledger of the group that hangs."""
    await second_is_over()  # no date shows that ranks had met that lose one in the second in which they started
    await lose(job, 1)
    await until_replaced(job)
    ledger = await until_standing(job, Standing.BROKEN)
    await second_is_over()
    await has_reconciled(process, job)
    assert hanging(job) == job.ranks - 1
    return ledger


# --- an incident that is held ---------------------------------------------------------------------------------------


@pytest.mark.central
async def test_a_group_out_of_budget_stays_held_though_all_of_its_pods_run_again(
    training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    """15 ranks hang, and wait for the one whose pod was replaced."""
    job = await training(budget={"limit": 0})
    async with controller() as process:
        await lose(job, 1)
        await job.reaches("Held")
        await until_replaced(job)
        await second_is_over()
        await has_reconciled(process, job)

        assert hanging(job) == 15
        assert shown(await row(job)) == ("Held", "Broken", 128, False, "Held")
        samples = await scrape(process)
        assert of_job(job, samples, "recovery_job_standing", "standing") == {"Broken": 1}
        assert of_job(job, samples, "recovery_gpus_idle", "reason") == {"hung": 128}
        assert workload_writes(proxy) == []

        await run(job, "retry")
        await trains_again(job, process, rounds=2)
    [closed] = await incidents_of(job)
    assert closed["outcome"] == "Recovered"
    assert "stillBroken" not in closed


async def test_a_budget_that_is_reset_restarts_the_group_that_was_held(
    training: StartsTraining, controller: StartsController
) -> None:
    job = await training(ranks=RANKS, gpus=1, budget={"limit": 1}, backoff={"initial": "0s"})
    async with controller() as process:
        await lose(job, 1)
        await trains_again(job, process, rounds=2)
        await second_is_over()
        await lose(job, 1)
        await job.reaches("Held")
        await until_replaced(job)
        await second_is_over()
        await has_reconciled(process, job)
        assert hanging(job) == RANKS - 1
        assert shown(await row(job)) == ("Held", "Broken", RANKS, False, "Held")

        await run(job, "reset-budget")
        await trains_again(job, process, rounds=3)
    assert [each["outcome"] for each in await incidents_of(job)] == ["Recovered", "Recovered"]


# --- an incident that closes without a repair -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "restart"),
    [
        pytest.param(IGNORES, (), id="ignored by a rule", marks=pytest.mark.central),
        pytest.param(OBSERVES, ("--force",), id="observed"),
    ],
)
async def test_a_group_that_no_one_restarts_is_broken_until_a_person_restarts_it(
    spec: Object,
    restart: tuple[str, ...],
    training: StartsTraining,
    proxy: ApiProxy,
    controller: StartsController,
) -> None:
    job = await training(ranks=RANKS, gpus=1, **spec)
    async with controller() as process:
        ledger = await hung(job, process)
        [closed] = ledger["history"]
        broken = ledger["broken"]
        assert (closed["outcome"], closed["stillBroken"]) == ("Observed", True)
        assert (broken["incident"], broken["gpus"]) == (closed["id"], RANKS)
        assert broken["bookedFrom"] == closed["endedAt"]
        assert shown(await row(job)) == ("Broken", "Broken", RANKS, False, "Broken")
        explained = await run(job, "explain")
        since = f"{moment(broken['since']):%Y-%m-%d %H:%M:%S}Z"
        assert f"the group has been Broken since {since}: pod llm-node-0-1-" in explained
        assert "3 ranks still run and hang" in explained
        [event] = await events_of(job, "GroupBroken")
        assert event["type"] == "Warning"
        samples = await scrape(process)
        assert of_job(job, samples, "recovery_job_standing", "standing") == {"Broken": 1}
        assert of_job(job, samples, "recovery_gpus_idle", "reason") == {"hung": RANKS}
        assert workload_writes(proxy) == []

        await run(job, "restart", "--reason", "its ranks hang", "--yes", *restart)
        ledger = await trains_again(job, process, rounds=2)
        assert_booked_once(ledger, await incidents_of(job), broken)


def assert_booked_once(ledger: Object, incidents: list[Object], broken: Object) -> None:
    """The hang is booked from the end of the incident that left it to the beginning of the next one, and once."""
    first, second = incidents
    spent = (moment(second["startedAt"]) - moment(first["endedAt"])).total_seconds() * RANKS
    idle = ledger["totals"]["idleGpuSeconds"]
    assert "broken" not in ledger
    assert spent > 0
    assert abs(idle["Broken"] - spent) <= 0.002
    of_incidents = sum(each["idleGpuSeconds"] for each in incidents)
    assert abs(sum(idle.values()) - spent - of_incidents) <= 0.01, "no second is booked twice"
    of_all = (moment(second["endedAt"]) - moment(broken["since"])).total_seconds() * RANKS
    assert abs(sum(idle.values()) - of_all) <= 2 * RANKS, "the incidents begin and end where it says, to the second"


async def test_the_next_leader_knows_that_the_group_is_broken_and_books_each_second_once(
    training: StartsTraining, controller: StartsController
) -> None:
    job = await training(ranks=RANKS, gpus=1, **IGNORES)
    async with controller() as process:
        before = await hung(job, process)
        await process.kill()
    async with controller() as process:
        await has_reconciled(process, job)
        ledger = await job.ledger()
        assert ledger["broken"] == before["broken"]
        assert ledger["totals"] == before["totals"], "it books when the hang ends"
        assert len(await events_of(job, "GroupBroken")) == 1
        assert of_job(job, await scrape(process), "recovery_gpus_idle", "reason") == {"hung": RANKS}
        await run(job, "retry")
        ledger = await trains_again(job, process, rounds=2)
        assert_booked_once(ledger, await incidents_of(job), before["broken"])


# --- a restart that is withheld -------------------------------------------------------------------------------------


def restarts_in_place() -> Object:
    """The prepared runtime, whose kubelets restart what fails. A Job replaces several pods only after minutes."""
    body = yaml.safe_load((REPOSITORY / "policies" / "runtime-prepared.yaml").read_text())
    spec: Object = body["spec"]
    [replicated] = spec["template"]["spec"]["replicatedJobs"]
    replicated["template"]["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    return spec


async def end_all_but(job: Job, rank: int) -> None:
    """The processes of the other ranks end and start again, so that all ranks meet."""
    rounds = len(job.fleet.world.rounds(job.training))
    await exit_ranks(job, (each for each in range(job.ranks) if each != rank), 1)
    await until_rounds(job, rounds + 1)


async def test_a_rank_that_is_lost_after_all_have_met_again_keeps_a_withheld_restart_open(
    training: StartsTraining, runtime: MakesRuntime, proxy: ApiProxy, controller: StartsController
) -> None:
    """The controller suspends no job that has a deadline. It withholds the restart, and the next leader sees only that
    all pods run: the first loss is over, and three ranks wait for a later one."""
    job = await training(
        ranks=RANKS, gpus=1, runtime=await runtime(restarts_in_place()), deadline_seconds=3600, **WAITING
    )
    async with controller() as process, in_phase("Backoff", job, proxy):
        await until_replaced(job)
        await process.kill()
    await second_is_over()
    await end_all_but(job, 1)
    await second_is_over()
    await exit_rank(job, 1, 1)
    await until("the other ranks hang", lambda: hanging(job) == RANKS - 1)
    await until_replaced(job)
    await second_is_over()
    async with controller() as process:
        await has_reconciled(process, job)
        ledger = await job.ledger()
        assert hanging(job) == RANKS - 1
        assert ledger["phase"] == "Backoff", json.dumps(ledger, indent=1)
        assert ledger["standing"] == "Broken"
        await run(job, "retry")
        await trains_again(job, process, rounds=4)
    assert [each["outcome"] for each in await incidents_of(job)] == ["Recovered", "Recovered"]


# --- losses from before the installation ----------------------------------------------------------------------------


async def restarted_and_healed(job: Job) -> None:
    await exit_rank(job, 0, 1)
    await exit_rank(job, 1, 134)
    await until_rounds(job, 2)


async def replaced_and_healed(job: Job) -> None:
    await lose(job, 0, grace_seconds=1)
    await exit_rank(job, 1, 134)
    await until_rounds(job, 2)


async def restarted(job: Job) -> None:
    await exit_rank(job, 0, 1)
    await until("the other rank hangs", lambda: hanging(job) == 1)


async def replaced(job: Job) -> None:
    await lose(job, 0, grace_seconds=1)
    await until("the other rank hangs", lambda: hanging(job) == 1)


@pytest.mark.central
async def test_a_fleet_with_losses_from_before_the_installation_alarms_no_one(
    installed: ControlPlane, fleet: Fleet, namespace: str, proxy: ApiProxy, controller: StartsController
) -> None:
    """It did not witness them. Half of the groups have trained since, and the others hang."""
    pasts = (restarted_and_healed, replaced_and_healed, restarted, replaced)
    jobs = [Job(installed, fleet, namespace, f"old-{number}", 2) for number in range(FLEET)]
    try:
        await apply(installed, namespace, *(train_job(job.name, ranks=2, gpus=1) for job in jobs))
        await asyncio.gather(*(job.trains() for job in jobs))
        await asyncio.gather(*(pasts[number % len(pasts)](job) for number, job in enumerate(jobs)))
        await asyncio.gather(*(until_replaced(job) for job in jobs))
        await second_is_over()

        await apply(installed, namespace, policy())
        async with controller() as process:
            assert await until_quiet(process) >= FLEET, "it has seen every one of them"
            samples = await scrape(process)
            assert writes(proxy, besides=POLICY_STATUS) == [], "no incident, no ledger and no Event"
            for job in jobs:
                assert of_job(job, samples, "recovery_job_standing", "standing") == {"Unknown": 1}
                assert of_job(job, samples, "recovery_job_phase", "phase") == {"Healthy": 1}
                assert of_job(job, samples, "recovery_gpus_idle", "reason") == {}
        assert [hanging(job) for job in jobs] == [0, 0, 1, 1] * (FLEET // len(pasts)), "nothing has changed them"
    finally:
        await asyncio.gather(*(job.remove() for job in jobs))
