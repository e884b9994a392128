"""What the controller depends on goes away in mid-incident: the API server, its token, its watches, its CRDs.

Whatever it could not see meanwhile, each failure has one recovery and one charge in the end.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from recovery import api_verbs
from recovery.core.model.ledger import SCHEMA_VERSION
from recovery.ports import JOBS, RECOVERY_GROUPS, TRAIN_JOBS, PatchKind
from recovery.workloads.naming import recovery_group_name
from tests.cluster.acts import edit, incidents_of, lose, second_is_over
from tests.cluster.api_proxy import ApiProxy, SeenRequest
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controller_record import ask, has_reconciled, recovery, workload_writes
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import ControllerProcess, Job, Object, apply, install, policy, until
from tests.cluster.stations import PASSING, has_triggered, in_phase, policy_for, takes_down

OURS = "recovery.trainjob.dev/suspended-by"
GROUP = "recovery.trainjob.dev"
GROUPS, CONFIGS = f"recoverygroups.{GROUP}", f"recoveryconfigs.{GROUP}"
DEFINITIONS = (
    f"recoverypolicies.{GROUP}",
    f"clusterrecoverypolicies.{GROUP}",
    CONFIGS,
    GROUPS,
    f"recoveryincidents.{GROUP}",
)
WATCHED = len(DEFINITIONS) - 1
"""RecoveryIncidents are written and not watched."""


def resumes(proxy: ApiProxy) -> list[SeenRequest]:
    """The resumes of TrainJobs that the server accepted."""

    def is_resume(seen: SeenRequest) -> bool:
        is_patch = (seen.method, seen.resource) == ("PATCH", "trainjobs") and seen.status == 200
        return is_patch and any(
            (step["path"], step.get("value")) == ("/spec/suspend", False) for step in json.loads(seen.body)
        )

    return proxy.writes(is_resume)


async def assert_each_recovered_once(job: Job, proxy: ApiProxy, failures: int) -> None:
    """There are `failures` incidents, each with one trigger for its own Job, one charge and one record; it trains."""
    history = await job.closed_incidents(failures)
    ledger = await job.ledger()
    assert [each["outcome"] for each in history] == ["Recovered"] * failures
    assert [each["attempts"] for each in history] == [1] * failures
    assert ledger["epoch"] == failures
    totals = ledger["totals"]
    assert (totals["incidents"], totals["charged"], totals["restarts"]) == (failures, failures, failures)
    assert len(await incidents_of(job)) == failures
    uids = [json.loads(seen.body)["preconditions"]["uid"] for seen in proxy.writes(has_triggered)]
    assert len(uids) == len(set(uids)) == failures
    await job.trains(past=job.fleet.world.step_of(job.training))


async def until_ready(controller: ControllerProcess, status: int) -> None:
    """Wait until /readyz answers with that status: 200, or 503 for not ready."""
    answer = (0, "")
    try:
        async with asyncio.timeout(GUARD_SECONDS):
            while (answer := await ask(controller, "/readyz"))[0] != status:
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"/readyz should answer {status}, and answers {answer}") from None


# --- the API server --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_complaints")
@pytest.mark.parametrize("phase", [pytest.param("TearingDown", marks=pytest.mark.central), "Backoff"])
async def test_the_api_server_is_restarted(
    phase: str, installed: ControlPlane, training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    """In Backoff the time is up only after the restart, when the controller that waits for it has lost its Lease."""
    job = await training(ranks=2, gpus=1, **(PASSING if phase == "Backoff" else policy_for(phase)))
    async with controller():
        async with in_phase(phase, job, proxy):
            await installed.restart_apiserver()
        await assert_each_recovered_once(job, proxy, failures=2 if phase == "Backoff" else 1)
    assert len(resumes(proxy)) == (1 if phase == "Backoff" else 0)


# --- the token -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def token_bound_to_secret(control_plane: ControlPlane) -> AsyncIterator[str]:
    """A token of the controller's ServiceAccount that becomes invalid after the block."""
    where = ("-n", "recovery-system")
    await control_plane.kubectl("create", "secret", "generic", "token-of-a-test", *where)
    try:
        bound = ("--bound-object-kind=Secret", "--bound-object-name=token-of-a-test")
        yield (await control_plane.kubectl("create", "token", "recovery-controller", *where, *bound)).strip()
    finally:
        await control_plane.kubectl("delete", "secret", "token-of-a-test", *where)


AT_ONCE = 8
"""A live read of a group sends at most this many requests at the same time."""


