"""A real API server accepts the CRDs, refuses each bad policy with the name of the field, and keeps a whole ledger."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import yaml
from msgspec import inspect

from recovery.core.model.config import CONFIG_NAME, ConfigSpec
from recovery.core.model.fleet_ledger import FleetLedger
from recovery.core.model.folded_incidents import FoldedIncidents
from recovery.core.model.ledger import SCHEMA_VERSION, ClosedIncident, Closing, Incident, Ledger
from recovery.core.policy.resolved import PolicyFacts, resolve
from recovery.core.policy.spec import PolicySpec
from recovery.ports import (
    CLUSTER_RECOVERY_POLICIES,
    RECOVERY_CONFIGS,
    RECOVERY_GROUPS,
    RECOVERY_INCIDENTS,
    RECOVERY_POLICIES,
    Resource,
)
from tests.cluster.controlplane.kubectl import KubectlError
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.crd_specs import BAD_CONFIGS, BAD_SPECS, BAD_WHENS, GOOD_SPECS
from tests.cluster.scene import install

pytestmark = pytest.mark.central

REPOSITORY = Path(__file__).resolve().parents[2]


POLICIES = REPOSITORY / "policies"


CONTROLLER = "--as=system:serviceaccount:recovery-system:recovery-controller"


WORKLOAD = {"kind": "TrainJob", "name": "llm", "uid": "0b5e1a52-7f0a-4a5c-9d6e-000000000001"}


OURS = (RECOVERY_POLICIES, CLUSTER_RECOVERY_POLICIES, RECOVERY_CONFIGS, RECOVERY_GROUPS, RECOVERY_INCIDENTS)


@pytest_asyncio.fixture(scope="module", loop_scope="session", autouse=True)
async def installed(control_plane: ControlPlane) -> AsyncIterator[None]:
    """Installs the CRDs as a user does. They stay, because other tests of this control plane may use them."""
    await install(control_plane)
    yield


def manifest(resource: Resource, name: str, namespace: str = "", **parts: object) -> str:
    """`namespace` empty: the resource is cluster-scoped."""
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return json.dumps({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata} | parts)


async def create(control_plane: ControlPlane, *arguments: str, stdin: str) -> dict[str, Any]:
    """The object as the API server keeps it. Raises KubectlError on a refusal."""
    answer: dict[str, Any] = json.loads(await control_plane.kubectl("create", "-f-", "-ojson", *arguments, stdin=stdin))
    return answer


def sample(info: inspect.Type, path: str = "") -> Any:
    """A value of that type in which no field has its default. Fields that are added later are included."""
    if isinstance(info, inspect.StructType):
        return {field.encode_name: sample(field.type, f"{path}.{field.encode_name}") for field in info.fields}
    if isinstance(info, inspect.UnionType):
        return sample(next(kind for kind in info.types if not isinstance(kind, inspect.NoneType)), path)
    if isinstance(info, inspect.VarTupleType):
        return [sample(info.item_type, f"{path}.{number}") for number in (1, 2)]
    if isinstance(info, inspect.DictType):
        return {key: sample(info.value_type, f"{path}.{key}") for key in ("one", "two")}
    if isinstance(info, inspect.EnumType):
        return list(info.cls)[-1].value
    samples: dict[type[inspect.Type], Any] = {
        inspect.IntType: 2**31 + len(path),
        inspect.FloatType: len(path) + 0.123456,
        inspect.StrType: f'{path}: ünïcode, quotes " and a line\n',
        inspect.BoolType: True,
        # Whole seconds come from the API server, microseconds from the controller's own clock.
        inspect.DateTimeType: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=len(path)),
    }
    return samples[type(info)]


HELD = {"type": "Held", "reason": "SameErrorAgain", "message": "it failed again", "failsJob": True}
"""A step with as many fields as one type of it has. No type has all of them."""


def full_ledger() -> Ledger:
    plain = sample(inspect.type_info(Ledger))
    for number, condition in enumerate(plain["conditions"]):
        condition |= {"type": f"Condition{number}", "status": "True"}  # a map by type in the API
    # All fields of a step belong to no one type of it.
    plain["incident"]["step"] = {
        "type": "Held",
        "reason": "SameErrorAgain",
        "message": "it failed again",
        "failsJob": True,
    }
    return msgspec.convert(plain, Ledger)


def as_written(value: msgspec.Struct) -> dict[str, Any]:
    """The JSON that goes over the wire."""
    plain: dict[str, Any] = json.loads(msgspec.json.encode(value))
    return plain


@pytest.mark.parametrize("resource", OURS, ids=lambda r: r.plural)
async def test_a_crd_is_taken_without_complaint(control_plane: ControlPlane, resource: Resource) -> None:
    name = f"crd/{resource.plural}.{resource.group}"
    found = json.loads(await control_plane.kubectl("get", name, "-o", "json"))
    conditions = {condition["type"]: condition["status"] for condition in found["status"]["conditions"]}
    assert (conditions["Established"], conditions["NamesAccepted"]) == ("True", "True")
    assert "NonStructuralSchema" not in conditions


@pytest.mark.parametrize("case", BAD_SPECS)
async def test_a_bad_policy_is_refused_by_its_field(control_plane: ControlPlane, case: str) -> None:
    spec, refusal = BAD_SPECS[case]
    with pytest.raises(KubectlError) as refused:
        await create(control_plane, "--dry-run=server", stdin=manifest(RECOVERY_POLICIES, "bad", "default", spec=spec))
    refused.match(refusal)


@pytest.mark.parametrize("case", BAD_CONFIGS)
async def test_a_bad_config_is_refused_by_its_field(control_plane: ControlPlane, case: str) -> None:
    spec, refusal = BAD_CONFIGS[case]
    with pytest.raises(KubectlError) as refused:
        await create(control_plane, "--dry-run=server", stdin=manifest(RECOVERY_CONFIGS, CONFIG_NAME, spec=spec))
    refused.match(refusal)


async def test_a_recovery_config_of_another_name_is_refused(control_plane: ControlPlane) -> None:
    with pytest.raises(KubectlError, match="there is one RecoveryConfig in a cluster, and its name is default"):
        await create(control_plane, "--dry-run=server", stdin=manifest(RECOVERY_CONFIGS, "mine", spec={}))


async def test_a_recovery_config_is_kept_and_completed(control_plane: ControlPlane) -> None:
    """A dry run, because other tests own the cluster's RecoveryConfig."""
    written: dict[str, Any] = {
        "paused": True,
        "pauseReason": "network work",
        "allow": {"failJob": True, "cordon": True, "assumeDead": True},
        "quarantine": {"maxNodes": 0, "maxPercent": 100, "releaseAfter": "24h"},
        "suspicion": {"suspicions": 3, "within": "1h"},
        "circuitBreaker": {"recoveries": 5, "within": "30m"},
    }
    for spec in ({}, written):
        stdin = manifest(RECOVERY_CONFIGS, CONFIG_NAME, spec=spec)
        kept = (await create(control_plane, "--dry-run=server", stdin=stdin))["spec"]
        assert msgspec.convert(kept, ConfigSpec) == msgspec.convert(spec, ConfigSpec)
        assert {"paused", "allow", "quarantine", "suspicion"} <= kept.keys()


