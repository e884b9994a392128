"""The environment of a container, as a kubelet builds it from the container's spec and the pod."""

from typing import Any

import pytest

from recovery.sim.kubelets.environment import environment
from recovery.sim.kubelets.objects import (
    EnvironmentVariable,
    FieldReference,
    ObjectMetadata,
    Pod,
    PodContainer,
    PodSpec,
)
from recovery.sim.kubelets.objects import ValueSource as Source

METADATA = ObjectMetadata(
    name="llm-node-0-0", namespace="ml", uid="pod-1", labels={"a/b": "label"}, annotations={"x.dev/nodes": "12"}
)


def of_field(name: str, path: str) -> EnvironmentVariable:
    return EnvironmentVariable(name, value_from=Source(FieldReference(path)))


def made(*variables: EnvironmentVariable, **spec: Any) -> dict[str, str]:
    container = PodContainer("node", env=variables)
    pod = Pod(METADATA, PodSpec(containers=(container,), **spec))
    return environment(pod, container, node="n1", pod_ip="10.0.0.7", host_ip="192.168.0.1")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "llm-node-0-0"),
        ("metadata.namespace", "ml"),
        ("metadata.uid", "pod-1"),
        ("metadata.labels['a/b']", "label"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['x.dev/nodes']", "12"),
        ("metadata.annotations['none']", ""),
        ("spec.nodeName", "n1"),
        ("spec.serviceAccountName", "default"),
        ("status.podIP", "10.0.0.7"),
        ("status.hostIP", "192.168.0.1"),
    ],
)
def test_fields_of_the_pod(path: str, value: str) -> None:
    assert made(of_field("IT", path)) == {"IT": value}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$(FIRST)", "1"),
        ("a-$(FIRST)-$(NODES)", "a-1-12"),
        ("$(LATER)", "$(LATER)"),
        ("$$(FIRST)", "$(FIRST)"),
        ("$$$(FIRST)", "$1"),
        ("$FIRST $(FIRST", "$FIRST $(FIRST"),
        ("5$", "5$"),
    ],
)
def test_references_to_variables_before_it(text: str, value: str) -> None:
    variables = (
        EnvironmentVariable("FIRST", "1"),
        of_field("NODES", "metadata.annotations['x.dev/nodes']"),
        EnvironmentVariable("IT", text),
        EnvironmentVariable("LATER", "2"),
    )
    assert made(*variables)["IT"] == value


def test_of_two_of_one_name_the_later_one_stands_and_sees_the_earlier() -> None:
    assert made(EnvironmentVariable("A", "1"), EnvironmentVariable("A", "$(A)2")) == {"A": "12"}


def test_what_is_not_modelled_is_empty() -> None:
    assert made(EnvironmentVariable("SECRET", value_from=Source())) == {"SECRET": ""}
