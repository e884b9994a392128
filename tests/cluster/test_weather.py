"""Connection faults between the controller and the API server during recoveries. Each recovery still ends once.

Two API servers are restarted one after the other, watches fall silent on connections that stay open, and the leader is
cut off from the API server while the standby is not.
"""

import json
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path

import pytest

from recovery.kube.watch_lines import WATCH_IDLE_SECONDS_MAX
from recovery.sim.training.trace import EventKind
from tests.cluster.acts import incidents_of, lose, second_is_over
from tests.cluster.api_proxy import ApiProxy, SeenRequest
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controller_record import ask
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.scene import ControllerProcess, Job, until
from tests.cluster.stations import in_phase, is_trigger, policy_for

pytestmark = pytest.mark.usefixtures("no_complaints")


async def assert_each_ends_once(jobs: list[Job], *proxies: ApiProxy) -> None:
    """Each job has lost one member. It has one incident, one charge, one record, one accepted trigger, and two
    incarnations that never ran at the same time. No pod of the second one was deleted.
    """
    for job in jobs:
        [closed] = await job.closed_incidents(1)
        assert (closed["outcome"], closed["attempts"]) == ("Recovered", 1)
        ledger = await job.ledger()
        totals = ledger["totals"]
        assert (ledger["epoch"], totals["incidents"], totals["charged"], totals["restarts"]) == (1, 1, 1, 1)
        assert len(await incidents_of(job)) == 1
        await job.trains(past=job.fleet.world.step_of(job.training))
        trace = job.fleet.world.trace
        incarnations = [record.job_uid for record in trace.of(job.training, EventKind.ROUND_FORMED)]
        assert len(incarnations) == len(set(incarnations)) == 2, incarnations
        assert trace.overlaps(job.training) == []
        deletes = [seen for proxy in proxies for seen in deletes_of(job, proxy)]
        assert [uid_of(seen) for seen in deletes if is_trigger(seen)] == [incarnations[0]]
        pods = {pod["metadata"]["uid"] for pod in await job.pods()}
        assert not pods & {uid_of(seen) for seen in deletes}, "a pod of the new incarnation was deleted"


def deletes_of(job: Job, proxy: ApiProxy) -> list[SeenRequest]:
    """The accepted deletions of the job's Jobs and pods."""
    return proxy.writes(
        lambda seen: (
            seen.method == "DELETE"
            and f"/namespaces/{job.namespace}/" in seen.path
            and seen.path.rpartition("/")[2].startswith(f"{job.name}-")
            and seen.status is not None
            and seen.status < 300
        )
    )


def uid_of(seen: SeenRequest) -> str:
    """The UID in the precondition of a delete."""
    return str(json.loads(seen.body)["preconditions"]["uid"])


# --- the API servers -------------------------------------------------------------------------------------------------


async def test_two_api_servers_are_restarted_one_after_the_other(
    installed: ControlPlane, training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    """A load balancer sends each request to the server that is up. Connections to the other one break."""
    policy = policy_for("TearingDown")
    torn_down = await training(name="first", ranks=2, gpus=1, **policy)
    struck = await training(name="second", ranks=2, gpus=1, **policy)
    first = proxy.upstream
    async with controller() as process:
        async with AsyncExitStack() as kept, installed.second_apiserver() as second:
            await kept.enter_async_context(in_phase("TearingDown", torn_down, proxy))
            proxy.upstream = second
            await installed.restart_apiserver()
            await second_is_over()
            await kept.enter_async_context(in_phase("TearingDown", struck, proxy))
            proxy.upstream = first
            # The second server ends here, and with it the watches on it. Then the kept pods are released.
        await assert_each_ends_once([torn_down, struck], proxy)
        assert process.leads()


# --- the watches -----------------------------------------------------------------------------------------------------


async def test_every_watch_is_silent_until_the_controller_opens_it_again(
    training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    """One recovery is in flight when the silence begins, and one member is lost during it. The controller opens silent
    watches again, and does not act on what it has not seen.
    """
    policy = policy_for("TearingDown")
    torn_down = await training(name="first", ranks=2, gpus=1, **policy)
    struck = await training(name="second", ranks=2, gpus=1, **policy)
    async with controller() as process:
        watched = {seen.resource for seen in proxy.requests if seen.is_watch}
        assert {"trainjobs", "jobsets", "jobs", "pods", "nodes", "recoverygroups", "recoverypolicies"} < watched
        async with AsyncExitStack() as kept:
            await kept.enter_async_context(in_phase("TearingDown", torn_down, proxy))
            with proxy.silenced_watches():
                begun = len(proxy.requests)
                await kept.aclose()
                await lose(struck, 1)

                def reopened() -> set[str]:
                    return {seen.resource for seen in proxy.requests[begun:] if seen.is_watch}

                await until("each is opened again", lambda: reopened() >= watched, 2 * WATCH_IDLE_SECONDS_MAX)
                assert reopened() == watched
                assert deletes_of(struck, proxy) == [], "it cannot know"
                assert process.leads()
        await assert_each_ends_once([torn_down, struck], proxy)
        assert (await ask(process, "/readyz"))[0] == 200


# --- the leader ------------------------------------------------------------------------------------------------------


def said_at(process: ControllerProcess, words: str) -> datetime:
    """The time of the last log line that begins with these words."""
    [*_, said] = [line["ts"] for line in process.lines() if str(line.get("msg", "")).startswith(words)]
    return datetime.fromisoformat(said)


@pytest.mark.parametrize("phase", ["Decided", "TearingDown"])
async def test_the_leader_is_cut_off_and_the_standby_is_not(
    phase: str,
    installed: ControlPlane,
    training: StartsTraining,
    proxy: ApiProxy,
    controller: StartsController,
    tmp_path: Path,
) -> None:
    """The leader's requests hang. It stops leading by its own clock before the standby begins. The standby completes
    what is in flight. In Decided the leader's trigger is one of the requests that hang.
    """
    in_flight = await training(name="first", ranks=2, gpus=1, **policy_for(phase))
    struck = await training(name="second", ranks=2, gpus=1, **policy_for(phase))
    async with ApiProxy.running(installed) as leaders:
        kubeconfig = leaders.write_kubeconfig(tmp_path / "kubeconfig-of-leader")
        log = tmp_path / "controller-of-leader.log"
        async with ControllerProcess.running(kubeconfig, log) as leader, controller(standby=True) as standby:
            async with AsyncExitStack() as until_led:
                await until_led.enter_async_context(in_phase(phase, in_flight, leaders))
                with leaders.cut_off():
                    await lose(struck, 1)
                    await until("the standby leads", standby.leads)
                    await until("the leader knows that it leads no more", lambda: not leader.leads())
                    assert said_at(leader, "no longer leading: ") <= said_at(standby, "leading")
                    await until_led.aclose()
                    await assert_each_ends_once([in_flight, struck], leaders, proxy)
            await until("it stands by", leader.stands_by)
            await assert_each_ends_once([in_flight, struck], leaders, proxy)
            assert standby.leads()
