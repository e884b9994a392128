"""The runbooks: each test causes the state of the alert, and runs every command of its page as written.

The alert itself is not needed, because tests/prometheus fires alerts. It also tests the page RecoveryRendezvousStuck.
"""

import asyncio
import base64
import json
import os
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from recovery.core.model.standing import Standing
from recovery.dashboards.alerts import ALERTS
from tests.cluster.acts import (
    exit_rank,
    lose,
    no_room,
    report_progress,
    running_pods,
    second_is_over,
    until_rounds,
    until_standing,
)
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controller_pods import SYSTEM, controller_pods
from tests.cluster.controller_record import scrape
from tests.cluster.controlplane.build import Toolbox
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.prometheus_operator import prometheus_operator
from tests.cluster.runbook import Page, Shell, walked
from tests.cluster.scene import REPOSITORY, ControllerProcess, Fleet, Job, Object, apply, policy, train_job, until

RANKS = 2
AT_ONCE: Object = {"backoff": {"initial": "0s"}}


@pytest.fixture
def shell(installed: ControlPlane, toolbox: Toolbox) -> Shell:
    return Shell(installed, toolbox)


@pytest_asyncio.fixture(loop_scope="session")
async def pods(installed: ControlPlane, fleet: Fleet, tmp_path: Path) -> AsyncIterator[None]:
    async with controller_pods(installed, fleet, tmp_path):
        yield


@pytest_asyncio.fixture(loop_scope="session")
async def operator(installed: ControlPlane) -> AsyncIterator[None]:
    async with prometheus_operator(installed):
        yield


def config(**spec: object) -> Object:
    kind = {"apiVersion": "recovery.trainjob.dev/v1alpha1", "kind": "RecoveryConfig"}
    return {**kind, "metadata": {"name": "default"}, "spec": spec}


@asynccontextmanager
async def with_config(control_plane: ControlPlane, **spec: object) -> AsyncIterator[None]:
    """The cluster has this RecoveryConfig inside the block."""
    await apply(control_plane, None, config(**spec))
    try:
        yield
    finally:  # an open circuit breaker would block the recoveries of every later test
        await control_plane.kubectl("delete", "recoveryconfig", "default")


async def recovers(job: Job, *, times: int) -> None:
    """The job loses a rank to SIGKILL and trains again, `times` times."""
    for _ in range(times):
        await second_is_over()
        done = len((await job.ledger()).get("history", []))
        await exit_rank(job, 1, 137)
        await job.closed_incidents(done + 1)
        await job.trains(past=job.fleet.world.step_of(job.training))


async def quarantined(page: Page, fleet: Fleet) -> None:
    """Run the step that quarantines a suspected node, and release the node afterwards."""
    node = fleet.nodes[-1]
    assert f"node {node} is quarantined" in await page.do("recovery quarantine", NODE=node)
    await page.shell.run(f"recovery release {node}")


async def explained(page: Page) -> str:
    return await page.shell.run("recovery explain $JOB -n $NS", page.names)


def phases(shown: str) -> list[str]:
    """The rows below Phases, which is the end of the section Incident."""
    return shown.split("Phases:\n")[1].partition("\n\n")[0].splitlines()[1:]


def section(shown: str, title: str) -> str:
    """That section of the output of `recovery explain`."""
    return shown.split(f"\n{title}:\n")[1].partition("\n\n")[0]


async def test_pages_about_a_job_that_fails_again_and_again(
    shell: Shell, fleet: Fleet, training: StartsTraining, controller: StartsController
) -> None:
    job = await training(ranks=RANKS, budget={"limit": 2}, **AT_ONCE)
    async with controller():
        await recovers(job, times=1)
        async with walked(shell, "RecoveryBudgetLow", job) as page:
            shown = await page.look()
            assert "1 of 2 recoveries left" in section(shown, "Policy")
            [(_, _, cause, node)] = [line.split() for line in shown.splitlines() if line.startswith("llm ")]
            assert (cause, node[:4]) == ("Exit137", "gpu-")
            assert "1 charge no longer counts" in await page.do("recovery reset-budget")

        await recovers(job, times=2)
        async with walked(shell, "RecoveryRestartLoop", job) as page:
            assert (await page.look()).split("NODES\n")[1].count("Exit137") == 3
            await quarantined(page, fleet)
            assert "is paused" in await page.do("recovery pause")
        await shell.run("recovery resume $JOB -n $NS", page.names)

        async with no_room(fleet):
            async with walked(shell, "RecoveryRestartBudgetExhausted", job) as page:
                assert "the budget allows the next one at " in section(await page.look(), "Policy")
                await quarantined(page, fleet)
                await lose(job, 1)
                await job.reaches("Held")
                assert "no longer count" in await page.do("recovery reset-budget")
                await job.reaches("Scheduling")
                assert "1 of 2 recoveries left" in section(await explained(page), "Policy")

            async with walked(shell, "RecoveryGPUsIdle", job) as page:
                shown = await page.look()
                assert "idle GPU-seconds" in section(shown, "Incident")
                assert shown.split("NODES\n")[1].count("Exit137") == 3
                await quarantined(page, fleet)
                assert "is paused" in await page.do("recovery pause")