@pytest.mark.central
@pytest.mark.usefixtures("no_complaints")
async def test_the_token_is_rotated(
    installed: ControlPlane, training: StartsTraining, proxy: ApiProxy, tmp_path: Path
) -> None:
    """The new token is in the file when the old one is refused. Each request with the old one gets one 401."""
    job = await training(ranks=2, gpus=1)
    token = tmp_path / "token"
    kubeconfig = tmp_path / "kubeconfig-with-token-file"
    kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: proxy\n"
        f"clusters: [{{name: proxy, cluster: {{server: '{proxy.url}'}}}}]\n"
        f"users: [{{name: proxy, user: {{tokenFile: '{token}'}}}}]\n"
        "contexts: [{name: proxy, context: {cluster: proxy, user: proxy, namespace: recovery-system}}]\n"
    )
    async with AsyncExitStack() as while_valid:
        token.write_text(await while_valid.enter_async_context(token_bound_to_secret(installed)))
        async with ControllerProcess.running(kubeconfig, tmp_path / "controller-1.log") as process:
            token.write_text(await installed.token_of_service_account("recovery-system", "recovery-controller"))
            await while_valid.aclose()
            # The API server caches the result of a token check for 10 s.
            await until("the old token is refused", lambda: bool(refused_as_no_one(proxy)))
            await has_reconciled(process, job)
            await lose(job, 1)
            await assert_each_recovered_once(job, proxy, failures=1)
            assert process.leads()
    refused = [(seen.method, seen.path.partition("?")[0], seen.query) for seen in refused_as_no_one(proxy)]
    assert len(refused) == len(set(refused)), "the token is read again before a request is repeated"
    assert sum("/leases/" in path for _, path, _ in refused) == 1
    assert len(refused) <= 1 + AT_ONCE, "the election has a session of its own; the other one reads at once"


def refused_as_no_one(proxy: ApiProxy) -> list[SeenRequest]:
    return [seen for seen in proxy.requests if seen.status == 401]


# --- the watches -----------------------------------------------------------------------------------------------------


