"""Admission of TrainJobs and runtimes by the shipped webhooks, on a real API server, beside Trainer's own webhooks.

They are served as the controller's ServiceAccount. With only the rights of the component
`manifests/admission/launch/self-made`, it reads runtimes and makes the API server trust its certificate.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import yaml

from recovery.admission.certificates import CONFIGURATION_NAME, LAUNCH_CONFIGURATION_NAME
from recovery.launch.preparing import PREPARE_ANNOTATION, PREPARED_ANNOTATION
from tests.cluster.controlplane.kubectl import KubectlError
from tests.cluster.controlplane.ports import PortClaims
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.scene import Object, train_job
from tests.cluster.webhooks import SYSTEM, Webhooks, eventually
from tests.unit.launch.pages import BASES, merged

pytestmark = pytest.mark.central

PREPARED_JOB, RUNTIME = (each for each in yaml.safe_load_all((BASES / "torch.yaml").read_text()) if each)
RUNTIME = merged(RUNTIME, {"metadata": {"name": "torch-judged"}, "spec": {"podGroupPolicy": None}})
LONG = "a-name-that-leaves-no-room-for-what-is-appended-to-it"
"""Trainer accepts this name, but cannot make a JobSet with it."""
NO_SIDECAR = merged(
    RUNTIME,
    {
        "metadata": {"name": "torch-without-sidecar"},
        "spec": {
            "mlPolicy": {"torch": {"envInjection": {"targets": [{"jobName": "node", "containerNames": ["side"]}]}}}
        },
    },
)
"""Trainer accepts this runtime, but refuses every TrainJob that uses it."""
CPUS = {"requests": {"cpu": 4, "nvidia.com/gpu": None}, "limits": {"cpu": 8, "nvidia.com/gpu": None}}


def job(name: str = "llama", *, runtime: str = "torch-judged", **spec: Any) -> Object:
    """A well-prepared TrainJob, unless `spec` says otherwise, without a namespace."""
    metadata = {"name": name, "namespace": None, "labels": {"kueue.x-k8s.io/queue-name": "research"}}
    changed: Object = merged(PREPARED_JOB, {"metadata": metadata, "spec": {"runtimeRef": {"name": runtime}, **spec}})
    return changed


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def webhooks(installed: ControlPlane) -> AsyncIterator[Webhooks]:
    """Webhooks that are registered for this module, with a runtime. All of it is removed afterwards."""
    claims = PortClaims()
    kubeconfig = await installed.kubeconfig_for_service_account(SYSTEM, "recovery-controller")
    registered = Webhooks(installed, kubeconfig, claims.claim())
    await registered.register("self-made")
    await registered.register("launch/self-made")
    await apply(registered, RUNTIME)
    yield registered
    launch, own = LAUNCH_CONFIGURATION_NAME, CONFIGURATION_NAME
    await installed.kubectl("delete", "validatingwebhookconfiguration", launch, own)
    await installed.kubectl("delete", "mutatingwebhookconfiguration", launch)
    await installed.kubectl("delete", "clustertrainingruntime", RUNTIME["metadata"]["name"])
    claims.close()


async def apply(webhooks: Webhooks, *objects: Object, namespace: str = "default") -> None:
    await webhooks.control_plane.kubectl(
        "apply", "--server-side", "--namespace", namespace, "--filename=-", stdin=yaml.safe_dump_all(objects)
    )


async def refused(webhooks: Webhooks, *arguments: str) -> str:
    """What kubectl prints if the command fails. Empty: it succeeds."""
    try:
        await webhooks.control_plane.kubectl(*arguments)
    except KubectlError as error:
        return error.stderr
    return ""


async def served(webhooks: Webhooks, namespace: str) -> None:
    """Wait until the API server calls and trusts them: it notices a registration and its CA bundle a little later."""
    await eventually(lambda: webhooks.said(job(f"probe-{LONG}"), namespace=namespace), "name-too-long")


# --- what users see ------------------------------------------------------------------------------------------------


async def test_what_surely_fails_is_refused_with_the_words_of_the_lint_and_good_ones_pass_without_a_word(
    webhooks: Webhooks, namespace: str
) -> None:
    async with webhooks.served():
        await served(webhooks, namespace)
        told = await webhooks.said(job(LONG), namespace=namespace)
        bad_runtime = await webhooks.said(NO_SIDECAR, namespace=namespace)
        assert await webhooks.said(job(), RUNTIME, namespace=namespace) == ""
    assert 'admission webhook "trainjobs.launch.recovery.trainjob.dev" denied the request: name-too-long: ' in told
    assert f"the name has {len(LONG)} characters" in told
    assert 'webhook "clustertrainingruntimes.launch.recovery.trainjob.dev" denied the request: injection-target' in (
        bad_runtime
    )


async def test_what_will_cost_more_is_warned_about_and_the_shipped_runtimes_are_taken(
    webhooks: Webhooks, namespace: str
) -> None:
    plain = train_job("llm", ranks=4)
    found = json.loads(await webhooks.control_plane.kubectl("get", "clustertrainingruntimes", "-o", "json"))["items"]
    copies = [
        {**each, "metadata": {"name": f"{each['metadata']['name']}-copy", "labels": each["metadata"]["labels"]}}
        for each in found
        if "labels" in each["metadata"]
    ]
    async with webhooks.served():
        await served(webhooks, namespace)
        told = await webhooks.said(plain, namespace=namespace)
        of_runtimes = await webhooks.said(*copies, namespace=namespace)
    assert "Warning: ClusterTrainingRuntime torch-distributed: restarted-in-place: " in told
    assert len([line for line in told.splitlines() if line.startswith("Warning: ")]) <= 6
    assert copies
    assert "Warning: cascade-ends-job: " in of_runtimes
    assert "denied the request" not in told + of_runtimes


# --- never in the way ----------------------------------------------------------------------------------------------


async def test_while_no_one_serves_everything_is_admitted_and_can_be_changed_and_removed_afterwards(
    webhooks: Webhooks, namespace: str
) -> None:
    async with webhooks.served():
        await served(webhooks, namespace)
    kubectl = webhooks.control_plane.kubectl
    await apply(webhooks, job(LONG, suspend=True), job(), NO_SIDECAR, namespace=namespace)
    where = ("--namespace", namespace, "trainjob", LONG)
    runtime = ("clustertrainingruntime", NO_SIDECAR["metadata"]["name"])
    async with webhooks.served():
        await served(webhooks, namespace)
        for changed in (where, runtime):
            await kubectl("label", *changed, "team=a")
        for suspend in (False, True):
            await patch(webhooks, where, {"spec": {"suspend": suspend}})
        status = {"status": {"conditions": [condition()]}}
        await patch(webhooks, where, status, "--subresource=status")
        # A mistake from before does not block another change. A mistake in the change itself does.
        await patch(webhooks, runtime, {"spec": {"mlPolicy": {"numNodes": 2}}})
        worse = await refused(
            webhooks, "patch", *runtime, "--type=merge", "-p", json.dumps({"spec": {"mlPolicy": {"numNodes": 0}}})
        )
        await kubectl("delete", *where, "--timeout=60s")
        await kubectl("delete", *runtime)
    warned, _, denied = worse.partition(" denied the request: ")
    assert denied.startswith("bad-number: ")
    assert "injection-target" not in denied
    assert "Warning: injection-target: " in warned


def condition() -> Object:
    return {
        "type": "Probed",
        "status": "True",
        "reason": "Test",
        "message": "",
        "lastTransitionTime": "2026-03-01T12:00:00Z",
    }


async def patch(webhooks: Webhooks, what: tuple[str, ...], change: Object, *options: str) -> None:
    await webhooks.control_plane.kubectl("patch", *what, "--type=merge", *options, "-p", json.dumps(change))


# --- preparing -------------------------------------------------------------------------------------------------------


async def test_a_job_is_prepared_if_its_owner_asks_and_not_otherwise(webhooks: Webhooks, namespace: str) -> None:
    counted = {"numProcPerNode": None, "resourcesPerNode": CPUS}
    asking = merged(job("asking", trainer=counted), {"metadata": {"annotations": {PREPARE_ANNOTATION: "true"}}})
    silent = job("silent", trainer=counted)
    async with webhooks.served():
        await served(webhooks, namespace)
        told = await webhooks.said(silent, namespace=namespace)
        await apply(webhooks, asking, silent, namespace=namespace)
    asked, left = [
        await webhooks.get("--namespace", namespace, "trainjob", each["metadata"]["name"]) for each in (asking, silent)
    ]
    assert "Warning: processes-differ: each node starts 4 processes" in told
    record = "spec.trainer.numProcPerNode=8 (one for each CPU of the limit of 8, rounded up)"
    assert asked["metadata"]["annotations"] == {PREPARE_ANNOTATION: "true", PREPARED_ANNOTATION: record}
    assert asked["spec"] == merged(left["spec"], {"trainer": {"numProcPerNode": 8}})
    assert "annotations" not in left["metadata"]


async def test_a_mutation_that_no_one_serves_is_left_out(webhooks: Webhooks, namespace: str) -> None:
    asking = merged(
        job("asking", trainer={"numProcPerNode": None, "resourcesPerNode": CPUS}),
        {"metadata": {"annotations": {PREPARE_ANNOTATION: "true"}}},
    )
    await apply(webhooks, asking, namespace=namespace)
    found = await webhooks.get("--namespace", namespace, "trainjob", "asking")
    assert "numProcPerNode" not in found["spec"]["trainer"]
    assert found["metadata"]["annotations"] == {PREPARE_ANNOTATION: "true"}
