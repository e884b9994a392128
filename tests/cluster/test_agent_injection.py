"""What `manifests/components/agent` changes in the Jobs of a real JobSet and Trainer, and what it leaves alone."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.cluster.agents import (
    AUTHORITY,
    COMMAND,
    ENABLED,
    FOLDER,
    IMAGE,
    PREFIX,
    RANK,
    TOKENS,
    URL,
    admitted,
    has_agent,
    job,
    labelled_namespace,
    node,
    runtime_patch,
    service_account,
    set_parameters,
    settles,
    switch_off,
    torchrun_job,
)
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import Object, apply, install_component

pytestmark = pytest.mark.central


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def labelled(installed: ControlPlane) -> AsyncIterator[str]:
    """A namespace with the label, and the component with complete parameters."""
    namespace = await labelled_namespace(installed, "agents")
    await install_component(installed, "agent")
    await set_parameters(installed)
    await settles(installed, namespace, has_agent)
    yield namespace
    await switch_off(installed)
    await installed.kubectl("delete", "namespace", namespace, "--wait=false")


# --- one Job -------------------------------------------------------------------------------------------------------


async def test_a_torchrun_container_gets_the_agent_and_keeps_all_that_it_had(
    installed: ControlPlane, labelled: str
) -> None:
    own: Object = {
        "args": ["--lr", "0.1"],
        "env": [RANK, {"name": "PYTHONPATH", "value": "/work"}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    body = job(**own)
    body["spec"]["template"]["spec"]["volumes"] = [{"name": "data", "emptyDir": {}}]
    body["spec"]["template"]["spec"]["containers"].append({"name": "helper", "image": "x", "command": ["sleep"]})
    made = await admitted(installed, labelled, body)
    spec, found = made["spec"]["template"]["spec"], node(made)
    assert spec["volumes"][0] == {"name": "data", "emptyDir": {}}
    image, token = spec["volumes"][1:]
    assert image == {"name": "recovery-agent", "image": {"reference": IMAGE, "pullPolicy": "IfNotPresent"}}
    [source] = token["projected"]["sources"]
    assert source == {
        "serviceAccountToken": {
            "audience": "recovery-agent.recovery.trainjob.dev",
            "expirationSeconds": 3600,
            "path": "token",
        }
    }
    assert found["command"] == [*PREFIX, *COMMAND]
    assert found["args"] == own["args"]
    assert found["volumeMounts"] == [
        *own["volumeMounts"],
        {"name": "recovery-agent", "mountPath": FOLDER, "readOnly": True},
        {"name": "recovery-agent-token", "mountPath": TOKENS, "readOnly": True},
    ]
    assert found["env"][:2] == own["env"]
    told = {each["name"]: each.get("value") or each["valueFrom"]["fieldRef"]["fieldPath"] for each in found["env"][2:]}
    assert told == {
        "RECOVERY_AGENT_URL": URL,
        "RECOVERY_AGENT_CA": AUTHORITY,
        "RECOVERY_AGENT_TOKEN_FILE": f"{TOKENS}/token",
        "RECOVERY_AGENT_JOB_UID": "metadata.labels['batch.kubernetes.io/controller-uid']",
        "RECOVERY_AGENT_POD": "metadata.name",
        "RECOVERY_AGENT_NODE": "spec.nodeName",
    }
    helper = spec["containers"][1]
    assert helper["command"] == ["sleep"]
    assert "volumeMounts" not in helper
    assert not spec.get("serviceAccountName")


async def test_without_volumes_and_mounts_of_its_own_it_gets_those_of_the_agent(
    installed: ControlPlane, labelled: str
) -> None:
    made = await admitted(installed, labelled, job())
    assert [each["name"] for each in made["spec"]["template"]["spec"]["volumes"]] == [
        "recovery-agent",
        "recovery-agent-token",
    ]
    assert [each["name"] for each in node(made)["volumeMounts"]] == ["recovery-agent", "recovery-agent-token"]


@pytest.mark.parametrize(
    ("container", "why"),
    [
        ({"command": None, "args": ["torchrun", "train.py"]}, "the command is that of the image"),
        ({"env": None}, "Trainer has given it no rank"),
        ({"env": [{"name": "OTHER", "value": "1"}]}, "Trainer has given it no rank"),
        ({"name": "trainer"}, "Trainer's container is named node"),
    ],
)
async def test_another_container_is_left_alone(
    installed: ControlPlane, labelled: str, container: Object, why: str
) -> None:
    assert not has_agent(await admitted(installed, labelled, job(**container))), why


async def test_initializers_and_jobs_of_bare_job_sets_are_left_alone(installed: ControlPlane, labelled: str) -> None:
    step = "trainer.kubeflow.org/trainjob-ancestor-step"
    for value in ("dataset-initializer", None):
        body = job()
        body["metadata"]["labels"].pop(step)
        if value is not None:
            body["metadata"]["labels"][step] = value
        assert not has_agent(await admitted(installed, labelled, body)), value
    body = job()
    body["metadata"]["labels"].pop("jobset.sigs.k8s.io/jobset-name")
    assert not has_agent(await admitted(installed, labelled, body)), "no JobSet created it"


@pytest.mark.parametrize("kind", ["labels", "annotations"])
@pytest.mark.parametrize("of_pods", [False, True])
async def test_a_job_with_the_mark_of_opting_out_is_left_alone(
    installed: ControlPlane, labelled: str, kind: str, of_pods: bool
) -> None:
    body = job()
    meta = body["spec"]["template"]["metadata"] if of_pods else body["metadata"]
    meta.setdefault(kind, {})[ENABLED] = "disabled"
    assert not has_agent(await admitted(installed, labelled, body))


async def test_a_namespace_without_the_label_is_left_alone(installed: ControlPlane, labelled: str) -> None:
    other = await labelled_namespace(installed, "plain", enabled=False)
    assert not has_agent(await admitted(installed, other, job()))
    await installed.kubectl("delete", "namespace", other, "--wait=false")


# --- jobs of Trainer -----------------------------------------------------------------------------------------------


async def child_job(control_plane: ControlPlane, namespace: str, name: str) -> Object:
    """The Job that JobSet creates for the TrainJob."""
    async with asyncio.timeout(GUARD_SECONDS):
        while True:
            asked = ("get", "job", f"{name}-node-0", "-n", namespace, "-o", "json", "--ignore-not-found")
            if said := (await control_plane.kubectl(*asked)).strip():
                found: Object = json.loads(said)
                return found
            await asyncio.sleep(0.2)


async def test_a_train_job_gets_the_agent_and_its_pods_are_accepted(installed: ControlPlane, labelled: str) -> None:
    body = torchrun_job("llm")
    # The plug-in that names the ServiceAccount `default` in each pod does not run here.
    await apply(installed, labelled, service_account("default"))
    body["spec"]["runtimePatches"] = [runtime_patch(serviceAccountName="default")]
    await apply(installed, labelled, body)
    made = await child_job(installed, labelled, "llm")
    assert node(made)["command"] == [*PREFIX, *COMMAND]
    selector = "-l=jobset.sigs.k8s.io/jobset-name=llm"
    async with asyncio.timeout(GUARD_SECONDS):
        while True:
            pods = json.loads(await installed.kubectl("get", "pods", selector, "-n", labelled, "-o", "json"))["items"]
            if len(pods) == 2:
                break
            await asyncio.sleep(0.2)
    for pod in pods:
        assert pod["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] == made["metadata"]["uid"]
        [image] = [each for each in pod["spec"]["volumes"] if each["name"] == "recovery-agent"]
        assert image["image"]["reference"] == IMAGE


@pytest.mark.parametrize("kind", ["labels", "annotations"])
async def test_a_train_job_that_opts_out_trains_without_the_agent(
    installed: ControlPlane, labelled: str, kind: str
) -> None:
    name = f"out-{kind}"
    await apply(installed, labelled, torchrun_job(name, **{kind: {ENABLED: "disabled"}}))
    made = await child_job(installed, labelled, name)
    assert not has_agent(made)
    assert node(made)["command"] == COMMAND
    carried = made["spec"]["template"]["metadata"]["annotations"]
    assert carried[ENABLED] == "disabled"
    # What was added at creation does not stand in the way of the next apply.
    changed = torchrun_job(name, **{kind: {ENABLED: "disabled", "team": "a"}})
    await apply(installed, labelled, changed)
    said = json.loads(await installed.kubectl("get", "trainjob", name, "-n", labelled, "-o", "json"))
    assert said["metadata"][kind]["team"] == "a"
    [patch] = said["spec"]["runtimePatches"]
    assert patch["manager"] == ENABLED


async def test_a_patch_of_the_owner_stays_beside_that_of_the_opt_out(installed: ControlPlane, labelled: str) -> None:
    body = torchrun_job("out-patched", labels={ENABLED: "disabled"})
    own = {"manager": "team.example/own", "trainingRuntimeSpec": {"template": {"metadata": {"labels": {"a": "b"}}}}}
    body["spec"]["runtimePatches"] = [own]
    await apply(installed, labelled, body)
    made = await child_job(installed, labelled, "out-patched")
    assert not has_agent(made)
    job_set = json.loads(await installed.kubectl("get", "jobset", "out-patched", "-n", labelled, "-o", "json"))
    assert job_set["metadata"]["labels"]["a"] == "b"


async def test_a_suspended_train_job_that_opted_out_is_resumed_without_the_agent(
    installed: ControlPlane, labelled: str
) -> None:
    body = torchrun_job("out-suspended", annotations={ENABLED: "disabled"})
    body["spec"]["suspend"] = True
    await apply(installed, labelled, body)
    await child_job(installed, labelled, "out-suspended")
    body["spec"]["suspend"] = False
    await apply(installed, labelled, body)
    async with asyncio.timeout(GUARD_SECONDS):
        while (made := await child_job(installed, labelled, "out-suspended"))["spec"].get("suspend"):
            await asyncio.sleep(0.2)
    assert not has_agent(made)
    assert made["spec"]["template"]["metadata"]["annotations"][ENABLED] == "disabled"


# --- the parameters ------------------------------------------------------------------------------------------------


async def test_jobs_that_the_parameters_name_are_left_alone(installed: ControlPlane, labelled: str) -> None:
    try:
        await set_parameters(installed, without=f"elsewhere/other\n{labelled}/probe\n")
        await settles(installed, labelled, lambda made: not has_agent(made))
        assert has_agent(await admitted(installed, labelled, job("other"))), "only one is named"
    finally:
        await set_parameters(installed)
        await settles(installed, labelled, has_agent)


async def test_without_the_parameters_or_an_image_no_job_gets_the_agent(installed: ControlPlane, labelled: str) -> None:
    try:
        await set_parameters(installed, image="")
        await settles(installed, labelled, lambda made: not has_agent(made))
        await set_parameters(installed)
        await settles(installed, labelled, has_agent)
        await switch_off(installed)
        made = await settles(installed, labelled, lambda made: not has_agent(made))
        assert node(made)["command"] == COMMAND
        await apply(installed, labelled, torchrun_job("switched-off"))
        assert not has_agent(await child_job(installed, labelled, "switched-off"))
    finally:
        await set_parameters(installed)
        await settles(installed, labelled, has_agent)
