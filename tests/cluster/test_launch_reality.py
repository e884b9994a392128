"""Compares what `recovery lint` and `recovery explain-launch` say with what the API server, Trainer and JobSet do.

None of our webhooks runs here. Every example of docs/lint goes through the real webhooks. The tests also create
TrainJobs, and compare the result with what explain-launch says beforehand.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import yaml

from recovery.admission.launches import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES
from recovery.controller.clock import SystemClock
from recovery.core.diagnosis.training_container import select
from recovery.kube.http import HttpTransport
from recovery.kube.projections.workloads import decode_job
from recovery.kube.session import open_session
from recovery.launch.documents import document_of, documents
from recovery.launch.findings import Severity
from recovery.launch.lint import CODES, explain, lint, subjects
from recovery.ports import JOB_SETS, JOBS, TRAIN_JOBS, ApiRequest, NotFoundError, RefusedError, Resource
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.unit.launch.pages import NONE, Example, examples, merged

pytestmark = pytest.mark.central

Object = dict[str, Any]
WRITTEN = {resource.kind: resource for resource in (TRAINING_RUNTIMES, CLUSTER_TRAINING_RUNTIMES, TRAIN_JOBS, JOB_SETS)}
"""The kinds of objects in an example, in the order in which they are created."""
RUNTIMES = frozenset({TRAINING_RUNTIMES.kind, CLUSTER_TRAINING_RUNTIMES.kind})
BASES_OF_TRAINER = frozenset({NONE, "torch", "mpi", "jobset"})
SERVICES = Resource("", "v1", "services", "Service")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")

FAILS_LATER = frozenset(
    {
        *("bad-number", "name-too-long", "no-trainer-job", "patch-nowhere", "master-nowhere"),
        *("pod-failure-policy-refused", "gang-waits-for-itself", "resources-refused"),
        *("range-waits", "endpoint-missing", "restart-policy-refused", "unknown-resource", "same-node-rank"),
        *("failed-job-trains-again", "complete-job-runs-again"),  # tests/contract/test_ttl.py shows both
    }
)
"""Errors that no webhook refuses when the objects are written. No pods come of them, or none that train as written, or
pods that train again after the end."""
IN_THE_TEXT_ONLY = frozenset({"duplicate-key", "too-large"})
"""Errors in the text that the API server does not see. It gets the last of two keys, and expanded aliases."""


OF_LATER_TRAINERS = frozenset({"draft-failure-policy-bad"})
"""The examples with a field that only a later Trainer has: the lint warns of what that Trainer would do."""


class Server:
    """A client of the API server that does not retry."""

    def __init__(self, transport: HttpTransport) -> None:
        self._transport = transport

    @classmethod
    @asynccontextmanager
    async def of(cls, control_plane: ControlPlane) -> AsyncIterator["Server"]:
        async with open_session(kubeconfig=str(control_plane.kubeconfig)) as session:
            yield cls(HttpTransport(session, clock=SystemClock()))

    async def create(self, found: Object, namespace: str, *, dry: bool = False) -> Object:
        """Create an object with kubectl's strict validation; returns it as the API server has it. `dry`: a dry run.

        Raises RefusedError. Waits until Trainer's cache has the runtime of a TrainJob.
        """
        resource = WRITTEN[found["kind"]]
        body = {**found, "metadata": {**found["metadata"], **({"namespace": namespace} if resource.namespaced else {})}}
        query = {"fieldValidation": "Strict"} | ({"dryRun": "All"} if dry else {})
        where = namespace if resource.namespaced else None
        request = ApiRequest("create", resource, where, query=query, body=msgspec.json.encode(body))
        async with asyncio.timeout(GUARD_SECONDS):
            while True:
                try:
                    return dict(json.loads(await self._transport.send(request)))
                except RefusedError as error:
                    if "must be created before" not in str(error):
                        raise
                await asyncio.sleep(0.05)

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """Get an object. Waits until it exists."""
        async with asyncio.timeout(GUARD_SECONDS):
            while True:
                try:
                    return dict(json.loads(await self._transport.send(ApiRequest("get", resource, namespace, name))))
                except NotFoundError:
                    await asyncio.sleep(0.05)


def manifest(example: Example, runtime: str) -> list[Object]:
    """The objects of an example, with the runtime renamed to `runtime`. Empty: it is not YAML, or of another API."""
    try:
        found = [each for each in yaml.safe_load_all(example.manifest()) if isinstance(each, dict)]
    except yaml.YAMLError:
        return []
    found = [each for each in found if _is_known(each)]
    for each in found:
        if each["kind"] in RUNTIMES:
            each["metadata"]["name"] = runtime
        elif isinstance(each.get("spec", {}).get("runtimeRef"), dict):
            each["spec"]["runtimeRef"]["name"] = runtime
    return sorted(found, key=lambda each: [*WRITTEN].index(each["kind"]))


def _is_known(found: Object) -> bool:
    resource = WRITTEN.get(found.get("kind", ""))
    return resource is not None and found.get("apiVersion") == resource.api_version


async def made_of(server: Server, objects: list[Object], namespace: str) -> tuple[list[Object], str]:
    """The objects as the API server has them, and why it refused the next one. Empty: it accepted all. Runtimes are
    really created, because Trainer looks them up."""
    made = []
    for found in objects:
        try:
            made.append(await server.create(found, namespace, dry=found["kind"] not in RUNTIMES))
        except RefusedError as error:
            return made, str(error)
    return made, ""


def found_in(objects: list[Object]) -> dict[str, Severity]:
    """The severities of what the lint finds, by code."""
    given = [document_of(each, number=number) for number, each in enumerate(objects)]
    return {finding.code.name: finding.code.severity for finding in lint(given)}


def examples_of_trainer() -> Iterator[tuple[str, list[Object]]]:
    """Every example of every page that consists of Trainer's objects and JobSets, by page and title."""
    for code in CODES:
        for title, example in examples(code).items():
            name = f"{code.name}-{title.lower()}"
            objects = manifest(example, name) if example.base in BASES_OF_TRAINER else []
            if objects and code.name not in IN_THE_TEXT_ONLY:
                yield name, objects


