"""Selects the training containers of a pod, and derives the state of the rank from them.

A pod of a training group may also run log shippers, proxies, and helpers that end early. Only the training containers
show whether a rank runs, is Ready or is lost. The selection reads the Job's pod template, so a sidecar that a webhook
adds to the pods changes nothing.
"""

from collections.abc import Collection
from datetime import timedelta
from enum import StrEnum

import msgspec

from recovery.core.model.annotations import TRAINING_CONTAINER_ANNOTATION
from recovery.core.model.container_template import ContainerTemplate
from recovery.core.model.facts import ContainerFacts, JobFacts, PodFacts, WorkloadFacts

_BACK_WITHIN = timedelta(seconds=1)
"""How long after the start of its last container a kubelet may report a pod Ready again, in the API's whole seconds."""
TRAINER_CONTAINERS = frozenset({"node", "launcher"})
"""The names of the containers that Kubeflow Trainer configures (`constants.Node`; `launcher` in older runtimes)."""


class SelectedBy(StrEnum):
    """The rule that selected the training containers of a Job."""

    TRAINER = "Trainer"
    """Trainer's container names."""
    ANNOTATION = "Annotation"
    ACCELERATORS = "Accelerators"
    """The containers that request accelerators."""
    ONLY_ONE = "OnlyOne"
    UNKNOWN = "Unknown"
    """No rule selects a container. Only losses of whole pods count, never exits."""
    NO_TEMPLATE = "NoTemplate"
    """The Job's containers are not known. All containers of its pods count."""


class Selection(msgspec.Struct, frozen=True):
    """`names` is empty under UNKNOWN and NO_TEMPLATE."""

    by: SelectedBy
    names: tuple[str, ...] = ()


def select(job: JobFacts, workload: WorkloadFacts | None) -> Selection:
    """The training containers of the Job's pods. `workload` None: it does not exist any more.

    The order is: Trainer's names, the annotation on the pod template, the annotation on the workload, accelerators, the
    only container. An annotation on the workload applies to all of its Jobs, so for a Job without that container the
    next rule decides. One on the template applies to this Job. If it names no container of the template, none is
    selected.
    """
    names = tuple(container.name for container in job.containers)
    if not names:
        return Selection(SelectedBy.NO_TEMPLATE)
    trainers = tuple(name for name in names if name in TRAINER_CONTAINERS)
    if trainers and (workload is None or workload.kind == "TrainJob"):
        return Selection(SelectedBy.TRAINER, trainers)
    if job.training_container:
        if job.training_container in names:
            return Selection(SelectedBy.ANNOTATION, (job.training_container,))
        return Selection(SelectedBy.UNKNOWN)
    named = workload.annotations.get(TRAINING_CONTAINER_ANNOTATION) if workload is not None else None
    if named in names:
        return Selection(SelectedBy.ANNOTATION, (named,))
    with_accelerators = tuple(container.name for container in job.containers if container.accelerators)
    if with_accelerators:
        return Selection(SelectedBy.ACCELERATORS, with_accelerators)
    return Selection(SelectedBy.ONLY_ONE, names) if len(names) == 1 else Selection(SelectedBy.UNKNOWN)


def assigned(pod: PodFacts, selection: Selection, *, node_answers: bool = True) -> PodFacts:
    """The pod with its training containers separated from the others. Its Running and Ready describe only the training.

    `node_answers` False: its node is not reachable, so the container states that the kubelet reported last may be out
    of date. The node controller marks such pods as not Ready (`MarkPodsNotReady`), and does not change the states of
    their containers.
    """
    if selection.by is SelectedBy.NO_TEMPLATE:
        return pod
    names: Collection[str] = selection.names
    mine = tuple(each for each in pod.containers if each.name in names)
    others = (*(each for each in pod.containers if each.name not in names), *pod.other_containers)
    if selection.by is SelectedBy.UNKNOWN:
        # A helper that has ended keeps such a pod from ever being Ready, so phase Running has to suffice.
        runs = pod.phase == "Running"
        since = (pod.ready_since or pod.accepted_at) if runs else None
        return msgspec.structs.replace(
            pod, containers=(), other_containers=others, training_known=False, ready=runs, ready_since=since
        )
    if not others:
        return pod
    only_others_are_not = not pod.ready and mine and all(each.ready for each in mine)
    if (only_others_are_not and not pod.ready_denied and node_answers) or _ready_again(pod, others):
        started = [each.running_since for each in mine if each.running_since is not None]
        since = max(started, default=pod.ready_since)
        return msgspec.structs.replace(pod, containers=mine, other_containers=others, ready=True, ready_since=since)
    return msgspec.structs.replace(pod, containers=mine, other_containers=others)


def _ready_again(pod: PodFacts, others: tuple[ContainerFacts, ...]) -> bool:
    """Ready dates from the restart of another container, during which the pod was not Ready, not from the training.

    False if Ready shows that the rank has joined the others: the start of its containers does not date that.
    """
    since = pod.ready_since
    if not pod.ready or since is None or pod.joined_probe:
        return False
    restarted = (each.running_since for each in others if each.restarts and each.running_since is not None)
    return any(timedelta() <= since - began <= _BACK_WITHIN for began in restarted)


def ended_well(pod: PodFacts) -> bool:
    """The training of this rank is complete: its training containers have exited 0. The others do not matter."""
    return (
        pod.training_known
        and bool(pod.containers)
        and all(each.exit is not None and each.exit.code == 0 for each in pod.containers)
    )


def restarts_in_place(job: JobFacts, container: str, code: int) -> bool:
    """Whether the kubelet starts the container again in the same pod after this exit code.

    A matching `restartPolicyRules` entry restarts it under any restart policy (KEP-5307, KEP-5532). Else the
    container's own `restartPolicy` decides, else the pod's (`ContainerShouldRestart` in pkg/api/v1/pod/util.go).
    """
    template = next((each for each in job.containers if each.name == container), ContainerTemplate(container))
    if any((code in rule.values) == (rule.operator == "In") for rule in template.restart_rules):
        return True
    policy = template.restart_policy or job.pod_restart_policy
    return policy == "Always" or (policy == "OnFailure" and code != 0)
