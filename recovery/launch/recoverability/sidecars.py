"""Finds containers beside the training that keep its pod running for ever.

A pod ends when all of its containers have ended, and a Job counts pods that have ended (getPhase in pkg/kubelet,
job_controller.go). The kubelet ends a native sidecar (in `initContainers`, with restartPolicy Always) when the other
containers are done. Any other helper has to end by itself.
"""

import re
from collections.abc import Iterator

from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch, Member
from recovery.launch.recoverability.effective import trains
from recovery.launch.recoverability.training_container import selection
from recovery.launch.shell import base_name
from recovery.launch.views import Container

SIDECAR_NEVER_ENDS = Code(
    "sidecar-never-ends", Severity.WARNING, "a helper container keeps the pod running after the training"
)
CODES = (SIDECAR_NEVER_ENDS,)

_FOR_EVER = re.compile(
    r"\bsleep\s+(?:infinity|inf|[0-9]{8,})\b"
    r"|\btail\s(?:[^|;&\n]*\s)?-(?:\w*[fF]|-follow)\b"
    r"|\bwhile\s+(?:true|:|\[\s*1\s*\]|1)\s*(?:;|$)",
    re.MULTILINE,
)
_MAY_END = re.compile(r"\b(?:break|exit|return|trap|timeout|kill|pkill)\b|--pid\b")
_SERVERS = frozenset(
    {
        *(
            "tensorboard",
            "fluent-bit",
            "fluentd",
            "vector",
            "filebeat",
            "promtail",
            "alloy",
            "grafana-agent",
            "telegraf",
        ),
        *("otelcol", "otelcol-contrib", "envoy", "nginx", "prometheus", "pushgateway", "redis-server", "sshd"),
        *(
            "dcgm-exporter",
            "node_exporter",
            "nvidia_gpu_exporter",
            "cloud-sql-proxy",
            "cloud_sql_proxy",
            "statsd_exporter",
        ),
    }
)
"""Programs that serve until something ends them."""
_IMAGES = frozenset(
    {
        *("fluent-bit", "aws-for-fluent-bit", "fluentd", "vector", "filebeat", "promtail", "alloy", "grafana-agent"),
        *("telegraf", "opentelemetry-collector", "opentelemetry-collector-contrib", "envoy", "proxyv2", "nginx"),
        *("prometheus", "pushgateway", "redis", "dcgm-exporter", "node-exporter", "cloud-sql-proxy", "statsd-exporter"),
    }
)
"""Last parts of the names of images whose entrypoint is one of these servers."""


def check(launch: Launch) -> Iterator[LintFinding]:
    if not trains(launch):
        return
    for member in launch.members:
        decides = not launch.job_set.success_jobs or member.job.name in launch.job_set.success_jobs
        if decides and not member.template.shares_processes:
            yield from _of(launch, member)


def _of(launch: Launch, member: Member) -> Iterator[LintFinding]:
    training = {each.name for each in selection(launch, member).containers}
    if not training:
        return
    for container in member.template.containers:
        why = _why(container) if container.name not in training else ""
        if why:
            message = (
                f"container {container.name} ({why}) never ends by itself: when the training is over, or has failed, "
                f"its pod runs on, and the Job of ReplicatedJob {member.job.name} neither completes nor replaces it"
            )
            fix = "move it to initContainers and give it restartPolicy: Always: Kubernetes then ends it with the pod"
            yield LintFinding(SIDECAR_NEVER_ENDS, container.place, message, fix)


def _why(container: Container) -> str:
    """What shows that the container runs for ever. Empty: nothing does."""
    words = (*container.command, *container.args)
    text = " ".join(words)
    if _MAY_END.search(text):
        return ""
    found = _FOR_EVER.search(text)
    if found:
        return found[0].strip(" ;")
    if words and base_name(words[0]) in _SERVERS:
        return base_name(words[0])
    image = base_name(container.image).partition("@")[0].partition(":")[0]
    return f"image {image}" if not container.command and image in _IMAGES else ""
