"""Finds names of resources that no container can request, or that no node has.

By validateContainerResourceName of Kubernetes (pkg/apis/core/validation) a name without a domain is one of the few of
Kubernetes itself, and any other is `<domain>/<name>`. The API server accepts any well-formed name, and the scheduler
looks for a node that has the resource, so a typo keeps the pods Pending for ever.
"""

import difflib
import re
from collections.abc import Iterator

from recovery.launch.fields import is_placeholder
from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch
from recovery.launch.views import PodTemplate, Resources, VolcanoJob

UNKNOWN_RESOURCE = Code("unknown-resource", Severity.ERROR, "no container can ask for a resource of this name")
RESOURCE_MISSPELT = Code("resource-misspelt", Severity.WARNING, "the name of a resource is nearly that of a device")
CODES = (UNKNOWN_RESOURCE, RESOURCE_MISSPELT)

_NATIVE = ("cpu", "memory", "ephemeral-storage")
_HUGE_PAGES = "hugepages-"
_DEVICES = {
    "nvidia.com": ("gpu",),
    "amd.com": ("gpu",),
    "habana.ai": ("gaudi",),
    "google.com": ("tpu",),
    "gpu.intel.com": ("i915", "xe"),
    "aws.amazon.com": ("neuron", "neuroncore", "neurondevice"),
    "vpc.amazonaws.com": ("efa",),
}
"""Devices by domain, with the names that the device plugins use."""
_MEANT = {
    "gpu": "nvidia.com/gpu",
    "nvidia": "nvidia.com/gpu",
    "nvidia.com": "nvidia.com/gpu",
    "nvidia-gpu": "nvidia.com/gpu",
    "nvidia.com.gpu": "nvidia.com/gpu",
    "amd": "amd.com/gpu",
    "tpu": "google.com/tpu",
    "gaudi": "habana.ai/gaudi",
    "hpu": "habana.ai/gaudi",
    "efa": "vpc.amazonaws.com/efa",
    "neuron": "aws.amazon.com/neuron",
    "core": "cpu",
    "vcpu": "cpu",
    "mem": "memory",
    "ram": "memory",
    "disk": "ephemeral-storage",
    "storage": "ephemeral-storage",
}
"""What a name without a domain means. The names are in lower case and singular."""
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_NAME_MAX, _DOMAIN_MAX = 63, 253
_QUOTA = "requests."
_NEARLY, _NEARLY_NATIVE = 0.85, 0.8
"""The similarity from which a name counts as a typo of another: `nvidea.com` and `memroy`, but not `iluvatar.com`."""


def check(launch: Launch) -> Iterator[LintFinding]:
    """Checks resources as they are written: those of the TrainJob are not merged into the runtime's."""
    trainer = launch.train_job.trainer if launch.train_job is not None else None
    if trainer is not None and trainer.resources is not None:
        yield from _of(trainer.resources)
    for job in (launch.runtime.job_set if launch.runtime is not None else launch.job_set).jobs:
        yield from _of_pods(job.pods)


def check_volcano(job: VolcanoJob) -> Iterator[LintFinding]:
    for task in job.tasks:
        yield from _of_pods(task.pods)


def _of_pods(pods: PodTemplate) -> Iterator[LintFinding]:
    for container in (*pods.init_containers, *pods.containers):
        if container.resources is not None:
            yield from _of(container.resources)


def _of(resources: Resources) -> Iterator[LintFinding]:
    for name in dict.fromkeys((*resources.requests, *resources.limits)):
        place = resources.place / ("requests" if name in resources.requests else "limits") / name
        if is_placeholder(name):
            continue
        why = _refused(name)
        meant = _meant(name)
        if why:
            fix = f"write {meant}" if meant else f"write one of {', '.join(_NATIVE)}, or <domain>/<name> of a device"
            message = f"there is no resource {name}: {why}, and the API server refuses the pods"
            yield LintFinding(UNKNOWN_RESOURCE, place, message, fix)
        elif meant and "/" in name:
            message = f"no device plugin that is known here has {name}: the pods wait for ever for a node with it"
            yield LintFinding(RESOURCE_MISSPELT, place, message, f"write {meant}, if that is meant")


def _refused(name: str) -> str:
    """Why the API server refuses the name. Empty: a container can request it."""
    domain, slash, device = name.rpartition("/")
    if not slash:
        ours = name in _NATIVE or name.startswith(_HUGE_PAGES)
        return "" if ours else "a name without a domain is one of Kubernetes itself"
    if not _DOMAIN.fullmatch(domain) or len(domain) > _DOMAIN_MAX:
        return f"{domain!r} is no domain in lower case"
    if not _NAME.fullmatch(device) or len(device) > _NAME_MAX:
        return f"{device!r} is no name of a resource"
    return "that is a name for quotas" if domain.startswith(_QUOTA) else ""


def _meant(name: str) -> str:
    """The resource that the name is a typo of. Empty: none is similar, or the name is right."""
    domain, slash, device = name.removeprefix(_QUOTA).rpartition("/")
    singular = device.lower().rstrip("s")
    if not slash:
        near = difflib.get_close_matches(singular, _NATIVE, n=1, cutoff=_NEARLY_NATIVE)
        return _MEANT.get(singular) or (near[0] if near else "")
    known = _domain(domain.lower())
    if known is None or singular not in _DEVICES[known]:
        return ""
    meant = f"{known}/{singular}"
    return meant if meant != name else ""


def _domain(written: str) -> str | None:
    """The vendor's domain that is meant. None: none of those in `_DEVICES`."""
    if written in _DEVICES:
        return written
    without_end = next((domain for domain in _DEVICES if domain.partition(".")[0] == written), None)
    near = difflib.get_close_matches(written, _DEVICES, n=1, cutoff=_NEARLY)
    return without_end or (near[0] if near else None)
