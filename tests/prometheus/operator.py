"""The scrape configuration that the Prometheus operator generates from our monitors.

The relabelling is that of prometheus-operator's generated configurations (pkg/prometheus/testdata). Targets are
discovered by file instead of the API server. The labels that discovery would add are set by the targets, or here.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from recovery.generated_files import REPOSITORY

NAMESPACE, SERVICE, CONTAINER = "recovery-system", "recovery-controller-metrics", "controller"
MONITORS = {
    "ServiceMonitor": "manifests/prometheus/service_monitor.yaml",
    "PodMonitor": "manifests/prometheus/pod-monitor/pod_monitor.yaml",
}
_ENDPOINTS = {"ServiceMonitor": "endpoints", "PodMonitor": "podMetricsEndpoints"}


def scrape_config(kind: str, targets: Path, *, override_honor_labels: bool = False) -> Mapping[str, Any]:
    """For the committed monitor. `override_honor_labels`: the Prometheus object sets overrideHonorLabels."""
    monitor = yaml.safe_load((REPOSITORY / MONITORS[kind]).read_text())
    (endpoint,) = monitor["spec"][_ENDPOINTS[kind]]
    name = f"{monitor['metadata']['namespace']}/{monitor['metadata']['name']}"
    relabelling = [
        _to("__tmp_prometheus_job_name", "job"),
        {"target_label": "__meta_kubernetes_namespace", "replacement": NAMESPACE},
        {"target_label": "__meta_kubernetes_service_name", "replacement": SERVICE},
        {"target_label": "__meta_kubernetes_pod_container_name", "replacement": CONTAINER},
        _to("namespace", "__meta_kubernetes_namespace"),
        *([_to("service", "__meta_kubernetes_service_name")] if kind == "ServiceMonitor" else []),
        _to("pod", "__meta_kubernetes_pod_name"),
        _to("container", "__meta_kubernetes_pod_container_name"),
        {"action": "drop", "source_labels": ["__meta_kubernetes_pod_phase"], "regex": "(Failed|Succeeded)"},
        _to("job", "__meta_kubernetes_service_name")
        if kind == "ServiceMonitor"
        else {"target_label": "job", "replacement": name},
        {"target_label": "endpoint", "replacement": endpoint["port"]},
    ]
    return {
        "job_name": f"{kind[0].lower()}{kind[1:]}/{name}/0",
        "honor_labels": endpoint["honorLabels"] and not override_honor_labels,
        "metrics_path": endpoint["path"],
        "file_sd_configs": [{"files": [str(targets)], "refresh_interval": "1s"}],
        "relabel_configs": relabelling,
    }


def _to(target: str, source: str) -> Mapping[str, Any]:
    return {"source_labels": [source], "target_label": target}
