"""What users and on-call engineers see: exit codes, one clear line for what is missing, probes, metrics, commands.

Everything runs as they run it, in its own process.
"""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web

from recovery.cli.preflight import WATCHED
from recovery.core.model import protection
from recovery.core.model.annotations import POLICY_ANNOTATION
from recovery.sim.kubelets.node_run import NodeDeath
from tests.cluster.acts import PAUSED, annotate, lose, no_room, until_rounds
from tests.cluster.api_proxy import ApiProxy, SeenRequest
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controller_record import Samples, ask, has_reconciled, recovery, scrape
from tests.cluster.controlplane.processes import die_with_parent
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import ControllerProcess, Fleet, Job, Object, until
from tests.cluster.test_nodes import marked_not_ready, silent

RUN = ("run", "--metrics-address", "127.0.0.1:0", "--log-level", "warning")
STATUS = ("status", "-n", "default")
EXPLAIN = ("explain", "llm", "-n", "default")
UNPROTECTED = "recovery_unprotected_jobs"
every_command = pytest.mark.parametrize("command", [RUN, STATUS, EXPLAIN], ids=lambda command: str(command[0]))

REASON_OF_PHASE = {
    "Detected": "detect",
    "Decided": "hung",
    "Fencing": "fencing",
    "TearingDown": "teardown",
    "Backoff": "backoff",
    "Scheduling": "schedule",
    "Starting": "start",
    "Rendezvous": "rendezvous",
    "Resuming": "resume",
    "Held": "hung",
}


class ClusterWithoutOurs(ApiProxy):
    """A cluster without the CRDs of this project. Its answer for a path that it does not serve is plain text."""

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.path.startswith("/apis/recovery.trainjob.dev"):
            return web.Response(status=404, text="404 page not found\n")
        return await super()._handle(request)


@pytest_asyncio.fixture(loop_scope="session")
async def stranger(control_plane: ControlPlane, namespace: str) -> Path:
    """The kubeconfig of a ServiceAccount without any rights."""
    await control_plane.kubectl("create", "serviceaccount", "stranger", "-n", namespace)
    return await control_plane.kubeconfig_for_service_account(namespace, "stranger")


class StartedController(ControllerProcess):
    """A controller that may not watch yet, or may have ended."""

    @classmethod
    @asynccontextmanager
    async def started(cls, kubeconfig: Path, log: Path) -> AsyncIterator["StartedController"]:
        arguments = ("run", "--metrics-address", "127.0.0.1:0", "--kubeconfig", str(kubeconfig))
        with log.open("ab") as sink:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "recovery.cli.entry", *arguments),
                stdout=sink,
                stderr=sink,
                stdin=asyncio.subprocess.DEVNULL,
                preexec_fn=die_with_parent(),
            )
        controller = cls(process, log)
        try:
            yield controller
        finally:
            await controller.kill()

    async def exit_code(self) -> int:
        """Wait until it ends by itself; returns its exit code."""
        async with asyncio.timeout(GUARD_SECONDS):
            return await self._process.wait()


def only_line(text: str) -> str:
    """The only line of the text. An error message has one line."""
    [line] = text.splitlines()
    return line


# --- what keeps it from working ------------------------------------------------------------------------------------


@pytest.mark.central
@every_command
async def test_no_cluster_is_one_line_and_exit_code_1(command: tuple[str, ...], tmp_path: Path) -> None:
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: here\n"
        "clusters: [{name: here, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "users: [{name: here, user: {}}]\ncontexts: [{name: here, context: {cluster: here, user: here}}]\n"
    )
    ended = await recovery(*command, "--kubeconfig", str(nowhere))
    assert (ended.exit_code, ended.out) == (1, "")
    assert only_line(ended.err).startswith("recovery: no cluster: the API server does not answer: ")
    assert "127.0.0.1:1" in ended.err