@pytest.mark.parametrize("case", BAD_WHENS)
async def test_a_cluster_policy_is_refused_like_a_policy(control_plane: ControlPlane, case: str) -> None:
    when, refusal = BAD_WHENS[case]
    spec = {"mode": "Enforce", "rules": [{"name": "bad", "action": "Ignore", "when": when}]}
    with pytest.raises(KubectlError) as refused:
        await create(control_plane, "--dry-run=server", stdin=manifest(CLUSTER_RECOVERY_POLICIES, "bad", spec=spec))
    refused.match(refusal)


@pytest.mark.parametrize("case", BAD_WHENS)
async def test_a_bad_rule_is_refused_by_its_field(control_plane: ControlPlane, case: str) -> None:
    when, refusal = BAD_WHENS[case]
    rules = [{"name": "bad", "action": "Ignore", "when": when}]
    with pytest.raises(KubectlError) as refused:
        await create(
            control_plane,
            "--dry-run=server",
            stdin=manifest(RECOVERY_POLICIES, "bad", "default", spec={"rules": rules}),
        )
    refused.match(refusal)


@pytest.mark.parametrize("case", GOOD_SPECS)
async def test_a_good_policy_is_kept_and_completed(control_plane: ControlPlane, namespace: str, case: str) -> None:
    written = GOOD_SPECS[case]
    kept = (await create(control_plane, stdin=manifest(RECOVERY_POLICIES, "good", namespace, spec=written)))["spec"]
    assert msgspec.convert(kept, PolicySpec) == msgspec.convert(written, PolicySpec)
    # The object contains the defaults, so that `kubectl get` shows what applies.
    assert {"priority", "mode", "restart", "onTerminalFailure", "budget", "backoff", "timeouts"} <= kept.keys()
    assert {"overrideNative", "settle", "teardown"} <= kept.keys()
    assert {"mode", "assumeDeadAfter"} <= kept["teardown"]["fencing"].keys()
    assert {"limit", "window", "onExhausted"} <= kept["budget"].keys()
    assert {"initial", "factor", "max", "resetAfter"} <= kept["backoff"].keys()
    # The controller can read what the schema accepts.
    now = datetime(2026, 1, 1, tzinfo=UTC)
    resolve(PolicyFacts("good", namespace, "uid", 1, msgspec.convert(kept, PolicySpec), now, now))