@pytest.mark.central
@pytest.mark.usefixtures("no_complaints")
async def test_every_watch_is_closed_once_a_second_for_twenty_seconds(
    training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    """A closed watch continues from its last version: nothing is listed again, and the API server is not flooded."""
    job = await training(ranks=2, gpus=1, **policy_for("TearingDown"))
    async with controller() as process:
        begun = len(proxy.requests)
        async with watches_cut_once_a_second(proxy) as cuts:
            for failures in (1, 2):
                await second_is_over()
                await lose(job, 1)
                await assert_each_recovered_once(job, proxy, failures)
                async with asyncio.timeout(GUARD_SECONDS):
                    while len(cuts) < 10 * failures:
                        await asyncio.sleep(0.1)
        await has_reconciled(process, job)

        during = proxy.requests[begun:]
        watches = [seen for seen in during if seen.is_watch]
        resources = {seen.resource for seen in watches}
        assert {"trainjobs", "jobsets", "jobs", "pods", "nodes", "recoverygroups", "recoverypolicies"} < resources
        assert sum(cuts) > 5 * len(resources), "each was open and cut, again and again"
        assert len(watches) <= (len(cuts) + 1) * len(resources)
        assert all("resourceVersion=" in seen.query for seen in watches)
        assert not [seen for seen in watches if "sendInitialEvents" in seen.query], "listed again"
        assert [seen.path for seen in during if seen.path == "/api/v1/pods" and not seen.is_watch] == []
        assert process.leads()


@asynccontextmanager
async def watches_cut_once_a_second(proxy: ApiProxy) -> AsyncIterator[list[int]]:
    """Yields, for each second, how many were open. Every other time their connections break instead of ending."""
    cuts: list[int] = []

    async def cut() -> None:
        while True:
            await asyncio.sleep(1)
            cuts.append(proxy.cut_watches(broken=bool(len(cuts) % 2)))

    cutting = asyncio.create_task(cut())
    try:
        yield cuts
    finally:
        cutting.cancel()
        await asyncio.gather(cutting, return_exceptions=True)


# --- the definitions -------------------------------------------------------------------------------------------------


@asynccontextmanager
async def definitions_put_back(control_plane: ControlPlane) -> AsyncIterator[None]:
    """Installs the CRDs again after the block, because the other tests of the session need them."""
    try:
        yield
    finally:
        await install(control_plane)


async def undefine(control_plane: ControlPlane, *definitions: str) -> None:
    """Delete these CRDs and all their objects. Returns when they are gone."""
    await control_plane.kubectl("delete", "crd", *definitions, "--ignore-not-found")


def said_to_be_missing(process: ControllerProcess) -> list[str]:
    """The resources that the log reports as not served, once for each report."""
    lines = [line for line in process.lines() if line.get("msg") == "a watch was interrupted"]
    return sorted(str(line["resource"]) for line in lines if "is the CRD installed?" in str(line["error"]))


@pytest.mark.central
async def test_the_definitions_are_deleted_and_applied_again_in_tearing_down(
    installed: ControlPlane, training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    """The ledgers go first: for a moment the group has none, under a policy in mode Enforce."""
    job = await training(ranks=2, gpus=1, **policy_for("TearingDown"))
    async with controller() as process, definitions_put_back(installed):
        async with in_phase("TearingDown", job, proxy):
            assert len(proxy.writes(has_triggered)) == 1
            await undefine(installed, GROUPS)
            await until_ready(process, 503)
            await undefine(installed, *DEFINITIONS)
            before = workload_writes(proxy)
        await until("the log names what is missing", lambda: len(said_to_be_missing(process)) >= WATCHED)
        await until_ready(process, 503)
        await job.trains(past=job.fleet.world.step_of(job.training))
        assert workload_writes(proxy) == before
        await install(installed)
        await apply(installed, job.namespace, policy(**policy_for("TearingDown")))
        await until_ready(process, 200)
        await has_reconciled(process, job)

        assert len(said_to_be_missing(process)) == WATCHED, "each is said once"
        assert workload_writes(proxy) == before
        assert await job.groups() == []
        await second_is_over()
        await lose(job, 1)
        [closed] = await job.closed_incidents(1)
        assert (closed["outcome"], (await job.ledger())["epoch"]) == ("Recovered", 1)
        assert len(proxy.writes(has_triggered)) == 2, "one for each failure"


async def test_no_trigger_is_sent_while_the_definition_of_the_ledgers_is_on_its_way_out(
    installed: ControlPlane, training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    """The ledgers are gone, their watch is still open, the policy is in mode Enforce, and the loss is visible.

    The group is not restarted, because a ledger is written before the action, and no new ledger can be created.
    """
    job = await training(ranks=2, gpus=1)
    async with controller() as process, definitions_put_back(installed):
        async with AsyncExitStack() as while_held:
            await while_held.enter_async_context(in_phase("Decided", job, proxy))
            await while_held.enter_async_context(ledger_that_stays(job))
            await installed.kubectl("delete", "crd", GROUPS, "--wait=false")
            async with asyncio.timeout(GUARD_SECONDS):
                while await job.groups():
                    await asyncio.sleep(0.1)
            # The trigger that is under way comes too late, so the controller reads everything and decides again.
            await edit(job, {"metadata": {"annotations": {"example.com/changed": "meanwhile"}}}, resource=JOBS)
            proxy.release()
            await until("new ledgers are refused", lambda: len(refused_ledgers(proxy)) >= 3)
            assert (await ask(process, "/readyz"))[0] == 200, "it does not know better yet"
            assert [seen.status for seen in proxy.writes(takes_down)] == [409]
            said = "create not allowed while custom resource definition is terminating"
            assert [line for line in process.lines() if said in str(line.get("error")) and line["level"] == "error"]
        await until_ready(process, 503)
        assert [seen.status for seen in proxy.writes(takes_down)] == [409]
        await install(installed)
        await assert_each_recovered_once(job, proxy, failures=1)


@asynccontextmanager
async def ledger_that_stays(job: Job) -> AsyncIterator[None]:
    """A RecoveryGroup without a job. Inside the block it cannot be deleted, and neither can its CRD."""
    name = recovery_group_name("nobody", "none")
    body = {
        "apiVersion": RECOVERY_GROUPS.api_version,
        "kind": RECOVERY_GROUPS.kind,
        "metadata": {"name": name, "finalizers": ["tests.recovery.trainjob.dev/stays"]},
        "spec": {"workloadRef": {"kind": "TrainJob", "name": "nobody", "uid": "none"}, "group": "nobody"},
    }
    await api_verbs.create(job.fleet.api, RECOVERY_GROUPS, body, namespace=job.namespace)
    try:
        yield
    finally:
        free = {"metadata": {"finalizers": None}}
        await api_verbs.patch(job.fleet.api, RECOVERY_GROUPS, name, free, kind=PatchKind.MERGE, namespace=job.namespace)


def refused_ledgers(proxy: ApiProxy) -> list[SeenRequest]:
    return proxy.writes(lambda seen: (seen.method, seen.resource, seen.status) == ("POST", "recoverygroups", 403))


async def test_the_definitions_are_deleted_and_applied_again_in_backoff(
    installed: ControlPlane, training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    """Only the annotation on the job is left, and no policy is restored. The annotation is enough to resume the job.

    The first CRD to go is one without objects, so the controller stops before it can see its ledgers go.
    """
    job = await training(ranks=2, gpus=1, **policy_for("Backoff"))
    async with controller() as process, definitions_put_back(installed):
        async with in_phase("Backoff", job, proxy):
            await undefine(installed, CONFIGS)
            await until_ready(process, 503)
            before = workload_writes(proxy)
            await undefine(installed, *DEFINITIONS)
            await until("the log names what is missing", lambda: len(said_to_be_missing(process)) >= WATCHED)
            found = await job.get("trainjob", job.name)
            assert found["spec"]["suspend"] is True
            assert OURS in found["metadata"]["annotations"]
            assert workload_writes(proxy) == before
            rounds = len(job.fleet.world.rounds(job.training))
            await install(installed)
        await until("the job trains again", lambda: len(job.fleet.world.rounds(job.training)) > rounds)
        found = await job.get("trainjob", job.name)
        assert (found["spec"]["suspend"], OURS in found["metadata"].get("annotations", {})) == (False, False)
        await has_reconciled(process, job)
        assert len(resumes(proxy)) == 1
        assert len(proxy.writes(has_triggered)) == 2, "one for each failure"
        assert await job.groups() == []


# --- the ledger ------------------------------------------------------------------------------------------------------


@pytest.mark.central
async def test_a_ledger_of_a_newer_version_makes_it_hold_and_say_so(
    installed: ControlPlane, training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    job = await training(ranks=2, gpus=1)
    group = await put_ledger(job, {"schemaVersion": SCHEMA_VERSION + 1, "phase": "Healthy"})
    where = ("-n", job.namespace, "--kubeconfig", str(installed.kubeconfig))
    async with controller() as process:
        pod = await lose(job, 1)
        await until("it says that it holds", lambda: bool(held(process, group)))
        await has_reconciled(process, job)
        assert workload_writes(proxy) == []
        [*_, line] = held(process, group)
        known = f"schemaVersion {SCHEMA_VERSION + 1}, this controller knows {SCHEMA_VERSION}: it holds"
        assert known in line
        assert "run the controller version that wrote it" in line
        explained = await recovery("explain", job.name, *where)
        assert f"{group} has schemaVersion {SCHEMA_VERSION + 1}" in explained.out, explained
        shown = await recovery("status", *where)
        assert "Unreadable" in shown.out, shown
        # The controller was not blind: it acts when the same ledger has the controller's own version.
        await put_ledger(job, {"schemaVersion": SCHEMA_VERSION, "phase": "Healthy"})
        [closed] = await job.closed_incidents(1)
        assert closed["outcome"] == "Recovered"
        assert pod in closed["message"]


async def put_ledger(job: Job, status: Object) -> str:
    """Write a ledger as another version of the controller would; returns the name of the RecoveryGroup."""
    api = job.fleet.api
    uid = json.loads(await api_verbs.get(api, TRAIN_JOBS, job.name, namespace=job.namespace))["metadata"]["uid"]
    name = recovery_group_name(job.name, uid)
    if not await job.groups():
        owner = {"apiVersion": TRAIN_JOBS.api_version, "kind": TRAIN_JOBS.kind, "name": job.name, "uid": uid}
        body = {
            "apiVersion": RECOVERY_GROUPS.api_version,
            "kind": RECOVERY_GROUPS.kind,
            "metadata": {"name": name, "ownerReferences": [owner]},
            "spec": {"workloadRef": {"kind": TRAIN_JOBS.kind, "name": job.name, "uid": uid}, "group": job.name},
        }
        await api_verbs.create(api, RECOVERY_GROUPS, body, namespace=job.namespace)
    patch = {"status": status}
    await api_verbs.patch(
        api, RECOVERY_GROUPS, name, patch, kind=PatchKind.MERGE, namespace=job.namespace, subresource="status"
    )
    return name


def held(process: ControllerProcess, group: str) -> list[str]:
    lines = [str(line.get("error")) for line in process.lines() if line.get("msg") == "holding"]
    return [line for line in lines if group in line]