async def test_the_page_about_a_recovery_that_is_overdue(
    shell: Shell, fleet: Fleet, training: StartsTraining, controller: StartsController
) -> None:
    job = await training(ranks=RANKS, backoff={"initial": "300s"})
    async with controller():
        await recovers(job, times=1)
        await second_is_over()
        async with no_room(fleet), walked(shell, "RecoveryOverdue", job) as page:
            await lose(job, 1)
            await job.reaches("Backoff")
            shown = await page.look()
            assert phases(shown)[-1].split()[0] == "Backoff"
            assert "the next attempt begins at " in section(shown, "Next")
            assert "the backoff is skipped" in await page.do("recovery retry")
            await job.reaches("Scheduling")
            shown = await explained(page)
            assert phases(shown)[-1].split()[0] == "Scheduling"
            assert "Pending, Unschedulable" in section(shown, "Now")
            await shell.run("recovery quarantine gpu-0 --reason 'is well'")
            assert "gpu-0 " in await page.do("kubectl get nodes")
            assert "gpu-0 is released" in await page.do("recovery release", NODE="gpu-0")
            pod = (await job.pods())[0]["metadata"]["name"]
            assert "force deleted" in await page.do("kubectl delete pod", POD=pod)
            assert "not charged to the budget" in await page.do("recovery restart")


async def test_pages_about_a_job_that_waits_for_a_person(
    shell: Shell, fleet: Fleet, training: StartsTraining, controller: StartsController
) -> None:
    job = await training(ranks=RANKS, budget={"limit": 0})
    resume = """kubectl patch trainjob $JOB -n $NS --type=merge -p '{"spec": {"suspend": false}}'"""
    async with controller():
        async with no_room(fleet):
            await lose(job, 1)
            await job.reaches("Held")
            async with walked(shell, "RecoveryHeldGPUs", job) as page:
                assert "held, because the budget" in section(await page.look(), "Decision")
                assert "not charged to the budget" in await page.do("recovery retry")
                await job.reaches("Scheduling")
                assert "nothing to reset" in await page.do("recovery reset-budget")
                assert "patched" in await page.do("kubectl patch trainjob")
                await until_none_runs(job)
        await shell.run(resume, page.names)
        await until_rounds(job, 2)
        await job.closed_incidents(1)
        await lose(job, 1)
        await job.reaches("Held")
        async with walked(shell, "RecoveryHeld", job) as page:
            assert "held, because the budget" in section(await page.look(), "Decision")
            assert "not charged to the budget" in await page.do("recovery retry")
        await job.closed_incidents(2)


async def test_the_page_about_a_group_that_hangs_between_incidents(
    shell: Shell, training: StartsTraining, controller: StartsController
) -> None:
    ignores = {"name": "leave-it", "when": {"onClass": ["PodDeleted"]}, "action": "Ignore"}
    job = await training(ranks=RANKS, rules=[ignores])

    async def breaks() -> None:
        await second_is_over()
        await lose(job, 1)
        await until_standing(job, Standing.BROKEN)

    async with controller():
        await breaks()
        async with walked(shell, "RecoveryGroupBroken", job) as page:
            shown = await page.look()
            assert "the group has been Broken since " in section(shown, "Now")
            assert "1 rank still runs and hangs" in section(shown, "Now")
            assert "leave-it" in section(shown, "Last incident")
            assert "not charged to the budget" in await page.do("recovery retry")
            await until_rounds(job, 2)
            await until_standing(job, Standing.MET)

            await apply(shell.control_plane, job.namespace, policy(mode="Observe"))
            await breaks()
            assert "not charged to the budget" in await page.do("recovery restart")
            await until_rounds(job, 3)
            await until_standing(job, Standing.MET)

            await breaks()
            assert "patched" in await page.do("kubectl patch trainjob")
            await until_none_runs(job)


