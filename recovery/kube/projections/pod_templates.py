"""The pod templates of Jobs."""

from sys import intern

import msgspec

from recovery.core.model.agent_facts import AGENT_VOLUME
from recovery.core.model.annotations import COLLECTIVE_ANNOTATION, TRAINING_CONTAINER_ANNOTATION
from recovery.core.model.demand import Demand, Toleration
from recovery.kube.projections.containers import TemplateContainerSpec
from recovery.kube.projections.demands import Affinity, demand_of

COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"
"""Label of scheduler-plugins' coscheduling. Trainer's plugin of that name writes it into the pod templates."""
COSCHEDULING_OLD_LABEL = "pod-group.scheduling.sigs.k8s.io"
COSCHEDULING_LIGHT_LABEL = "pod-group.scheduling.sigs.k8s.io/name"
"""The labels that the same plugin read before its API group had its present name."""
VOLCANO_ANNOTATION = "scheduling.k8s.io/group-name"
"""Annotation of Volcano. Trainer's plugin `volcano` writes it into the pod templates."""
VOLCANO_OWN_ANNOTATION = "scheduling.volcano.sh/group-name"
KOORDINATOR_ANNOTATION = "gang.scheduling.koordinator.sh/name"
KUEUE_TOPOLOGY_GATE = "kueue.x-k8s.io/topology"
"""Scheduling gate that Kueue writes into the pod templates. Kueue removes it from a pod when it assigns the node."""


class _SchedulingGate(msgspec.Struct, frozen=True):
    name: str = ""


class _ImageSource(msgspec.Struct, frozen=True):
    reference: str = ""


class _Volume(msgspec.Struct, frozen=True):
    name: str = ""
    image: _ImageSource | None = None


class _TemplateSpec(msgspec.Struct, frozen=True, rename="camel"):
    restart_policy: str = "Never"
    containers: list[TemplateContainerSpec] = []
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    scheduling_group: msgspec.Raw = msgspec.Raw(b"null")
    workload_ref: msgspec.Raw = msgspec.Raw(b"null")
    scheduling_gates: list[_SchedulingGate] = []
    volumes: list[_Volume] = []


class _TemplateAnnotations(msgspec.Struct, frozen=True):
    training_container: str = msgspec.field(name=TRAINING_CONTAINER_ANNOTATION, default="")
    collective: str = msgspec.field(name=COLLECTIVE_ANNOTATION, default="")
    volcano: str = msgspec.field(name=VOLCANO_ANNOTATION, default="")
    volcano_own: str = msgspec.field(name=VOLCANO_OWN_ANNOTATION, default="")
    koordinator: str = msgspec.field(name=KOORDINATOR_ANNOTATION, default="")


class _TemplateLabels(msgspec.Struct, frozen=True):
    coscheduling: str = msgspec.field(name=COSCHEDULING_LABEL, default="")
    coscheduling_old: str = msgspec.field(name=COSCHEDULING_OLD_LABEL, default="")
    coscheduling_light: str = msgspec.field(name=COSCHEDULING_LIGHT_LABEL, default="")


class _TemplateMetadata(msgspec.Struct, frozen=True):
    annotations: _TemplateAnnotations = _TemplateAnnotations()
    labels: _TemplateLabels = _TemplateLabels()


class JobPodTemplate(msgspec.Struct, frozen=True):
    """`spec.template` of a Job, with the fields that decisions read."""

    metadata: _TemplateMetadata = _TemplateMetadata()
    spec: _TemplateSpec = _TemplateSpec()


def demand_of_pods(template: JobPodTemplate) -> Demand:
    """What each pod of the template demands of its node. Devices of a DRA claim are no part of it."""
    spec = template.spec
    gpus = sum(container.resources.gpus for container in spec.containers)
    return demand_of(spec.node_selector, spec.affinity, spec.tolerations, gpus)


def agent_image_of(template: JobPodTemplate) -> str:
    """The image that the agent comes from. Empty: the template has no agent."""
    images = (each.image for each in template.spec.volumes if each.name == AGENT_VOLUME)
    return intern(next((image.reference for image in images if image is not None), ""))


def gang_of(template: JobPodTemplate) -> str:
    """The label, annotation or field of the template that puts its pods into a gang sized by others. Empty: none does.

    The PodGroup that the Job controller itself creates with its feature gate on does not count: it has the Job's size.
    """
    labels, annotations, spec = template.metadata.labels, template.metadata.annotations, template.spec
    found = {
        COSCHEDULING_LABEL: labels.coscheduling,
        COSCHEDULING_OLD_LABEL: labels.coscheduling_old,
        COSCHEDULING_LIGHT_LABEL: labels.coscheduling_light,
        VOLCANO_ANNOTATION: annotations.volcano,
        VOLCANO_OWN_ANNOTATION: annotations.volcano_own,
        KOORDINATOR_ANNOTATION: annotations.koordinator,
        "spec.schedulingGroup": bytes(spec.scheduling_group) != b"null",
        "spec.workloadRef": bytes(spec.workload_ref) != b"null",
    }
    return next((name for name, value in found.items() if value), "")
