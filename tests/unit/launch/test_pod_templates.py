"""What Kubernetes does with a pod template that Trainer and JobSet do not check."""

import pytest

from recovery.launch.places import written
from recovery.launch.pod_templates import check
from recovery.launch.recoverability import pods
from tests.unit.launch.manifests import group, told


def with_pods(spec: str, *, job_spec: str = "", base: str = "jobset", set_spec: str = "") -> str:
    template = f"{{spec: {{{job_spec} template: {{spec: {{{spec}}}}}}}}}"
    jobs = f"{set_spec} replicatedJobs: [{{name: {'worker' if base == 'jobset' else 'node'}, template: {template}}}]"
    if base == "jobset":
        return f"kind: JobSet\nspec: {{{jobs}}}"
    return f"kind: ClusterTrainingRuntime\nspec: {{template: {{spec: {{{jobs}}}}}}}"


@pytest.mark.parametrize("base", ["jobset", "torch"])
def test_always_is_refused(base: str) -> None:
    (finding,) = check(group(with_pods("restartPolicy: Always", base=base), base=base))

    assert finding.code.name == "restart-policy-refused"
    assert written(finding.place.path).endswith("template.spec.restartPolicy")


def test_a_word_that_kubernetes_does_not_have_is_refused() -> None:
    (line,) = told(check, group(with_pods("restartPolicy: OnFail"), base="jobset"))

    assert line.endswith("(write restartPolicy: Never or OnFailure)")


@pytest.mark.parametrize("policy", ["Never", "OnFailure", "null", '"{{ .Values.restartPolicy }}"'])
def test_what_a_job_may_have_is_not(policy: str) -> None:
    assert told(check, group(with_pods(f"restartPolicy: {policy}"), base="jobset")) == []


def test_a_sidecar_may_restart_always() -> None:
    sidecar = "initContainers: [{name: logs, restartPolicy: Always}]"

    assert told(check, group(with_pods(sidecar), base="jobset")) == []


def test_its_pod_failure_policy_is_not_told_of_as_well() -> None:
    rules = "podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [1]}}]},"
    launch = group(with_pods("restartPolicy: Always", job_spec=rules), base="jobset")

    assert [each.code.name for each in (*check(launch), *pods.check(launch))] == ["restart-policy-refused"]


@pytest.mark.parametrize(
    ("policy", "told_as", "field"),
    [
        ("", "dnsPolicy ClusterFirst (the default)", "hostNetwork"),
        (", dnsPolicy: ClusterFirst", "dnsPolicy ClusterFirst", "dnsPolicy"),
        (", dnsPolicy: Default", "dnsPolicy Default", "dnsPolicy"),
    ],
)
def test_the_host_s_network_has_the_host_s_resolver(policy: str, told_as: str, field: str) -> None:
    (finding,) = check(group(with_pods(f"hostNetwork: true{policy}"), base="jobset"))

    assert finding.code.name == "host-network-dns"
    assert f"the kubelet takes {told_as} for the resolver of the node" in finding.message
    assert "vision-worker-0-0.vision is not found" in finding.message
    assert written(finding.place.path).endswith(f"template.spec.{field}")


def test_the_name_has_the_subdomain() -> None:
    launch = group(with_pods("hostNetwork: true", set_spec="network: {subdomain: group},"), base="jobset")

    assert "vision-worker-0-0.group is not found" in next(check(launch)).message


@pytest.mark.parametrize(
    "spec",
    [
        "hostNetwork: true, dnsPolicy: ClusterFirstWithHostNet",
        "hostNetwork: true, dnsPolicy: None, dnsConfig: {nameservers: [10.0.0.10]}",
        "hostNetwork: false",
        "dnsPolicy: Default",
    ],
)
def test_a_pod_with_the_cluster_s_resolver_is_right(spec: str) -> None:
    assert told(check, group(with_pods(spec), base="jobset")) == []


def test_a_pod_by_itself_asks_for_no_name() -> None:
    alone = with_pods("hostNetwork: true", job_spec="parallelism: 1, completions: 1,")

    assert told(check, group(alone, base="jobset")) == []