async def test_columns_of_policies_and_config(control_plane: ControlPlane, namespace: str) -> None:
    await create(control_plane, stdin=manifest(RECOVERY_POLICIES, "good", namespace, spec={"budget": {"limit": 3}}))
    condition: dict[str, object] = {
        "type": "Accepted",
        "status": "True",
        "reason": "Valid",
        "message": "the controller can use it",
    }
    condition |= {"lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}
    status = json.dumps({"status": {"observedGeneration": 1, "conditions": [condition]}})
    where = ("rpol/good", "-n", namespace)
    await control_plane.kubectl("patch", *where, "--subresource=status", "--type=merge", f"-p={status}")
    shown = await control_plane.kubectl("get", "rpol", "-n", namespace)
    header, line = (row.split() for row in shown.splitlines())
    assert header == ["NAME", "MODE", "RESTART", "BUDGET", "ACCEPTED", "AGE"]
    assert line[:5] == ["good", "Observe", "RecreateGroupOnPodRestart", "3", "True"]
    kept = json.loads(await control_plane.kubectl("get", *where, "-o", "json"))["status"]
    assert kept == {"observedGeneration": 1, "conditions": [condition]}


async def test_one_category_lists_all_of_it(control_plane: ControlPlane, namespace: str) -> None:
    spec = {"workloadRef": WORKLOAD | {"kind": "JobSet"}, "group": "llm"}
    await create(control_plane, stdin=manifest(RECOVERY_GROUPS, "llm-1", namespace, spec=spec))
    await create(control_plane, stdin=manifest(RECOVERY_POLICIES, "good", namespace, spec={}))
    shown = await control_plane.kubectl("get", "recovery", "-n", namespace, "-o", "name")
    assert {
        f"recoverygroup.{RECOVERY_GROUPS.group}/llm-1",
        f"recoverypolicy.{RECOVERY_POLICIES.group}/good",
    } <= set(shown.split())


async def test_a_group_of_another_kind_is_refused(control_plane: ControlPlane, namespace: str) -> None:
    spec = {"workloadRef": WORKLOAD | {"kind": "PyTorchJob"}, "group": "llm"}
    with pytest.raises(KubectlError, match=r'spec\.workloadRef\.kind: Unsupported value: "PyTorchJob"'):
        await create(control_plane, stdin=manifest(RECOVERY_GROUPS, "llm-1", namespace, spec=spec))


async def test_an_unknown_field_is_pruned_for_a_client_that_does_not_ask(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Kubernetes does this itself. It is why the reference says to keep kubectl's default, strict validation."""
    bad = manifest(RECOVERY_POLICIES, "careless", namespace, spec={"budjet": {"limit": 3}})
    kept = await create(control_plane, "--validate=ignore", stdin=bad)
    assert "budjet" not in kept["spec"]


@pytest.mark.parametrize("name", sorted(path.name for path in POLICIES.glob("*.yaml")))
async def test_what_policies_ships_is_accepted(control_plane: ControlPlane, namespace: str, name: str) -> None:
    text = (POLICIES / name).read_text()
    cluster_wide = yaml.safe_load(text)["kind"] not in {"RecoveryPolicy", "TrainingRuntime"}
    await control_plane.kubectl(
        *("apply", "--server-side", "--dry-run=server", "-f-"), *(() if cluster_wide else ("-n", namespace)), stdin=text
    )


async def test_a_job_on_the_prepared_runtime(control_plane: ControlPlane, namespace: str) -> None:
    await control_plane.kubectl("apply", "--server-side", "-f", str(POLICIES / "runtime-prepared.yaml"))
    runtime = {"spec": {"runtimeRef": {"name": "torch-recoverable"}, "trainer": {"numNodes": 2}}}
    train_job = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "llm"}}
    await control_plane.kubectl("create", "-n", namespace, "-f-", stdin=json.dumps(train_job | runtime))
    await control_plane.kubectl("wait", "job/llm-node-0", "-n", namespace, "--for=create", "--timeout=180s")
    job = json.loads(await control_plane.kubectl("get", "job/llm-node-0", "-n", namespace, "-o", "json"))["spec"]
    pod = job["template"]["spec"]
    assert (job["backoffLimit"], job["completions"], pod["restartPolicy"]) == (1000, 2, "Never")
    assert pod["terminationGracePeriodSeconds"] == 15
    assert [toleration["tolerationSeconds"] for toleration in pod["tolerations"]] == [30, 30]
    assert pod["containers"][0]["terminationMessagePolicy"] == "FallbackToLogsOnError"