@pytest.mark.central
async def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    ended = await recovery(*STATUS, "--kubeconfig", str(tmp_path / "missing"))
    assert (ended.exit_code, ended.out) == (1, "")
    assert only_line(ended.err) == (
        f"recovery: no cluster: there is no kubeconfig at {tmp_path / 'missing'}; set KUBECONFIG, or name another file"
    )


@pytest.mark.central
@every_command
async def test_missing_definitions_are_named_with_the_way_to_install_them(
    command: tuple[str, ...], installed: ControlPlane, tmp_path: Path
) -> None:
    async with ClusterWithoutOurs.running(installed) as proxy:
        ended = await recovery(*command, "--kubeconfig", str(proxy.write_kubeconfig(tmp_path / "kubeconfig")))
    assert (ended.exit_code, ended.out) == (1, "")
    line = only_line(ended.err)
    assert line.startswith("recovery: not installed in this cluster: ")
    for plural in ("recoverypolicies", "recoverygroups", "recoveryincidents"):
        assert f"{plural}.recovery.trainjob.dev" in line
    assert "kubectl apply --server-side -k manifests/crd" in line
    assert "trainjobs" not in line, "Trainer is there"


@pytest.mark.central
async def test_the_controller_names_every_permission_that_it_lacks(stranger: Path, installed: ControlPlane) -> None:
    ended = await recovery(*RUN, "--kubeconfig", str(stranger))
    assert (ended.exit_code, ended.out) == (1, "")
    line = only_line(ended.err)
    assert line.startswith("recovery: permissions are missing, in all namespaces (manifests/rbac grants them): ")
    for permission in ("get, list, watch trainjobs.trainer.kubeflow.org", "list, watch pods", "create, list events"):
        assert permission in line


@pytest.mark.central
@pytest.mark.parametrize("command", [STATUS, EXPLAIN], ids=["status", "explain"])
async def test_a_missing_permission_is_named(
    command: tuple[str, ...], stranger: Path, installed: ControlPlane, namespace: str
) -> None:
    ended = await recovery(*command, "--kubeconfig", str(stranger))
    assert (ended.exit_code, ended.out) == (1, "")
    line = only_line(ended.err)
    assert line.startswith("recovery: a permission is missing: ")
    assert f'User "system:serviceaccount:{namespace}:stranger" cannot ' in line


@pytest.mark.central
async def test_a_wrong_flag_is_exit_code_2() -> None:
    for arguments in (("run", "--no-such-flag"), ("run", "--metrics-address", "nowhere"), ("explain",), ("no-such",)):
        ended = await recovery(*arguments)
        assert (ended.exit_code, ended.out) == (2, ""), arguments
        assert "recovery" in ended.err