async def test_what_the_lint_calls_an_error_is_refused_by_the_real_webhooks_and_nothing_else_is(
    control_plane: ControlPlane, namespace: str
) -> None:
    taken, wrongly_admitted, refused_by_no_one, too_early = 0, [], set(), set()
    async with Server.of(control_plane) as server:
        for title, objects in examples_of_trainer():
            found = found_in(objects)
            errors = {code for code, severity in found.items() if severity is Severity.ERROR}
            made, refusal = await made_of(server, objects, namespace)
            if title in OF_LATER_TRAINERS and "strict decoding error: unknown field" in refusal:
                too_early.add(title)
            elif refusal and not errors:
                wrongly_admitted.append(f"{title}: {refusal}")
            elif not refusal:
                taken += 1
                refused_by_no_one |= errors
                assert found_in(made) == found, f"{title}: what the API server fills in changes no verdict"
    assert wrongly_admitted == []
    assert too_early == OF_LATER_TRAINERS, "a Trainer that takes the field is tried like any other"
    assert refused_by_no_one == FAILS_LATER, "whose error no one refuses has to be shown otherwise (NO_POD)"
    assert taken > 100, "there are examples, and they are asked about"


NO_POD = {
    "name-too-long": "TrainJobResourcesCreationFailed",
    "patch-nowhere": "TrainJobResourcesCreationFailed",
    "pod-failure-policy-refused": "JobCreationFailed",
    "resources-refused": "JobCreationFailed",
    "restart-policy-refused": "JobCreationFailed",
    "unknown-resource": "JobCreationFailed",
    "bad-number": "Completed",
}
"""Code -> the reason of the Event that comes in place of pods. A job with zero nodes completes at once."""


@pytest.mark.parametrize(("code", "reason"), NO_POD.items())
async def test_of_an_error_that_no_one_refuses_no_pod_comes(
    control_plane: ControlPlane, namespace: str, code: str, reason: str
) -> None:
    (objects,) = (objects for title, objects in examples_of_trainer() if title == f"{code}-bad")
    objects[0] = merged(objects[0], {"metadata": {"name": namespace}, "spec": {"podGroupPolicy": None}})
    objects[1]["spec"]["runtimeRef"]["name"] = namespace
    events = ("get", "events", "--namespace", namespace, "--field-selector", f"reason={reason}", "--output=name")
    async with Server.of(control_plane) as server, asyncio.timeout(GUARD_SECONDS):
        for found in objects:
            await server.create(found, namespace)
        while not await control_plane.kubectl(*events):
            await asyncio.sleep(0.2)
    assert await control_plane.kubectl("get", "pods", "--namespace", namespace, "--output=name") == ""