async def until_none_runs(job: Job) -> None:
    async with asyncio.timeout(GUARD_SECONDS):
        while await running_pods(job):
            await asyncio.sleep(0.1)


async def test_the_page_about_a_dead_member_without_and_with_a_controller(
    shell: Shell, training: StartsTraining, controller: StartsController
) -> None:
    job = await training(ranks=RANKS, runtime="torch-recoverable", mode="Observe")
    await second_is_over()
    await exit_rank(job, 1, 137)
    await second_is_over()
    async with walked(shell, "RecoveryDeadMemberUnattended", job) as page:
        shown = await page.look()
        assert shown.count("llm-node-0-1-") >= 1
        assert "only observes. Set spec.mode: Enforce" in shown
        assert "Exit137" in section(shown, "Incident, as it would be opened now")
        assert "No resources found in recovery-system" in shown
        assert "deleted" in await page.do("kubectl delete job")
        await until_rounds(job, 2)
        async with controller():
            await second_is_over()
            await exit_rank(job, 1, 137)
            await job.reaches("Decided")
            assert "not charged to the budget" in await page.do("recovery restart")
            await until_rounds(job, 3)


async def test_pages_about_a_job_that_may_hang_or_has_not_started(
    shell: Shell, fleet: Fleet, namespace: str, training: StartsTraining, controller: StartsController, pods: None
) -> None:
    waiting = Job(shell.control_plane, fleet, namespace, "waiting", RANKS)
    async with controller():
        # One of the two nodes with room is that of the controller's pod, which has no GPUs.
        async with no_room(fleet, but_on=2), removed(waiting):
            await apply(shell.control_plane, namespace, policy(), train_job(waiting.name, ranks=RANKS))
            async with asyncio.timeout(GUARD_SECONDS):
                while not await running_pods(waiting):
                    await asyncio.sleep(0.1)
            async with walked(shell, "RecoveryNotStarted", waiting) as page:
                shown = await page.look()
                assert "Pending, Unschedulable" in section(shown, "Now")
                assert "nodes are available" in section(shown, "Decision")
                assert "patched" in await page.do("kubectl patch trainjob")
        job = await training(ranks=RANKS)
        await report_progress(job, 40)
        async with walked(shell, "RecoveryProgressStalled", job) as page:
            assert "no failure" in section(await page.look(), "Decision")
            shown = await page.look()
            assert '"progressPercentage":40' in shown
            assert "lastUpdatedTime" in shown
            assert shown.count("T10:00:00.000000000Z step 4") == 2 * RANKS
            assert "not charged to the budget" in await page.do("recovery restart")


@asynccontextmanager
async def removed(job: Job) -> AsyncIterator[None]:
    """After the block the job is gone, and its nodes are free."""
    try:
        yield
    finally:
        await job.remove()


async def test_pages_about_the_config(
    shell: Shell, installed: ControlPlane, fleet: Fleet, training: StartsTraining, controller: StartsController
) -> None:
    job = await training(ranks=RANKS, **AT_ONCE)
    allowed: Object = {"allow": {"cordon": True}, "quarantine": {"maxNodes": 2, "cordon": True}}
    async with (
        with_config(installed, **allowed, circuitBreaker={"recoveries": 1, "within": "1h"}),
        controller() as process,
    ):
        await shell.run("recovery quarantine gpu-0 --reason 'lost its link'")
        await recovers(job, times=2)
        await until_sample(process, "recovery_circuit_breaker_open", 1)
        async with no_room(fleet), walked(shell, "RecoveryCircuitBreakerOpen") as page:
            await lose(job, 1)
            await job.reaches("Decided")
            shown = await page.look()
            futile = (await job.ledger())["history"][0]["id"]
            breaker, incidents, *table = shown.splitlines()
            assert json.loads(breaker)["recoveries"] == 1
            assert [each["incident"] for each in json.loads(incidents)] == [futile]
            assert [line.split()[0] for line in table if futile in line] == [job.name]
            assert "no: BreakerOpen" in shown
            assert "Suspects:" in await page.do("recovery explain", JOB=job.name, NS=job.namespace)
            await quarantined(page, fleet)
            assert "closes the circuit breaker within 30 s" in await page.do("recovery reset-breaker")
            await until_sample(process, "recovery_circuit_breaker_open", 0)
            assert "IncidentObserved" in await page.do("recovery status")
            assert "not charged to the budget" in await page.do("recovery restart", JOB=job.name, NS=job.namespace)
        await job.closed_incidents(3)

        await until_sample(process, "recovery_nodes_quarantined", 1, by="person")
        async with walked(shell, "RecoveryQuarantineHigh") as page:
            shown = await page.look()
            assert '"maxNodes":2' in shown.splitlines()[0]
            assert "gpu-0 lost its link" in shown
            assert "SchedulingDisabled" in shown
            assert "gpu-0 is released" in await page.do("recovery release", NODE="gpu-0")

        await apply(installed, None, config(**allowed, paused=True, pauseReason="new switches"))
        await until_sample(process, "recovery_paused", 1)
        async with walked(shell, "RecoveryPaused") as page:
            shown = await page.look()
            assert "paused: true new switches" in shown
            assert "no: PausedGlobally" in shown
            assert "patched" in await page.do("kubectl patch recoveryconfig")
            page.leave("kubectl edit recoveryconfig", why="it opens an editor")
            await until_sample(process, "recovery_paused", 0)

        async with walked(shell, "RecoveryEfficiencyBurn") as page:
            shown = await page.look()
            assert "Idle GPU-hours by phase" in shown
            assert "Idle GPU-hours by cause" in shown
            assert "PROTECTED" in await page.do("recovery status")


