"""A cluster with restricted pod security admits the Deployment, and `recovery run` understands its arguments."""

import tomllib
from typing import Any

import typer.main
import yaml

from recovery.cli.main import app
from recovery.controller import runner
from recovery.controller.leadership import LeaseTimes
from tests.unit.manifests.kustomize import MANIFESTS, REPOSITORY, Object, files, kustomization, objects, only

LAUNCH = MANIFESTS / "admission" / "launch"
BIRTH = MANIFESTS / "admission" / "birth-settings"
PROMETHEUS = MANIFESTS / "prometheus"
OPTIONAL = {
    PROMETHEUS,
    PROMETHEUS / "pod-monitor",
    MANIFESTS / "admission" / "cert-manager",
    MANIFESTS / "admission" / "cert-manager" / "namespace",
    LAUNCH / "base",
    LAUNCH / "self-made",
    MANIFESTS / "network-policy",
    MANIFESTS / "components" / "pod-logs",
    MANIFESTS / "components" / "agent",
    MANIFESTS / "components" / "agent" / "network-policy",
    MANIFESTS / "components" / "birth-settings",
    MANIFESTS / "components" / "birth-settings" / "rights",
    MANIFESTS / "components" / "drill-schedule",
    BIRTH / "base",
    BIRTH / "self-made",
}
"""Folders to apply only in a cluster that has what they need, or that wants what they do."""

NAMES = {"app.kubernetes.io/name": "trainjob-recovery"}


def deployment() -> Object:
    return only("default", "Deployment")


def pod() -> Object:
    spec: Object = deployment()["spec"]["template"]["spec"]
    return spec


def container() -> Object:
    [found] = pod()["containers"]
    return dict(found)


def run_options() -> dict[str, Any]:
    """The options of `recovery run`, each with its default."""
    command = typer.main.get_command(app).commands["run"]  # type: ignore[attr-defined]
    return {flag: parameter.default for parameter in command.params for flag in parameter.opts}


# --- what is applied -----------------------------------------------------------------------------------------------


def test_every_file_is_named_by_the_kustomization_beside_it() -> None:
    for path in MANIFESTS.rglob("kustomization.yaml"):
        beside = {file.name for file in path.parent.glob("*.yaml")} - {"kustomization.yaml"}
        named = {name for name in kustomization(path.parent)["resources"] if name.endswith(".yaml")}
        assert named == beside, path.parent.name


def test_every_folder_is_in_the_default_or_known_to_be_optional() -> None:
    applied = {file.parent for file in files(MANIFESTS / "default")}
    everything = {file.parent for file in MANIFESTS.rglob("*.yaml") if file.name != "kustomization.yaml"}
    assert everything - applied == OPTIONAL


def test_the_default_is_the_overlay_that_enforces_and_applies_nothing_twice() -> None:
    assert objects("default") == objects("overlays/enforce")
    named = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in objects("default")]
    assert len(set(named)) == len(named)


def test_every_object_bears_the_name_of_the_project_and_lies_in_its_namespace() -> None:
    for metadata in (each["metadata"] for each in (*objects("default"), *objects("prometheus"))):
        assert metadata["labels"].items() >= NAMES.items(), metadata["name"]
        assert metadata.get("namespace") in {None, "recovery-system"}, "an overlay's namespace moves all objects"


def test_the_namespace_admits_restricted_pods_only() -> None:
    labels = only("default", "Namespace")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


# --- the pods ------------------------------------------------------------------------------------------------------