# --- what becomes of a TrainJob --------------------------------------------------------------------------------------

CPUS = (
    "requests: {cpu: 4, memory: null, nvidia.com/gpu: null}\n      limits: {cpu: 8, memory: null, nvidia.com/gpu: null}"
)
NO_NUMBERS = "kind: TrainJob\nspec:\n  trainer:\n    numProcPerNode: null\n"
GROUPS: dict[str, tuple[str, str]] = {
    "numbers that are given": ("torch", ""),
    "GPUs to be counted by torchrun": ("torch", NO_NUMBERS),
    "a CPU request below the limit": ("torch", NO_NUMBERS + f"    resourcesPerNode:\n      {CPUS}\n"),
    "no resources at all, and the nodes of the runtime": (
        "torch",
        NO_NUMBERS + "    numNodes: null\n    resourcesPerNode: null\n---\n"
        "kind: ClusterTrainingRuntime\nspec: {mlPolicy: {numNodes: 3}}\n",
    ),
    "accelerators that have no gpu in their name": (
        "torch",
        NO_NUMBERS
        + "    resourcesPerNode:\n      requests: null\n      limits: {nvidia.com/gpu: null, habana.ai/gaudi: 8}\n",
    ),
    "no spec.trainer": ("torch", "kind: TrainJob\nspec: {trainer: null}\n"),
    "variables in other containers too": (
        "torch",
        """\
kind: ClusterTrainingRuntime
spec:
  mlPolicy: {torch: {envInjection: {targets: [{jobName: node, containerNames: [preflight]}]}}}
  template:
    spec:
      replicatedJobs:
      - name: node
        template: {spec: {template: {spec: {initContainers: [{name: preflight, image: busybox}]}}}}
""",
    ),
    "variables of the TrainJob and of the runtime": (
        "torch",
        """\
kind: TrainJob
spec: {trainer: {env: [{name: NCCL_DEBUG, value: WARN}]}}
---
kind: ClusterTrainingRuntime
spec:
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          spec:
            template:
              spec: {containers: [{name: node, env: [{name: A, value: b}, {name: PET_NNODES, value: "9"}]}]}
""",
    ),
    "JobSet's and the Job's defaults": (
        "torch",
        """\
kind: ClusterTrainingRuntime
spec:
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          spec: {backoffLimit: null, template: {spec: {restartPolicy: null, terminationGracePeriodSeconds: null}}}
""",
    ),
    "MPI whose launcher is a node": ("mpi", ""),
    "MPI whose launcher is none": (
        "mpi",
        "kind: ClusterTrainingRuntime\nspec: {mlPolicy: {mpi: {runLauncherAsNode: false}}}\n",
    ),
    "MPI with one node": ("mpi", "kind: TrainJob\nspec: {trainer: {numNodes: 1, numProcPerNode: null}}\n"),
}
COUNTS = {"PET_NPROC_PER_NODE", "OMPI_MCA_orte_set_default_slots"}
UNSEEN = {"numProcPerNode", "pods that train", "hostfile", "collective"} | {
    f"tolerationSeconds of node.kubernetes.io/{taint}" for taint in ("not-ready", "unreachable")
}
"""What explain-launch says but none of these objects shows. It is compared separately, or needs pods."""
NO_POD_GROUPS = "kind: ClusterTrainingRuntime\nspec: {podGroupPolicy: null}\n"
"""The scheduler's plugins are not installed here."""
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


def group_of(base: str, fragment: str, runtime: str) -> tuple[list[Object], dict[tuple[str, str], str]]:
    """The objects, suspended so that they make no pods, and what explain-launch says, by target and name."""
    text = "---\n".join(each for each in (fragment, NO_POD_GROUPS) if each)
    objects = manifest(Example(base, text), runtime)
    objects[-1]["spec"]["suspend"] = True
    (launch,) = (each.group for each in subjects(documents(yaml.safe_dump_all(objects))) if each.group is not None)
    return objects, {(each.target, each.name): each.value for each in explain(launch)}