async def test_a_full_ledger_comes_back_as_it_was_written(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    spec = {"workloadRef": WORKLOAD, "group": "llm"}
    group = await create(control_plane, stdin=manifest(RECOVERY_GROUPS, "llm-1", namespace, spec=spec))
    ledger = full_ledger()
    (tmp_path / "group.json").write_text(json.dumps(group | {"status": as_written(ledger)}))
    path = RECOVERY_GROUPS.path(namespace, "llm-1", "status")
    await control_plane.kubectl("replace", "--raw", path, "-f", str(tmp_path / "group.json"))
    kept = json.loads(await control_plane.kubectl("get", "recoverygroup/llm-1", "-n", namespace, "-o", "json"))[
        "status"
    ]
    assert kept == as_written(ledger)
    assert msgspec.convert(kept, Ledger) == ledger
    # Compare-and-swap: a second identical write has an outdated resourceVersion.
    with pytest.raises(KubectlError, match="the object has been modified"):
        await control_plane.kubectl("replace", "--raw", path, "-f", str(tmp_path / "group.json"))


async def test_the_fleets_ledger_comes_back_as_it_was_written(control_plane: ControlPlane, tmp_path: Path) -> None:
    """The status also has the condition that admission writes."""
    await create(control_plane, stdin=manifest(RECOVERY_CONFIGS, CONFIG_NAME, spec={}))
    try:
        config = json.loads(await control_plane.kubectl("get", f"rcfg/{CONFIG_NAME}", "-o", "json"))
        fleet = msgspec.convert(sample(inspect.type_info(FleetLedger)), FleetLedger)
        condition = {"type": "Accepted", "status": "True", "reason": "Accepted", "message": ""}
        condition |= {"lastTransitionTime": "2026-01-01T00:00:00Z"}
        status = as_written(fleet) | {"observedGeneration": 1, "conditions": [condition]}
        (tmp_path / "config.json").write_text(json.dumps(config | {"status": status}))
        path = RECOVERY_CONFIGS.path(None, CONFIG_NAME, "status")
        await control_plane.kubectl("replace", "--raw", path, "-f", str(tmp_path / "config.json"))
        kept = json.loads(await control_plane.kubectl("get", f"rcfg/{CONFIG_NAME}", "-o", "json"))["status"]
        assert kept == status
        assert msgspec.convert(kept, FleetLedger) == fleet
    finally:
        await control_plane.kubectl("delete", "rcfg", CONFIG_NAME)


async def test_an_empty_ledger_shows_zeros(control_plane: ControlPlane, namespace: str) -> None:
    spec = {"workloadRef": WORKLOAD, "group": "llm"}
    await create(control_plane, stdin=manifest(RECOVERY_GROUPS, "llm-1", namespace, spec=spec))
    patch = json.dumps({"status": as_written(Ledger()) | {"epoch": 0}})
    await control_plane.kubectl(
        "patch", "rgrp/llm-1", "-n", namespace, "--subresource=status", "--type=merge", f"-p={patch}"
    )
    shown = await control_plane.kubectl("get", "rgrp", "-n", namespace)
    header, line = (row.split() for row in shown.splitlines())
    assert header == ["NAME", "PHASE", "STANDING", "CAUSE", "ACTION", "IDLE-GPUS", "RESTARTS", "BUDGET", "AGE"]
    assert line[:5] == ["llm-1", "Healthy", "0", "0", "0"]
    kept = json.loads(await control_plane.kubectl("get", "rgrp/llm-1", "-n", namespace, "-o", "json"))["status"]
    assert msgspec.convert(kept, Ledger) == Ledger()


async def test_a_group_belongs_to_its_workload_for_good(control_plane: ControlPlane, namespace: str) -> None:
    spec = {"workloadRef": WORKLOAD, "group": "llm"}
    await create(control_plane, stdin=manifest(RECOVERY_GROUPS, "llm-1", namespace, spec=spec))
    patch = json.dumps({"spec": {"workloadRef": {"uid": "another"}}})
    with pytest.raises(KubectlError, match=r"spec: Invalid value: .*belongs to one workload for good"):
        await control_plane.kubectl("patch", "rgrp/llm-1", "-n", namespace, "--type=merge", f"-p={patch}")


async def test_a_record_keeps_everything_and_never_changes(control_plane: ControlPlane, namespace: str) -> None:
    parts = [sample(inspect.type_info(struct)) for struct in (ClosedIncident, Incident, Closing)]
    known = {name: value for part in parts for name, value in part.items() if name != "closing"} | {"step": HELD}
    spec = json.loads(
        msgspec.json.encode({"workloadRef": WORKLOAD, "group": "llm", "schemaVersion": SCHEMA_VERSION} | known)
    )
    kept = await create(control_plane, stdin=manifest(RECOVERY_INCIDENTS, "llm-1-1", namespace, spec=spec))
    assert kept["spec"] == spec
    with pytest.raises(KubectlError, match=r"spec: Invalid value: .*is a record; it cannot be changed"):
        await control_plane.kubectl(
            "patch", "rinc/llm-1-1", "-n", namespace, "--type=merge", '-p={"spec":{"cause":"another"}}'
        )
    shown = await control_plane.kubectl("get", "rinc", "-n", namespace)
    assert shown.splitlines()[0].split() == [
        "NAME",
        "JOB",
        "CLASS",
        "CAUSE",
        "OUTCOME",
        "IDLE-GPU-S",
        "STARTED",
        "COUNT",
    ]
    shared = json.loads(msgspec.json.encode(sample(inspect.type_info(FoldedIncidents))))
    patch = json.dumps({"status": shared})
    await control_plane.kubectl(
        "patch", "rinc/llm-1-1", "-n", namespace, "--subresource=status", "--type=merge", f"-p={patch}"
    )
    found = json.loads(await control_plane.kubectl("get", "rinc/llm-1-1", "-n", namespace, "-o", "json"))
    assert (found["spec"], found["status"]) == (spec, shared)


async def test_the_controller_may_do_what_it_does_and_no_more(control_plane: ControlPlane, namespace: str) -> None:
    async def may(verb: str, resource: str) -> bool:
        subresource = resource.partition("/")[2]
        question = ("auth", "can-i", verb, resource.partition("/")[0], "-n", namespace, CONTROLLER)
        try:
            await control_plane.kubectl(*question, *([f"--subresource={subresource}"] if subresource else []))
        except KubectlError:
            return False
        return True

    for verb, resource in (
        *(
            (verb, kind)
            for verb in ("get", "list", "watch")
            for kind in ("trainjobs", "jobsets", "recoverygroups", "recoveryconfigs")
        ),
        *(
            (verb, kind)
            for verb in ("list", "watch")
            for kind in ("jobs", "pods", "nodes", "recoverypolicies", "clusterrecoverypolicies")
        ),
        *(("get", "recoveryincidents"), ("list", "recoveryincidents"), ("list", "events")),
        *(("create", "recoverygroups"), ("patch", "recoverygroups/status"), ("create", "recoveryincidents")),
        *(("patch", "recoveryincidents/status"), ("delete", "recoveryincidents")),
        *(("delete", "jobs"), ("patch", "jobs"), ("delete", "pods"), ("create", "events")),
        *(("patch", "trainjobs"), ("patch", "jobsets"), ("delete", "jobsets"), ("patch", "jobsets/status")),
        *(("get", "nodes"), ("patch", "nodes"), ("patch", "recoveryconfigs/status")),  # within RecoveryConfig's caps
    ):
        assert await may(verb, resource), f"{verb} {resource}"
    for verb, resource in (
        *((verb, kind) for verb in ("create", "update") for kind in ("trainjobs", "jobsets", "nodes")),
        *(("delete", "trainjobs"), ("patch", "trainjobs/status"), ("patch", "nodes/status"), ("delete", "nodes")),
        *((verb, kind) for verb in ("patch", "delete") for kind in ("recoveryconfigs", "clusterrecoverypolicies")),
        *(("get", "secrets"), ("create", "pods"), ("patch", "pods"), ("create", "pods/eviction"), ("create", "jobs")),
        *(("patch", "recoverypolicies"), ("delete", "recoverygroups"), ("patch", "recoveryincidents")),
        *(("patch", "recoverygroups"), ("update", "recoverygroups/status"), ("patch", "events")),
        *(("get", kind) for kind in ("jobs", "pods")),
    ):
        assert not await may(verb, resource), f"{verb} {resource}"
