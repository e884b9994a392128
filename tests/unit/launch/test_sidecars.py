"""Containers beside the training that never end and keep its pod running."""

import pytest

from recovery.launch.launch import Launch
from recovery.launch.recoverability.sidecars import check
from tests.unit.launch.manifests import group, told


def beside(helper: str, pods: str = "", spec: str = "", kind: str = "containers") -> Launch:
    """A helper beside the training container. `pods` and `spec` are more fields of the pod and of the JobSet."""
    template = f"{{spec: {{template: {{spec: {{{kind}: [{{name: helper, {helper}}}], {pods}}}}}}}}}"
    return group(
        f"kind: JobSet\nspec: {{{spec} replicatedJobs: [{{name: worker, template: {template}}}]}}", base="jobset"
    )


@pytest.mark.parametrize(
    ("helper", "why"),
    [
        ("command: [sleep, infinity]", "sleep infinity"),
        ("command: [sh, -c, 'sync; sleep inf']", "sleep inf"),
        ("command: [sleep, '2147483647']", "sleep 2147483647"),
        ("command: [tail, -f, /dev/null]", "tail -f"),
        ("command: [bash, -c, 'tail -n 0 -F /logs/a']", "tail -n 0 -F"),
        ('command: [bash, -c, "while true; do rsync -a /a /b; sleep 60; done"]', "while true"),
        ('command: [bash, -c], args: ["while :\\ndo date\\ndone"]', "while :"),
        ("command: [tensorboard, --logdir=/logs]", "tensorboard"),
        ("command: [/usr/bin/dcgm-exporter]", "dcgm-exporter"),
        ("image: 'cr.fluentbit.io/fluent/fluent-bit:4.0'", "image fluent-bit"),
        ("image: 'otel/opentelemetry-collector-contrib@sha256:abc', args: [--config=/a.yaml]",
         "image opentelemetry-collector-contrib"),
    ],
)  # fmt: skip
def test_a_helper_that_never_ends(helper: str, why: str) -> None:
    (line,) = told(check, beside(helper))

    assert line.startswith(f"sidecar-never-ends: container helper ({why}) never ends by itself: ")


@pytest.mark.parametrize(
    "launch",
    [
        beside("command: [sleep, '3600']"),
        beside("command: [rsync, -a, /a, /b]"),
        beside('command: [bash, -c, "while true; do test -f /done && break; sleep 1; done"]'),
        beside('command: [bash, -c, "until test -f /done; do sleep 1; done"]'),
        beside('command: [bash, -c, "tail --pid=1 -f /logs/a"]'),
        beside("command: [timeout, '60', tail, -f, /a]"),
        beside("image: 'registry.example/uploader:1.0'"),
        beside("image: 'nginx:1.29', command: [nginx-config-check]"),
        beside("image: 'fluent/fluent-bit:4.0', restartPolicy: Always", kind="initContainers"),
        beside("command: [sleep, infinity]", "shareProcessNamespace: true"),
        # Another ReplicatedJob decides whether the JobSet is complete.
        beside("command: [sleep, infinity]", spec="successPolicy: {operator: All, targetReplicatedJobs: [driver]},"),
    ],
)
def test_a_helper_that_may_end_is_not_told_of(launch: Launch) -> None:
    assert told(check, launch) == []


def test_the_container_that_trains_is_no_helper() -> None:
    """In MPI's nodes it runs sshd, and the successPolicy targets the launcher."""
    assert told(check, group(base="mpi")) == []
    assert len(told(check, beside("command: [sleep, infinity]", spec="successPolicy: {operator: All},"))) == 1


def test_where_no_rule_selects_the_training_no_helper_is_known() -> None:
    two = "containers: [{name: a, command: [sleep, infinity]}, {name: b}]"
    manifest = f"""
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: a}}
spec: {{replicatedJobs: [{{name: w, template: {{spec: {{template: {{spec: {{{two}}}}}}}}}}}]}}
"""
    assert told(check, group(manifest, base="none")) == []