async def what_came_of(server: Server, namespace: str, name: str) -> dict[tuple[str, str], str]:
    """The actual values in the form of explain-launch, by target and name."""
    job_set = await server.get(JOB_SETS, namespace, name)
    made: dict[tuple[str, str], str] = {}
    for job_name in (each["name"] for each in job_set["spec"]["replicatedJobs"]):
        job = await server.get(JOBS, namespace, f"{name}-{job_name}-0")
        spec, target = job["spec"], f"ReplicatedJob {job_name}"
        pods = spec["template"]["spec"]
        assert spec["parallelism"] == spec["completions"]
        made[target, "parallelism and completions"] = str(spec["parallelism"])
        facts = decode_job(json.dumps(job).encode()).value.facts
        made[target, "training container"] = " and ".join(select(facts, None).names)
        made[target, "restartPolicy"] = pods["restartPolicy"]
        made[target, "backoffLimit"] = str(spec["backoffLimit"])
        made[target, "podReplacementPolicy"] = spec["podReplacementPolicy"]
        made[target, "terminationGracePeriodSeconds"] = str(pods["terminationGracePeriodSeconds"])
        for toleration in pods.get("tolerations", ()):
            made[target, f"tolerationSeconds of {toleration['key']}"] = str(toleration["tolerationSeconds"])
        for container in (*pods["containers"], *pods.get("initContainers", ())):
            for setting, value in settings_of(container, spec):
                made[f"container {container['name']} of {target}", setting] = value
        last = f"{name}-{job_name}-0-{spec['completions'] - 1}.{name}"
        first = f"{name}-{job_name}-0-0.{name}"
        made["headless Service", "DNS names"] = f"{first} to {last}" if first != last else first
    service = await server.get(SERVICES, namespace, name)
    made["headless Service", "name"] = service["metadata"]["name"]
    made["headless Service", "publishNotReadyAddresses"] = str(service["spec"]["publishNotReadyAddresses"]).lower()
    return made


def settings_of(container: Object, job: Object) -> Iterator[tuple[str, str]]:
    yield "image", container["image"]
    for words in ("command", "args"):
        if words in container:
            yield words, " ".join(container[words])
    for kind in ("requests", "limits"):
        for resource, amount in container["resources"].get(kind, {}).items():
            yield f"{kind} {resource}", amount
    for variable in container.get("env", ()):
        yield variable["name"], value_of(variable, job)
    for port in container.get("ports", ()):
        yield "containerPort", str(port["containerPort"])


def value_of(variable: Object, job: Object) -> str:
    """The value of a variable. The index of a pod is shown as the range of all indexes."""
    if "value" in variable:
        return str(variable["value"])
    assert variable["valueFrom"] == {"fieldRef": {"apiVersion": "v1", "fieldPath": INDEX}}
    return f"0 to {job['completions'] - 1}" if job["completions"] > 1 else "0"


def hosts_of(told: str) -> list[str]:
    """The lines of a hostfile that explain-launch shows as `a-0.b to a-2.b slots=8; c-0.b slots=8`."""
    lines = []
    for part in told.split("; "):
        names, slots = part.rsplit(" ", 1)
        first, _, last = names.partition(" to ")
        stem, _, domain = first.partition(".")
        stem, count = stem.rpartition("-")[0], int((last or first).partition(".")[0].rpartition("-")[2]) + 1
        lines += [f"{stem}-{number}.{domain} {slots}" for number in range(count)]
    return lines


@pytest.mark.parametrize(("base", "fragment"), GROUPS.values(), ids=GROUPS.keys())
async def test_explain_launch_tells_what_trainer_and_job_set_do(
    control_plane: ControlPlane, namespace: str, base: str, fragment: str
) -> None:
    objects, told = group_of(base, fragment, runtime=namespace)
    name = objects[-1]["metadata"]["name"]
    async with Server.of(control_plane) as server:
        for found in objects:
            await server.create(found, namespace)
        made = await what_came_of(server, namespace, name)
        if base == "mpi":
            lines = (await server.get(CONFIG_MAPS, namespace, f"{name}-mpi-hostfile"))["data"]["hostfile"].splitlines()
            assert hosts_of(told[f"ConfigMap {name}-mpi-hostfile", "hostfile"]) == lines
    assert {key: told[key] for key in told.keys() & made.keys()} == {
        key: made[key] for key in told.keys() & made.keys()
    }
    assert {setting for _, setting in told.keys() - made.keys()} <= UNSEEN, "what is told is there"
    assert {key for key in made.keys() - told.keys() if is_main(key[0])} == set(), "what is there is told"
    counted = {value for (_, setting), value in made.items() if setting in COUNTS} - {"auto"}
    assert counted <= {value for (_, setting), value in told.items() if setting == "numProcPerNode"}


def is_main(target: str) -> bool:
    """The main container. Of an init container, explain-launch shows only Trainer's variables."""
    return target.startswith("container node ")