async def until_sample(process: ControllerProcess, name: str, value: float, **labels: str) -> None:
    """Wait until the controller exports that value."""
    async with asyncio.timeout(GUARD_SECONDS):
        while (await scrape(process)).sum(name, **labels) != value:
            await asyncio.sleep(0.2)


async def test_pages_about_what_the_controller_cannot_read_or_name(
    shell: Shell, training: StartsTraining, controller: StartsController, pods: None
) -> None:
    job = await training(ranks=RANKS)
    async with controller() as process:
        await exit_rank(job, 1, 3)
        [incident] = await job.closed_incidents(1)
        async with walked(shell, "RecoveryUnclassifiedFailures", job, ID=incident["id"]) as page:
            assert f"{job.name}-{incident['id']}-" in await page.look()
            assert "exit code 3" in (await page.look()).split("Evidence:")[1]

        pod = await job.pod_of_rank(1)
        await shell.run(
            f"kubectl label pod {pod} -n {job.namespace} batch.kubernetes.io/job-completion-index=x --overwrite"
        )
        await until_sample(process, "recovery_undecodable_objects", 1, resource="pods")
        async with walked(shell, "RecoveryUndecodableObjects") as page:
            table, _, log = (await page.look()).partition("[pod/recovery-controller-")
            assert f"Pod {job.training.split('/')[0]}/{pod} cannot be read" in table
            assert pod in log
            assert "job-completion-index" in log
            assert "serverside-applied" in await page.do("kubectl apply")
        async with walked(shell, "RecoveryUnprotectedJobs") as page:
            shown = await page.look()
            assert "no: ObjectUndecodable" in shown
            assert "Correct that object, or delete it." in shown


async def test_pages_about_the_controller(
    shell: Shell, installed: ControlPlane, fleet: Fleet, controller: StartsController, operator: None, tmp_path: Path
) -> None:
    async with controller() as process:
        await process.kill()
    async with walked(shell, "RecoveryControllerAbsent") as page:
        shown = await page.look()
        assert shown.count("No resources found in recovery-system") == 2
        assert "holderIdentity: " in shown
        assert "recovery-controller" in await page.look()
        assert "0 desired" in await page.do("kubectl describe deploy")
        assert "scaled" in await page.do("kubectl scale")
        assert "no TrainJobs or JobSets" in await page.do("recovery status")

    async with controller_pods(installed, fleet, tmp_path), controller() as process:
        async with walked(shell, "RecoveryNoLeader") as page:
            await installed.kubectl("delete", "rolebinding", "recovery-leader", "-n", SYSTEM)
            await until("the controller leads no more", lambda: not process.leads())
            shown = await page.look()
            assert "Running" in shown
            assert "no longer leading: " in shown
            assert "renewTime: " in shown
            await page.do("kubectl apply")
            await until("the controller leads again", process.leads)
            assert await page.do("kubectl get --raw") == "ok"
            assert "restarted" in await page.do("kubectl rollout restart")

        other = tmp_path / "controller-of-a-person.log"
        elsewhere = ("--lease-namespace", "default")
        async with (
            ControllerProcess.running(installed.kubeconfig, other, options=elsewhere),
            walked(shell, "RecoverySplitBrain") as page,
        ):
            leases, _, deployments = (await page.look()).partition("READY")
            assert {line.split()[0] for line in leases.splitlines()[1:-1]} == {"default", SYSTEM}
            assert deployments.count("recovery-controller") == 1
        await installed.kubectl("delete", "lease", "recovery-controller", "-n", "default")

        async with walked(shell, "RecoveryWatchStale") as page:
            shown = await page.look()
            assert "all caches are synced" in shown
            assert "readyz check passed" in shown
            pod = next(line.split()[0] for line in shown.splitlines() if line.startswith("recovery-controller-"))
            assert "deleted" in await page.do("kubectl delete pod", POD=pod)
        async with walked(shell, "RecoveryAPIErrors") as page:
            shown = await page.look()
            assert "[+]etcd ok" in shown
            assert "service-accounts " in shown
        async with walked(shell, "RecoveryLossWait") as page:
            assert "all caches are synced" in await page.look()
            page.leave("kubectl top", why="there is no metrics-server")
        async with walked(shell, "RecoveryQueueLag") as page:
            assert "all caches are synced" in await page.look()
            page.leave("kubectl top", why="there is no metrics-server")


