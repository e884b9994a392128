"""Which containers of a pod train. The controller counts only the exits, the restarts and the readiness of these.

This is the rule of `recovery.core.diagnosis.training_container`, for manifests. `launch` may not import `core`, so a
test generates pod templates and compares both.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum

import msgspec

from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch, Member, Setting
from recovery.launch.places import Place
from recovery.launch.processes import CLAIM, devices_of
from recovery.launch.recoverability.effective import runtime_alone
from recovery.launch.views import Container, PodTemplate

TRAINING_CONTAINER_UNKNOWN = Code(
    "training-container-unknown", Severity.WARNING, "no rule selects the container that trains"
)
CODES = (TRAINING_CONTAINER_UNKNOWN,)

ANNOTATION = "recovery.trainjob.dev/container"
"""On a pod template, or on the TrainJob or JobSet for all of its pod templates: the name of the container that trains.
A person sets it; the controller reads it."""
TRAINER_CONTAINERS = frozenset({"node", "launcher"})
"""What Trainer calls the containers that it configures."""

_CONSEQUENCE = (
    "the controller counts lost pods only, and a rank that exits or restarts inside its pod opens no incident"
)


class ContainerSelectedBy(StrEnum):
    """The rule that selected the training containers of a pod template."""

    TRAINER = "Trainer"
    TEMPLATE = "TemplateAnnotation"
    WORKLOAD = "WorkloadAnnotation"
    ACCELERATORS = "Accelerators"
    ONLY_ONE = "OnlyOne"
    UNKNOWN = "Unknown"


class ContainerSelection(msgspec.Struct, frozen=True):
    """The containers that train, in their order; none under UNKNOWN."""

    by: ContainerSelectedBy
    containers: tuple[Container, ...] = ()


def select(pods: PodTemplate, workload: Mapping[str, str], *, of_trainer: bool) -> ContainerSelection:
    """`workload`: annotations of the TrainJob or JobSet. `of_trainer`: the pods belong to a TrainJob.

    An annotation on the workload applies to all of its pod templates, so the next rule decides for a template without
    that container. One on a template applies only to that template: if it names none of its containers, none is
    selected.
    """
    trainers = tuple(each for each in pods.containers if each.name in TRAINER_CONTAINERS)
    if trainers and of_trainer:
        return ContainerSelection(ContainerSelectedBy.TRAINER, trainers)
    if pods.annotations.get(ANNOTATION):
        named = _named(pods, pods.annotations)
        return ContainerSelection(ContainerSelectedBy.TEMPLATE if named else ContainerSelectedBy.UNKNOWN, named)
    named = _named(pods, workload)
    if named:
        return ContainerSelection(ContainerSelectedBy.WORKLOAD, named)
    asking = _with_accelerators(pods)
    if asking:
        return ContainerSelection(ContainerSelectedBy.ACCELERATORS, asking)
    if len(pods.containers) == 1:
        return ContainerSelection(ContainerSelectedBy.ONLY_ONE, pods.containers)
    return ContainerSelection(ContainerSelectedBy.UNKNOWN)


def selection(launch: Launch, member: Member) -> ContainerSelection:
    """The selection for the pods of that ReplicatedJob. Annotations of a runtime itself reach no job."""
    workload = {} if runtime_alone(launch) else launch.annotations
    return select(member.template, workload, of_trainer=launch.runtime is not None)


def settings(launch: Launch) -> Iterator[Setting]:
    """Which containers train, and what selects them."""
    for member in launch.members:
        found = selection(launch, member)
        if not member.template.containers:
            continue
        yield Setting(
            target=f"ReplicatedJob {member.job.name}",
            name="training container",
            value=" and ".join(each.name for each in found.containers) or "unknown",
            rule=_rule(launch, found),
            place=_place(launch, member, found),
        )


def check(launch: Launch) -> Iterator[LintFinding]:
    for member in launch.members:
        if member.template.containers and selection(launch, member).by is ContainerSelectedBy.UNKNOWN:
            yield _misnamed(launch, member) or _unknown(member)


def _named(pods: PodTemplate, annotations: Mapping[str, str]) -> tuple[Container, ...]:
    return tuple(each for each in pods.containers if each.name == annotations.get(ANNOTATION))


def _with_accelerators(pods: PodTemplate) -> tuple[Container, ...]:
    """Resource claims count only if no container requests a device: otherwise they are for something else."""
    devices = [(each, devices_of(each.resources)) for each in pods.containers]
    asking = tuple(each for each, found in devices if found and CLAIM not in found)
    return asking or tuple(each for each, found in devices if found)


def _rule(launch: Launch, found: ContainerSelection) -> str:
    several = len(found.containers) > 1
    match found.by:
        case ContainerSelectedBy.TRAINER:
            return "Trainer's names for them" if several else "Trainer's name for it"
        case ContainerSelectedBy.TEMPLATE:
            return f"the annotation {ANNOTATION} of the pod template"
        case ContainerSelectedBy.WORKLOAD:
            return f"the annotation {ANNOTATION} of the {'JobSet' if launch.train_job is None else 'TrainJob'}"
        case ContainerSelectedBy.ACCELERATORS:
            return "they ask for accelerators" if several else "it asks for accelerators"
        case ContainerSelectedBy.ONLY_ONE:
            return "the only container"
        case ContainerSelectedBy.UNKNOWN:
            return "no rule selects one: the controller counts lost pods only"


def _place(launch: Launch, member: Member, found: ContainerSelection) -> Place:
    if found.by is ContainerSelectedBy.TEMPLATE:
        return annotation_place(launch, member, ANNOTATION)
    if found.by is ContainerSelectedBy.WORKLOAD:
        return launch.place / "metadata" / "annotations" / ANNOTATION
    return found.containers[0].place if found.containers else member.template.place / "containers"


def annotation_place(launch: Launch, member: Member, name: str) -> Place:
    """The place of the pod template's annotation: in the last patch that sets it, else in the template itself."""
    patches = launch.train_job.patches if launch.train_job is not None else ()
    setting = [each.pods for each in patches if each.job == member.job.name and name in each.pods.annotations]
    spec = setting[-1].place if setting else member.template.place
    return Place(spec.document, spec.path[:-1]) / "metadata" / "annotations" / name


def _misnamed(launch: Launch, member: Member) -> LintFinding | None:
    """Reports that the annotation of the pod template names none of its containers. None: it has no annotation."""
    named = member.template.annotations.get(ANNOTATION)
    if not named:
        return None
    known = " or ".join(each.name for each in member.template.containers)
    message = (
        f"the annotation {ANNOTATION} names {named}, and the pod template of ReplicatedJob {member.job.name} has no "
        f"such container, so none of them counts as the one that trains: {_CONSEQUENCE}"
    )
    place = annotation_place(launch, member, ANNOTATION)
    return LintFinding(TRAINING_CONTAINER_UNKNOWN, place, message, f"write one that it has: {known}")


def _unknown(member: Member) -> LintFinding:
    names = " and ".join(each.name for each in member.template.containers)
    message = (
        f"no rule selects a training container of ReplicatedJob {member.job.name}: it has {names}, none of them asks "
        f"for accelerators, and no annotation names one of them, so {_CONSEQUENCE}"
    )
    fix = f"add the annotation {ANNOTATION} with the name of the one that trains to its pod template"
    return LintFinding(TRAINING_CONTAINER_UNKNOWN, member.template.place / "containers", message, fix)
