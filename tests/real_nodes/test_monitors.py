"""A real Prometheus scrapes the replicas in their pods, with the monitors as shipped.

This Prometheus has no Kubernetes client. So the test asks the API server for the targets, with the selector and the
port of the monitor. Everything else about the scrape is Prometheus's, with the configuration that the operator would
generate.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.controlplane.build import Toolbox
from tests.cluster.scene import REPOSITORY
from tests.prometheus.monitoring import monitored
from tests.prometheus.operator import MONITORS
from tests.prometheus.server import Sample
from tests.real_nodes.installation import Installation

pytestmark = pytest.mark.usefixtures("token_reader")

Object = dict[str, Any]


@pytest.mark.parametrize("kind", MONITORS)
async def test_every_replica_is_up_by_the_shipped_monitor_and_one_of_them_leads(
    kind: str, installation: Installation, toolbox: Toolbox, tmp_path: Path
) -> None:
    replicas = {pod["metadata"]["name"] for pod in await installation.pods()}
    targets = await discovered(installation, kind)
    async with monitored(toolbox, tmp_path, kind=kind) as monitoring:
        monitoring.targets.set(targets)
        prometheus = monitoring.prometheus
        up = await prometheus.until("up == 1", lambda answer: pods_of(answer) == replicas)
        assert {(labels["namespace"], labels["container"]) for labels, _ in up} == {("recovery-system", "controller")}
        await prometheus.until("recovery_leader", lambda answer: pods_of(answer) == replicas)
        [(leader, _)] = await prometheus.query("recovery_leader == 1")
        assert leader["pod"] == (await installation.leading_pod())["metadata"]["name"]


def pods_of(answer: list[Sample]) -> set[str]:
    return {labels["pod"] for labels, _ in answer}


async def discovered(installation: Installation, kind: str) -> Mapping[str, str]:
    """Pod -> address, for all pods that the monitor selects."""
    monitor = yaml.safe_load((REPOSITORY / MONITORS[kind]).read_text())
    namespace, labels = monitor["metadata"]["namespace"], monitor["spec"]["selector"]["matchLabels"]

    async def select(resource: str, **chosen: str) -> list[Object]:
        selector = ",".join(f"{name}={value}" for name, value in chosen.items())
        printed = await installation.cluster.control_plane.kubectl(
            "get", resource, "-n", namespace, f"--selector={selector}", "-o", "json"
        )
        return list(json.loads(printed)["items"])

    if kind == "PodMonitor":
        [endpoint] = monitor["spec"]["podMetricsEndpoints"]
        return {
            pod["metadata"]["name"]: f"{pod['status']['podIP']}:{port['containerPort']}"
            for pod in await select("pods", **labels)
            for port in pod["spec"]["containers"][0]["ports"]
            if port["name"] == endpoint["port"] and "deletionTimestamp" not in pod["metadata"]
        }
    [endpoint] = monitor["spec"]["endpoints"]
    [service] = await select("services", **labels)
    of_service = {"kubernetes.io/service-name": service["metadata"]["name"]}
    return {
        each["targetRef"]["name"]: f"{each['addresses'][0]}:{port['port']}"
        for found in await select("endpointslices", **of_service)
        for port in found["ports"]
        for each in found["endpoints"]
        if port["name"] == endpoint["port"]
    }