async def test_pages_about_webhooks_and_permissions(
    shell: Shell, installed: ControlPlane, controller: StartsController, pods: None
) -> None:
    certificate = base64.b64encode(installed.certificates.serving.read_bytes()).decode()
    secret = ("patch", "secret", "recovery-admission", "-n", SYSTEM, "--type=merge", "-p")
    await installed.kubectl(*secret, json.dumps({"data": {"tls.crt": certificate}}))
    await installed.kubectl("delete", "clusterrolebinding", "recovery-quarantine")
    async with controller():
        async with walked(shell, "RecoveryCertificateExpiring") as page:
            assert "notAfter=" in await page.look()
            page.leave("kubectl describe certificate", why="there is no cert-manager")
            assert "restarted" in await page.do("kubectl rollout restart")
        async with walked(shell, "RecoveryAdmissionDown") as page:
            shown = await page.look()
            assert "[pod/recovery-controller-" in shown
            assert "recovery-admission " in shown
            assert "in 1 file" in await page.do("recovery lint", FILE="policies/runtime-prepared.yaml")
        async with walked(shell, "RecoveryPermissionMissing") as page:
            shown = await page.look()
            assert "no node will be quarantined" in shown
            assert "patch nodes" in shown
            assert "ClusterRole/recovery-enforce" in shown
            assert "ClusterRole/recovery-quarantine" not in shown
            await page.do("kubectl apply")
            await page.do("kubectl apply")
            assert "restarted" in await page.do("kubectl rollout restart")
    await installed.kubectl(*secret, json.dumps({"data": {"tls.crt": None}}))


def documented(language: str) -> str:
    """The block in that language of docs/monitoring.md that sets the address of the runbooks."""
    section = (REPOSITORY / "docs" / "monitoring.md").read_text().split("### Where the runbooks are")[1]
    [block] = re.findall(rf"^```{language}\n(.*?)^```", section.partition("\n## ")[0], re.DOTALL | re.MULTILINE)
    return str(block)


async def test_an_installation_says_where_the_runbooks_are(shell: Shell, operator: None, tmp_path: Path) -> None:
    address = "https://git.example.com/ml/trainjob-recovery/src/main/docs/runbooks"
    await shell.run(documented("sh"))
    rules = json.loads(await shell.control_plane.kubectl("get", "prometheusrules", "-n", SYSTEM, "-o", "json"))
    boards = await shell.control_plane.kubectl(
        "get", "configmaps", "-n", SYSTEM, "-l", "grafana_dashboard", "-o", "json"
    )
    assert {url.rpartition("/")[0] for url in runbook_urls(rules["items"])} == {address}
    assert boards.count(f"{address}/${{__data.fields.alertname}}.md") == 2
    assert "runbooks.invalid" not in boards

    mine = yaml.safe_load(documented("yaml"))
    mine["resources"] = [os.path.relpath(REPOSITORY / "manifests" / "prometheus", tmp_path)]
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(mine))
    rendered = list(yaml.safe_load_all(await shell.control_plane.kubectl("kustomize", str(tmp_path))))
    urls = runbook_urls(each for each in rendered if each["kind"] == "PrometheusRule")
    assert urls == [f"{address}/{alert.name}.md" for alert in ALERTS]


def runbook_urls(rules: Iterable[Object]) -> list[str]:
    groups = [group for each in rules for group in each["spec"]["groups"]]
    return [rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"] if "alert" in rule]