def test_the_pods_are_as_restricted_as_pod_security_knows_and_write_nowhere_but_tmp() -> None:
    of_pod, of_container = pod()["securityContext"], container()["securityContext"]
    assert of_pod["runAsNonRoot"] is True
    assert of_pod["runAsUser"] > 0
    assert of_pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert of_container["allowPrivilegeEscalation"] is False
    assert of_container["readOnlyRootFilesystem"] is True
    assert of_container["capabilities"] == {"drop": ["ALL"]}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod().keys()
    writable = {mount["mountPath"] for mount in container()["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"/tmp"}


def test_the_image_runs_as_the_user_that_the_pods_run_as_and_has_the_version_of_the_project() -> None:
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    assert container()["image"] == f"trainjob-recovery:{version}"
    security = pod()["securityContext"]
    user = f"USER {security['runAsUser']}:{security['runAsGroup']}"
    assert user in (REPOSITORY / "Containerfile").read_text().splitlines()


def test_two_replicas_of_which_a_drain_leaves_one() -> None:
    budget = only("default", "PodDisruptionBudget")["spec"]
    assert deployment()["spec"]["replicas"] == 2
    assert budget["minAvailable"] == 1
    labels = deployment()["spec"]["template"]["metadata"]["labels"]
    selectors = [budget["selector"], deployment()["spec"]["selector"]]
    selectors += [spread["labelSelector"] for spread in pod()["topologySpreadConstraints"]]
    for selector in selectors:
        assert labels.items() >= selector["matchLabels"].items()
    assert {spread["whenUnsatisfiable"] for spread in pod()["topologySpreadConstraints"]} == {"ScheduleAnyway"}


def test_the_pods_are_the_service_account_that_the_roles_are_bound_to() -> None:
    account = only("default", "ServiceAccount")
    assert pod()["serviceAccountName"] == account["metadata"]["name"]
    assert account["automountServiceAccountToken"] is False, "who else names the account gets no token unasked"
    assert pod()["automountServiceAccountToken"] is True


def test_the_priority_is_ours_and_pushes_no_one_out() -> None:
    priority = only("default", "PriorityClass")
    assert pod()["priorityClassName"] == priority["metadata"]["name"]
    assert priority["preemptionPolicy"] == "Never"
    assert priority["globalDefault"] is False


def test_there_is_time_to_finish_and_to_release_the_lease() -> None:
    default = run_options()["--lease-seconds"]
    needed_seconds = runner._FINISH_SECONDS + LeaseTimes(default).attempt_seconds
    assert pod()["terminationGracePeriodSeconds"] > needed_seconds


def test_the_key_of_the_webhooks_reaches_no_disk() -> None:
    [tmp] = [volume for volume in pod()["volumes"] if volume["name"] == "tmp"]
    assert tmp["emptyDir"]["medium"] == "Memory"


def test_the_network_policy_is_for_the_pods_of_the_controller_and_for_their_ports() -> None:
    policy = only("network-policy", "NetworkPolicy")["spec"]
    assert (
        deployment()["spec"]["template"]["metadata"]["labels"].items() >= policy["podSelector"]["matchLabels"].items()
    )
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    let_in = {port["port"]: rule.get("from") for rule in policy["ingress"] for port in rule["ports"]}
    [admission] = [int(each.rpartition(":")[2]) for each in set(patched_arguments()) if "--admission-address=" in each]
    [metrics] = [port["containerPort"] for port in container()["ports"] if port["name"] == "metrics"]
    assert let_in.keys() == {admission, metrics}
    assert let_in[metrics], "of a namespace only"
    assert let_in[admission] is None, "no selector knows the API server: closed to it, all webhooks would fail open"
    let_out = {(port["protocol"], port["port"]) for rule in policy["egress"] for port in rule["ports"]}
    assert let_out == {("TCP", 443), ("TCP", 6443), ("UDP", 53), ("TCP", 53)}


# --- the command and its ports -------------------------------------------------------------------------------------


def patched_arguments() -> list[str]:
    """The arguments that kustomizations add to the Deployment."""
    patches = [
        yaml.safe_load(patch["patch"])
        for path in MANIFESTS.rglob("kustomization.yaml")
        for patch in kustomization(path.parent).get("patches", ())
        if patch["target"]["kind"] == "Deployment"
    ]
    return [step["value"] for patch in patches for step in patch if step["path"].endswith("/args/-")]


def test_every_flag_of_the_deployment_is_one_of_recovery_run() -> None:
    command, *flags = container()["args"]
    assert command == "run"
    assert "command" not in container(), "the image's entrypoint is `recovery`"
    assert {flag.partition("=")[0] for flag in (*flags, *patched_arguments())} <= run_options().keys()
    assert 'ENTRYPOINT ["recovery"]' in (REPOSITORY / "Containerfile").read_text().splitlines()


def test_probes_scrapes_and_the_process_agree_on_the_port() -> None:
    ports = {port["name"]: port["containerPort"] for port in container()["ports"]}
    assert f"--metrics-address={run_options()['--metrics-address']}" in container()["args"]
    assert run_options()["--metrics-address"] == f":{ports['metrics']}"
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container()[probe]["httpGet"] == {"path": path, "port": "metrics"}

    service = only("default", "Service", "recovery-controller-metrics")
    assert service["spec"]["publishNotReadyAddresses"] is True, "a replica may lead without being ready"
    [port] = service["spec"]["ports"]
    assert (port["name"], port["port"], port["targetPort"]) == ("metrics", ports["metrics"], "metrics")
    labels = deployment()["spec"]["template"]["metadata"]["labels"]
    assert labels.items() >= service["spec"]["selector"].items()

    monitor = only("prometheus", "ServiceMonitor")["spec"]
    assert service["metadata"]["labels"].items() >= monitor["selector"]["matchLabels"].items()
    scraped = {"port": "metrics", "path": "/metrics", "interval": "30s", "honorLabels": True}
    assert monitor["endpoints"] == [scraped]

    monitor = only("prometheus/pod-monitor", "PodMonitor")["spec"]
    assert labels.items() >= monitor["selector"]["matchLabels"].items()
    assert monitor["podMetricsEndpoints"] == [scraped]