@pytest.mark.central
@pytest.mark.parametrize(("told_by", "exit_code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
async def test_a_signal_ends_the_controller_with_the_code_that_a_shell_expects(
    told_by: signal.Signals, exit_code: int, proxy: ApiProxy, tmp_path: Path
) -> None:
    async with StartedController.started(proxy.write_kubeconfig(tmp_path / "kubeconfig"), tmp_path / "log") as process:
        await until("the controller watches", process.watches)
        os.kill(process.pid, told_by)
        assert await process.exit_code() == exit_code
        assert process.lines()[-1]["msg"] == "stopped"


# --- permissions, probes, metrics ----------------------------------------------------------------------------------


@pytest.mark.central
async def test_nothing_that_a_recovery_asks_for_is_refused_to_the_shipped_account(
    installed: ControlPlane, training: StartsTraining, controller: StartsController, proxy: ApiProxy, tmp_path: Path
) -> None:
    job = await training(ranks=4, gpus=1)
    async with controller() as process:
        await lose(job, 2)
        [closed] = await job.closed_incidents(1)
        await until_rounds(job, 2)
        await has_reconciled(process, job)
        levels = {line["level"] for line in process.lines()}

    assert closed["outcome"] == "Recovered"
    assert [f"{seen.method} {seen.path}" for seen in proxy.requests if seen.status in {401, 403}] == []
    assert levels == {"info"}
    # The proxy lends no rights: without a token nothing is allowed.
    no_one = proxy.write_kubeconfig(tmp_path / "nobody")
    no_one.write_text(re.sub("token: '[^']+'", "", no_one.read_text()))
    ended = await recovery(*STATUS, "--kubeconfig", str(no_one))
    assert ended.exit_code == 1
    assert 'User "system:anonymous" cannot list' in ended.err


@pytest.mark.central
async def test_it_is_healthy_at_once_and_ready_only_when_it_has_seen_everything(
    proxy: ApiProxy, tmp_path: Path
) -> None:
    def is_watch_on_pods(seen: SeenRequest) -> bool:
        return seen.resource == "pods" and "watch=" in seen.query

    pods = proxy.hold(is_watch_on_pods)
    # RecoveryDrills are watched beside them.
    async with StartedController.started(proxy.write_kubeconfig(tmp_path / "kubeconfig"), tmp_path / "log") as process:
        await pods.wait()
        await until("all but the pods are listed", lambda: sum(said(process, "listed")) == len(WATCHED))
        assert await ask(process, "/healthz") == (200, "ok\n")
        assert await ask(process, "/readyz") == (503, "not ready, waiting for: pods\n")
        pods.release()
        await until("the controller watches", process.watches)
        assert await ask(process, "/readyz") == (200, "ok\n")
        assert await process.end() == 0


def said(process: ControllerProcess, message: str) -> list[bool]:
    return [line.get("msg") == message for line in process.lines()]


@pytest.mark.central
async def test_metrics_show_idle_gpus_while_they_idle_and_afterwards_what_the_ledger_has_booked(
    training: StartsTraining, controller: StartsController
) -> None:
    job = await training(ranks=4, gpus=2)
    of_job = {"namespace": job.namespace, "job_name": job.name}
    async with controller() as process:
        before = await scrape(process)
        assert before.sum("recovery_gpus_idle", **of_job) == 0
        async with no_room(job.fleet):
            await lose(job, 1)
            await job.reaches("Scheduling")
            scrapes = await until_seen(process, "recovery_gpus_idle", {**of_job, "reason": "schedule"}, 8)
            during = scrapes[-1]
            assert during.sum("recovery_gpus_idle", **of_job) == 8, "every GPU of the group, for one reason at a time"
            assert during.by("phase", "recovery_job_phase", **of_job)["Scheduling"] == 1
            assert during.sum("recovery_incident_start_timestamp_seconds", **of_job) > 0
        await job.closed_incidents(1)
        scrapes += await until_seen(process, "recovery_gpus_idle", of_job, 0)
        after, ledger = scrapes[-1], await job.ledger()
    async with controller() as process:
        [*_, recreated] = await until_seen(process, "recovery_restart_budget_remaining", of_job, 9)

    booked = dict.fromkeys(REASON_OF_PHASE.values(), 0.0)
    for phase, seconds in ledger["totals"]["idleGpuSeconds"].items():
        booked[REASON_OF_PHASE[phase]] += seconds
    idle = "recovery_gpu_idle_seconds_total"
    assert recreated.by("reason", idle, **of_job) == pytest.approx(booked, abs=0.01)
    # A scrape between the end of a phase and its event shows more than is booked afterwards. Counters only rise.
    told = [each.by("reason", idle, **of_job) for each in scrapes[:-1]]
    risen = {reason: max(seconds, *(each.get(reason, 0.0) for each in told)) for reason, seconds in booked.items()}
    assert after.by("reason", idle, **of_job) == pytest.approx(risen, abs=0.01)
    assert booked["schedule"] > 0
    assert after.sum("recovery_group_restarts_total", **of_job) == ledger["totals"]["restarts"] == 1
    assert after.sum("recovery_failures_total", **of_job, failure_class="PodDeleted") == 1
    assert after.sum("recovery_restart_budget_remaining", **of_job) == 9
    assert after.sum("recovery_rendezvous_duration_seconds_count") == 0, "neither agent nor joined probe measures it"
    assert after.sum("recovery_phase_duration_seconds_count", phase="Scheduling") == 1


async def until_seen(process: ControllerProcess, metric: str, labels: dict[str, str], value: float) -> list[Samples]:
    """Scrape until the metric has that value; returns all scrapes."""
    scrapes = [await scrape(process)]
    async with asyncio.timeout(GUARD_SECONDS):
        while scrapes[-1].sum(metric, **labels) != value:
            await asyncio.sleep(0.1)
            scrapes.append(await scrape(process))
    return scrapes


# --- status and explain --------------------------------------------------------------------------------------------


@pytest.mark.central
async def test_status_and_explain_tell_of_a_job_before_during_and_after_an_incident(
    installed: ControlPlane, training: StartsTraining, controller: StartsController
) -> None:
    job = await training(ranks=4, gpus=2)
    async with controller():
        nodes = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in await job.pods()}
        row, account = await status_and_explain(installed, job)
        assert told_by(row) == ["llm", "Healthy", "-", "-", "0", "0", "10/10", "yes"]
        assert "\nProtected: yes. RecoveryPolicy " in account
        assert "Job llm-node-0: 4 of 4 pods run and are Ready, 8 GPUs" in account
        assert "\nDecision:\n  no failure\n" in account

        async with no_room(job.fleet):
            pod = await lose(job, 1)
            await job.reaches("Scheduling")
            row, account = await status_and_explain(installed, job)
        assert told_by(row) == ["llm", "Scheduling", "PodDeleted", "RecreateGroup", "8", "1", "9/10", "yes"]
        assert row["NEXT"] == "waits for nodes"
        sentence = (
            f"pod {pod} (rank 1, node {nodes[pod]}) was deleted; no rule matched, so the default of policy default "
            "(RecreateGroupOnPodRestart) applies: deleting Job llm-node-0 so that all 4 ranks restart together"
        )
        assert sentence in account
        assert ", open for " in account
        assert "Job llm-node-0: 0 of 4 pods run and are Ready" in account

        [closed] = await job.closed_incidents(1)
        row, account = await status_and_explain(installed, job)
        assert told_by(row) == ["llm", "Healthy", "PodDeleted", "RecreateGroup", "0", "1", "9/10", "yes"]
        assert f"{closed['id']}" in account
        assert sentence in account
        kubeconfig = ("--kubeconfig", str(installed.kubeconfig))
        told = await recovery("explain", "llm", "-n", job.namespace, "--incident", closed["id"], *kubeconfig)

    assert told.exit_code == 0
    assert f"{closed['id']}, Recovered (AllRanksReady) after " in told.out
    assert sentence in told.out
    assert "all 4 ranks are Ready (source: ready, verified: false)" in told.out
    assert [word for word in ("Evidence:", "Suspects:", "Attempts:", "Phases:") if word not in told.out] == []


def told_by(row: Mapping[str, str]) -> list[str]:
    """The cells that describe a job before, during and after an incident."""
    columns = ("JOB", "PHASE", "CAUSE", "ACTION", "IDLE-GPUS", "RESTARTS", "BUDGET", "PROTECTED")
    return [row[column] for column in columns]


async def status_and_explain(control_plane: ControlPlane, job: Job) -> tuple[dict[str, str], str]:
    """The cells of the job's line in `status -o wide`, by column, and what `explain` prints."""
    where = ("-n", job.namespace, "--kubeconfig", str(control_plane.kubeconfig))
    listed = recovery("status", "-o", "wide", *where)
    status, explained = await asyncio.gather(listed, recovery("explain", job.name, *where))
    assert (status.exit_code, status.err) == (0, "")
    assert (explained.exit_code, explained.err) == (0, "")
    header, line = (re.split(" {2,}", line) for line in status.out.splitlines())
    return dict(zip(header, line, strict=True)), explained.out


async def test_status_says_why_a_job_has_not_started_and_which_node_is_silent(
    installed: ControlPlane, training: StartsTraining, fleet: Fleet, namespace: str, controller: StartsController
) -> None:
    async with controller() as process:
        async with no_room(fleet, but_on=3):
            starting = asyncio.create_task(training(ranks=4))
            waits = await until_listed(installed, namespace, phase="NotStarted", idleGPUs=24)
            scrapes = await until_seen(process, "recovery_gpus_not_started", {"namespace": namespace}, 24)
        assert re.fullmatch("rank [0-3]: Unschedulable", waits["cause"])
        assert re.match(r"has not started: pod llm-node-0-\S+ \(rank [0-3], not scheduled\) waits: ", waits["message"])
        assert waits["message"].endswith("; 3 of 4 pods run")
        assert scrapes[-1].by("reason", "recovery_gpus_not_started", namespace=namespace) == {"Unschedulable": 24}

        job = await starting
        runs = await until_listed(installed, namespace, phase="Healthy", idleGPUs=0)
        assert (runs["cause"], runs["message"], await job.closed_incidents(0)) == ("", "", [])
        assert (waits["protection"]["reason"], runs["protection"]["reason"]) == ("NotStarted", "Protected")
        await has_reconciled(process, job)
        assert (await scrape(process)).by("reason", "recovery_gpus_not_started", namespace=namespace) == {}

        node = (await job.pods())[1]["spec"]["nodeName"]
        async with silent(fleet, node, NodeDeath.PARTITION):
            await marked_not_ready(fleet, node)
            cut_off = await until_listed(installed, namespace, phase="Healthy", cause=f"node {node} does not answer")
        assert cut_off["message"].startswith(f"Unknown: node {node} has not answered since ")


async def test_a_job_that_is_not_protected_says_why_and_the_leader_counts_it(
    installed: ControlPlane, training: StartsTraining, controller: StartsController
) -> None:
    job = await training(ranks=4)
    async with controller() as process:
        await has_reconciled(process, job)
        before = (await scrape(process)).by("reason", UNPROTECTED)
        assert set(before) == {str(reason) for reason in protection.UNPROTECTED}
        for make_so, reason in (
            (annotate(job, PAUSED, "new image"), "PausedByAnnotation"),
            (annotate(job, POLICY_ANNOTATION, "gold"), "NoPolicy"),
        ):
            await make_so
            await until_seen(process, UNPROTECTED, {"reason": reason}, before[reason] + 1)
            row, account = await status_and_explain(installed, job)
            assert row["PROTECTED"] == f"no: {reason}"
        assert f"Protected: no. The annotation {POLICY_ANNOTATION} names gold, and no policy has that name." in account
        after = (await scrape(process)).by("reason", UNPROTECTED)
    assert after["PausedByAnnotation"] == before["PausedByAnnotation"], "a job counts once"


async def until_listed(control_plane: ControlPlane, namespace: str, **wanted: object) -> Object:
    """Wait until `status -o json` shows the namespace's only job with these fields; returns its row."""
    found: Object = {}
    async with asyncio.timeout(GUARD_SECONDS):
        while any(found.get(name) != value for name, value in wanted.items()):
            where = ("-n", namespace, "-o", "json", "--kubeconfig", str(control_plane.kubeconfig))
            told = await recovery("status", *where)
            assert (told.exit_code, told.out[:1]) == (0, "[")
            [found] = json.loads(told.out) or [{}]
    return found


@pytest.mark.central
async def test_explain_of_a_job_that_is_not_there_is_one_line(installed: ControlPlane, namespace: str) -> None:
    ended = await recovery("explain", "llm", "-n", namespace, "--kubeconfig", str(installed.kubeconfig))
    assert (ended.exit_code, ended.out) == (1, "")
    assert only_line(ended.err) == f"recovery: there is no TrainJob or JobSet 'llm' in namespace '{namespace}'"
