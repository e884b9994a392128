"""Finds requests and limits in a pod template that the API server refuses, so that no Job can be created from it.

The rules are those of validateResourceRequirements of Kubernetes (pkg/apis/core/validation/validation.go). An extended
resource, such as nvidia.com/gpu, has a whole number and a limit that equals the request. The TrainJob's
resourcesPerNode is merged into the runtime's resources first, name by name, so each of them may be right by itself.
"""

from collections.abc import Iterator
from decimal import Decimal

from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch
from recovery.launch.places import Place
from recovery.launch.quantity import shown
from recovery.launch.views import Container, PodTemplate, Resources, VolcanoJob

RESOURCES_REFUSED = Code(
    "resources-refused", Severity.ERROR, "the requests and limits of a container contradict each other"
)
QUANTITY_UNQUOTED = Code(
    "quantity-unquoted", Severity.WARNING, "every later write of the TrainJob's runtimePatches is refused"
)
CODES = (RESOURCES_REFUSED, QUANTITY_UNQUOTED)

_KUBERNETES = "kubernetes.io/"
_HUGE_PAGES = "hugepages-"


def check(launch: Launch) -> Iterator[LintFinding]:
    """Checks the group that will start. A runtime by itself is only half of that."""
    if launch.runtime is not None and launch.train_job is None:
        return
    trainer = launch.train_job.trainer if launch.train_job is not None else None
    if trainer is not None and trainer.resources is not None:
        yield from _unquoted(trainer.resources)
    merged = trainer.resources.place if trainer is not None and trainer.resources is not None else None
    for job in launch.job_set.jobs:
        yield from _of(job.pods, merged)


def _unquoted(resources: Resources) -> Iterator[LintFinding]:
    """Trainer's defaulter writes an object that has runtimePatches back with its quantities in quotes. The CRD's rule
    that spec.trainer is immutable then treats `"8"` as a change of `8`."""
    if not resources.unquoted:
        return
    names = ", ".join(dict.fromkeys(str(place.path[-1]) for place in resources.unquoted))
    message = (
        f"{names} of resourcesPerNode is a number: every later write of runtimePatches, as Kueue sends it, is refused "
        '("spec.trainer: field is immutable")'
    )
    yield LintFinding(QUANTITY_UNQUOTED, resources.unquoted[0], message, "write each in quotes")


def check_volcano(job: VolcanoJob) -> Iterator[LintFinding]:
    for task in job.tasks:
        yield from _of(task.pods, None)


def is_extended(name: str) -> bool:
    """Whether the resource is not one of Kubernetes' own, such as a device."""
    return "/" in name and _KUBERNETES not in name


def _of(pods: PodTemplate, merged: Place | None) -> Iterator[LintFinding]:
    """`merged`: the place of resourcesPerNode. Resources of a container that it was merged into have that place."""
    for container in (*pods.init_containers, *pods.containers):
        if container.resources is not None:
            yield from _contradictions(container, container.resources, merged)


def _contradictions(container: Container, resources: Resources, merged: Place | None) -> Iterator[LintFinding]:
    for name in {**resources.requests, **resources.limits}:
        found = _contradiction(name, resources.requests.get(name), resources.limits.get(name))
        if found is None:
            continue
        message, fix = found
        with_runtime = resources.place == merged
        place = resources.place / ("requests" if name in resources.requests else "limits") / name
        where = ", with resourcesPerNode merged into the runtime's," if with_runtime else ""
        refused = "the API server refuses that, and no pod is ever made"
        yield LintFinding(RESOURCES_REFUSED, place, f"container {container.name}{where} {message}: {refused}", fix)


def _contradiction(name: str, request: Decimal | None, limit: Decimal | None) -> tuple[str, str] | None:
    """What is wrong, in words that follow the container's name, and the fix. None: nothing is wrong."""
    wholes = is_extended(name)
    amount = limit if limit is not None else request
    if wholes and amount is not None and amount != amount.to_integral_value():
        return f"has {shown(amount)} {name}, of which there are whole ones only", "write a whole number"
    if request is None:
        return None
    if limit is None:
        needs_limit = wholes or name.startswith(_HUGE_PAGES)
        fix = f"write {name}: {shown(request)} under limits too"
        return (f"requests {shown(request)} {name} and has no limit of it", fix) if needs_limit else None
    if request > limit or (request != limit and (wholes or name.startswith(_HUGE_PAGES))):
        must = "equal" if wholes or name.startswith(_HUGE_PAGES) else "not exceed"
        what = f"requests {shown(request)} {name} with a limit of {shown(limit)}, and the request must {must} the limit"
        return what, f"write the same {name} under requests and limits"
    return None
